//! Assignment of packets to queues: all packets of a flow, in both directions, use one queue.
//!
//! This is receive side scaling in software. It computes the same Toeplitz hash of addresses and ports as devices do,
//! with a key that repeats every 16 bits. With this key, swapping source and destination does not change the hash, so
//! both directions of a flow have the same hash. The hash also equals that of the XOR of all 16-bit words, so only one
//! word has to be hashed.
//!
//! ```
//! use grosso::{Meta, steering::Steering};
//! use grosso_wire::{LinkType, Ports, dissect};
//! # use grosso_testkit::Packet;
//! # let link = || Packet::new().ethernet(|e| e);
//! # let there = link().ipv4(|ip| ip.source([192, 0, 2, 1]).destination([192, 0, 2, 2]));
//! # let there = there.udp(|udp| udp.source_port(5000).destination_port(53)).build();
//! # let back = link().ipv4(|ip| ip.source([192, 0, 2, 2]).destination([192, 0, 2, 1]));
//! # let back = back.udp(|udp| udp.source_port(53).destination_port(5000)).build();
//!
//! let steering = Steering::new(4);
//! let queue = |packet: &[u8]| {
//!     let stack = dissect(packet, LinkType::Ethernet, &Ports::ASSIGNED);
//!     steering.queue(packet, &stack, &Meta::default())
//! };
//! assert_eq!(queue(&there), queue(&back));
//! ```

use core::ops::Range;

use grosso_wire::{Kind, Layer, Stack, Stop, ipv4, ipv6, udp};

use crate::meta::Meta;

/// Selector of a packet's queue, based on the packet's flow. The [module documentation](self) has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steering {
    queues: u32,
}

impl Steering {
    /// Creates the steering for `queues` queues, clamped to the range from 1 to [`QUEUES_MAX`].
    #[must_use]
    pub const fn new(queues: usize) -> Self {
        let queues = if queues < 1 { 1 } else { queues };
        Self { queues: if queues > QUEUES_MAX { QUEUES_MAX as u32 } else { queues as u32 } }
    }

    /// Returns the queue of a packet, counted from 0. Uses the device's hash if the metadata contains one, and
    /// otherwise computes a hash. The device's hash differs between the directions of a flow unless its key repeats
    /// every 16 bits.
    #[must_use]
    pub fn queue(&self, packet: &[u8], stack: &Stack, meta: &Meta) -> usize {
        let hash = meta.hash.unwrap_or_else(|| symmetric_hash(packet, stack));
        // Works like a device's indirection table with 128 entries, filled round robin.
        ((hash & PLACES_MASK) % self.queues) as usize
    }
}

/// Returns the Toeplitz hash of the innermost addresses, with the repeated key 0x6d5a. For unfragmented TCP and UDP
/// packets, the ports are included. Returns 0 for packets without an IP header.
///
/// The hash has only 65536 values, and a sender can choose it through its addresses and ports. Use it to spread load,
/// never as a table key.
#[must_use]
pub fn symmetric_hash(packet: &[u8], stack: &Stack) -> u32 {
    let layers = stack.layers();
    let Some(ip) = layers.iter().rfind(|layer| layer.kind.is_ip()) else {
        return 0;
    };
    let addresses = match ip.kind {
        Kind::Ipv4 => ipv4::field::SOURCE.start..ipv4::field::DESTINATION.end,
        _ => ipv6::field::SOURCE.start..ipv6::field::DESTINATION.end,
    };
    let transport =
        layers.last().filter(|layer| layer.kind.is_transport() && stack.stop != Stop::Fragment);
    let ports = udp::field::SOURCE_PORT.start..udp::field::DESTINATION_PORT.end;
    let ports = transport.map_or(0, |layer| folded(packet, layer, ports));
    let half = u32::from(toeplitz(folded(packet, ip, addresses) ^ ports));
    half << 16 | half
}

/// Returns the XOR of the words in a header field.
fn folded(packet: &[u8], layer: &Layer, field: Range<usize>) -> u16 {
    let start = usize::from(layer.offset);
    let bytes = packet.get(start + field.start..start + field.end).unwrap_or_default();
    let words = bytes.chunks_exact(2).map(|word| u16::from_be_bytes([word[0], word[1]]));
    words.fold(0, |folded, word| folded ^ word)
}

/// Returns the upper half of the hash of one word, which equals the lower half. Every set bit contributes the key,
/// rotated to the position of the bit.
fn toeplitz(word: u16) -> u16 {
    let nibble = |shift: u32| NIBBLES[usize::from(word >> shift & 0xf)].rotate_left(12 - shift);
    nibble(12) ^ nibble(8) ^ nibble(4) ^ nibble(0)
}

/// Hash contributions of the first four bits of a word.
const NIBBLES: [u16; 16] = {
    let mut nibbles = [0; 16];
    let mut value = 0;
    while value < 16 {
        let mut bit = 0;
        while bit < 4 {
            if value & 8 >> bit != 0 {
                nibbles[value] ^= KEY.rotate_left(bit);
            }
            bit += 1;
        }
        value += 1;
    }
    nibbles
};

/// One period of the key proposed by Woo and Park. Half of its bits are set.
const KEY: u16 = 0x6d5a;

/// Maximum number of queues.
pub const QUEUES_MAX: usize = 128;

/// Hash bits that select one of 128 entries.
const PLACES_MASK: u32 = QUEUES_MAX as u32 - 1;
