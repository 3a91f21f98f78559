//! Header formats, with one file and one registry entry per header.
//!
//! A header's file contains its view, and a [`HeaderSpec`] that describes it for all generic code.

mod spec;

pub use spec::{
    Announced, AnnouncedByPort, Class, Cover, Field, HeaderSpec, KeyWord, Law, Layout, Layouts,
    NUMBERS_MAX, Notation, ReadRemote, Receive, Received, Refused, Remote, Role, Segmentation,
    Structure, Tail,
};
use spec::{is_one_of, is_one_of_bytes};

use crate::kind::Kind;
use crate::ports::Slot;
use crate::registry::registry;
use crate::stack::Stop;
use crate::walk::{Next, Step, Walk};

/// Declares the header modules, and the lookups by kind and by number.
macro_rules! headers {
    ($($module:ident { $($kind:ident = $spec:ident, $sentence:literal;)* })+) => {
        $(pub mod $module;)+

        impl Kind {
            /// Returns the description of this kind of header.
            #[inline]
            #[must_use]
            pub const fn spec(self) -> &'static HeaderSpec {
                match self { $($(Self::$kind => { const SPEC: &HeaderSpec = &$module::$spec; SPEC })*)+ }
            }

            /// Returns the role of this kind of header in a packet.
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

            /// Returns the header that an EtherType in a link-layer header announces.
            #[inline(always)]
            pub(crate) fn of_ethertype(ethertype: u16) -> Step {
                $($(if is_one_of(ethertype, const { $module::$spec.announced.ethertypes }) {
                    return Ok(Next::Header(Kind::$kind));
                })*)+
                Err(Stop::Unknown)
            }

            /// Returns the header that an EtherType in a tunnel header announces.
            #[inline(always)]
            pub(crate) fn of_tunnel_ethertype(ethertype: u16) -> Step {
                $($(if is_one_of(ethertype, const { $module::$spec.announced.tunnel_ethertypes }) {
                    return Ok(Next::Header(Kind::$kind));
                })*)+
                Err(Stop::Unknown)
            }

            /// Returns the header that an IP protocol number announces.
            #[inline(always)]
            pub(crate) fn of_protocol(protocol: u8) -> Step {
                $($(if is_one_of_bytes(protocol, const { $module::$spec.announced.protocols }) {
                    return Ok(Next::Header(Kind::$kind));
                })*)+
                Err(Stop::Unknown)
            }

            /// Returns the header that a VXLAN-GPE next protocol announces.
            #[inline(always)]
            pub(crate) fn of_next_protocol(protocol: u8) -> Step {
                $($(if is_one_of_bytes(protocol, const { $module::$spec.announced.next_protocols }) {
                    return Ok(Next::Header(Kind::$kind));
                })*)+
                Err(Stop::Unknown)
            }

            /// Reads the header that a nonzero UDP port announces. Returns `None` if the port announces no header.
            #[inline(always)]
            pub(crate) fn enter_port(&mut self, port: u16) -> Option<Step> {
                $($(if let Some(by_port) = const { &$module::$spec.announced.port }
                    && let Some(slot) = const { Slot::of(Kind::$kind) }
                    && self.ports.at(slot) == port
                {
                    return Some((by_port.read)(self));
                })*)+
                None
            }
        }
    };
}

registry!(headers);

/// Fast path for common headers, which are read without another iteration of the dissector's loop.
impl Walk<'_, '_> {
    /// Reads the header after Ethernet if it is IP.
    #[inline(always)]
    fn after_ethernet(&mut self, ethertype: u16) -> Step {
        match ethertype {
            ethernet::ETHERTYPE_IPV4 => ipv4::read(self),
            ethernet::ETHERTYPE_IPV6 => ipv6::read(self),
            other => Ok(Next::EtherType(other)),
        }
    }

    /// Reads the header after IP if it is TCP or UDP.
    #[inline(always)]
    fn after_ip(&mut self, protocol: u8, other: impl Fn(u8) -> Next) -> Step {
        match protocol {
            ipv4::PROTOCOL_TCP => tcp::read(self),
            ipv4::PROTOCOL_UDP => udp::read(self),
            protocol => Ok(other(protocol)),
        }
    }
}
