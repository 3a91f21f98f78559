//! The headers: a file each, and one line each in the registry below.
//!
//! A header's file has its view, and a [`HeaderSpec`], which says once what everything else asks for by the kind of a
//! header.

mod spec;

use core::fmt;

use spec::AnnouncedByPort;
pub use spec::{
    Announced, Class, Cover, Field, Form, HeaderSpec, KeyWord, Law, Layout, Layouts, NUMBERS_MAX,
    ReadRemote, Remote, Role, Segmentation, Structure, Tail,
};
use spec::{is_one_of, is_one_of_bytes};

use crate::dissect::{Next, Ports, Step, Walk};
use crate::stack::Stop;

/// Declares the header files, the kinds of headers in them, and what is looked up by a kind or by a number.
macro_rules! headers {
    ($($module:ident { $($kind:ident = $spec:ident, $sentence:literal;)* })+) => {
        $(pub mod $module;)+

        /// A kind of header.
        ///
        /// Two bytes wide so that [`Layer`](crate::Layer) has no padding and an empty [`Stack`](crate::Stack) is
        /// filled by wide stores.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum Kind {
            $($(#[doc = $sentence] $kind,)*)+
        }

        impl Kind {
            /// All of them, as the registry has them.
            pub const ALL: &'static [Self] = &[$($(Self::$kind,)*)+];

            /// All that is said about it.
            #[inline]
            #[must_use]
            pub const fn spec(self) -> &'static HeaderSpec {
                match self { $($(Self::$kind => { const SPEC: &HeaderSpec = &$module::$spec; SPEC })*)+ }
            }

            /// The part that it plays in a packet.
            #[inline]
            #[must_use]
            pub const fn class(self) -> Class {
                match self { $($(Self::$kind => const { $module::$spec.class },)*)+ }
            }
        }

        impl Walk<'_, '_> {
            /// Reads a header of this kind.
            #[inline(always)]
            pub(crate) fn enter(&mut self, kind: Kind) -> Step {
                match kind { $($(Kind::$kind => (const { $module::$spec.read })(self),)*)+ }
            }

            /// The header that an EtherType of a link layer announces.
            #[inline(always)]
            pub(crate) fn of_ethertype(ethertype: u16) -> Step {
                $($(if is_one_of(ethertype, const { $module::$spec.announced.ethertypes }) {
                    return Ok(Next::Header(Kind::$kind));
                })*)+
                Err(Stop::Unknown)
            }

            /// The header that an EtherType of a tunnel header announces.
            #[inline(always)]
            pub(crate) fn of_tunnel_ethertype(ethertype: u16) -> Step {
                $($(if is_one_of(ethertype, const { $module::$spec.announced.tunnel_ethertypes }) {
                    return Ok(Next::Header(Kind::$kind));
                })*)+
                Err(Stop::Unknown)
            }

            /// The header that an IP protocol announces.
            #[inline(always)]
            pub(crate) fn of_protocol(protocol: u8) -> Step {
                $($(if is_one_of_bytes(protocol, const { $module::$spec.announced.protocols }) {
                    return Ok(Next::Header(Kind::$kind));
                })*)+
                Err(Stop::Unknown)
            }

            /// The header that a next protocol of VXLAN-GPE announces.
            #[inline(always)]
            pub(crate) fn of_next_protocol(protocol: u8) -> Step {
                $($(if is_one_of_bytes(protocol, const { $module::$spec.announced.next_protocols }) {
                    return Ok(Next::Header(Kind::$kind));
                })*)+
                Err(Stop::Unknown)
            }

            /// Reads the header that a UDP port other than zero announces; `None` when the port means none.
            #[inline(always)]
            pub(crate) fn enter_port(&mut self, port: u16, ports: &Ports) -> Option<Step> {
                $($(if let Some(by_port) = const { &$module::$spec.announced.port }
                    && (by_port.port)(ports) == port
                {
                    return Some((by_port.read)(self));
                })*)+
                None
            }
        }
    };
}

headers! {
    ethernet { Ethernet = SPEC, "Ethernet II, 14 bytes."; }
    sll { Sll = SPEC, "Linux cooked capture, 16 bytes."; }
    sll2 { Sll2 = SPEC, "Linux cooked capture version 2, 20 bytes."; }
    null { Null = SPEC, "BSD loopback, 4 bytes of address family in the capturing host's order."; }
    vlan { Vlan = SPEC, "The 4 bytes of an 802.1Q or 802.1ad tag: tag control information and the next EtherType."; }
    pppoe { Pppoe = SPEC, "A PPPoE session header with its 2-byte PPP protocol: 8 bytes."; }
    mpls { Mpls = SPEC, "One MPLS label stack entry, 4 bytes."; }
    ipv4 { Ipv4 = SPEC, "IPv4 with its options."; }
    ipv6 { Ipv6 = SPEC, "The fixed IPv6 header, 40 bytes."; }
    ipv6_extension { Ipv6Extension = SPEC, "One IPv6 hop-by-hop, routing or destination options header."; }
    ipv6_fragment { Ipv6Fragment = SPEC, "An IPv6 fragment header, 8 bytes."; }
    tcp { Tcp = SPEC, "TCP with its options."; }
    udp { Udp = SPEC, "UDP, 8 bytes."; }
    icmp { Icmp = SPEC, "ICMP or ICMPv6: the 8 bytes that all messages share."; }
    fou {}
    gre { Gre = SPEC, "GRE with the optional fields that its flags announce."; }
    vxlan {
        Vxlan = SPEC, "VXLAN, 8 bytes (also with group policy or remote checksum bits).";
        VxlanGpe = SPEC_GPE, "VXLAN with the generic protocol extension, 8 bytes.";
    }
    geneve { Geneve = SPEC, "Geneve with its options."; }
    gue { Gue = SPEC, "GUE variant 0 with its optional fields."; }
    esp { Esp = SPEC, "ESP: SPI and sequence number, 8 bytes; what follows is encrypted."; }
}

/// Ethernet, which most frames start with.
impl Default for Kind {
    fn default() -> Self {
        Self::Ethernet
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
