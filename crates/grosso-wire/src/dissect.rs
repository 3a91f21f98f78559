//! Dissection of a frame's headers in one bounded pass.
//!
//! The dissector is a loop over the next header. It neither recurses nor allocates, and every iteration either appends
//! a layer or is the last, so [`LAYERS_MAX`](crate::LAYERS_MAX) bounds the number of iterations. Declared lengths limit
//! the bytes that later headers may use: a TCP header must lie inside the IP payload that announces it, not merely
//! inside the frame.

use crate::header::{ipv4, ipv6, ipv6_extension};
use crate::kind::Kind;
use crate::link_type::LinkType;
use crate::ports::Ports;
use crate::stack::{Extent, Stack, Stop};
use crate::walk::{Next, Step, Walk};

/// Finds the headers of `frame`, outermost first.
///
/// The function never fails: it returns the headers that it found, and [`Stack::stop`] gives the reason why the search
/// ended. A header is listed only if it is complete within the frame and within every length that an outer header
/// declares. Checksums are not verified.
///
/// ```
/// use grosso_wire::{LinkType, Ports, dissect};
///
/// let stack = dissect(&[0x45, 0, 0, 20], LinkType::Raw, &Ports::ASSIGNED); // truncated
/// assert!(stack.layers().is_empty());
/// ```
#[inline]
pub fn dissect(frame: &[u8], link: LinkType, ports: &Ports) -> Stack {
    let mut stack = Stack::new(0);
    dissect_into(frame, link, ports, &mut stack);
    stack
}

/// Works like [`dissect`], but writes the result into a stack that the caller reuses. The old content is discarded
/// without being overwritten, so this function is faster in a loop over packets.
pub fn dissect_into(frame: &[u8], link: LinkType, ports: &Ports, stack: &mut Stack) {
    let mut walk = Walk {
        ports,
        layers: stack.slots(),
        count: 0,
        rest: frame,
        offset: 0,
        end: frame.len(),
        extent: Extent::Exact,
        jumbo: false,
    };
    let stop = walk.run(link);
    let Walk { count, end, extent, .. } = walk;
    stack.set_count(count);
    stack.stop = stop;
    stack.extent = extent;
    stack.end = u32::try_from(end).unwrap_or(u32::MAX);
}

impl Walk<'_, '_> {
    #[inline(always)]
    fn run(&mut self, link: LinkType) -> Stop {
        let mut step = self.link(link);
        loop {
            step = match step {
                Ok(Next::Header(kind)) => self.enter(kind),
                Ok(Next::EtherType(ethertype)) => Self::of_ethertype(ethertype),
                Ok(Next::AfterIpv6(protocol)) => self.after_ipv6(protocol),
                Ok(Next::Protocol(protocol)) => Self::of_protocol(protocol),
                Ok(Next::UdpPayload(port)) => self.udp_payload(port),
                Ok(Next::Tunnelled(ethertype)) => Self::of_tunnel_ethertype(ethertype),
                Ok(Next::Numbered(protocol)) => Self::of_next_protocol(protocol),
                Ok(Next::Ip) => self.ip(),
                Err(stop) => return stop,
            };
        }
    }

    #[inline(always)]
    fn link(&mut self, link: LinkType) -> Step {
        match link {
            LinkType::Ethernet => self.enter(Kind::Ethernet),
            LinkType::Raw => Ok(Next::Ip),
            LinkType::Null => self.enter(Kind::Null),
            LinkType::LinuxSll => self.enter(Kind::Sll),
            LinkType::LinuxSll2 => self.enter(Kind::Sll2),
            LinkType::Ppp => self.enter(Kind::Ppp),
            LinkType::PppEther => self.enter(Kind::Pppoe),
        }
    }

    #[inline(always)]
    fn ip(&mut self) -> Step {
        match self.rest.first().ok_or(Stop::Truncated)? >> 4 {
            4 => Ok(Next::Header(Kind::Ipv4)),
            6 => Ok(Next::Header(Kind::Ipv6)),
            _ => Err(Stop::Unknown),
        }
    }

    #[inline(always)]
    fn after_ipv6(&mut self, protocol: u8) -> Step {
        match protocol {
            ipv6::NEXT_HOP_BY_HOP => ipv6_extension::read_hop_by_hop(self),
            ipv6::NEXT_ROUTING | ipv6::NEXT_DESTINATION_OPTIONS => self.enter(Kind::Ipv6Extension),
            ipv6::NEXT_FRAGMENT => self.enter(Kind::Ipv6Fragment),
            _ => Ok(Next::Protocol(protocol)),
        }
    }

    #[inline(always)]
    fn udp_payload(&mut self, port: u16) -> Step {
        if port == 0 {
            return Err(Stop::Payload);
        }
        if let Some(step) = self.enter_port(port) {
            return step;
        }
        match self.ports.fou() {
            // A tunnel that carries IP packets accepts both versions; the first bits of a packet determine its version.
            Some((fou, ipv4::PROTOCOL_IPV4 | ipv4::PROTOCOL_IPV6)) if port == fou => Ok(Next::Ip),
            Some((fou, protocol)) if port == fou => Ok(Next::Protocol(protocol)),
            _ => Err(Stop::Payload),
        }
    }
}
