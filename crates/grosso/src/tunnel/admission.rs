//! Admission of decapsulated packets by a tunnel endpoint.

use grosso_wire::Kind;

use super::{
    Carrier, Endpoint, Header, IpVersion, Tunnel,
    decapsulate::{Decapsulation, DecapsulationRules, RemoteChecksumMode},
};
use crate::reasons::reasons;

reasons! {
    /// Reason why a packet does not belong to a tunnel.
    NotAdmitted {
        /// The packet comes from, or is addressed to, another address.
        Address = "foreign_address",
        /// The packet was in another kind of tunnel.
        Tunnel = "foreign_tunnel",
        /// The network identifier or key differs, is missing, or was not expected.
        Identifier = "foreign_identifier",
        /// The payload is not of the type that the tunnel carries: Ethernet frames, or IP packets of the configured
        /// version.
        Payload = "foreign_payload",
        /// The packet has a group policy, which this tunnel does not accept (rules W30, W31).
        Policy = "policy",
        /// The packet has a GRE checksum that is not configured, or lacks a configured one (rule W51).
        GreChecksum = "gre_checksum_presence",
        /// The packet has no GRE sequence number, although the tunnel requires one (rule W51).
        Unnumbered = "gre_unnumbered",
        /// The GRE sequence number is lower than expected (rule W51).
        Late = "gre_late",
    }
}

impl core::error::Error for NotAdmitted {}

/// Next expected sequence number of a tunnel that numbers its packets (rule W51).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    sequence: Option<u32>,
}

impl Expected {
    /// Accepts the packet with this number, unless the number is lower than expected. Numbers wrap, so a number up to
    /// half the number space ahead is newer (RFC 2890 section 2.2). The first packet may have any number.
    fn take(&mut self, number: u32) -> Result<(), NotAdmitted> {
        let is_late = self.sequence.is_some_and(|next| (number.wrapping_sub(next) as i32) < 0);
        if is_late {
            return Err(NotAdmitted::Late);
        }
        self.sequence = Some(number.wrapping_add(1));
        Ok(())
    }
}

impl Endpoint {
    /// Returns the decapsulation rules for this tunnel.
    #[must_use]
    pub fn rules(&self) -> DecapsulationRules {
        let mut rules = DecapsulationRules { ports: self.ports(), ..DecapsulationRules::default() };
        if let Some(udp) = self.udp() {
            let offload = udp.remote_checksum;
            rules.ipv6_without_checksum = udp.ipv6_without_checksum;
            rules.remote_checksum = match (offload.receive, offload.complete) {
                (false, _) => RemoteChecksumMode::Refuse,
                (true, false) => RemoteChecksumMode::Partial,
                (true, true) => RemoteChecksumMode::Complete,
            };
        }
        rules
    }

    /// Checks that a packet belongs to this tunnel and comes from the remote endpoint. `expected` keeps the next
    /// sequence number between calls.
    ///
    /// # Errors
    /// Returns the reason why the packet does not belong to the tunnel; `expected` is then unchanged.
    pub fn admit(
        &self,
        packet: &Decapsulation,
        expected: &mut Expected,
    ) -> Result<(), NotAdmitted> {
        let (path, details) = (&packet.path, &packet.details);
        if (path.source, path.destination) != (self.remote, self.local) {
            return Err(NotAdmitted::Address);
        }
        if !self.is_form_of(packet.tunnel) {
            return Err(NotAdmitted::Tunnel);
        }
        let identifier = match self.header {
            Header::Ip => None,
            Header::Gre { key, .. } => key,
            Header::Vxlan { identifier, .. } | Header::Geneve { identifier, .. } => {
                Some(identifier)
            }
        };
        if path.identifier != identifier {
            return Err(NotAdmitted::Identifier);
        }
        if !details.carried.is_some_and(|kind| self.carries(kind)) {
            return Err(NotAdmitted::Payload);
        }
        match self.header {
            Header::Vxlan { policy: None, .. } if details.policy.is_some() => {
                Err(NotAdmitted::Policy)
            }
            Header::Gre { checksum, .. } if details.gre_checksum != checksum => {
                Err(NotAdmitted::GreChecksum)
            }
            Header::Gre { sequence: true, .. } => {
                expected.take(details.sequence.ok_or(NotAdmitted::Unnumbered)?)
            }
            _ => Ok(()),
        }
    }

    /// Returns whether the tunnel carries packets that begin with this kind of header (Ethernet or an IP version).
    #[must_use]
    pub const fn carries(&self, kind: Kind) -> bool {
        match kind {
            Kind::Ethernet => self.carries_ethernet(),
            Kind::Ipv4 => !self.carries_ethernet() && !matches!(self.version, Some(IpVersion::V6)),
            Kind::Ipv6 => !self.carries_ethernet() && !matches!(self.version, Some(IpVersion::V4)),
            _ => false,
        }
    }

    /// Returns whether this endpoint uses this type of tunnel.
    fn is_form_of(&self, tunnel: Tunnel) -> bool {
        match (&self.header, &self.carrier) {
            (Header::Vxlan { generic_protocol: false, .. }, _) => tunnel == Tunnel::Vxlan,
            (Header::Vxlan { .. }, _) => tunnel == Tunnel::VxlanGpe,
            (Header::Geneve { .. }, _) => tunnel == Tunnel::Geneve,
            (Header::Gre { .. }, Carrier::Ip) => tunnel == Tunnel::Gre,
            (Header::Gre { .. }, Carrier::Udp(_)) => tunnel == Tunnel::GreFou,
            (Header::Gre { .. }, _) => tunnel == Tunnel::GreGue,
            (Header::Ip, carrier) => match carrier {
                Carrier::Ip => self.is_ip(tunnel, IP),
                Carrier::Udp(_) => self.is_ip(tunnel, IP_IN_FOU),
                Carrier::Gue(_) | Carrier::DirectGue(_) => self.is_ip(tunnel, IP_IN_GUE),
            },
        }
    }

    fn is_ip(&self, tunnel: Tunnel, [over_ipv4, over_ipv6]: [[Tunnel; 2]; 2]) -> bool {
        if self.local.is_ipv4() { over_ipv4 } else { over_ipv6 }.contains(&tunnel)
    }
}

/// IP-in-IP over IPv4 and over IPv6.
const IP: [[Tunnel; 2]; 2] = [[Tunnel::Ipip, Tunnel::Sit], [Tunnel::Ip4ip6, Tunnel::Ip6ip6]];
const IP_IN_FOU: [[Tunnel; 2]; 2] =
    [[Tunnel::IpipFou, Tunnel::SitFou], [Tunnel::Ip4ip6Fou, Tunnel::Ip6ip6Fou]];
const IP_IN_GUE: [[Tunnel; 2]; 2] =
    [[Tunnel::IpipGue, Tunnel::SitGue], [Tunnel::Ip4ip6Gue, Tunnel::Ip6ip6Gue]];
