//! The IPv4 identifications that each address has used.
//!
//! A host may draw the identifications of all its packets from one counter, whatever their flow and protocol. So a step
//! between two packets of a flow counts packets of that flow only where no other packet of the address lies in between.

use std::collections::HashMap;

use grosso_wire::{Kind, ipv4};

use super::sight::Sight;
use crate::headers::{is_ip, u16_at};

/// The identifications of the addresses of a capture; at most [`ADDRESSES_MAX`] of them.
#[derive(Debug, Default)]
pub(super) struct AddressCounters {
    addresses: HashMap<CounterOwner, AddressCounter>,
}

/// A source address, and the virtual network that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct CounterOwner {
    address: [u8; 4],
    network: u32,
}

/// The latest identifications of an address.
#[derive(Clone, Debug)]
struct AddressCounter {
    /// A ring of packet numbers and identifications.
    recent: [(u64, u16); RECENT],
    next: usize,
    /// Steps between packets of a flow that packets of other flows fill.
    filled: u32,
    /// Steps that no packet fills.
    clean: u32,
}

impl Default for AddressCounter {
    fn default() -> Self {
        Self { recent: [(0, 0); RECENT], next: 0, filled: 0, clean: 0 }
    }
}

impl AddressCounters {
    /// Notes the identification of a packet, whatever its protocol.
    pub(super) fn count(&mut self, sight: &Sight<'_>) {
        let Some((source, identification)) = read(sight) else { return };
        if self.addresses.len() >= ADDRESSES_MAX && !self.addresses.contains_key(&source) {
            return;
        }
        let counter = self.addresses.entry(source).or_default();
        counter.recent[counter.next] = (sight.packet.number, identification);
        counter.next = (counter.next + 1) % RECENT;
    }

    /// Whether the identifications between those of two packets of a flow, of which this one is the second, were free
    /// for the packets that the first stood for. `first` is the number and the identification of the first.
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
    /// Whether the flows of the address share a counter, so that packets that the capture lacks may fill any step.
    const fn is_shared(&self) -> bool {
        self.filled >= FILLED_MIN && self.filled.saturating_mul(SHARED_RATIO) >= self.clean
    }
}

/// The source address of a packet and its identification, by its innermost header; `None` if that is not IPv4.
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

/// Most addresses whose identifications are followed: about 10 MB.
const ADDRESSES_MAX: usize = 1 << 14;
/// Packets of an address that are compared with a step.
const RECENT: usize = 32;
/// Steps that packets of other flows must fill before the address counts as one with a single counter: an accident
/// fills one.
const FILLED_MIN: u32 = 2;
/// Steps without other packets that weigh as much as one that is filled.
const SHARED_RATIO: u32 = 4;
