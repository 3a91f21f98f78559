//! Which datagrams a socket takes: programs of the classic packet filter, which the kernel runs from the UDP header on.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Takes those alone whose checksum is there. Because the kernel verifies it before it asks a filter, all that the
/// socket delivers then has one that is right.
pub(super) const WITH_CHECKSUM: &[libc::sock_filter] = &[
    instruction(LOAD_HALF, 0, 0, CHECKSUM_OFFSET),
    instruction(JUMP_IF_EQUAL, 0, 1, 0),
    instruction(RETURN, 0, 0, DROP),
    instruction(RETURN, 0, 0, TAKE),
];

/// Takes none.
pub(super) const NOTHING: &[libc::sock_filter] = &[instruction(RETURN, 0, 0, DROP)];

/// Has the socket take what the program says.
pub(super) fn attach(socket: &impl AsFd, program: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: program.len() as u16,
        // The kernel only reads through it.
        filter: program.as_ptr().cast_mut(),
    };
    let length = size_of::<libc::sock_fprog>() as libc::socklen_t;
    let (file, level) = (socket.as_fd().as_raw_fd(), libc::SOL_SOCKET);
    let value = (&raw const program).cast();
    // SAFETY: the kernel reads the structure and the instructions it points to, which live until the call returns.
    let result = unsafe { libc::setsockopt(file, level, libc::SO_ATTACH_FILTER, value, length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

const fn instruction(code: u16, if_true: u8, if_false: u8, operand: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: if_true, jf: if_false, k: operand }
}

/// `BPF_LD | BPF_H | BPF_ABS`.
const LOAD_HALF: u16 = 0x28;
/// `BPF_JMP | BPF_JEQ | BPF_K`.
const JUMP_IF_EQUAL: u16 = 0x15;
/// `BPF_RET | BPF_K`.
const RETURN: u16 = 0x06;
/// Where the checksum is in a UDP header.
const CHECKSUM_OFFSET: u32 = 6;
const DROP: u32 = 0;
const TAKE: u32 = u32::MAX;
