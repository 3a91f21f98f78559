//! Where and before whom a thread runs.

use std::fs;
use std::io;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The processors the calling thread may run on, in ascending order.
///
/// # Errors
///
/// Those of `sched_getaffinity(2)`.
pub fn allowed_processors() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&processor| set.is_set(processor)).collect())
}

/// Binds a thread, or the calling one, to one processor.
///
/// # Errors
///
/// `EINVAL` if the processor is not there, `EPERM` for another user's thread, `ESRCH` if the thread
/// is gone.
pub fn pin(thread: Option<Pid>, processor: usize) -> io::Result<()> {
    if processor >= CpuSet::MAX_CPU {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut set = CpuSet::new();
    set.set(processor);
    Ok(sched_setaffinity(thread, &set)?)
}

/// Lets a thread, or the calling one, run before every ordinary one until it sleeps (`SCHED_FIFO`).
///
/// `priority` is from 1 to 99; of two such threads on a processor the greater runs first.
///
/// # Errors
///
/// `EPERM` without `CAP_SYS_NICE` in the initial user namespace, or if the control group has no
/// real-time share.
pub fn set_realtime(thread: Option<Pid>, priority: u8) -> io::Result<()> {
    let identifier = thread.map_or(0, |thread| thread.as_raw_nonzero().get());
    let parameter = libc::sched_param { sched_priority: i32::from(priority) };
    // SAFETY: the kernel reads one `struct sched_param`, which begins with the priority in every C
    // library. The raw call is used because musl's wrapper only says that the call is not
    // implemented.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_setscheduler,
            identifier,
            libc::SCHED_FIFO,
            &raw const parameter,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The kernel thread whose name begins with a text, if there is one in this process's view.
///
/// # Errors
///
/// If `/proc` cannot be read.
pub fn find_kernel_thread(prefix: &str) -> io::Result<Option<Pid>> {
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A process may end between the listing and the reading.
        let Ok(name) = fs::read_to_string(entry.path().join("comm")) else { continue };
        // A user's process can take any name; only a kernel thread has no command line.
        if name.starts_with(prefix)
            && fs::read(entry.path().join("cmdline")).is_ok_and(|line| line.is_empty())
        {
            return Ok(Pid::from_raw(number));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_can_be_pinned_to_each_processor_it_may_use() {
        for processor in allowed_processors().unwrap() {
            std::thread::spawn(move || {
                pin(None, processor).unwrap();
                assert_eq!(allowed_processors().unwrap(), [processor]);
            })
            .join()
            .unwrap();
        }
        assert!(pin(None, CpuSet::MAX_CPU).is_err());
    }

    #[test]
    fn no_kernel_thread_has_an_unlikely_name() {
        assert_eq!(find_kernel_thread("no such thread").unwrap(), None);
    }
}
