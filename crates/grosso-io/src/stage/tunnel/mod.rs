//! A port that sends its frames through a tunnel. The port's frames are the tunnel's inner frames.

mod decap;
mod forwarding;
mod peers;
mod replies;
mod stats;

use std::{collections::VecDeque, io};

use grosso::{
    Frame, Meta,
    checksum::Checksum,
    features::{Device, Features},
    meta::GsoSize,
    segment::{HEADER_BYTES_MAX, Outgoing, Segments},
    tunnel::{
        DontFragment, Endpoint, LoopGuard,
        decapsulate::OuterChecksum,
        encapsulate::{EncapsulateStats, Refusal},
        path_mtu::{Fit, TunnelMtu, fit},
    },
};
use grosso_wire::{LinkType, Ports, ethernet, ipv6};

use self::{decap::Decap, peers::Peers, replies::Replies};
pub use self::{
    forwarding::{Forwarding, REMOTES_MAX, Remote},
    replies::{ICMP_BURST, ICMP_PER_SECOND},
    stats::TunnelStageStats,
};
use crate::{
    buffer::PortBuffer,
    delegate_port,
    egress::{Egress, reused},
    notice::Notice,
    port::{Port, PortCounter, PortError, Transmitted},
    stage::own_packets::OwnPackets,
};

/// Options of a tunnel: its endpoints, its addresses and its MTU.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TunnelOptions {
    /// Local endpoint of the tunnel.
    pub endpoint: Endpoint,
    /// Link header of transmitted frames, for an Ethernet port.
    pub link: Option<EthernetLink>,
    /// Ethernet address of the tunnel's own device, if the tunnel carries Ethernet. Received frames with this source
    /// address are dropped (rule W30).
    pub address: Option<[u8; 6]>,
    /// Information about the outer UDP checksum of received frames; see
    /// [`UdpPort::outer_checksum`](crate::live::UdpPort::outer_checksum).
    pub outer_checksum: OuterChecksum,
    /// Maximum packet length of the tunnel in bytes, starting with the inner IP header and not counting VLAN tags.
    /// `None` sets no limit. If the path MTU of the inner port is known, the length is also limited to the path MTU
    /// minus tunnel headers and VLAN tags.
    pub mtu: Option<usize>,
    /// Minimum path MTU in bytes, starting with the outer IP header. A lower [`Port::path_proven`] limits the tunnel
    /// only down to this value; longer outer packets are then fragmented. With `None`, only this host's routes limit
    /// the tunnel. The minimum is never below [`MTU_MIN_IPV4`] or [`MTU_MIN_IPV6`].
    pub mtu_min: Option<usize>,
    /// UDP ports that identify tunnels inside the packets of this tunnel.
    pub ports: Ports,
    /// Key of the hash that selects the source port of a flow. It should be random.
    pub seed: u64,
    /// Additional remote endpoints of a tunnel that carries Ethernet.
    pub forwarding: Option<Forwarding>,
    /// Callback that is called for the first of this tunnel's outer packets that enters the tunnel again.
    pub loop_notice: Option<Notice>,
}

/// Addresses of an Ethernet link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EthernetLink {
    /// Ethernet address of this host.
    pub source: [u8; 6],
    /// Ethernet address of the next hop on the way to the remote endpoint.
    pub destination: [u8; 6],
}

impl TunnelOptions {
    /// Creates options for a tunnel over a port whose frames start with the outer IP header.
    #[must_use]
    pub const fn new(endpoint: Endpoint, seed: u64) -> Self {
        Self {
            endpoint,
            link: None,
            address: None,
            outer_checksum: OuterChecksum::InFrame,
            mtu: None,
            mtu_min: None,
            ports: Ports::ASSIGNED,
            seed,
            forwarding: None,
            loop_notice: None,
        }
    }
}

/// A port that encapsulates transmitted frames and decapsulates received ones.
///
/// The frames of this port are the inner frames. They are Ethernet frames or IP packets, depending on the [`Endpoint`].
/// The inner port carries the outer frames: either Ethernet frames with the addresses of [`TunnelOptions::link`], or
/// frames that start with the IP header.
///
/// The port accepts all superframes and partial checksums. A superframe stays whole in the tunnel and is segmented only
/// if the inner port does not accept it; its payload is not copied here. Received frames are not copied either, unless
/// an ECN mark or a checksum must be written into the packet, or the frame is a superframe made of several outer
/// datagrams, which is segmented first. Frames of other tunnels are dropped and counted by reason.
///
/// The sender of a packet with DF that is too long for the tunnel gets an ICMP error (rule S49), within the limits of
/// [`ICMP_PER_SECOND`] and [`ICMP_BURST`]. A proven path MTU takes effect, but only down to [`TunnelOptions::mtu_min`].
/// Packets above the reported path MTU are sent without DF.
///
/// A tunnel that carries Ethernet may have several remote endpoints ([`TunnelOptions::forwarding`]).
///
/// If the route to the remote endpoint leads into the tunnel, the tunnel's own outer packets enter the tunnel again.
/// The stage drops and counts looping packets and their fragments ([`LoopGuard`]).
///
/// Packets that the inner port has no room for are queued here, and no further frame is accepted until they are sent.
#[derive(Debug)]
pub struct TunnelStage<P: Port> {
    port: P,
    /// Link type of the inner frames.
    link: LinkType,
    ports: Ports,
    peers: Peers,
    decap: Decap,
    egress: Egress,
    /// Configured MTU.
    mtu_wanted: Option<usize>,
    /// Minimum path MTU.
    mtu_min: Option<usize>,
    /// Effective MTU.
    mtu: TunnelMtu,
    /// Path MTUs of the inner port that the effective MTU was derived from.
    path: Option<[Option<usize>; 3]>,
    replies: Replies,
    /// Headers of a frame to send.
    head: Vec<u8>,
    /// Packet that was segmented before encapsulation.
    packet: Vec<u8>,
    /// Empty vector kept for its capacity.
    slices: Vec<&'static [u8]>,
    /// Packets of segmented superframes that exceed the number of frames requested.
    ready: VecDeque<Frame<PortBuffer>>,
    /// Whether the last call returned as many frames as requested, in which case the port may have more.
    more: bool,
    /// Number of superframes that the encapsulator refused and that were then segmented, by reason.
    cut_before: [u64; Refusal::COUNT],
    /// Number of frames sent to all remote endpoints.
    flooded: u64,
    own: OwnPackets,
}

impl<P: Port> TunnelStage<P> {
    /// Wraps a port in a tunnel stage.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::InvalidInput`] if the endpoint's configuration is contradictory, if the port's frames
    /// are neither IP packets nor Ethernet with known addresses, or if there are too many remote endpoints.
    pub fn new(port: P, options: TunnelOptions) -> io::Result<Self> {
        let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
        let peers = Peers::new(&options, port.link()).map_err(invalid)?;
        let endpoint = &options.endpoint;
        let link = if endpoint.carries_ethernet() { LinkType::Ethernet } else { LinkType::Raw };
        let egress = Egress::new(port.link(), port.device(), endpoint.ports());
        let decap = Decap::new(&options, port.link());
        let mtu_min = mtu_min(&options);
        let remotes = options.forwarding.iter().flat_map(|forwarding| &forwarding.remotes);
        let guard = LoopGuard::new(endpoint, remotes.map(|remote| remote.address));
        let mut tunnelled = Self {
            port,
            link,
            ports: options.ports,
            peers,
            decap,
            egress,
            mtu_wanted: options.mtu,
            mtu_min,
            mtu: TunnelMtu::UNLIMITED,
            path: None,
            replies: Replies::default(),
            head: Vec::new(),
            packet: Vec::new(),
            slices: Vec::new(),
            ready: VecDeque::new(),
            more: false,
            cut_before: [0; Refusal::COUNT],
            flooded: 0,
            own: OwnPackets::new(guard, options.loop_notice),
        };
        tunnelled.learn_mtu();
        Ok(tunnelled)
    }

    /// Returns the inner port.
    #[must_use]
    pub fn inner(&self) -> &P {
        &self.port
    }

    /// Returns mutable access to the inner port.
    pub fn inner_mut(&mut self) -> &mut P {
        &mut self.port
    }

    /// Returns the inner port and drops all queued packets.
    pub fn into_inner(self) -> P {
        self.port
    }

    /// Returns the local endpoint of the tunnel.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        self.peers.endpoint()
    }

    /// Returns the counters so far.
    #[must_use]
    pub fn stats(&self) -> TunnelStageStats {
        let mut put_in = EncapsulateStats::default();
        self.peers.iter().for_each(|peer| stats::add(&mut put_in, peer.encapsulator.stats()));
        for (refused, cut) in put_in.refused.iter_mut().zip(self.cut_before) {
            *refused -= cut;
        }
        TunnelStageStats {
            put_in,
            cut_before: self.cut_before.iter().sum(),
            told: self.replies.told,
            untold: self.replies.untold,
            looped: self.own.dropped,
            flooded: self.flooded,
            unlearned: self.peers.unlearned(),
            ..self.decap.stats
        }
    }

    /// Returns the tunnel's MTU in bytes, starting with the inner IP header, for frames without a VLAN tag, or `None`
    /// if it is unknown.
    #[must_use]
    pub fn mtu(&self) -> Option<usize> {
        Some(self.mtu.behind(0)).filter(|mtu| *mtu < usize::MAX)
    }

    /// Updates the MTU from the path: this host's links limit the length of accepted packets, proven path MTUs reduce
    /// this limit down to the configured minimum, and ICMP messages decide which packets may be fragmented.
    fn learn_mtu(&mut self) {
        let path = [self.port.path_mtu(), self.port.path_hint(), self.port.path_proven()];
        if self.path == Some(path) {
            return;
        }
        self.path = Some(path);
        let [route, hint, proven] = path;
        let hint = hint.or(route);
        let believed = proven.zip(self.mtu_min).map(|(proven, floor)| proven.max(floor));
        let inner = |outer: Option<usize>| outer.and_then(|mtu| self.endpoint().mtu(mtu));
        let least = |paths: [Option<usize>; 2]| paths.into_iter().filter_map(inner).min();
        let device = self.mtu_wanted.unwrap_or(usize::MAX);
        let mtu = TunnelMtu { device, path: least([route, believed]).unwrap_or(usize::MAX) };
        let whole = least([route, hint]).map_or(mtu, TunnelMtu::of_path);
        self.mtu = mtu;
        self.peers.set_mtu(whole);
    }

    /// Returns whether a packet is too long for the tunnel and must be dropped. Its sender is informed within the rate
    /// limit.
    fn is_too_long(&mut self, slices: &[&[u8]], meta: &Meta) -> bool {
        if self.endpoint().dont_fragment == DontFragment::Ignored {
            return false;
        }
        let len: usize = slices.iter().map(|slice| slice.len()).sum();
        if self.mtu == TunnelMtu::UNLIMITED || meta.gso.is_none() && len <= self.mtu.behind(0) {
            return false;
        }
        let (link, mtu) = (self.link, self.mtu);
        let write = |message: &mut Vec<u8>| fit(slices, meta, link, mtu, message);
        match self.replies.write(write) {
            // The outer packet may be fragmented, so the inner port decides.
            Fit::Fits | Fit::MayBeFragmented => false,
            Fit::Told | Fit::Untold => true,
        }
    }

    /// Encapsulates a frame for the remote endpoint number `to`, and sends or queues it. Frames that the tunnel cannot
    /// carry are dropped and counted by reason.
    fn put_in(&mut self, to: usize, slices: &[&[u8]], meta: &Meta) -> Result<(), PortError> {
        let Some(peer) = self.peers.peer(to) else { return Ok(()) };
        let put_in = match peer.encapsulator.encapsulate(slices, meta, self.link) {
            Ok(put_in) => put_in,
            Err(reason @ (Refusal::SuperframeNumbered | Refusal::TooLong))
                if meta.gso.is_some() =>
            {
                return self.cut(to, slices, meta, reason);
            }
            // The encapsulator has counted the refusal.
            Err(_) => return Ok(()),
        };
        let (first, rest) = slices.split_first().map_or((&[][..], slices), |(f, r)| (*f, r));
        let first = first.get(put_in.replaced..).unwrap_or_default();
        // All headers must be in one slice. If each slice is one packet, the slices stay whole.
        let is_packet = meta.gso.is_some_and(|gso| gso.size == GsoSize::Parts);
        let copied = if is_packet { first.len() } else { first.len().min(HEADER_BYTES_MAX) };
        let (copied, first) = first.split_at(copied);
        self.head.clear();
        for part in [&peer.front, put_in.header, copied] {
            self.head.extend_from_slice(part);
        }
        let len: usize = slices.iter().map(|slice| slice.len()).sum();
        let mut left = len.saturating_sub(put_in.replaced + copied.len() + put_in.padding);
        let mut meta = put_in.meta;
        if let Checksum::Partial { start, .. } = &mut meta.checksum {
            *start += peer.front.len() as u16;
        }
        let mut outer: Vec<&[u8]> = reused(core::mem::take(&mut self.slices));
        outer.push(&self.head);
        for slice in core::iter::once(&first).chain(rest) {
            let taken = slice.len().min(left);
            outer.extend(slice.get(..taken).filter(|slice| !slice.is_empty()));
            left -= taken;
        }
        let sent = self.egress.send(&outer, &meta, &mut self.port);
        self.slices = reused(outer);
        sent
    }

    /// Encapsulates the packets of a superframe one by one.
    fn cut(
        &mut self,
        to: usize,
        slices: &[&[u8]],
        meta: &Meta,
        reason: Refusal,
    ) -> Result<(), PortError> {
        let partial = Outgoing::PARTIAL_CHECKSUMS;
        let Ok(mut segments) = Segments::new(slices, meta, self.link, &self.ports, partial) else {
            return Ok(());
        };
        self.cut_before[reason.index()] += 1;
        let mut packet = core::mem::take(&mut self.packet);
        packet.resize(segments.packet_len_max(), 0);
        let mut result = Ok(());
        while let (Ok(()), Ok(Some(segment))) = (&result, segments.write_next(&mut packet)) {
            let packet = packet.get(..segment.len()).unwrap_or_default();
            result = self.put_in(to, &[packet], &segment.meta);
        }
        self.packet = packet;
        result
    }
}

/// Returns the minimum path MTU, or `None` if the options say that only the routes of this host limit the tunnel.
fn mtu_min(options: &TunnelOptions) -> Option<usize> {
    let is_ipv4 = options.endpoint.local.is_ipv4();
    let least = if is_ipv4 { MTU_MIN_IPV4 } else { MTU_MIN_IPV6 };
    options.mtu_min.map(|floor| floor.max(least))
}

impl EthernetLink {
    fn header(&self, is_ipv4: bool) -> Vec<u8> {
        let ethertype = if is_ipv4 { ethernet::ETHERTYPE_IPV4 } else { ethernet::ETHERTYPE_IPV6 };
        [&self.destination[..], &self.source, &ethertype.to_be_bytes()].concat()
    }
}

impl<P: Port> Port for TunnelStage<P> {
    delegate_port!(port: descriptors);

    fn link(&self) -> LinkType {
        self.link
    }

    /// Returns the features for all superframes and partial checksums. If the inner port does not accept them, the
    /// egress segments the encapsulated superframes and completes the checksums.
    fn device(&self) -> Device {
        Device::new(Features::ALL.without(Features::GSO_PARTIAL))
    }

    fn receive(
        &mut self,
        now_ns: u64,
        max: usize,
        each: &mut dyn FnMut(Frame<PortBuffer>),
    ) -> Result<usize, PortError> {
        self.learn_mtu();
        self.replies.refill(now_ns);
        self.peers.set_now(now_ns);
        let mut given = 0;
        while given < max
            && let Some(message) = self.replies.take()
        {
            given += 1;
            each(Frame::new(message));
        }
        let mtu = self.mtu();
        let Self { port, decap, peers, ready, .. } = self;
        while given < max
            && let Some(frame) = ready.pop_front()
        {
            given += 1;
            each(frame);
        }
        let asked = max - given;
        let mut give = |frame| {
            if given < max {
                given += 1;
                each(frame);
            } else {
                ready.push_back(frame);
            }
        };
        let received =
            port.receive(now_ns, asked, &mut |frame| decap.take(frame, mtu, peers, &mut give));
        decap.returned.drain(..).for_each(|buffer| port.recycle(buffer));
        self.more = asked > 0 && received? == asked;
        Ok(given)
    }

    fn recycle(&mut self, buffer: PortBuffer) {
        if let Some(buffer) = self.decap.spare.give(buffer) {
            self.port.recycle(buffer);
        }
    }

    fn transmit(&mut self, slices: &[&[u8]], meta: &Meta) -> Result<Transmitted, PortError> {
        if !self.egress.drain(&mut self.port)? {
            return Ok(Transmitted::NoRoom);
        }
        let (link, now_ns) = (self.link, self.peers.now_ns());
        if !self.own.drops(slices, link, now_ns) && !self.is_too_long(slices, meta) {
            let ways = self.peers.ways(slices);
            self.flooded += u64::from(ways.len() > 1);
            for to in ways {
                self.put_in(to, slices, meta)?;
            }
        }
        Ok(Transmitted::Taken)
    }

    fn flush(&mut self) -> Result<Transmitted, PortError> {
        // A batching port may have room after sending its batch, so draining also flushes the port.
        let is_empty = self.egress.drain(&mut self.port)?;
        let flushed = self.port.flush()?;
        Ok(if is_empty { flushed } else { Transmitted::NoRoom })
    }

    /// Returns 0 (immediately) while a packet or an ICMP message is queued, or while the port may have more frames,
    /// because its descriptor may not become readable again for them.
    fn deadline(&self) -> Option<u64> {
        let has_more = self.more || !self.ready.is_empty() || !self.replies.is_empty();
        if has_more { Some(0) } else { self.port.deadline() }
    }

    fn path_mtu(&self) -> Option<usize> {
        self.mtu()
    }

    fn path_hint(&self) -> Option<usize> {
        self.mtu()
    }

    fn counters(&mut self, each: &mut dyn FnMut(PortCounter, u64)) {
        self.port.counters(each);
        self.stats().counters().for_each(|(counter, value)| each(counter, value));
    }

    fn is_finished(&self) -> bool {
        self.port.is_finished() && self.ready.is_empty() && self.replies.is_empty()
    }
}

/// Minimum path MTU over IPv4 in bytes: the length that every host must reassemble (RFC 791).
pub const MTU_MIN_IPV4: usize = 576;
/// Minimum path MTU over IPv6 in bytes: the length that every link must carry (RFC 8200 section 5).
pub const MTU_MIN_IPV6: usize = ipv6::MTU_MIN as usize;
