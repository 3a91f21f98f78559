//! UDP sockets whose datagrams travel together: one send for many (`UDP_SEGMENT`), one receive for
//! many (`UDP_GRO`).

use core::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Bytes for the control messages of one receive; the one that is asked for needs 20.
const CONTROL_BYTES: usize = 64;

/// What one receive gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagrams {
    /// Bytes in the buffer, of all datagrams together.
    pub length: usize,
    /// Bytes of each datagram but the last; none if it was one alone.
    pub segment_bytes: Option<u16>,
}

/// Lets the kernel cut what the socket sends into datagrams of so many bytes, the last being what
/// is left; 0 sends every buffer as one datagram again (Linux 4.18).
///
/// # Errors
///
/// `ENOPROTOOPT` if the kernel has no such thing.
pub fn set_segment_bytes(socket: &impl AsFd, bytes: u16) -> io::Result<()> {
    set(socket, libc::UDP_SEGMENT, c_int::from(bytes))
}

/// Lets the socket receive several datagrams of a flow at once (Linux 5.0).
///
/// # Errors
///
/// `ENOPROTOOPT` if the kernel has no such thing.
pub fn set_coalescing(socket: &impl AsFd, on: bool) -> io::Result<()> {
    set(socket, libc::UDP_GRO, c_int::from(on))
}

/// Receives what waits, as the socket blocks.
///
/// # Errors
///
/// Those of `recvmsg(2)`.
pub fn receive(socket: &impl AsFd, buffer: &mut [u8]) -> io::Result<Datagrams> {
    let mut control = ControlBuffer([0; CONTROL_BYTES]);
    let mut parts = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all fields of a `msghdr` are numbers and pointers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = &raw mut parts;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = CONTROL_BYTES as _;
    let file = socket.as_fd().as_raw_fd();
    // SAFETY: the message names one buffer and one control buffer, both borrowed until the call
    // returns.
    let length = unsafe { libc::recvmsg(file, &raw mut message, 0) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    Ok(Datagrams { length, segment_bytes: segment_bytes(&message) })
}

/// Control messages start with a length and want its alignment.
#[repr(C, align(8))]
struct ControlBuffer([u8; CONTROL_BYTES]);

/// What the control message says, which is the only one that is asked for.
fn segment_bytes(message: &libc::msghdr) -> Option<u16> {
    // SAFETY: the kernel filled the control buffer and its length; the buffer outlives the message.
    let header = unsafe { libc::CMSG_FIRSTHDR(message) };
    if header.is_null() {
        return None;
    }
    // SAFETY: a header that is not null lies whole inside the control buffer, which is aligned for
    // it.
    let described = unsafe { header.read() };
    if described.cmsg_level != libc::SOL_UDP || described.cmsg_type != libc::UDP_GRO {
        return None;
    }
    // SAFETY: only the address after the header is computed.
    let data = unsafe { libc::CMSG_DATA(header) };
    let needed = data.addr() - header.addr() + size_of::<c_int>();
    if (described.cmsg_len as usize) < needed {
        return None;
    }
    // SAFETY: the control message is as long as its header and a number, checked above.
    let bytes = unsafe { data.cast::<c_int>().read_unaligned() };
    u16::try_from(bytes).ok()
}

fn set(socket: &impl AsFd, option: c_int, value: c_int) -> io::Result<()> {
    let file = socket.as_fd().as_raw_fd();
    let length = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: the kernel reads one number, which lives until the call returns.
    let result =
        unsafe { libc::setsockopt(file, libc::SOL_UDP, option, (&raw const value).cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn three_datagrams_are_sent_by_one_call_and_received_by_one() {
        let [near, far] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        near.connect(far.local_addr().unwrap()).unwrap();
        set_coalescing(&far, true).unwrap();
        let mut buffer = [0; 8192];

        set_segment_bytes(&near, 1200).unwrap();
        assert_eq!(near.send(&[7; 3000]).unwrap(), 3000);
        let three = receive(&far, &mut buffer).unwrap();
        assert_eq!(three, Datagrams { length: 3000, segment_bytes: Some(1200) });

        set_coalescing(&far, false).unwrap();
        assert_eq!(near.send(&[7; 3000]).unwrap(), 3000);
        for length in [1200, 1200, 600] {
            let one = receive(&far, &mut buffer).unwrap();
            assert_eq!(one, Datagrams { length, segment_bytes: None });
        }
        set_segment_bytes(&near, 0).unwrap();
        near.send(&[7; 3000]).unwrap();
        assert_eq!(receive(&far, &mut buffer).unwrap().length, 3000);
    }
}
