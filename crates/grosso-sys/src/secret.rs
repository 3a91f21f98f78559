//! Protects secrets: provides random numbers, keeps memory from being swapped out, and hides the process from other
//! processes.

use std::io;

use rustix::{
    mm::mlock,
    process::{DumpableBehavior, set_dumpable_behavior},
    rand::{GetRandomFlags, getrandom},
};

/// Returns a random number from the kernel.
///
/// # Errors
///
/// Returns `ENOSYS` if a seccomp filter forbids the call.
pub fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    // The kernel always returns all bytes of a request of up to 256 bytes.
    getrandom(&mut bytes[..], GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes))
}

/// Locks the pages that contain the `bytes` bytes at `start` in memory, so that they are never swapped. The pages stay
/// locked until the process ends, even after the memory is reused, because a page can hold several secrets.
///
/// # Errors
///
/// Returns `ENOMEM` or `EPERM` if `RLIMIT_MEMLOCK` forbids it.
pub fn lock(start: *const u8, bytes: usize) -> io::Result<()> {
    // SAFETY: the kernel neither reads nor writes the memory, and refuses a range that is not mapped.
    Ok(unsafe { mlock(start.cast_mut().cast(), bytes) }?)
}

/// Disables core dumps of this process, and prevents other processes of the same user from reading its memory.
///
/// # Errors
///
/// Returns any error from `prctl(2)`.
pub fn hide_process() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

#[cfg(test)]
mod tests {
    use rustix::process::dumpable_behavior;

    use super::*;

    #[test]
    fn numbers_are_random() {
        let mut drawn: Vec<_> = (0..1000).map(|_| random().unwrap()).collect();
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), 1000);
        // Each bit is set in some numbers and clear in others. The probability that this fails is 2^-993.
        let some = drawn.iter().fold(0, |bits, number| bits | number);
        let all = drawn.iter().fold(u64::MAX, |bits, number| bits & number);
        assert_eq!((some, all), (u64::MAX, 0));
    }

    #[test]
    fn the_kernel_reports_locked_memory_and_a_hidden_process() {
        let locked = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
            line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
        };
        let secret = vec![7_u8; 64 << 10];
        let before = locked();
        lock(secret.as_ptr(), secret.len()).unwrap();
        assert!(locked() >= before + 64);
        hide_process().unwrap();
        assert_eq!(dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
    }
}
