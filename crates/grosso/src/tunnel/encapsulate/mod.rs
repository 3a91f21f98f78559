//! Packets into tunnels.
//!
//! Nothing of a packet is copied or changed: what comes of it is a header to put in front, and how
//! many of its first bytes that header replaces. A superframe stays one, with the tunnel around it:
//! cutting it gives what putting each of its packets into the tunnel would give.
//!
//! | module | job |
//! |---|---|
//! | `inside` | what a tunnel carries of a frame, and what the headers around it repeat |
//! | `write` | the headers of a tunnel |
//! | `checksums` | local and remote checksum offload |
//! | `reason` | the names and counters of all refusals |
//!
//! ```
//! use grosso::{Meta, tunnel::{Carrier, Endpoint, Header, encapsulate::Encapsulator}};
//! use grosso_wire::{LinkType, dissect};
//! # use grosso_testkit::Packet;
//! # let packet = Packet::new().ipv4(|ip| ip).udp(|udp| udp).payload(b"inside").build();
//!
//! let [local, remote] = ["192.0.2.1".parse()?, "192.0.2.2".parse()?];
//! let endpoint = Endpoint::new(local, remote, Header::Ip, Carrier::Ip);
//! let ports = endpoint.ports();
//! let mut encapsulator = Encapsulator::new(endpoint, 0x5eed)?;
//!
//! let put_in = encapsulator.encapsulate(&[&packet], &Meta::default(), LinkType::Raw)?;
//! let sent = [put_in.header, &packet[put_in.replaced..]].concat();
//! assert_eq!(dissect(&sent, LinkType::Raw, &ports).to_string(), "ip4 ip4 udp");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod checksums;
mod inside;
mod reason;
mod write;

use alloc::vec::Vec;

use grosso_wire::{LinkType, Ports, Stack, dissect_into};

pub use reason::{EncapsulateStats, Refusal};

use self::{checksums::Remote, inside::Inside, write::Numbers};
use crate::{
    flow::{FlowHasher, Keys},
    meta::{Gso, IpLevels, Meta},
    tunnel::{Contradiction, Endpoint, Header, outer::Ends, path_mtu},
};

/// The sending side of a tunnel.
#[derive(Debug)]
pub struct Encapsulator {
    endpoint: Endpoint,
    ends: Ends,
    hasher: FlowHasher,
    stack: Stack,
    header: Vec<u8>,
    /// The number of the next packet (RFC 2890).
    sequence: u32,
    /// The identification of the next packet that may be fragmented (RFC 6864 section 4.1).
    identification: u16,
    /// What the tunnel carries, in bytes of IP.
    mtu: usize,
    stats: EncapsulateStats,
}

/// A frame that was put into a tunnel. It is of [`LinkType::Raw`]: what is in front of its IP header
/// is the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encapsulated<'a> {
    /// What comes in front of the frame, from the outer IP header on.
    pub header: &'a [u8],
    /// So many of the frame's first bytes are left off, for the header says them or the tunnel does
    /// not carry them.
    pub replaced: usize,
    /// So many of its last bytes are left off: padding of Ethernet, which IP does not carry.
    pub padding: usize,
    /// What is known about the whole. The VLAN tag beside the frame is in it; the hash is gone.
    pub meta: Meta,
}

impl Encapsulator {
    /// The sending side of `endpoint`. The seed decides which flow is sent from which port; it should
    /// be random (P50).
    ///
    /// # Errors
    /// When the parts of the endpoint do not agree.
    pub fn new(endpoint: Endpoint, seed: u64) -> Result<Self, Contradiction> {
        endpoint.check()?;
        let ends = Ends::new(endpoint.local, endpoint.remote).ok_or(Contradiction::Families)?;
        Ok(Self {
            endpoint,
            ends,
            hasher: FlowHasher::new(seed),
            stack: Stack::new(0),
            header: Vec::with_capacity(HEADER_BYTES_MAX),
            sequence: 0,
            // Where it starts does not matter, but that others cannot tell does.
            identification: (seed >> 48) as u16,
            mtu: usize::MAX,
            stats: EncapsulateStats::default(),
        })
    }

    /// Puts a frame into the tunnel: `slices` make it together, and all its headers are in the first.
    /// `link` is what it starts with. A tunnel that carries IP packets leaves their link header off;
    /// one that carries frames takes Ethernet alone.
    ///
    /// A packet whose checksum is partial gets complete ones around it, made from its headers alone
    /// (rule C40), or leaves its own to the receiver where the endpoint does so (rule C52). Otherwise
    /// a checksum around it is partial. Those of a superframe are seeds, as its own.
    ///
    /// # Errors
    /// When the tunnel cannot carry the frame. Nothing is counted as sent then.
    pub fn encapsulate(
        &mut self,
        slices: &[&[u8]],
        meta: &Meta,
        link: LinkType,
    ) -> Result<Encapsulated<'_>, Refusal> {
        match self.wrap(slices, meta, link) {
            Ok((inside, meta)) => {
                let len: usize = slices.iter().map(|slice| slice.len()).sum();
                let (replaced, padding) = (inside.start, len - inside.end);
                Ok(Encapsulated { header: &self.header, replaced, padding, meta })
            }
            Err(refusal) => {
                self.stats.refused[refusal.index()] += 1;
                Err(refusal)
            }
        }
    }

    /// Says what the tunnel carries, in bytes of IP ([`Endpoint::mtu`]); it is unlimited before.
    ///
    /// Longer packets are put in all the same: [`path_mtu::fit`] tells which
    /// those are. But around IPv6 that every link has to carry, up to 1280 bytes, the don't-fragment
    /// bit is cleared where the tunnel carries less (rule W60).
    pub const fn set_mtu(&mut self, mtu: usize) {
        self.mtu = mtu;
    }

    /// What was done so far.
    #[must_use]
    pub const fn stats(&self) -> &EncapsulateStats {
        &self.stats
    }

    /// Whose sending side it is.
    #[must_use]
    pub const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Writes the header of a frame, and counts it.
    fn wrap(
        &mut self,
        slices: &[&[u8]],
        meta: &Meta,
        link: LinkType,
    ) -> Result<(Inside, Meta), Refusal> {
        let head = slices.first().copied().unwrap_or_default();
        dissect_into(head, link, &Ports::ASSIGNED, &mut self.stack);
        let carries_ethernet = self.endpoint.carries_ethernet();
        let inside = Inside::find(slices, &self.stack, meta, link, carries_ethernet)?;
        let is_numbered = matches!(self.endpoint.header, Header::Gre { sequence: true, .. });
        if is_numbered && inside.is_superframe {
            return Err(Refusal::SuperframeNumbered);
        }
        let is_atomic = write::dont_fragment(&self.endpoint, &inside)
            && !path_mtu::is_below_minimum(&self.stack, slices, meta, self.mtu);
        let keys = Keys::of(self.stack.layers(), head);
        let numbers = Numbers {
            flow: self.hasher.flow(head, &keys).into(),
            is_atomic,
            // Of a packet that nobody fragments it says nothing (RFC 6864 section 4.1).
            identification: if is_atomic { 0 } else { self.identification },
            sequence: self.sequence,
        };
        let remote = Remote::of(&inside, head, &self.stack, meta);
        let (endpoint, header) = (&self.endpoint, &mut self.header);
        let written = write::write(endpoint, &self.ends, &inside, head, remote, &numbers, header)?;
        let checksum = checksums::seal(&written, header, &self.ends, &inside, head, meta);
        self.count(&inside, is_atomic, is_numbered, written.is_remote);
        let is_fixed = is_atomic && matches!(self.ends, Ends::V4 { .. });
        let gso = meta.gso.map(|gso| gso_around(gso, is_fixed));
        Ok((inside, Meta { checksum, gso, vlan: None, hash: None, ..*meta }))
    }

    fn count(&mut self, inside: &Inside, is_atomic: bool, is_numbered: bool, is_remote: bool) {
        if !is_atomic {
            self.identification = self.identification.wrapping_add(inside.packets as u16);
        }
        if is_numbered {
            self.sequence = self.sequence.wrapping_add(1);
        }
        self.stats.frames += 1;
        self.stats.packets += u64::from(inside.packets);
        self.stats.bytes += inside.len() as u64;
        self.stats.superframes += u64::from(inside.is_superframe);
        self.stats.remote_checksums += u64::from(is_remote);
    }
}

/// A superframe with one IP header more keeps its geometry.
fn gso_around(gso: Gso, is_fixed: bool) -> Gso {
    let inner = gso.fixed_ids.bits() << 1;
    Gso { fixed_ids: IpLevels::from_bits(inner | u8::from(is_fixed)), ..gso }
}

/// Most bytes of a header: IPv6, UDP, Geneve with all its options, and an Ethernet header's addresses
/// with a tag.
pub const HEADER_BYTES_MAX: usize = 40 + 8 + 8 + 252 + 16;
