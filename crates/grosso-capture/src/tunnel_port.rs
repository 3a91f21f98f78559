//! UDP ports of the tunnels in one packet of a capture.
//!
//! A UDP port identifies a tunnel only by convention. For a tunnel on another port than the
//! assigned one, the capture records the port with the packet, so that the packet can be parsed by
//! any later reader.

use core::{fmt, ops::Range};

use grosso_wire::{Kind, Ports, Stack, udp};

/// A UDP port and the tunnel that uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TunnelPort {
    /// VXLAN (RFC 7348).
    Vxlan(u16),
    /// VXLAN with the generic protocol extension.
    VxlanGpe(u16),
    /// Geneve (RFC 8926).
    Geneve(u16),
    /// Generic UDP encapsulation, of both variants.
    Gue(u16),
    /// Foo over UDP: the port, and the IP protocol of its payload.
    Fou(u16, u8),
    /// ESP in UDP (RFC 3948).
    Esp(u16),
}

impl TunnelPort {
    /// The tunnel on a UDP port according to `ports`; `None` when no tunnel uses it.
    #[must_use]
    pub fn on(port: u16, ports: &Ports) -> Option<Self> {
        all(ports).into_iter().flatten().find(|tunnel| tunnel.port() == port)
    }

    /// The tunnels of `ports` on other ports than the assigned ones, which a reader has to be told.
    pub fn unassigned(ports: &Ports) -> impl Iterator<Item = Self> + use<> {
        all(ports).into_iter().flatten().filter(|tunnel| !tunnel.is_assigned())
    }

    /// The tunnels on unassigned ports around a packet, outermost first: one for each UDP header
    /// with such a source or destination port. `stack` holds the packet's headers, dissected with
    /// `ports`.
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

    /// The ports for dissecting a packet inside these tunnels (outermost first): those of the
    /// tunnels, and `base` for all others.
    ///
    /// If a tunnel type has two ports, or a port two tunnel types, the outermost entry counts until
    /// that tunnel is removed.
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

    /// Records that a packet in `tunnels` was encapsulated in this tunnel, if a reader has to be
    /// told.
    pub fn enter(self, tunnels: &mut Vec<Self>) {
        if !self.is_assigned() || tunnels.iter().any(|inside| inside.excludes(self)) {
            tunnels.insert(0, self);
            tunnels.truncate(TUNNEL_PORTS_MAX);
        }
    }

    /// Records that a packet in `tunnels` was decapsulated from this tunnel.
    pub fn leave(self, tunnels: &mut Vec<Self>) {
        let is_it = |other: &Self| other.is_same_tunnel(self) && other.port() == self.port();
        if let Some(at) = tunnels.iter().position(is_it) {
            tunnels.remove(at);
        }
    }

    /// The UDP port.
    #[must_use]
    pub const fn port(self) -> u16 {
        match self {
            Self::Vxlan(port)
            | Self::VxlanGpe(port)
            | Self::Geneve(port)
            | Self::Gue(port)
            | Self::Fou(port, _)
            | Self::Esp(port) => port,
        }
    }

    /// The tunnel's name in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vxlan(_) => "VXLAN",
            Self::VxlanGpe(_) => "VXLAN-GPE",
            Self::Geneve(_) => "Geneve",
            Self::Gue(_) => "GUE",
            Self::Fou(..) => "FOU",
            Self::Esp(_) => "ESP",
        }
    }

    /// Whether the tunnel uses its assigned port.
    #[must_use]
    pub fn is_assigned(self) -> bool {
        Self::on(self.port(), &Ports::ASSIGNED) == Some(self)
    }

    /// Whether both are the same tunnel type, whatever their ports.
    #[must_use]
    pub fn is_same_tunnel(self, other: Self) -> bool {
        core::mem::discriminant(&self) == core::mem::discriminant(&other)
    }

    /// Sets this port in `ports`. Any other tunnel type on the same port is cleared, because a port
    /// means one type.
    pub fn set(self, ports: &mut Ports) {
        let port = self.port();
        let Ports { vxlan, vxlan_gpe, geneve, gue, esp, fou, l2tp: _ } = ports;
        for other in [&mut *vxlan, vxlan_gpe, geneve, gue, esp] {
            if *other == port {
                *other = 0;
            }
        }
        *fou = fou.filter(|(other, _)| *other != port);
        match self {
            Self::Vxlan(port) => *vxlan = port,
            Self::VxlanGpe(port) => *vxlan_gpe = port,
            Self::Geneve(port) => *geneve = port,
            Self::Gue(port) => *gue = port,
            Self::Fou(port, protocol) => *fou = Some((port, protocol)),
            Self::Esp(port) => *esp = port,
        }
    }

    /// Whether a dissector can look for only one of the two.
    fn excludes(self, other: Self) -> bool {
        self.is_same_tunnel(other) || self.port() == other.port()
    }

    /// The entry in the option's list.
    pub(super) fn to_entry(self) -> u32 {
        let (kind, protocol) = match self {
            Self::Vxlan(_) => (kind::VXLAN, 0),
            Self::VxlanGpe(_) => (kind::VXLAN_GPE, 0),
            Self::Geneve(_) => (kind::GENEVE, 0),
            Self::Gue(_) => (kind::GUE, 0),
            Self::Fou(_, protocol) => (kind::FOU, protocol),
            Self::Esp(_) => (kind::ESP, 0),
        };
        let [high, low] = self.port().to_be_bytes();
        u32::from_be_bytes([kind, protocol, high, low])
    }

    /// The tunnel of an entry; `None` when its type is unknown or its port 0.
    pub(super) fn from_entry(entry: u32) -> Option<Self> {
        let [kind, protocol, high, low] = entry.to_be_bytes();
        let port = u16::from_be_bytes([high, low]);
        if port == 0 {
            return None;
        }
        match kind {
            kind::VXLAN => Some(Self::Vxlan(port)),
            kind::VXLAN_GPE => Some(Self::VxlanGpe(port)),
            kind::GENEVE => Some(Self::Geneve(port)),
            kind::GUE => Some(Self::Gue(port)),
            kind::FOU if protocol > 0 => Some(Self::Fou(port, protocol)),
            kind::ESP => Some(Self::Esp(port)),
            _ => None,
        }
    }
}

/// The syntax of `--port`: `vxlan=8472`, `fou=5555/4`.
impl fmt::Display for TunnelPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vxlan(port) => write!(f, "vxlan={port}"),
            Self::VxlanGpe(port) => write!(f, "vxlan-gpe={port}"),
            Self::Geneve(port) => write!(f, "geneve={port}"),
            Self::Gue(port) => write!(f, "gue={port}"),
            Self::Fou(port, protocol) => write!(f, "fou={port}/{protocol}"),
            Self::Esp(port) => write!(f, "esp={port}"),
        }
    }
}

/// The tunnels of these ports, in the order of lookup.
fn all(ports: &Ports) -> [Option<TunnelPort>; 6] {
    let Ports { vxlan, vxlan_gpe, geneve, gue, esp, fou, l2tp: _ } = *ports;
    let is_port = |tunnel: &TunnelPort| tunnel.port() > 0;
    [
        Some(TunnelPort::Vxlan(vxlan)),
        Some(TunnelPort::Geneve(geneve)),
        Some(TunnelPort::VxlanGpe(vxlan_gpe)),
        Some(TunnelPort::Gue(gue)),
        Some(TunnelPort::Esp(esp)),
        fou.map(|(port, protocol)| TunnelPort::Fou(port, protocol)),
    ]
    .map(|tunnel| tunnel.filter(is_port))
}

/// Greatest number of tunnels recorded with one packet. No dissected packet has more headers.
pub const TUNNEL_PORTS_MAX: usize = 16;

/// Tunnel types in the entries of the list.
mod kind {
    pub(super) const VXLAN: u8 = 1;
    pub(super) const VXLAN_GPE: u8 = 2;
    pub(super) const GENEVE: u8 = 3;
    pub(super) const GUE: u8 = 4;
    pub(super) const FOU: u8 = 5;
    pub(super) const ESP: u8 = 6;
}

#[cfg(test)]
mod tests {
    use grosso_testkit::Packet;
    use grosso_wire::{LinkType, dissect};

    use super::*;

    fn ports(tunnels: &[TunnelPort]) -> Ports {
        TunnelPort::over(tunnels, &Ports::ASSIGNED)
    }

    #[test]
    fn a_recorded_port_is_that_of_its_tunnel() {
        use TunnelPort::{Esp, Fou, Geneve, Gue, Vxlan, VxlanGpe};
        assert_eq!(ports(&[]), Ports::ASSIGNED);
        let all = [Vxlan(1), VxlanGpe(2), Geneve(3), Gue(4), Fou(5, 47), Esp(6)];
        let expected = Ports {
            vxlan: 1,
            vxlan_gpe: 2,
            geneve: 3,
            gue: 4,
            fou: Some((5, 47)),
            esp: 6,
            l2tp: None,
        };
        assert_eq!(ports(&all), expected);
        assert_eq!(TunnelPort::unassigned(&expected).count(), 6);
        assert_eq!(TunnelPort::unassigned(&Ports::ASSIGNED).next(), None);
        for tunnel in all {
            assert_eq!(TunnelPort::on(tunnel.port(), &expected), Some(tunnel));
            assert_eq!(TunnelPort::from_entry(tunnel.to_entry()), Some(tunnel));
        }
        assert_eq!(TunnelPort::on(7, &expected), None);
        assert_eq!(TunnelPort::on(0, &Ports::NONE), None);
    }

    #[test]
    fn a_port_means_one_tunnel() {
        let geneve = ports(&[TunnelPort::Geneve(4789)]);
        assert_eq!((geneve.geneve, geneve.vxlan), (4789, 0));
        let fou = ports(&[TunnelPort::Fou(4789, 4)]);
        assert_eq!((fou.fou, fou.vxlan), (Some((4789, 4)), 0));
        assert_eq!(TunnelPort::on(4789, &fou), Some(TunnelPort::Fou(4789, 4)));
    }

    #[test]
    fn of_two_ports_of_a_tunnel_the_outer_counts_until_it_is_taken_off() {
        use TunnelPort::{Fou, Geneve, Vxlan};
        assert_eq!(ports(&[Vxlan(8472), Vxlan(9000)]).vxlan, 8472);
        let one_port = ports(&[Vxlan(8472), Geneve(8472)]);
        assert_eq!((one_port.vxlan, one_port.geneve), (8472, Ports::ASSIGNED.geneve));

        let mut tunnels = Vec::new();
        Vxlan(4789).enter(&mut tunnels);
        assert_eq!(tunnels, [], "everybody knows that port");
        Vxlan(8472).enter(&mut tunnels);
        Vxlan(8472).enter(&mut tunnels);
        Vxlan(4789).enter(&mut tunnels);
        assert_eq!(tunnels, [Vxlan(4789), Vxlan(8472), Vxlan(8472)]);
        assert_eq!(ports(&tunnels).vxlan, 4789);
        Geneve(6081).enter(&mut tunnels);
        assert_eq!(tunnels.len(), 3, "it is where it is looked for");
        Geneve(6081).leave(&mut tunnels);
        Vxlan(4789).leave(&mut tunnels);
        Vxlan(8472).leave(&mut tunnels);
        assert_eq!(tunnels, [Vxlan(8472)]);
        Fou(5555, 4).enter(&mut tunnels);
        Fou(5555, 41).leave(&mut tunnels);
        assert_eq!(tunnels, [Vxlan(8472)], "its first bits show what it carries");
        (0..40).for_each(|_| Vxlan(8472).enter(&mut tunnels));
        assert_eq!(tunnels.len(), TUNNEL_PORTS_MAX);
    }

    #[test]
    fn a_packet_to_or_from_a_port_names_its_tunnel() {
        let ports = ports(&[TunnelPort::Vxlan(8472), TunnelPort::Fou(5555, 4)]);
        let named = |source, destination| {
            let outer = Packet::new().ethernet(|e| e).ipv4(|ip| ip);
            let outer = outer.udp(|u| u.source_port(source).destination_port(destination));
            let frame = outer.payload(&[0; 60]).build();
            let stack = dissect(&frame, LinkType::Ethernet, &ports);
            TunnelPort::of_packet(&frame, &stack, &ports)
        };
        assert_eq!(named(40_000, 8472), [TunnelPort::Vxlan(8472)]);
        assert_eq!(named(8472, 40_000), [TunnelPort::Vxlan(8472)]);
        assert_eq!(named(8472, 8472), [TunnelPort::Vxlan(8472)]);
        assert_eq!(named(5555, 8472), [TunnelPort::Vxlan(8472)]);
        assert_eq!(named(40_000, 4789), []);
    }

    #[test]
    fn tunnels_are_written_as_the_command_line_takes_them() {
        assert_eq!(TunnelPort::Vxlan(8472).to_string(), "vxlan=8472");
        assert_eq!(TunnelPort::VxlanGpe(1).to_string(), "vxlan-gpe=1");
        assert_eq!(TunnelPort::Fou(5555, 4).to_string(), "fou=5555/4");
    }
}
