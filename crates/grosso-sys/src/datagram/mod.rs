//! UDP and raw IP sockets that send and receive in batches: several messages per call and, for UDP, several datagrams
//! per message (`UDP_SEGMENT`, `UDP_GRO`).
//!
//! [`DatagramSocket`] has all of these features. The functions in this module enable `UDP_SEGMENT` and `UDP_GRO` on an
//! existing socket.

use core::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

mod address;
mod control;
mod echo;
mod filter;
mod path_mtu;
mod socket;
mod too_big;

pub use echo::EchoSocket;
pub use path_mtu::PathMtu;
pub use socket::{
    BATCH_MAX, Datagram, DatagramSocket, DatagramSocketBuilder, Protocol, ReceivedMessage,
};
pub use too_big::TooBigMessages;

use control::{ControlMessages, each_message};

/// Datagrams that one receive call has placed in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagrams {
    /// Total length of the datagrams in the buffer in bytes.
    pub length: usize,
    /// Length in bytes of each datagram except the last, which may be shorter, or `None` for a single datagram.
    pub segment_bytes: Option<u16>,
}

/// Makes the kernel segment the socket's messages into datagrams of `bytes` bytes, except that the last may be shorter;
/// 0 sends every message as one datagram again (Linux 4.18).
///
/// # Errors
///
/// Returns `ENOPROTOOPT` if the kernel lacks the option.
pub fn set_segment_bytes(socket: &impl AsFd, bytes: u16) -> io::Result<()> {
    set(socket, libc::SOL_UDP, libc::UDP_SEGMENT, c_int::from(bytes))
}

/// Sets whether the socket receives several datagrams of a flow as one message (Linux 5.0).
///
/// # Errors
///
/// Returns `ENOPROTOOPT` if the kernel lacks the option.
pub fn set_coalescing(socket: &impl AsFd, on: bool) -> io::Result<()> {
    set(socket, libc::SOL_UDP, libc::UDP_GRO, c_int::from(on))
}

/// Receives a message. Blocks if the socket is blocking.
///
/// # Errors
///
/// Returns any error from `recvmsg(2)`.
pub fn receive(socket: &impl AsFd, buffer: &mut [u8]) -> io::Result<Datagrams> {
    let mut control = ControlMessages::empty();
    let mut parts = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all fields of a `msghdr` are numbers and pointers, for which zero is a valid value.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = &raw mut parts;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr();
    message.msg_controllen = ControlMessages::CAPACITY as _;
    let file = socket.as_fd().as_raw_fd();
    // SAFETY: the message refers to one buffer and one control buffer, both borrowed until the call
    // returns.
    let length = unsafe { libc::recvmsg(file, &raw mut message, 0) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    let mut segment_bytes = None;
    each_message(control.received(message.msg_controllen as _), |level, kind, data| {
        if (level, kind) == (libc::SOL_UDP, libc::UDP_GRO) {
            segment_bytes = control::number(data).and_then(|bytes| u16::try_from(bytes).ok());
        }
    });
    Ok(Datagrams { length, segment_bytes })
}

/// Sets an option with a numeric value.
fn set(socket: &impl AsFd, level: c_int, option: c_int, value: c_int) -> io::Result<()> {
    let file = socket.as_fd().as_raw_fd();
    let length = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: the kernel reads one number, which lives until the call returns.
    let result =
        unsafe { libc::setsockopt(file, level, option, (&raw const value).cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads an option whose value is one or more numbers. Numbers that the kernel does not write are 0.
pub(crate) fn read<const COUNT: usize>(
    socket: &impl AsFd,
    level: c_int,
    option: c_int,
) -> io::Result<[c_int; COUNT]> {
    let mut values = [0; COUNT];
    let mut length = size_of::<[c_int; COUNT]>() as libc::socklen_t;
    let file = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `length` bytes, which is the size of the numbers.
    let result = unsafe {
        libc::getsockopt(file, level, option, values.as_mut_ptr().cast(), &raw mut length)
    };
    if result == 0 { Ok(values) } else { Err(io::Error::last_os_error()) }
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
