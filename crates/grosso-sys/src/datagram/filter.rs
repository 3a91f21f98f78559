//! Which datagrams a socket takes: programs that the kernel runs from the UDP header on.

use crate::filter::{DROP, JUMP_IF_EQUAL, LOAD_HALF, RETURN, TAKE, instruction};

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

/// Where the checksum is in a UDP header.
const CHECKSUM_OFFSET: u32 = 6;
