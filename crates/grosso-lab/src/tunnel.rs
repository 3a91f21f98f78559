//! The tunnels that experiments measure, and their endpoints.

use core::fmt;
use std::{io, net::IpAddr};

use grosso::tunnel::{Carrier, Endpoint, Header, RemoteChecksumUse, Udp};
use grosso_io::{
    Port,
    live::{UdpOptions, UdpPort},
    stage::{TunnelOptions, TunnelStage},
};
use grosso_sys::{namespace::NetworkNamespace, tun::Layer};
use schemars::JsonSchema;
use serde::Serialize;

use crate::netns::{Family, Layout, Mtu, underlay_addresses};

/// Kind of tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tunnel {
    /// GRE in GUE, with IP packets inside.
    GreGue,
    /// GUE with IPv4 packets inside.
    IpipGue,
    /// GUE over IPv4, with IPv6 packets inside.
    SitGue,
    /// VXLAN with Ethernet frames inside.
    Vxlan,
    /// Geneve with Ethernet frames inside.
    Geneve,
}

impl Tunnel {
    /// All tunnels, in the order of the table.
    pub const ALL: [Self; 5] =
        [Self::GreGue, Self::IpipGue, Self::SitGue, Self::Vxlan, Self::Geneve];

    /// Returns whether the tunnel carries Ethernet frames rather than IP packets.
    #[must_use]
    pub const fn is_ethernet(self) -> bool {
        matches!(self, Self::Vxlan | Self::Geneve)
    }

    /// Returns whether the tunnel's headers support remote checksum offload.
    #[must_use]
    pub const fn has_remote_checksum(self) -> bool {
        !matches!(self, Self::Geneve)
    }

    /// Returns one endpoint of the tunnel. It uses outer UDP checksums, which remote checksum offload needs.
    #[must_use]
    pub fn endpoint(self, [local, remote]: [IpAddr; 2], remote_checksum: bool) -> Endpoint {
        let udp = Udp {
            source: SOURCE_PORTS,
            destination: match self {
                Self::GreGue | Self::IpipGue | Self::SitGue => 6080,
                Self::Vxlan => 4789,
                Self::Geneve => 6081,
            },
            checksum: true,
            ipv6_without_checksum: false,
            remote_checksum: RemoteChecksumUse {
                transmit: remote_checksum,
                receive: remote_checksum,
                complete: false,
            },
        };
        let identifier = 42;
        let (header, carrier) = match self {
            Self::GreGue => {
                let gre =
                    Header::Gre { key: None, checksum: false, sequence: false, ethernet: false };
                (gre, Carrier::Gue(udp))
            }
            Self::IpipGue | Self::SitGue => (Header::Ip, Carrier::Gue(udp)),
            Self::Vxlan => {
                let vxlan = Header::Vxlan { identifier, policy: None, generic_protocol: false };
                (vxlan, Carrier::Udp(udp))
            }
            Self::Geneve => {
                let options = Vec::new();
                let geneve = Header::Geneve { identifier, options, inherit_protocol: false };
                (geneve, Carrier::Udp(udp))
            }
        };
        Endpoint::new(local, remote, header, carrier)
    }

    /// Returns the outermost header of the hosts' frames.
    pub(crate) const fn layer(self) -> Layer {
        if self.is_ethernet() { Layer::Ethernet } else { Layer::Ip }
    }

    /// Returns the IP version between the hosts.
    pub(crate) const fn family(self) -> Family {
        if matches!(self, Self::SitGue) { Family::V6 } else { Family::V4 }
    }
}

impl fmt::Display for Tunnel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::GreGue => "GRE/GUE",
            Self::IpipGue => "IPIP/GUE",
            Self::SitGue => "SIT/GUE",
            Self::Vxlan => "VXLAN",
            Self::Geneve => "Geneve",
        })
    }
}

/// Returns the layout for `streams` streams whose packets fit the wire even after encapsulation.
pub(crate) fn layout(
    (tunnel, outer): (Tunnel, Family),
    remote_checksum: bool,
    streams: usize,
) -> Layout {
    let endpoint = tunnel.endpoint(underlay_addresses(outer), remote_checksum);
    let mtu = endpoint.mtu(WIRE_MTU.into()).and_then(|mtu| u16::try_from(mtu).ok());
    let mtu = mtu.unwrap_or(WIRE_MTU);
    let layout = Layout {
        mtu: Mtu { sender: mtu, receiver: mtu },
        family: tunnel.family(),
        patient: false,
        ..Layout::default()
    };
    let each = (UNDER_WAY_BYTES / streams.max(1)).max(STREAM_BYTES_MIN);
    Layout { tcp_buffer_bytes: each, ..layout }
}

/// Opens one endpoint of a tunnel in this namespace, over sockets with or without offloads. Side 0 is host a's.
/// `around` wraps the sockets below the tunnel. If `completes` is set, the endpoint completes the checksums that the
/// peer left to the receiver.
pub(crate) fn open_end<P: Port>(
    (network, side): (&NetworkNamespace, usize),
    (tunnel, outer): (Tunnel, Family),
    (remote_checksum, completes): (bool, bool),
    offloads: bool,
    around: impl FnOnce(UdpPort) -> P,
) -> io::Result<TunnelStage<P>> {
    let [a, b] = underlay_addresses(outer);
    let mut endpoint = tunnel.endpoint(if side == 0 { [a, b] } else { [b, a] }, remote_checksum);
    if let Carrier::Udp(udp) | Carrier::Gue(udp) = &mut endpoint.carrier {
        udp.remote_checksum.complete = completes;
    }
    let mut options = UdpOptions::of(&endpoint).ok_or(io::ErrorKind::InvalidInput)?;
    (options.segmentation, options.coalescing) = (offloads, offloads);
    // Nothing but the measured packets may be sent.
    options.probes = false;
    let socket = network.run(|| UdpPort::open(&options))??;
    let mut options = TunnelOptions::new(endpoint, SEED);
    options.outer_checksum = socket.outer_checksum();
    TunnelStage::new(around(socket), options)
}

/// Source ports for flows: the dynamic port range (RFC 6335).
const SOURCE_PORTS: core::ops::RangeInclusive<u16> = 49152..=65535;
/// Number of bytes that all streams together may have in flight, which determines the size of the tunnel's socket
/// buffers.
const UNDER_WAY_BYTES: usize = 4 << 20;
/// Minimum number of bytes that each stream may have in flight: one superframe.
const STREAM_BYTES_MIN: usize = 64 << 10;
/// The MTU of the wire.
pub(crate) const WIRE_MTU: u16 = 1500;
/// Seed of the source ports, which is the same in all trials.
const SEED: u64 = 0x6772_6f73_736f;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::underlay_addresses;

    #[test]
    fn every_end_agrees_with_itself_and_its_frames_are_the_device_s() {
        let both = [Family::V4, Family::V6].map(underlay_addresses);
        for (tunnel, addresses) in Tunnel::ALL.into_iter().flat_map(|t| both.map(|of| (t, of))) {
            let end = tunnel.endpoint(addresses, tunnel.has_remote_checksum());
            assert_eq!(end.check(), Ok(()), "{tunnel}");
            assert_eq!(end.carries_ethernet(), tunnel.is_ethernet(), "{tunnel}");
        }
        let refused = Tunnel::Geneve.endpoint(both[0], true).check();
        assert!(refused.is_err(), "the tunnel has no such option");
    }
}
