//! Options of TCP sockets that the standard library lacks.

use core::ffi::c_int;
use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

/// Makes a reader wait until this many bytes have arrived (`SO_RCVLOWAT`). While fewer wait, the
/// kernel acknowledges every second segment, instead of only what has been read.
///
/// # Errors
/// Those of `setsockopt(2)`.
pub fn set_receive_low_water(socket: &impl AsFd, bytes: u16) -> io::Result<()> {
    let file = socket.as_fd().as_raw_fd();
    let value = c_int::from(bytes);
    let length = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: the kernel reads one number, which lives until the call returns.
    let result = unsafe {
        libc::setsockopt(
            file,
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const value).cast(),
            length,
        )
    };
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
