//! Hosts whose packets cross the wire in a tunnel. The tunnel's endpoints are in separate namespaces, one next to each
//! host.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::AsFd,
};

use grosso_io::live::LivePort;
use grosso_sys::{
    namespace::NetworkNamespace,
    netlink::{LinkChange, Netlink, VxlanEnds},
    tun::Layer,
};

use super::{
    Device, ENGINE, Family, Hosts, Layout, RECEIVER, SENDER, SENDER_ADDRESSES, add_wire,
    engine_network, name, open_device, set_up,
};

/// NIC of a host whose packets are sent through a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inside {
    /// Kind of the NIC. A veth pair transports only Ethernet frames.
    pub device: Device,
    /// Outermost header of the host's frames.
    pub layer: Layer,
    /// Whether the host's kernel sends superframes.
    pub superframes: bool,
}

impl Hosts {
    /// Creates two hosts, each with a data path in place of its NIC, and returns the ports of the paths at the hosts,
    /// the sender's first. The paths' other ports use sockets in [`Hosts::underlay`], over a separate wire with its own
    /// MTU and an address at each end ([`underlay_addresses`] for this IP version).
    ///
    /// # Errors
    /// Fails for the same reasons as [`Hosts::receiving`].
    pub fn tunnelled(
        layout: &Layout,
        inside: Inside,
        (wire_mtu, outer): (u16, Family),
    ) -> io::Result<(Self, [LivePort; 2])> {
        let (mut hosts, mtu) = (Self::new(layout)?, layout.mtu);
        hosts.between = lay_underlay(wire_mtu, outer)?;
        let open =
            |host, end| open_device(host, end, (inside.device, inside.layer), inside.superframes);
        let near = open(&hosts.sender, (SENDER, mtu.sender))?;
        let far = open(&hosts.receiver, (RECEIVER, mtu.receiver))?;
        hosts.set_up_both(layout)?;
        if inside.layer == Layer::Ethernet {
            hosts.introduce()?;
        }
        Ok((hosts, [near, far]))
    }

    /// Creates two hosts whose NICs are VXLAN devices of the kernel, over the same wire as in [`Hosts::tunnelled`].
    ///
    /// # Errors
    /// Fails if the kernel does not support VXLAN, or for the same reasons as [`Hosts::receiving`].
    pub fn kernel_vxlan(layout: &Layout, wire_mtu: u16) -> io::Result<Self> {
        let mut hosts = Self::new(layout)?;
        hosts.between = lay_underlay(wire_mtu, Family::V4)?;
        let sides = [(&hosts.sender, SENDER), (&hosts.receiver, RECEIVER)];
        for (side, (network, (host, device))) in hosts.between.iter().zip(sides).enumerate() {
            let ends = vxlan_ends(side);
            network.run(|| {
                let change = LinkChange::new().namespace(host.as_fd());
                Netlink::new()?.add_vxlan_between((&name(device)?, change), &ends)
            })??;
        }
        hosts.set_up_both(layout)?;
        hosts.introduce()?;
        Ok(hosts)
    }

    /// Returns the namespaces of the tunnel's endpoints, the sender's first; empty without a tunnel.
    #[must_use]
    pub fn underlay(&self) -> &[NetworkNamespace] {
        &self.between
    }

    fn set_up_both(&self, layout: &Layout) -> io::Result<()> {
        self.set_up_receiver(layout.mtu)?;
        self.sender.run(|| set_up(SENDER, SENDER_ADDRESSES, self.family, layout.mtu.sender))?
    }
}

/// Creates two namespaces with only a wire between them.
pub(crate) fn lay_underlay(mtu: u16, outer: Family) -> io::Result<Vec<NetworkNamespace>> {
    let networks = vec![engine_network()?, engine_network()?];
    networks[0].run(|| add_wire(&networks[1], ENGINE, (ENGINE, mtu)))??;
    let addresses = [Family::V4, Family::V6].map(underlay_addresses);
    for (side, network) in networks.iter().enumerate() {
        let addresses = addresses.map(|of_both| of_both[side]);
        network.run(|| set_up(ENGINE, addresses, outer, mtu))??;
    }
    Ok(networks)
}

/// Returns the addresses and parameters for the kernel's VXLAN over IPv4: those of the sender's endpoint if `side` is
/// 0, otherwise those of the receiver's.
pub(crate) fn vxlan_ends(side: usize) -> VxlanEnds {
    let [near, far] = UNDERLAY_ADDRESSES;
    let (local, remote) = if side == 0 { (near, far) } else { (far, near) };
    VxlanEnds { identifier: VXLAN_IDENTIFIER, local, remote, port: VXLAN_PORT }
}

/// Returns the addresses of the tunnel's endpoints for this IP version, the sender's first.
#[must_use]
pub fn underlay_addresses(outer: Family) -> [IpAddr; 2] {
    match outer {
        Family::V4 => UNDERLAY_ADDRESSES.map(IpAddr::V4),
        Family::V6 => [1, 2].map(|host| Ipv6Addr::new(0xfd94, 0, 0, 0, 0, 0, 0, host).into()),
    }
}

/// The IPv4 addresses of the tunnel's endpoints.
const UNDERLAY_ADDRESSES: [Ipv4Addr; 2] =
    [Ipv4Addr::new(10, 94, 0, 1), Ipv4Addr::new(10, 94, 0, 2)];
/// VXLAN network identifier of the kernel's two devices.
const VXLAN_IDENTIFIER: u32 = 42;
/// UDP port of the kernel's two VXLAN devices.
const VXLAN_PORT: u16 = 4789;
