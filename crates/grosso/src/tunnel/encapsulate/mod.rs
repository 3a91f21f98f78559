//! Encapsulation of packets.
//!
//! The packet is neither copied nor changed. The result is a header to prepend, and the number of leading bytes of the
//! packet that the header replaces. A superframe remains a superframe: segmenting it after encapsulation gives the same
//! packets as encapsulating each packet separately.
//!
//! | module | job |
//! |---|---|
//! | `inside` | the part of a frame that the tunnel carries, and the fields that outer headers copy |
//! | `write` | the tunnel headers |
//! | `checksums`, `remote` | local and remote checksum offload |
//! | `reason` | names and counters of all refusals |
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
//! let outer = encapsulator.encapsulate(&[&packet], &Meta::default(), LinkType::Raw)?;
//! let sent = [outer.header, &packet[outer.replaced..]].concat();
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

/// Encapsulator for the frames of one tunnel. The [module documentation](self) has an example.
#[derive(Debug)]
pub struct Encapsulator {
    endpoint: Endpoint,
    ends: OuterEnds,
    hasher: FlowHasher,
    stack: Stack,
    header: Vec<u8>,
    /// Sequence number of the next packet (RFC 2890).
    sequence: u32,
    /// Identification of the next packet that may be fragmented (RFC 6864 section 4.1).
    identification: u16,
    /// Maximum lengths of packets that the path carries unfragmented.
    mtu: TunnelMtu,
    stats: EncapsulateStats,
}

/// Encapsulated frame of [`LinkType::Raw`]. The caller must add a link header if one is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encapsulated<'a> {
    /// Bytes to prepend to the frame, starting with the outer IP header.
    pub header: &'a [u8],
    /// Number of leading bytes of the frame to drop, because the header contains them or the tunnel does not carry
    /// them.
    pub replaced: usize,
    /// Number of trailing bytes of the frame to drop, which are Ethernet padding.
    pub padding: usize,
    /// Metadata of the encapsulated frame. A VLAN tag from the metadata is now in the header, and the receive hash is
    /// removed.
    pub meta: Meta,
}

impl Encapsulator {
    /// Creates an encapsulator for `endpoint`. `seed` is the key for choosing the UDP source port of each flow, and
    /// should be random (P50).
    ///
    /// # Errors
    /// Returns an error that names the first contradiction in the configuration.
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
            // Any initial value will do, as long as others cannot predict it.
            identification: (seed >> 48) as u16,
            mtu: TunnelMtu::UNLIMITED,
            stats: EncapsulateStats::default(),
        })
    }

    /// Encapsulates the frame in `slices`, whose link type is `link`. The first slice must contain all headers. A
    /// tunnel that carries IP packets drops the link header; one that carries Ethernet accepts only Ethernet frames.
    ///
    /// For a packet with a partial checksum, the outer checksums are computed from the headers alone and are complete
    /// (rule C40). If the endpoint uses remote checksum offload, the inner checksum is left to the receiver instead
    /// (rule C52), and the outer checksum is partial. The outer checksum of a packet without a partial checksum is also
    /// partial. The outer checksums of a superframe are pseudo-header sums, like the inner checksum.
    ///
    /// # Errors
    /// Returns the reason why the tunnel cannot carry the frame, which is then not counted as sent.
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

    /// Sets the MTU of the path; the default is [`TunnelMtu::UNLIMITED`].
    ///
    /// Longer packets are still encapsulated, but without DF (rule W60): the caller must first refuse packets that do
    /// not fit and must not be fragmented ([`path_mtu::fit`]).
    pub const fn set_mtu(&mut self, mtu: TunnelMtu) {
        self.mtu = mtu;
    }

    /// Returns the counters since creation.
    #[must_use]
    pub const fn stats(&self) -> &EncapsulateStats {
        &self.stats
    }

    /// Returns the endpoint's configuration.
    #[must_use]
    pub const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Writes the header of a frame and counts the frame.
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

/// Adapts the parameters of a superframe to the encapsulated frame, which is segmented in the same way but has one more
/// IP header.
fn gso_around(gso: Gso, is_fixed: bool) -> Gso {
    let inner = gso.fixed_ids.bits() << 1;
    Gso { fixed_ids: IpLevels::from_bits(inner | u8::from(is_fixed)), ..gso }
}

/// Maximum header length in bytes: enough for IPv6, UDP, Geneve with all options, and Ethernet addresses with a VLAN
/// tag.
pub const HEADER_BYTES_MAX: usize = 40 + 8 + 8 + 252 + 16;
