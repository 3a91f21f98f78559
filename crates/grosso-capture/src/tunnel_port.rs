//! UDP ports of the tunnels in one packet of a capture.
//!
//! A UDP port identifies a tunnel only by convention. If a tunnel uses a port other than its assigned one, the capture
//! records the port with the packet, so that any reader can parse the packet later.

use core::{fmt, ops::Range};

use grosso_wire::{AnnouncedByPort, Kind, Ports, Stack, UdpPayload, udp};

/// UDP port and the tunnel that uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TunnelPort {
    port: u16,
    payload: UdpPayload,
}

impl TunnelPort {
    /// Creates an entry for a tunnel with this kind of header, for example [`Kind::Vxlan`], on this UDP port.
    #[must_use]
    pub const fn new(kind: Kind, port: u16) -> Self {
        Self { port, payload: UdpPayload::Header(kind) }
    }

    /// Creates an entry for foo over UDP on this port, with IP protocol `protocol` as its payload.
    #[must_use]
    pub const fn fou(port: u16, protocol: u8) -> Self {
        Self { port, payload: UdpPayload::Protocol(protocol) }
    }

    /// Returns an entry with the assigned port for every tunnel that has one.
    pub fn assigned() -> impl Iterator<Item = Self> {
        Ports::ASSIGNED.iter().map(|(payload, port)| Self { port, payload })
    }

    /// Returns the tunnel on a UDP port according to `ports`, or `None` if no tunnel uses it.
    #[must_use]
    pub fn on(port: u16, ports: &Ports) -> Option<Self> {
        ports.on(port).map(|payload| Self { port, payload })
    }

    /// Returns the tunnels in `ports` on ports other than the assigned ones, which readers cannot infer.
    pub fn unassigned(ports: &Ports) -> impl Iterator<Item = Self> + use<> {
        let all = ports.iter().map(|(payload, port)| Self { port, payload });
        all.filter(|tunnel| !tunnel.is_assigned())
    }

    /// Returns the tunnels on unassigned ports around a packet, outermost first: one for each UDP header whose source
    /// or destination port is an unassigned tunnel port. `stack` contains the packet's headers, dissected with `ports`.
    #[must_use]
    pub fn of_packet(packet: &[u8], stack: &Stack, ports: &Ports) -> Vec<Self> {
        let told: Vec<_> = Self::unassigned(ports).collect();
        if told.is_empty() {
            return told;
        }
        let datagrams = stack.layers().iter().filter(|layer| layer.kind == Kind::Udp);
        let found = datagrams.filter_map(|layer| {
            let header = packet.get(layer.offset.into()..)?;
            let on = |field: Range<usize>| {
                let port = u16::from_be_bytes(*header.get(field)?.first_chunk()?);
                told.iter().find(|tunnel| tunnel.port() == port).copied()
            };
            on(udp::field::DESTINATION_PORT).or_else(|| on(udp::field::SOURCE_PORT))
        });
        found.collect()
    }

    /// Returns the ports for dissecting a packet inside these tunnels, which are listed outermost first. All other
    /// tunnel types use the ports in `base`.
    ///
    /// If one tunnel type has two ports, or one port two tunnel types, the outermost entry applies until that tunnel is
    /// removed.
    #[must_use]
    pub fn over(tunnels: &[Self], base: &Ports) -> Ports {
        let mut ports = *base;
        for (index, tunnel) in tunnels.iter().enumerate() {
            if !tunnels.iter().take(index).any(|outside| outside.excludes(*tunnel)) {
                tunnel.set(&mut ports);
            }
        }
        ports
    }

    /// Adds this tunnel to `tunnels` when a packet is encapsulated, unless readers can infer it from the assigned port.
    pub fn enter(self, tunnels: &mut Vec<Self>) {
        if !self.is_assigned() || tunnels.iter().any(|inside| inside.excludes(self)) {
            tunnels.insert(0, self);
            tunnels.truncate(TUNNEL_PORTS_MAX);
        }
    }

    /// Removes this tunnel from `tunnels` when a packet is decapsulated.
    pub fn leave(self, tunnels: &mut Vec<Self>) {
        let is_it = |other: &Self| other.is_same_tunnel(self) && other.port() == self.port();
        if let Some(at) = tunnels.iter().position(is_it) {
            tunnels.remove(at);
        }
    }

    /// Returns the UDP port.
    #[must_use]
    pub const fn port(self) -> u16 {
        self.port
    }

    /// Returns the same tunnel on another port.
    #[must_use]
    pub const fn moved_to(self, port: u16) -> Self {
        Self { port, ..self }
    }

    /// Returns the tunnel's name for use in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.announced() {
            Some(announced) => announced.title,
            None => FOU,
        }
    }

    /// Returns the assigned port and protocol of the tunnel, or `None` for foo over UDP.
    const fn announced(self) -> Option<&'static AnnouncedByPort> {
        match self.payload {
            UdpPayload::Header(kind) => kind.spec().announced.port.as_ref(),
            UdpPayload::Protocol(_) => None,
        }
    }

    /// Returns whether the tunnel uses its assigned port.
    #[must_use]
    pub fn is_assigned(self) -> bool {
        Self::on(self.port(), &Ports::ASSIGNED) == Some(self)
    }

    /// Returns whether both tunnels are of the same type, regardless of their ports.
    #[must_use]
    pub fn is_same_tunnel(self, other: Self) -> bool {
        match (self.payload, other.payload) {
            (UdpPayload::Header(kind), UdpPayload::Header(other)) => kind == other,
            (UdpPayload::Protocol(_), UdpPayload::Protocol(_)) => true,
            _ => false,
        }
    }

    /// Sets this port in `ports`. Removes any other tunnel type from the port, because a port identifies one type.
    pub fn set(self, ports: &mut Ports) {
        *ports = match self.payload {
            UdpPayload::Header(kind) => ports.with(kind, self.port),
            UdpPayload::Protocol(protocol) => ports.with_fou(self.port, protocol),
        };
    }

    /// Returns whether a dissector can recognize only one of the two tunnels at a time.
    fn excludes(self, other: Self) -> bool {
        self.is_same_tunnel(other) || self.port == other.port
    }

    /// Encodes the tunnel as an entry in the option's list.
    pub(super) fn to_entry(self) -> u32 {
        let (code, protocol) = match (self.payload, self.announced()) {
            (UdpPayload::Protocol(protocol), _) => (FOU_CODE, protocol),
            (_, announced) => (announced.map_or(0, |announced| announced.code), 0),
        };
        let [high, low] = self.port.to_be_bytes();
        u32::from_be_bytes([code, protocol, high, low])
    }

    /// Decodes an entry. Returns `None` if the type is unknown or the port is 0.
    pub(super) fn from_entry(entry: u32) -> Option<Self> {
        let [code, protocol, high, low] = entry.to_be_bytes();
        let port = u16::from_be_bytes([high, low]);
        if port == 0 {
            return None;
        }
        if code == FOU_CODE {
            return (protocol > 0).then_some(Self::fou(port, protocol));
        }
        let is_it = |tunnel: &Self| tunnel.announced().is_some_and(|it| it.code == code);
        Self::assigned().find(is_it).map(|tunnel| tunnel.moved_to(port))
    }
}

/// Formats the tunnel in the syntax of `--port`, for example `vxlan=8472` or `fou=5555/4`.
impl fmt::Display for TunnelPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name().to_ascii_lowercase(), self.port)?;
        match self.payload {
            UdpPayload::Header(_) => Ok(()),
            UdpPayload::Protocol(protocol) => write!(f, "/{protocol}"),
        }
    }
}

/// Name of foo over UDP in messages.
const FOU: &str = "FOU";
/// Type number of foo over UDP in list entries. The numbers of the other types are in their header specifications
/// ([`AnnouncedByPort::code`]).
const FOU_CODE: u8 = 5;

/// Maximum number of tunnels recorded per packet. No dissected packet has more headers.
pub const TUNNEL_PORTS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use grosso_testkit::Packet;
    use grosso_wire::{LinkType, dissect};

    use super::*;

    fn ports(tunnels: &[TunnelPort]) -> Ports {
        TunnelPort::over(tunnels, &Ports::ASSIGNED)
    }

    fn vxlan(port: u16) -> TunnelPort {
        TunnelPort::new(Kind::Vxlan, port)
    }

    fn geneve(port: u16) -> TunnelPort {
        TunnelPort::new(Kind::Geneve, port)
    }

    #[test]
    fn a_recorded_port_is_that_of_its_tunnel() {
        assert_eq!(ports(&[]), Ports::ASSIGNED);
        let moved = TunnelPort::assigned().zip(1..).map(|(tunnel, port)| tunnel.moved_to(port));
        let all: Vec<_> = moved.chain([TunnelPort::fou(5555, 47)]).collect();
        let ports = ports(&all);
        assert_eq!(TunnelPort::unassigned(&ports).collect::<Vec<_>>(), all);
        assert_eq!(TunnelPort::unassigned(&Ports::ASSIGNED).next(), None);
        for tunnel in all {
            assert_eq!(TunnelPort::on(tunnel.port(), &ports), Some(tunnel));
            assert_eq!(TunnelPort::from_entry(tunnel.to_entry()), Some(tunnel));
        }
        assert_eq!(TunnelPort::on(7777, &ports), None);
        assert_eq!(TunnelPort::on(0, &Ports::NONE), None);
    }

    /// Existing files contain these numbers, so they must not change.
    #[test]
    fn the_number_of_a_tunnel_in_files_never_changes() {
        let first = |tunnel: TunnelPort| tunnel.to_entry().to_be_bytes()[0];
        let numbers: Vec<_> = TunnelPort::assigned().map(|it| (it.name(), first(it))).collect();
        let known = [("VXLAN", 1), ("VXLAN-GPE", 2), ("Geneve", 3), ("GUE", 4), ("ESP", 6)];
        assert!(known.iter().all(|number| numbers.contains(number)), "{numbers:?}");
        assert_eq!(first(TunnelPort::fou(1, 4)), 5);
        let mut codes: Vec<_> = numbers.iter().map(|(_, code)| *code).chain([FOU_CODE]).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), numbers.len() + 1, "{numbers:?}");
    }

    #[test]
    fn of_two_ports_of_a_tunnel_the_outer_counts_until_it_is_taken_off() {
        let fou = TunnelPort::fou;
        assert_eq!(ports(&[vxlan(8472), vxlan(9000)]).port(Kind::Vxlan), 8472);
        let one_port = ports(&[vxlan(8472), geneve(8472)]);
        let found = (one_port.port(Kind::Vxlan), one_port.port(Kind::Geneve));
        assert_eq!(found, (8472, Ports::ASSIGNED.port(Kind::Geneve)));

        let mut tunnels = Vec::new();
        vxlan(4789).enter(&mut tunnels);
        assert_eq!(tunnels, [], "assigned ports are not recorded");
        vxlan(8472).enter(&mut tunnels);
        vxlan(8472).enter(&mut tunnels);
        vxlan(4789).enter(&mut tunnels);
        assert_eq!(tunnels, [vxlan(4789), vxlan(8472), vxlan(8472)]);
        assert_eq!(ports(&tunnels).port(Kind::Vxlan), 4789);
        geneve(6081).enter(&mut tunnels);
        assert_eq!(tunnels.len(), 3, "assigned ports are not recorded");
        geneve(6081).leave(&mut tunnels);
        vxlan(4789).leave(&mut tunnels);
        vxlan(8472).leave(&mut tunnels);
        assert_eq!(tunnels, [vxlan(8472)]);
        fou(5555, 4).enter(&mut tunnels);
        fou(5555, 41).leave(&mut tunnels);
        assert_eq!(tunnels, [vxlan(8472)], "FOU entries match whatever their protocol");
        (0..40).for_each(|_| vxlan(8472).enter(&mut tunnels));
        assert_eq!(tunnels.len(), TUNNEL_PORTS_MAX);
    }

    #[test]
    fn a_packet_to_or_from_a_port_names_its_tunnel() {
        let ports = ports(&[vxlan(8472), TunnelPort::fou(5555, 4)]);
        let named = |source, destination| {
            let outer = Packet::new().ethernet(|e| e).ipv4(|ip| ip);
            let outer = outer.udp(|u| u.source_port(source).destination_port(destination));
            let frame = outer.payload(&[0; 60]).build();
            let stack = dissect(&frame, LinkType::Ethernet, &ports);
            TunnelPort::of_packet(&frame, &stack, &ports)
        };
        assert_eq!(named(40_000, 8472), [vxlan(8472)]);
        assert_eq!(named(8472, 40_000), [vxlan(8472)]);
        assert_eq!(named(8472, 8472), [vxlan(8472)]);
        assert_eq!(named(5555, 8472), [vxlan(8472)]);
        assert_eq!(named(40_000, 4789), []);
    }

    #[test]
    fn tunnels_are_written_as_the_command_line_takes_them() {
        assert_eq!(vxlan(8472).to_string(), "vxlan=8472");
        assert_eq!(TunnelPort::new(Kind::VxlanGpe, 1).to_string(), "vxlan-gpe=1");
        assert_eq!(TunnelPort::fou(5555, 4).to_string(), "fou=5555/4");
    }
}
