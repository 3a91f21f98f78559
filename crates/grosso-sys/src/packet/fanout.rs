//! Fanout: several sockets that share the packets of one interface (`PACKET_FANOUT`).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::abi;

/// Rule that selects the socket for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FanoutRule {
    /// By flow: the packets of a flow in both directions go to the same socket. Fragments of a datagram may go to
    /// different sockets unless [`Fanout::defragment`] reassembles them first.
    FlowHash,
    /// By the CPU that the packet arrived on.
    Processor,
    /// By the device's receive queue that the packet arrived on.
    Queue,
}

/// A group of sockets that share the packets of one interface. All sockets must have the same rule, flags and
/// interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fanout {
    rule: FanoutRule,
    group: Option<u16>,
    defragment: bool,
}

impl Fanout {
    /// Creates a new group (Linux 4.16). The kernel assigns its number, which
    /// [`PacketSocket::fanout_group`](super::PacketSocket::fanout_group) returns.
    pub fn new(rule: FanoutRule) -> Self {
        Self { rule, group: None, defragment: false }
    }

    /// Selects an existing group in the network namespace by its number.
    pub fn join(mut self, group: u16) -> Self {
        self.group = Some(group);
        self
    }

    /// Makes the kernel reassemble IPv4 fragments before it selects a socket.
    pub fn defragment(mut self, on: bool) -> Self {
        self.defragment = on;
        self
    }

    /// Returns the option value: the group in the lower half, rule and flags in the upper half. A group ignores whether
    /// its sockets ignore outgoing packets; since Linux 5.17 the group has its own flag for this.
    pub(super) fn argument(self, ignore_outgoing: bool) -> u32 {
        let mut kind = match self.rule {
            FanoutRule::FlowHash => abi::PACKET_FANOUT_HASH,
            FanoutRule::Processor => abi::PACKET_FANOUT_CPU,
            FanoutRule::Queue => abi::PACKET_FANOUT_QM,
        };
        if self.defragment {
            kind |= abi::PACKET_FANOUT_FLAG_DEFRAG;
        }
        if ignore_outgoing {
            kind |= abi::PACKET_FANOUT_FLAG_IGNORE_OUTGOING;
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
    // SAFETY: the kernel writes at most the stated four bytes.
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
    // The kernel returns zero for a socket in no group. A group with number zero and rule zero
    // would look the same, but the kernel never assigns that number.
    Ok((value != 0).then_some((value & 0xffff) as u16))
}
