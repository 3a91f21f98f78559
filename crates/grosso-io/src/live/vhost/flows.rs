//! The pair of rings that a frame goes to: all frames of a flow have one, so that none overtakes another.

use std::io::IoSlice;

use grosso::{Meta, steering::Steering};
use grosso_wire::{LinkType, Ports, Stack, dissect_into};

/// Flows of frames, told by their headers.
///
/// Nothing is remembered of them. The hash that a device reports may be another one for each direction and each kind of
/// packet, and is not asked for.
#[derive(Debug)]
pub(super) struct Flows {
    ports: Ports,
    stack: Stack,
}

impl Flows {
    /// Flows where tunnels have these UDP ports.
    pub(super) fn new(ports: Ports) -> Self {
        Self { ports, stack: Stack::new(0) }
    }

    /// Returns the queue pair, of `pairs`, for a frame after a header of `header_bytes` bytes.
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

/// Bytes of a frame in which its headers are, those inside a tunnel too.
const HEADERS_BYTES: usize = 256;
