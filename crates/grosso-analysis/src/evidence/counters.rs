//! Tracks the IPv4 IDs (the identification field) that each address has used.
//!
//! A host may take the IDs of all its packets from a single counter, regardless of flow and protocol. The difference
//! between the IDs of two packets in a flow is therefore the number of packets in that flow only if the address sent
//! nothing else in between.

use std::collections::HashMap;

use grosso_wire::{Kind, ipv4};

use super::sight::Sight;
use crate::headers::{is_ip, u16_at};

/// The latest IDs from each source address in a capture; at most [`ADDRESSES_MAX`] addresses.
#[derive(Debug, Default)]
pub(super) struct AddressCounters {
    addresses: HashMap<CounterOwner, AddressCounter>,
}

/// A source address and the virtual network to which it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct CounterOwner {
    address: [u8; 4],
    network: u32,
}

/// The latest IDs from one address.
#[derive(Clone, Debug)]
struct AddressCounter {
    /// Ring buffer of packet numbers and IDs.
    recent: [(u64, u16); RECENT],
    next: usize,
    /// Number of times that packets of other flows used the IDs that a flow skipped.
    filled: u32,
    /// Number of times that no packet of another flow used the IDs that a flow skipped.
    clean: u32,
}

impl Default for AddressCounter {
    fn default() -> Self {
        Self { recent: [(0, 0); RECENT], next: 0, filled: 0, clean: 0 }
    }
}

impl AddressCounters {
    /// Records the ID of a packet, regardless of its protocol.
    pub(super) fn count(&mut self, sight: &Sight<'_>) {
        let Some((source, identification)) = read(sight) else { return };
        if self.addresses.len() >= ADDRESSES_MAX && !self.addresses.contains_key(&source) {
            return;
        }
        let counter = self.addresses.entry(source).or_default();
        counter.recent[counter.next] = (sight.packet.number, identification);
        counter.next = (counter.next + 1) % RECENT;
    }

    /// Returns whether no other packet used the IDs between two packets of a flow, which means that they all belong to
    /// segments of the earlier packet. `sight` is the later packet; `first` is the number and ID of the earlier one.
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
    /// Returns whether the flows from the address share a counter. If so, packets that are missing from the capture may
    /// have used any skipped ID.
    const fn is_shared(&self) -> bool {
        self.filled >= FILLED_MIN && self.filled.saturating_mul(SHARED_RATIO) >= self.clean
    }
}

/// Returns the source address and ID from the innermost IP header; `None` if that header is not IPv4.
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

/// Maximum number of addresses whose IDs are tracked. This many take about 10 MB.
const ADDRESSES_MAX: usize = 1 << 14;
/// Number of recent packets per address that are searched for skipped IDs.
const RECENT: usize = 32;
/// Number of times that other flows must have used the skipped IDs before the address is considered to have a single
/// counter. A single time may be a coincidence.
const FILLED_MIN: u32 = 2;
/// Number of `clean` counts that weigh as much as one `filled` count.
const SHARED_RATIO: u32 = 4;
