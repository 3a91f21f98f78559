//! The headers of a [`Packet`](crate::Packet), with one builder each.
//!
//! Every length, checksum and next-protocol number is computed unless it is overridden; an override may be wrong on
//! purpose.

mod link;
mod network;
mod transport;
mod tunnel;

pub use link::{Ethernet, Mpls, Pppoe, Vlan};
pub use network::{Extension, Fragment, Ipv4, Ipv6};
pub use transport::{Esp, Icmp, Sctp, Tcp, Udp};
pub use tunnel::{Geneve, Gre, Gue, L2tp, Nsh, Vxlan};

use crate::oracle;

/// Defines builder methods that set the field of the same name.
macro_rules! setters {
    ($($(#[$meta:meta])* $name:ident: $kind:ty;)*) => {
        $($(#[$meta])*
        pub fn $name(mut self, $name: $kind) -> Self {
            self.$name = $name;
            self
        })*
    };
}

/// Defines builder methods that override the checksum.
macro_rules! checksum_setters {
    () => {
        /// Sets the checksum, correct or wrong.
        pub fn checksum_raw(mut self, value: u16) -> Self {
            self.checksum = crate::headers::Checksum::Raw(value);
            self
        }

        /// Sets the checksum to zero. In UDP this means that there is no checksum; in all other protocols the checksum
        /// is wrong.
        pub fn checksum_zero(self) -> Self {
            self.checksum_raw(0)
        }

        /// Sets the correct checksum, but with these bits flipped.
        pub fn checksum_xor(mut self, bits: u16) -> Self {
            self.checksum = crate::headers::Checksum::Xor(bits);
            self
        }
    };
}

pub(crate) use checksum_setters;
pub(crate) use setters;

/// Value of a checksum field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Checksum {
    /// The correct value.
    #[default]
    Right,
    /// The uncomplemented pseudo-header sum, as in a partial checksum.
    Seed,
    /// This value.
    Raw(u16),
    /// The correct value with these bits flipped.
    Xor(u16),
}

impl Checksum {
    /// Returns the field's value; `right` is the correct value.
    pub(crate) fn field(self, right: u16) -> u16 {
        match self {
            Self::Right | Self::Seed => right,
            Self::Raw(value) => value,
            Self::Xor(bits) => right ^ bits,
        }
    }
}

/// One header of any kind.
#[derive(Clone, Debug)]
pub(crate) enum Header {
    Ethernet(Ethernet),
    Vlan(Vlan),
    Pppoe(Pppoe),
    Mpls(Mpls),
    Ipv4(Ipv4),
    Ipv6(Ipv6),
    Extension(Extension),
    Fragment(Fragment),
    Tcp(Tcp),
    Udp(Udp),
    Icmp(Icmp),
    Sctp(Sctp),
    Esp(Esp),
    Gre(Gre),
    Vxlan(Vxlan),
    Nsh(Nsh),
    Geneve(Geneve),
    Gue(Gue),
    L2tp(L2tp),
}

/// The addresses that a transport checksum covers.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    pub(crate) source: Vec<u8>,
    pub(crate) destination: Vec<u8>,
}

impl Addresses {
    /// Returns the addresses that the checksum of a header after `headers` covers: those in the nearest IP header, with
    /// two exceptions. A source route with hops left or a routing header with segments left determines the destination
    /// (RFC 9293 section 3.9.2.1, RFC 8200 section 8.1). A home address option determines the source (RFC 6275 section
    /// 11.3.1).
    pub(crate) fn behind(headers: &[Header]) -> Option<Self> {
        let network = headers.iter().rposition(|header| header.addresses().is_some())?;
        let mut addresses = headers[network].addresses()?;
        for header in &headers[network + 1..] {
            let Header::Extension(extension) = header else { continue };
            if let Some(stop) = extension.final_destination {
                addresses.destination = stop.to_vec();
            }
            if let Some(home) = extension.home {
                addresses.source = home.to_vec();
            }
        }
        Some(addresses)
    }

    /// Returns the folded, uncomplemented pseudo-header sum.
    pub(crate) fn seed(&self, protocol: u8, len: usize) -> u16 {
        oracle::sum(&oracle::pseudo_header(&self.source, &self.destination, protocol, len))
    }

    /// Returns whether the addresses are IPv6 addresses.
    pub(crate) fn is_v6(&self) -> bool {
        self.source.len() == 16
    }
}

/// Context of a header while its bytes are written.
pub(crate) struct Around<'a> {
    /// The inner headers, outermost first.
    pub(crate) inside: &'a [Header],
    /// The finished inner bytes.
    pub(crate) inner: &'a [u8],
    /// The addresses that the header's checksum covers.
    pub(crate) addresses: Option<&'a Addresses>,
    /// Whether the packet is a superframe, in which checksums over payload are left to segmentation (rules G51, T11).
    pub(crate) superframe: bool,
}

impl Around<'_> {
    /// Returns the header after this one.
    pub(crate) fn next(&self) -> Option<&Header> {
        self.inside.first()
    }

    /// Returns the transport checksum for `header`, whose checksum field must be zero: the complemented sum, or only
    /// the pseudo-header sum.
    pub(crate) fn transport(&self, mode: Checksum, protocol: u8, header: &[u8]) -> u16 {
        let len = header.len() + self.inner.len();
        let seed = self.addresses.map_or(0, |addresses| addresses.seed(protocol, len));
        if mode == Checksum::Seed || (self.superframe && mode == Checksum::Right) {
            return seed;
        }
        let bytes = [header, self.inner].concat();
        mode.field(!oracle::add(seed, oracle::sum(&bytes)))
    }
}

impl Header {
    /// Returns the header's bytes.
    pub(crate) fn encode(&self, around: &Around<'_>) -> Vec<u8> {
        match self {
            Self::Ethernet(header) => header.encode(around),
            Self::Vlan(header) => header.encode(around),
            Self::Pppoe(header) => header.encode(around),
            Self::Mpls(header) => header.encode(around),
            Self::Ipv4(header) => header.encode(around),
            Self::Ipv6(header) => header.encode(around),
            Self::Extension(header) => header.encode(around),
            Self::Fragment(header) => header.encode(around),
            Self::Tcp(header) => header.encode(around),
            Self::Udp(header) => header.encode(around),
            Self::Icmp(header) => header.encode(around),
            Self::Sctp(header) => header.encode(around),
            Self::Esp(header) => header.encode(),
            Self::Gre(header) => header.encode(around),
            Self::Vxlan(header) => header.encode(around),
            Self::Nsh(header) => header.encode(around),
            Self::Geneve(header) => header.encode(around),
            Self::Gue(header) => header.encode(around),
            Self::L2tp(header) => header.encode(),
        }
    }

    /// Returns the length of the header in bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Ethernet(_) => 14,
            Self::Vlan(_) | Self::Mpls(_) => 4,
            Self::Pppoe(_) | Self::Fragment(_) | Self::Udp(_) => 8,
            Self::Icmp(_) | Self::Esp(_) | Self::Vxlan(_) => 8,
            Self::Ipv4(header) => 20 + header.options.len(),
            Self::Ipv6(_) => 40,
            Self::Extension(header) => 2 + header.data.len(),
            Self::Tcp(header) => 20 + header.options.len(),
            Self::Sctp(_) => 12,
            Self::Gre(header) => {
                let words = [header.with_checksum, header.key.is_some(), header.sequence.is_some()];
                4 + 4 * words.iter().filter(|present| **present).count()
            }
            Self::Nsh(header) => 8 + header.context.len(),
            Self::Geneve(header) => 8 + header.options.len(),
            Self::Gue(header) => {
                4 + header.options.len() + if header.remote_checksum { 8 } else { 0 }
            }
            Self::L2tp(header) => {
                4 + header.cookie.len() + if header.sublayer.is_some() { 4 } else { 0 }
            }
        }
    }

    /// Returns whether the header announces remote checksum offload.
    pub(crate) fn wants_seed(&self) -> bool {
        match self {
            Self::Vxlan(header) => header.remote_checksum,
            Self::Gue(header) => header.remote_checksum,
            _ => false,
        }
    }

    /// Writes the pseudo-header sum into the checksum field of a transport header, unless the field was overridden.
    pub(crate) fn seed(&mut self) {
        let checksum = match self {
            Self::Tcp(header) => &mut header.checksum,
            Self::Udp(header) => &mut header.checksum,
            _ => return,
        };
        if *checksum == Checksum::Right {
            *checksum = Checksum::Seed;
        }
    }

    /// Returns the addresses of an IP header.
    pub(crate) fn addresses(&self) -> Option<Addresses> {
        match self {
            Self::Ipv4(header) => Some(Addresses {
                source: header.source.to_vec(),
                destination: header.end_of_route.unwrap_or(header.destination).to_vec(),
            }),
            Self::Ipv6(header) => Some(Addresses {
                source: header.source.to_vec(),
                destination: header.destination.to_vec(),
            }),
            _ => None,
        }
    }

    /// Returns the offset of the checksum field in the header if a partial checksum is possible.
    pub(crate) fn checksum_offset(&self) -> Option<usize> {
        match self {
            Self::Tcp(_) => Some(16),
            Self::Udp(_) => Some(6),
            _ => None,
        }
    }
}

/// Returns the EtherType that announces `next`.
pub(crate) fn ethertype(next: Option<&Header>) -> u16 {
    match next {
        Some(Header::Vlan(vlan)) => vlan.tpid,
        Some(Header::Pppoe(_)) => 0x8864,
        Some(Header::Mpls(_)) => 0x8847,
        Some(Header::Ipv4(_)) => 0x0800,
        Some(Header::Ipv6(_)) => 0x86dd,
        Some(Header::Ethernet(_)) => 0x6558,
        Some(Header::Nsh(_)) => 0x894f,
        // The first EtherType for local experiments (IEEE 802, clause 9.2.3).
        _ => 0x88b5,
    }
}

/// Returns the IP protocol number that announces `next`.
pub(crate) fn protocol(next: Option<&Header>, inside_v6: bool) -> u8 {
    match next {
        Some(Header::Extension(extension)) => extension.kind,
        Some(Header::Fragment(_)) => 44,
        Some(Header::Ipv4(_)) => 4,
        Some(Header::Ipv6(_)) => 41,
        Some(Header::Tcp(_)) => 6,
        Some(Header::Udp(_)) => 17,
        Some(Header::Icmp(_)) if inside_v6 => 58,
        Some(Header::Icmp(_)) => 1,
        Some(Header::Gre(_)) => 47,
        Some(Header::Esp(_)) => 50,
        Some(Header::L2tp(_)) => 115,
        Some(Header::Sctp(_)) => 132,
        Some(Header::Mpls(_)) => 137,
        Some(Header::Ethernet(_)) => 143,
        // The first protocol number for experiments (RFC 3692).
        _ => 253,
    }
}
