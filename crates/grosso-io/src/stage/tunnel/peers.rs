//! The remote endpoints of a tunnel, with the encapsulation state of each.

use std::net::IpAddr;

use grosso::tunnel::{
    Endpoint, Expected, NotAdmitted, decapsulate::Decapsulation, encapsulate::Encapsulator,
    path_mtu::TunnelMtu,
};
use grosso_wire::LinkType;

use super::{
    EthernetLink, TunnelOptions,
    forwarding::{Forwarding, REMOTES_MAX, Recipients, Table, Unlearnable},
};

/// All remote endpoints. Most tunnels have one.
#[derive(Debug)]
pub(super) struct Peers {
    /// The remote endpoints. The first belongs to the remote address of the configured endpoint.
    peers: Vec<Peer>,
    /// Forwarding table of Ethernet addresses, or `None` if there is only one remote endpoint.
    table: Option<Table>,
    now_ns: u64,
}

/// One remote endpoint.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) encapsulator: Encapsulator,
    expected: Expected,
    /// Link header before the outer IP header.
    pub(super) front: Vec<u8>,
}

impl Peers {
    /// Creates the remote endpoints for these options, over a port with this link type. Returns a message if an option
    /// is invalid.
    pub(super) fn new(options: &TunnelOptions, link: LinkType) -> Result<Self, String> {
        let endpoint = &options.endpoint;
        let mut peers = vec![Peer::new(options, link, endpoint.remote, None)?];
        let Some(forwarding) = &options.forwarding else {
            return Ok(Self { peers, table: None, now_ns: 0 });
        };
        let ends = ends(endpoint, forwarding)?;
        for remote in &forwarding.remotes {
            peers.push(Peer::new(options, link, remote.address, remote.next)?);
        }
        Ok(Self { peers, table: Some(Table::new(forwarding, &ends)?), now_ns: 0 })
    }

    /// Sets the current time, in nanoseconds.
    pub(super) fn set_now(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Returns the current time as last set, in nanoseconds.
    pub(super) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Sets the path MTU for all remote endpoints.
    pub(super) fn set_mtu(&mut self, mtu: TunnelMtu) {
        self.peers.iter_mut().for_each(|peer| peer.encapsulator.set_mtu(mtu));
    }

    /// Returns the remote endpoint with this number.
    pub(super) fn peer(&mut self, number: usize) -> Option<&mut Peer> {
        self.peers.get_mut(number)
    }

    /// Returns the local endpoint of the tunnel, with its configured peer.
    pub(super) fn endpoint(&self) -> &Endpoint {
        // There is at least one remote endpoint.
        self.peers[0].encapsulator.endpoint()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.peers.iter()
    }

    /// Returns the indices of the endpoints that a frame is sent to.
    pub(super) fn ways(&self, slices: &[&[u8]]) -> core::ops::Range<usize> {
        let frame = slices.first().copied().unwrap_or_default();
        match self.table.as_ref().map(|table| table.recipients(frame, self.now_ns)) {
            Some(Recipients::One(end)) => end..end + 1,
            Some(Recipients::All) | None => 0..self.peers.len(),
        }
    }

    /// Checks that a packet arrived through this tunnel, and returns the number of the endpoint that sent it.
    pub(super) fn admit(&mut self, plan: &Decapsulation) -> Result<usize, NotAdmitted> {
        let is_from = |peer: &Peer| peer.encapsulator.endpoint().remote == plan.path.source;
        // A packet from an unknown address belongs to no endpoint, so any endpoint can refuse it.
        let number = self.peers.iter().position(is_from).unwrap_or(0);
        let Peer { encapsulator, expected, .. } = &mut self.peers[number];
        encapsulator.endpoint().admit(plan, expected)?;
        Ok(number)
    }

    /// Learns that the source address of a packet can be reached through this endpoint.
    pub(super) fn learn(&mut self, packet: &[u8], number: usize) -> Result<(), Unlearnable> {
        match &mut self.table {
            Some(table) => table.learn(packet, number, self.now_ns),
            None => Ok(()),
        }
    }

    /// Returns the number of packets whose source was not learned.
    pub(super) fn unlearned(&self) -> u64 {
        self.table.as_ref().map_or(0, |table| table.unlearned)
    }
}

impl Peer {
    fn new(
        options: &TunnelOptions,
        link: LinkType,
        remote: IpAddr,
        next: Option<[u8; 6]>,
    ) -> Result<Self, String> {
        let mut endpoint = options.endpoint.clone();
        endpoint.remote = remote;
        let front = front(link, options.link, next, endpoint.local.is_ipv4())?;
        let encapsulator =
            Encapsulator::new(endpoint, options.seed).map_err(|error| error.to_string())?;
        Ok(Self { encapsulator, expected: Expected::default(), front })
    }
}

/// Returns the link header before the outer IP header, for a port with this link type.
fn front(
    port: LinkType,
    link: Option<EthernetLink>,
    next: Option<[u8; 6]>,
    is_ipv4: bool,
) -> Result<Vec<u8>, String> {
    match (port, link) {
        (LinkType::Raw, _) => Ok(Vec::new()),
        (LinkType::Ethernet, Some(link)) => {
            let destination = next.unwrap_or(link.destination);
            Ok(EthernetLink { destination, ..link }.header(is_ipv4))
        }
        (LinkType::Ethernet, None) => {
            Err("a tunnel over Ethernet needs the source and destination MAC addresses of its link"
                .into())
        }
        (link, _) => Err(format!("a tunnel cannot run over {link:?}")),
    }
}

/// Returns the addresses of all remote endpoints, in order.
fn ends(endpoint: &Endpoint, forwarding: &Forwarding) -> Result<Vec<IpAddr>, String> {
    if !endpoint.carries_ethernet() {
        return Err("several remotes require a tunnel that carries Ethernet frames".into());
    }
    let mut ends = vec![endpoint.remote];
    for remote in &forwarding.remotes {
        if ends.contains(&remote.address) {
            return Err(format!("{} is configured twice", remote.address));
        }
        ends.push(remote.address);
    }
    match ends.len() {
        ..=REMOTES_MAX => Ok(ends),
        count => Err(format!("a tunnel has at most {REMOTES_MAX} remotes, not {count}")),
    }
}
