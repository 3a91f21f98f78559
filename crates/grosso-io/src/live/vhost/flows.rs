//! Selects the queue pair for a frame. All frames of a flow use the same pair, so that they are not reordered.

use std::io::IoSlice;

use grosso::{Meta, steering::Steering};
use grosso_wire::{LinkType, Ports, Stack, dissect_into};

/// Map from a frame's flow, as identified by its headers, to a queue pair.
///
/// No state is kept per flow. The hash that a device can report is not used, because it may differ between the
/// directions of a flow and between types of packets.
#[derive(Debug)]
pub(super) struct Flows {
    ports: Ports,
    stack: Stack,
}

impl Flows {
    /// Creates a selector that recognizes tunnels on the UDP ports `ports`.
    pub(super) fn new(ports: Ports) -> Self {
        Self { ports, stack: Stack::new(0) }
    }

    /// Returns one of `pairs` queue pairs for a frame that follows a header of `header_bytes` bytes.
    pub(super) fn pair(
        &mut self,
        parts: &[IoSlice<'_>],
        header_bytes: usize,
        pairs: usize,
    ) -> usize {
        let mut bytes = [0; HEADERS_BYTES];
        let (mut skipped, mut copied) = (header_bytes, 0);
        for part in parts {
            let part = part.get(skipped..).unwrap_or_default();
            let room = bytes.get_mut(copied..).unwrap_or_default();
            let now = part.len().min(room.len());
            room[..now].copy_from_slice(&part[..now]);
            (skipped, copied) = (0, copied + now);
        }
        let headers = bytes.get(..copied).unwrap_or_default();
        dissect_into(headers, LinkType::Ethernet, &self.ports, &mut self.stack);
        Steering::new(pairs).queue(headers, &self.stack, &Meta::default())
    }
}

/// Number of bytes at the start of a frame that contain its headers, including headers inside a tunnel.
const HEADERS_BYTES: usize = 256;
