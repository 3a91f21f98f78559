//! Several sockets that share the packets of one interface (`PACKET_FANOUT`).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::abi;

/// By what a packet finds its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FanoutRule {
    /// The flow: packets of one flow go to one socket, in both directions. Fragments of a datagram
    /// go astray unless [`Fanout::defragment`] joins them first.
    FlowHash,
    /// The processor on which the packet arrived.
    Processor,
    /// The receive queue of the device on which the packet arrived.
    Queue,
}

/// A group of sockets that share the packets of one interface. All of them must be opened with the
/// same rule, flags and interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fanout {
    rule: FanoutRule,
    group: Option<u16>,
    defragment: bool,
}

impl Fanout {
    /// A new group, to which the kernel gives a number: see
    /// [`PacketSocket::fanout_group`](super::PacketSocket::fanout_group) (Linux 4.16).
    pub fn new(rule: FanoutRule) -> Self {
        Self { rule, group: None, defragment: false }
    }

    /// The group of a number, which is of the network namespace.
    pub fn join(mut self, group: u16) -> Self {
        self.group = Some(group);
        self
    }

    /// Lets the kernel join IPv4 fragments before it chooses a socket.
    pub fn defragment(mut self, on: bool) -> Self {
        self.defragment = on;
        self
    }

    /// The group in the lower half, rule and flags in the upper.
    pub(super) fn argument(self) -> u32 {
        let mut kind = match self.rule {
            FanoutRule::FlowHash => abi::PACKET_FANOUT_HASH,
            FanoutRule::Processor => abi::PACKET_FANOUT_CPU,
            FanoutRule::Queue => abi::PACKET_FANOUT_QM,
        };
        if self.defragment {
            kind |= abi::PACKET_FANOUT_FLAG_DEFRAG;
        }
        if self.group.is_none() {
            kind |= abi::PACKET_FANOUT_FLAG_UNIQUEID;
        }
        u32::from(kind) << 16 | u32::from(self.group.unwrap_or(0))
    }
}

pub(super) fn group(file: &OwnedFd) -> io::Result<Option<u16>> {
    let mut value = 0_u32;
    let mut length = size_of::<u32>() as libc::socklen_t;
    // SAFETY: the kernel writes at most the four bytes that are announced.
    let result = unsafe {
        libc::getsockopt(
            file.as_raw_fd(),
            abi::SOL_PACKET,
            abi::PACKET_FANOUT,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // The kernel answers zero for a socket that is in no group, which a group with number zero and
    // the rule zero looks like too; the kernel never chooses that number.
    Ok((value != 0).then_some((value & 0xffff) as u16))
}
