//! Tunnel configuration that packets do not contain: UDP ports that announce headers, and the format of L2TPv3
//! sessions.

use crate::kind::Kind;

/// Tunnel configuration that packets do not contain: the UDP destination ports of tunnel headers, and the format of
/// L2TPv3 sessions. A port announces at most one header.
///
/// ```
/// use grosso_wire::{Kind, Ports};
///
/// let ports = Ports::ASSIGNED.with(Kind::Vxlan, 8472);
/// assert_eq!((ports.port(Kind::Vxlan), ports.port(Kind::Geneve)), (8472, 6081));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ports {
    /// Port of each kind that can have one, indexed by [`Slot`]. 0 disables the kind.
    announcing: [u16; SLOTS],
    fou: Option<(u16, u8)>,
    l2tp: Option<Pseudowire>,
}

/// Type of a UDP payload, as given by the destination port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UdpPayload {
    /// The payload starts with a header of this kind.
    Header(Kind),
    /// Foo over UDP: the payload is of this IP protocol. A port configured for one IP version accepts the other too.
    Protocol(u8),
}

impl Ports {
    /// No tunnel ports: every UDP header ends the dissection.
    pub const NONE: Self = Self { announcing: [0; SLOTS], fou: None, l2tp: None };

    /// Ports assigned by IANA. FOU has no assigned port, and L2TPv3 sessions are not configured.
    pub const ASSIGNED: Self = {
        let mut ports = Self::NONE;
        let mut index = 0;
        while index < Kind::ALL.len() {
            let kind = Kind::ALL[index];
            if let Some(port) = &kind.spec().announced.port {
                ports = ports.with(kind, port.assigned);
            }
            index += 1;
        }
        ports
    };

    /// Returns the configuration with `port` announcing only this kind of header. Port 0 disables the kind.
    ///
    /// # Panics
    /// Panics if no UDP port can announce this kind of header.
    #[must_use]
    pub const fn with(self, kind: Kind, port: u16) -> Self {
        let mut ports = self.without(port);
        let slot = Slot::of(kind).expect("a UDP port can announce this kind of header");
        ports.announcing[slot.0] = port;
        ports
    }

    /// Returns the configuration with `port` announcing only foo over UDP with a payload of this IP protocol (rules
    /// W10, W24). Port 0 disables foo over UDP.
    #[must_use]
    pub const fn with_fou(self, port: u16, protocol: u8) -> Self {
        let mut ports = self.without(port);
        ports.fou = if port == 0 { None } else { Some((port, protocol)) };
        ports
    }

    /// Returns the configuration with this format for all L2TPv3 sessions. With `None`, sessions are not parsed.
    #[must_use]
    pub const fn with_l2tp(mut self, form: Option<Pseudowire>) -> Self {
        self.l2tp = form;
        self
    }

    /// Returns the configuration with `port` announcing no header.
    const fn without(mut self, port: u16) -> Self {
        let mut index = 0;
        while index < SLOTS {
            if self.announcing[index] == port {
                self.announcing[index] = 0;
            }
            index += 1;
        }
        if let Some((fou, _)) = self.fou
            && fou == port
        {
            self.fou = None;
        }
        self
    }

    /// Returns the port that announces this kind of header, or 0 if there is none.
    #[inline]
    #[must_use]
    pub const fn port(&self, kind: Kind) -> u16 {
        match Slot::of(kind) {
            Some(slot) => self.at(slot),
            None => 0,
        }
    }

    /// Returns the port in a slot. Callers compute the slot at compile time.
    pub(crate) const fn at(&self, slot: Slot) -> u16 {
        self.announcing[slot.0]
    }

    /// Returns the port of foo over UDP, and the IP protocol of its payload.
    #[must_use]
    pub const fn fou(&self) -> Option<(u16, u8)> {
        self.fou
    }

    /// Returns the format of all L2TPv3 sessions.
    #[must_use]
    pub const fn l2tp(&self) -> Option<Pseudowire> {
        self.l2tp
    }

    /// Returns the payload type of a datagram to `port`, or `None` if the port announces no header.
    #[must_use]
    pub fn on(&self, port: u16) -> Option<UdpPayload> {
        self.iter().find(|(_, announcing)| *announcing == port).map(|(payload, _)| payload)
    }

    /// Returns every configured port with its payload type, in the order of the registry.
    pub fn iter(&self) -> impl Iterator<Item = (UdpPayload, u16)> + use<> {
        let ports = *self;
        let kinds = KIND_OF.into_iter().zip(ports.announcing);
        let kinds = kinds.map(|(kind, port)| (UdpPayload::Header(kind), port));
        let fou = self.fou.map(|(port, protocol)| (UdpPayload::Protocol(protocol), port));
        kinds.filter(|(_, port)| *port != 0).chain(fou)
    }
}

/// Returns [`Ports::ASSIGNED`].
impl Default for Ports {
    fn default() -> Self {
        Self::ASSIGNED
    }
}

/// Index of a kind among those that a UDP port can announce.
#[derive(Clone, Copy)]
pub(crate) struct Slot(usize);

impl Slot {
    /// Returns the slot of a kind, or `None` if no UDP port can announce it.
    #[inline(always)]
    pub(crate) const fn of(kind: Kind) -> Option<Self> {
        match kind.spec().announced.port {
            Some(_) => Some(Self(SLOT_OF[kind as usize] as usize)),
            None => None,
        }
    }
}

/// Number of kinds that a UDP port can announce.
const SLOTS: usize = announced_before(Kind::ALL.len());

/// For each kind, the number of earlier kinds in the registry that a UDP port can announce.
const SLOT_OF: [u8; Kind::ALL.len()] = {
    let mut slots = [0; Kind::ALL.len()];
    let mut index = 0;
    while index < slots.len() {
        slots[index] = announced_before(index) as u8;
        index += 1;
    }
    slots
};

/// Kind of header for each slot.
const KIND_OF: [Kind; SLOTS] = {
    let mut kinds = [Kind::Udp; SLOTS];
    let mut index = 0;
    while index < Kind::ALL.len() {
        if let Some(slot) = Slot::of(Kind::ALL[index]) {
            kinds[slot.0] = Kind::ALL[index];
        }
        index += 1;
    }
    kinds
};

/// Returns how many of the first `count` kinds in the registry a UDP port can announce.
const fn announced_before(count: usize) -> usize {
    let mut announced = 0;
    let mut index = 0;
    while index < count {
        announced += Kind::ALL[index].spec().announced.port.is_some() as usize;
        index += 1;
    }
    announced
}

/// Format of L2TPv3 sessions that carry Ethernet, on which both endpoints agree (RFC 3931 section 4.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pseudowire {
    /// Length of the cookie.
    pub cookie: CookieLen,
    /// Whether the default sublayer is present (RFC 3931 section 4.6), as it is by default in Linux.
    pub has_sublayer: bool,
}

/// Length of a session's cookie (RFC 3931 section 5.4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CookieLen {
    /// No cookie.
    None,
    /// Four bytes.
    Four,
    /// Eight bytes.
    Eight,
}

impl CookieLen {
    /// Returns the length in bytes.
    #[inline]
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::None => 0,
            Self::Four => 4,
            Self::Eight => 8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    extern crate std;
    use std::vec::Vec;

    #[test]
    fn every_kind_of_the_registry_has_its_assigned_port() {
        let assigned: Vec<_> = Ports::ASSIGNED.iter().collect();
        assert_eq!(assigned.len(), SLOTS);
        for kind in Kind::ALL {
            let expected = kind.spec().announced.port.as_ref().map_or(0, |port| port.assigned);
            assert_eq!(Ports::ASSIGNED.port(*kind), expected, "{kind}");
            if expected != 0 {
                let payload = UdpPayload::Header(*kind);
                assert_eq!(Ports::ASSIGNED.on(expected), Some(payload), "{kind}");
            }
        }
        assert_eq!(Ports::NONE.iter().count(), 0);
        assert_eq!(Ports::ASSIGNED.port(Kind::Tcp), 0);
    }

    #[test]
    fn a_port_announces_one_header() {
        let geneve = Ports::ASSIGNED.with(Kind::Geneve, 4789);
        assert_eq!((geneve.port(Kind::Geneve), geneve.port(Kind::Vxlan)), (4789, 0));
        let fou = Ports::ASSIGNED.with_fou(4789, 4);
        assert_eq!((fou.fou(), fou.port(Kind::Vxlan)), (Some((4789, 4)), 0));
        assert_eq!(fou.on(4789), Some(UdpPayload::Protocol(4)));
        let vxlan = fou.with(Kind::Vxlan, 4789);
        assert_eq!((vxlan.fou(), vxlan.on(4789)), (None, Some(UdpPayload::Header(Kind::Vxlan))));
        // Disabling one tunnel type does not affect the others.
        let none = vxlan.with(Kind::Gue, 0).with(Kind::Vxlan, 0);
        assert_eq!((none.on(4789), none.on(0)), (None, None));
        assert_eq!(none.port(Kind::Geneve), Ports::ASSIGNED.port(Kind::Geneve));
    }

    #[test]
    #[should_panic(expected = "a UDP port can announce this kind of header")]
    fn a_kind_without_a_port_is_a_mistake_of_the_caller() {
        let _ = Ports::NONE.with(Kind::Tcp, 80);
    }
}
