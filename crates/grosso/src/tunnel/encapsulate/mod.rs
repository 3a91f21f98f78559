//! Encapsulation of packets.
//!
//! Nothing of a packet is copied or changed: the result is a header to put in front, and the number of the packet's
//! first bytes that it replaces. A superframe stays a superframe, with the tunnel around it: segmenting it gives the
//! same packets as encapsulating each of its packets.
//!
//! | module | job |
//! |---|---|
//! | `inside` | what a tunnel carries of a frame, and what the headers around it repeat |
//! | `write` | the headers of a tunnel |
//! | `checksums`, `remote` | local and remote checksum offload |
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
mod remote;
mod write;

use alloc::vec::Vec;

use grosso_wire::{LinkType, Ports, Stack};

pub use reason::{EncapsulateStats, Refusal};

use self::{inside::Inside, remote::Remote, write::Numbers};
use crate::{
    flow::{FlowHasher, Keys},
    meta::{Gso, IpLevels, Meta},
    tunnel::{
        Contradiction, Endpoint, Header,
        outer::OuterEnds,
        path_mtu::{self, TunnelMtu},
    },
};

/// The sending side of a tunnel.
#[derive(Debug)]
pub struct Encapsulator {
    endpoint: Endpoint,
    ends: OuterEnds,
    hasher: FlowHasher,
    stack: Stack,
    header: Vec<u8>,
    /// The number of the next packet (RFC 2890).
    sequence: u32,
    /// The identification of the next packet that may be fragmented (RFC 6864 section 4.1).
    identification: u16,
    /// Length of the packets that the path carries in one piece.
    mtu: TunnelMtu,
    stats: EncapsulateStats,
}

/// An encapsulated frame. It is of [`LinkType::Raw`]: a link header in front of its IP header is left to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encapsulated<'a> {
    /// Bytes to put in front of the frame, from the outer IP header on.
    pub header: &'a [u8],
    /// Number of the frame's first bytes to leave off, because the header contains them or the tunnel does not carry
    /// them.
    pub replaced: usize,
    /// Number of the frame's last bytes to leave off: padding of Ethernet, which IP does not carry.
    pub padding: usize,
    /// Metadata of the encapsulated frame. The VLAN tag beside the frame is in it; the hash is dropped.
    pub meta: Meta,
}

impl Encapsulator {
    /// The sending side of `endpoint`. The seed determines the source port of each flow, and should be random (P50).
    ///
    /// # Errors
    /// An error if the parts of the endpoint do not agree.
    pub fn new(endpoint: Endpoint, seed: u64) -> Result<Self, Contradiction> {
        endpoint.check()?;
        let ends =
            OuterEnds::new(endpoint.local, endpoint.remote).ok_or(Contradiction::Families)?;
        Ok(Self {
            endpoint,
            ends,
            hasher: FlowHasher::new(seed),
            stack: Stack::new(0),
            header: Vec::with_capacity(HEADER_BYTES_MAX),
            sequence: 0,
            // Any start will do as long as others cannot predict it.
            identification: (seed >> 48) as u16,
            mtu: TunnelMtu::UNLIMITED,
            stats: EncapsulateStats::default(),
        })
    }

    /// Encapsulates a frame: `slices` make it together, and all its headers are in the first. `link` is its link type.
    /// A tunnel that carries IP packets removes their link header; one that carries frames accepts only Ethernet.
    ///
    /// A packet whose checksum is partial gets complete ones around it, computed from its headers alone (rule C40), or
    /// leaves its own to the receiver if the endpoint does so (rule C52). Otherwise the checksum around it is partial.
    /// Those of a superframe are pseudo-header sums, like its own.
    ///
    /// # Errors
    /// An error if the tunnel cannot carry the frame. It is then not counted as sent.
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

    /// Sets the MTU that the path is assumed to have; the default is
    /// [`TunnelMtu::UNLIMITED`].
    ///
    /// Longer packets are encapsulated all the same, without the don't-fragment bit (rule W60): whoever calls this has
    /// refused those that do not fit and must not be fragmented ([`path_mtu::fit`]).
    pub const fn set_mtu(&mut self, mtu: TunnelMtu) {
        self.mtu = mtu;
    }

    /// Counters.
    #[must_use]
    pub const fn stats(&self) -> &EncapsulateStats {
        &self.stats
    }

    /// The endpoint whose sending side this is.
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
        meta.dissect_into(head, link, &Ports::ASSIGNED, &mut self.stack);
        let carries_ethernet = self.endpoint.carries_ethernet();
        let inside = Inside::find(slices, &self.stack, meta, link, carries_ethernet)?;
        if !self.endpoint.carries(inside.kind) {
            return Err(Refusal::NotIp);
        }
        let is_numbered = matches!(self.endpoint.header, Header::Gre { sequence: true, .. });
        if is_numbered && inside.is_superframe {
            return Err(Refusal::SuperframeNumbered);
        }
        let is_atomic = write::dont_fragment(&self.endpoint, &inside)
            && path_mtu::is_carried(&self.stack, slices, meta, self.mtu);
        let keys = Keys::of(self.stack.layers(), head);
        let numbers = Numbers {
            flow: self.hasher.flow(head, &keys).into(),
            is_atomic,
            // The identification of a packet that cannot be fragmented has no meaning (RFC 6864 section 4.1).
            identification: if is_atomic { 0 } else { self.identification },
            sequence: self.sequence,
        };
        let remote = Remote::of(&inside, head, &self.stack, meta);
        let (endpoint, header) = (&self.endpoint, &mut self.header);
        let written = write::write(endpoint, &self.ends, &inside, head, remote, &numbers, header)?;
        let checksum = checksums::seal(&written, header, &self.ends, &inside, head, meta);
        self.count(&inside, is_atomic, is_numbered, written.is_remote);
        let is_fixed = is_atomic && matches!(self.ends, OuterEnds::V4 { .. });
        let gso = meta.gso.map(|gso| gso_around(gso, is_fixed));
        Ok((inside, Meta { checksum, gso, vlan: None, hash: None, fragmented: None, ..*meta }))
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

/// Adapts the description of a superframe, which keeps its segmentation and has one more IP header.
fn gso_around(gso: Gso, is_fixed: bool) -> Gso {
    let inner = gso.fixed_ids.bits() << 1;
    Gso { fixed_ids: IpLevels::from_bits(inner | u8::from(is_fixed)), ..gso }
}

/// Most bytes of a header: IPv6, UDP, Geneve with all its options, and an Ethernet header's addresses
/// with a tag.
pub const HEADER_BYTES_MAX: usize = 40 + 8 + 8 + 252 + 16;
