//! Tracks the IPv4 identifications that each address has used.
//!
//! A host may use one counter for the identifications of all its packets, regardless of their flow and protocol. A step
//! between two packets of a flow therefore counts packets of that flow only if the address sent no other packet in
//! between.

use std::collections::HashMap;

use grosso_wire::{Kind, ipv4};

use super::sight::Sight;
use crate::headers::{is_ip, u16_at};

/// Latest identifications from each source address of a capture; at most [`ADDRESSES_MAX`] addresses.
#[derive(Debug, Default)]
pub(super) struct AddressCounters {
    addresses: HashMap<CounterOwner, AddressCounter>,
}

/// A source address and its virtual network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct CounterOwner {
    address: [u8; 4],
    network: u32,
}

/// The latest identifications of an address.
#[derive(Clone, Debug)]
struct AddressCounter {
    /// Ring buffer of packet numbers and identifications.
    recent: [(u64, u16); RECENT],
    next: usize,
    /// Number of times that the identifications skipped by a flow were used by packets of other flows.
    filled: u32,
    /// Number of times that no packet of another flow used the identifications skipped by a flow.
    clean: u32,
}

impl Default for AddressCounter {
    fn default() -> Self {
        Self { recent: [(0, 0); RECENT], next: 0, filled: 0, clean: 0 }
    }
}

impl AddressCounters {
    /// Records the identification of a packet, regardless of its protocol.
    pub(super) fn count(&mut self, sight: &Sight<'_>) {
        let Some((source, identification)) = read(sight) else { return };
        if self.addresses.len() >= ADDRESSES_MAX && !self.addresses.contains_key(&source) {
            return;
        }
        let counter = self.addresses.entry(source).or_default();
        counter.recent[counter.next] = (sight.packet.number, identification);
        counter.next = (counter.next + 1) % RECENT;
    }

    /// Returns whether no other packet used the identifications between two packets of a flow, so that all of them
    /// belong to segments of the first packet. `sight` is the second packet; `first` is the number and identification
    /// of the first.
    pub(super) fn is_free(&mut self, sight: &Sight<'_>, first: (u64, u16)) -> bool {
        let Some((source, identification)) = read(sight) else { return false };
        let Some(counter) = self.addresses.get_mut(&source) else { return false };
        let step = identification.wrapping_sub(first.1);
        let between = counter.recent.iter().filter(|(number, _)| *number > first.0);
        let mut between = between.map(|(_, used)| used.wrapping_sub(first.1));
        let is_filled = between.any(|used| (1..step).contains(&used));
        let count = if is_filled { &mut counter.filled } else { &mut counter.clean };
        *count = count.saturating_add(1);
        !is_filled && !counter.is_shared()
    }
}

impl AddressCounter {
    /// Returns whether the flows of the address share a counter. Packets that are missing from the capture may then
    /// have used any skipped identification.
    const fn is_shared(&self) -> bool {
        self.filled >= FILLED_MIN && self.filled.saturating_mul(SHARED_RATIO) >= self.clean
    }
}

/// Returns the source address and identification from the innermost IP header; `None` if it is not IPv4.
fn read(sight: &Sight<'_>) -> Option<(CounterOwner, u16)> {
    let ip = sight.stack.layers().iter().rfind(|layer| is_ip(layer))?;
    if ip.kind != Kind::Ipv4 {
        return None;
    }
    let header = sight.packet.data.get(ip.offset.into()..ip.end())?;
    let address = *header.get(ipv4::field::SOURCE)?.first_chunk()?;
    let source = CounterOwner { address, network: sight.endpoints.network };
    Some((source, u16_at(header, ipv4::field::IDENTIFICATION.start)))
}

/// Maximum number of addresses whose identifications are tracked: about 10 MB.
const ADDRESSES_MAX: usize = 1 << 14;
/// Number of recent packets per address that are searched for the identifications within a step.
const RECENT: usize = 32;
/// Number of steps that other flows must account for before the address is considered to have a single counter. One
/// such step may be a coincidence.
const FILLED_MIN: u32 = 2;
/// Number of `clean` steps that weigh as much as one `filled` step.
const SHARED_RATIO: u32 = 4;
