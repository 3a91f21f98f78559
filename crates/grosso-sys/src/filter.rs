//! Classic BPF programs, which decide which packets a socket receives.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Attaches a filter program to a socket.
pub(crate) fn attach(socket: &impl AsFd, program: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: program.len() as u16,
        // The kernel only reads through this pointer.
        filter: program.as_ptr().cast_mut(),
    };
    let length = size_of::<libc::sock_fprog>() as libc::socklen_t;
    let (file, level) = (socket.as_fd().as_raw_fd(), libc::SOL_SOCKET);
    let value = (&raw const program).cast();
    // SAFETY: the kernel reads the structure and the instructions it points to, which live until the call returns.
    let result = unsafe { libc::setsockopt(file, level, libc::SO_ATTACH_FILTER, value, length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

pub(crate) const fn instruction(
    code: u16,
    if_true: u8,
    if_false: u8,
    operand: u32,
) -> libc::sock_filter {
    libc::sock_filter { code, jt: if_true, jf: if_false, k: operand }
}

/// `BPF_LD | BPF_ABS` for 4, 2 and 1 bytes.
pub(crate) const LOAD_WORD: u16 = 0x20;
pub(crate) const LOAD_HALF: u16 = 0x28;
pub(crate) const LOAD_BYTE: u16 = 0x30;
/// `BPF_LD | BPF_IND` for 4 and 1 bytes.
pub(crate) const LOAD_WORD_INDEXED: u16 = 0x40;
pub(crate) const LOAD_BYTE_INDEXED: u16 = 0x50;
/// `BPF_LDX | BPF_IMM`, and `BPF_LDX | BPF_B | BPF_MSH`: the length of the IPv4 header at an offset.
pub(crate) const LOAD_INDEX: u16 = 0x01;
pub(crate) const INDEX_OF_IPV4: u16 = 0xb1;
/// `BPF_JMP | BPF_JEQ | BPF_K`.
pub(crate) const JUMP_IF_EQUAL: u16 = 0x15;
/// `BPF_RET | BPF_K`.
pub(crate) const RETURN: u16 = 0x06;
pub(crate) const DROP: u32 = 0;
pub(crate) const TAKE: u32 = u32::MAX;
