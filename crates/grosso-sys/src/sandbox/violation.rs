//! Ends the program if one of its threads makes a system call that its role does not permit.

use core::{
    ffi::{c_int, c_uint, c_void},
    mem::MaybeUninit,
    ptr,
};
use std::io;

use super::roles;

/// Exit code after a violation, which means a bug in the program or a compromised thread.
const EXIT: c_int = 5;

/// Information about a trapped system call: `siginfo_t` of `SIGSYS`.
#[repr(C)]
struct Trapped {
    signal: c_int,
    error: c_int,
    code: c_int,
    address: *const c_void,
    call: c_int,
    architecture: c_uint,
}

/// Terminates the program with a message and exit code 5 if a thread makes a system call outside its role. The message
/// names the thread and the call.
///
/// # Errors
///
/// Returns any error from `sigaction(2)`.
pub fn name_violations() -> io::Result<()> {
    let action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all zeros are a valid `struct sigaction`: the default action, no signals, no flags.
    let mut action = unsafe { action.assume_init() };
    action.sa_sigaction = on_trap as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the kernel reads one `struct sigaction`. The handler calls only async-signal-safe functions.
    let result = unsafe { libc::sigaction(libc::SIGSYS, &raw const action, ptr::null_mut()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

extern "C" fn on_trap(_: c_int, trapped: *const Trapped, _: *const c_void) {
    // SAFETY: the kernel passes a handler with `SA_SIGINFO` a `siginfo_t`, which begins like this for `SIGSYS`.
    let trapped = unsafe { &*trapped };
    let mut line = Line::default();
    line.put(b"grosso: thread ");
    line.put_thread();
    line.put(b" made the system call ");
    match roles::name(trapped.call) {
        Some(name) => line.put(name.as_bytes()),
        None => line.put_number(trapped.call.unsigned_abs()),
    }
    line.put(
        b", which is not on its allowlist\nhint: this is a bug in Grosso or an attack: please \
               report it\n",
    );
    // SAFETY: the bytes belong to the line.
    unsafe { libc::write(libc::STDERR_FILENO, line.bytes.as_ptr().cast(), line.len) };
    // SAFETY: the call ends the process at once, without handlers or destructors.
    unsafe { libc::_exit(EXIT) }
}

/// A message built without heap memory, which a signal handler must not use.
struct Line {
    bytes: [u8; LINE_BYTES_MAX],
    len: usize,
}

/// Maximum message length in bytes.
const LINE_BYTES_MAX: usize = 256;

impl Default for Line {
    fn default() -> Self {
        Self { bytes: [0; LINE_BYTES_MAX], len: 0 }
    }
}

impl Line {
    /// Appends as many of the bytes as fit.
    fn put(&mut self, bytes: &[u8]) {
        for (place, byte) in self.bytes[self.len..].iter_mut().zip(bytes) {
            *place = *byte;
            self.len += 1;
        }
    }

    /// Appends a number in decimal.
    fn put_number(&mut self, number: u32) {
        if number >= 10 {
            self.put_number(number / 10);
        }
        self.put(&[b'0' + (number % 10) as u8]);
    }

    /// Appends the name of the calling thread.
    fn put_thread(&mut self) {
        let mut name = [0_u8; 16];
        // SAFETY: the kernel writes at most 16 bytes, with the terminating zero.
        unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        self.put(&name[..end]);
    }
}
