//! Filters that decide which datagrams a socket receives. The kernel runs a filter program on each datagram, starting
//! at the UDP header.

use crate::filter::{DROP, JUMP_IF_EQUAL, LOAD_HALF, RETURN, TAKE, instruction};

/// Accepts only datagrams with a checksum. The kernel verifies checksums before it runs a filter, so the socket then
/// delivers only datagrams with a correct checksum.
pub(super) const WITH_CHECKSUM: &[libc::sock_filter] = &[
    instruction(LOAD_HALF, 0, 0, CHECKSUM_OFFSET),
    instruction(JUMP_IF_EQUAL, 0, 1, 0),
    instruction(RETURN, 0, 0, DROP),
    instruction(RETURN, 0, 0, TAKE),
];

/// Accepts no datagram.
pub(super) const NOTHING: &[libc::sock_filter] = &[instruction(RETURN, 0, 0, DROP)];

/// Offset of the checksum in a UDP header.
const CHECKSUM_OFFSET: u32 = 6;
