//! TCP socket options that the standard library lacks.

use core::ffi::c_int;
use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

use crate::abi;

/// Makes a reader wait until `bytes` bytes have arrived (`SO_RCVLOWAT`). With fewer bytes, the kernel acknowledges
/// every second segment, rather than only when data is read.
///
/// # Errors
/// Returns any error from `setsockopt(2)`.
pub fn set_receive_low_water(socket: &impl AsFd, bytes: u16) -> io::Result<()> {
    set(socket, libc::SO_RCVLOWAT, &c_int::from(bytes).to_ne_bytes())
}

/// Limits the sender's rate in bytes per second, with evenly spaced packets (`SO_MAX_PACING_RATE`). TCP limits its
/// superframes to 1 ms of that rate.
///
/// # Errors
/// Returns any error from `setsockopt(2)`.
pub fn set_pacing_max(socket: &impl AsFd, bytes_a_second: u64) -> io::Result<()> {
    set(socket, abi::SO_MAX_PACING_RATE, &bytes_a_second.to_ne_bytes())
}

/// Sets a numeric socket option.
pub(crate) fn set(socket: &impl AsFd, option: c_int, number: &[u8]) -> io::Result<()> {
    let file = socket.as_fd().as_raw_fd();
    let length = number.len() as libc::socklen_t;
    // SAFETY: the kernel reads the bytes of one number, which live until the call returns.
    let result =
        unsafe { libc::setsockopt(file, libc::SOL_SOCKET, option, number.as_ptr().cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{Shutdown, TcpListener, TcpStream},
    };

    use super::*;

    #[test]
    fn a_sender_keeps_to_its_configured_rate() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let rate = 12_500_000_000_u64;
        set_pacing_max(&near, rate).unwrap();
        let mut told = 0_u64;
        let mut length = size_of::<u64>() as libc::socklen_t;
        // SAFETY: both numbers are valid until the call returns, and the second is the size of the first.
        let result = unsafe {
            libc::getsockopt(
                near.as_raw_fd(),
                libc::SOL_SOCKET,
                abi::SO_MAX_PACING_RATE,
                (&raw mut told).cast(),
                &raw mut length,
            )
        };
        assert_eq!((result, told), (0, rate));
    }

    #[test]
    fn readers_wait_for_so_many_bytes_or_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        set_receive_low_water(&far, 1000).unwrap();
        for part in [600, 500] {
            near.write_all(&vec![1; part]).unwrap();
        }
        let mut buffer = [0; 4096];
        assert!(far.read(&mut buffer).unwrap() >= 1000);
        near.write_all(&[2; 10]).unwrap();
        near.shutdown(Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        far.read_to_end(&mut rest).unwrap();
        assert!(rest.len() <= 110 && rest.ends_with(&[2; 10]));
    }
}
