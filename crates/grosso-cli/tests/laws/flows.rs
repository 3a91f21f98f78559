//! Generates flows over any header stack, as the wire carries them and as the sending host captures them.

use grosso_testkit::{
    Packet,
    headers::Tcp,
    oracle::{Layer, Lengths, Link, parse},
    random::Random,
    stack::{Front, Network, Place, Stack, Transport, Tunnel},
};

/// The link of a capture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Medium {
    pub(crate) link: Link,
    /// Maximum number of bytes, counted from the outermost IP header.
    pub(crate) mtu: usize,
}

/// Returns one flow as the wire carries it: packets that fit the link, or fragments of larger ones.
pub(crate) fn on_wire(seed: u64, number: u16, medium: Medium) -> Vec<Vec<u8>> {
    let mut random = Random::new(seed);
    if random.one_in(16) {
        let datagrams = fragments(number, medium, &mut random).into_iter();
        return datagrams.flat_map(|(_, pieces)| pieces).collect();
    }
    packets(random.bits(), number, medium)
}

/// Returns one flow as the wire carries it, without fragments.
pub(crate) fn packets(seed: u64, number: u16, medium: Medium) -> Vec<Vec<u8>> {
    let mut random = Random::new(seed);
    match random.below(14) {
        0 if medium.link == Link::Ethernet => neighbours(&mut random, Packet::build),
        1 => narrowed(number, medium, &mut random),
        _ => {
            let stack = any_stack(&mut random, medium.link);
            let mut sender = Sender::new(stack, number, medium.mtu, &mut random);
            let mut frames = sender.handshake(&mut random, Packet::build);
            frames.extend(sender.packets(&mut random));
            frames
        }
    }
}

/// Returns one flow as its sender sees it: superframes, with checksums that a device is to complete.
pub(crate) fn on_host(seed: u64, number: u16, medium: Medium) -> Vec<Vec<u8>> {
    let mut random = Random::new(seed);
    if random.one_in(12) && medium.link == Link::Ethernet {
        return neighbours(&mut random, left_to_device);
    }
    // A command recognizes FOU only by an explicit port, and here only `decap` gets one.
    let is_fou = |stack: &Stack| stack.tunnels.iter().any(|(_, tunnel)| *tunnel == Tunnel::Fou);
    let stack = loop {
        let stack = any_stack(&mut random, medium.link);
        if !is_fou(&stack) {
            break stack;
        }
    };
    let mut sender = Sender::new(stack, number, medium.mtu, &mut random);
    let mut frames = sender.handshake(&mut random, left_to_device);
    frames.extend(sender.superframes(&mut random));
    frames
}

/// Returns several datagrams, each with its fragments.
pub(crate) fn fragments(
    number: u16,
    medium: Medium,
    random: &mut Random,
) -> Vec<(Vec<u8>, Vec<Vec<u8>>)> {
    let front = if medium.link == Link::Ip { Front::Bare } else { Front::Ethernet };
    let network = *random.choose(&[Network::Ipv4, Network::Ipv6]);
    let stack = Stack::plain(front, network, Transport::Udp);
    let first = random.bits() as u16;
    let datagrams = (0..random.within(1, 5)).map(|index| {
        let id = first.wrapping_add(index as u16);
        let place = Place { flow: number, ids: vec![id], ..Place::default() };
        let len = random.within(medium.mtu, 5 * medium.mtu).min(60_000);
        let datagram = stack.packet(&place).payload_len(len).build();
        let pieces = cut(&datagram, medium, u32::from(id));
        (datagram, pieces)
    });
    datagrams.collect()
}

/// Fragments an IP packet without extension headers, independently of the engine.
fn cut(frame: &[u8], medium: Medium, id: u32) -> Vec<Vec<u8>> {
    let parsed = parse(frame, medium.link, Lengths::Declared);
    let ip = parsed.layers.iter().find(|layer| layer.is_ip()).expect("an IP header");
    let (header, data) = (&frame[..ip.inside()], &frame[ip.inside()..ip.end]);
    let is_ipv4 = ip.name == "ipv4";
    let room = (medium.mtu - ip.len - if is_ipv4 { 0 } else { 8 }) / 8 * 8;
    let pieces = data.chunks(room).enumerate().map(|(index, piece)| {
        let offset = (index * room / 8) as u16;
        let more = (index + 1) * room < data.len();
        let mut fragment = header.to_vec();
        let put = |fragment: &mut Vec<u8>, at: usize, word: u16| {
            fragment[ip.offset + at..ip.offset + at + 2].copy_from_slice(&word.to_be_bytes());
        };
        if is_ipv4 {
            put(&mut fragment, 2, (ip.len + piece.len()) as u16);
            put(&mut fragment, 4, id as u16);
            put(&mut fragment, 6, offset | u16::from(more) << 13);
            put(&mut fragment, 10, 0);
            let right = grosso_testkit::oracle::checksum(&fragment[ip.offset..]);
            put(&mut fragment, 10, right);
        } else {
            put(&mut fragment, 4, 8 + piece.len() as u16);
            let next = std::mem::replace(&mut fragment[ip.offset + 6], 44);
            fragment.extend([next, 0]);
            fragment.extend((offset << 3 | u16::from(more)).to_be_bytes());
            fragment.extend(id.to_be_bytes());
        }
        fragment.extend(piece);
        fragment
    });
    pieces.collect()
}

/// Returns ARP and neighbor discovery inside tunnels, and ARP outside them.
fn neighbours(random: &mut Random, build: impl Fn(&Packet) -> Vec<u8>) -> Vec<Vec<u8>> {
    let arp = |packet: Packet| packet.ethernet(|e| e.ethertype_raw(0x0806)).payload(&[7; 28]);
    let discovery = |packet: Packet| {
        let packet = packet.ethernet(|e| e).ipv6(|ip| ip.hop_limit(255));
        packet.icmp(|i| i.kind(135).rest([0; 4])).payload(&[0xfe; 24])
    };
    let outer = || Packet::new().ethernet(|e| e);
    let mut packets = vec![arp(Packet::new()).pad_to(60)];
    for _ in 0..random.within(1, 4) {
        let vxlan = |packet: Packet| packet.udp(|u| u).vxlan(|v| v.vni(7));
        let geneve = |packet: Packet| packet.udp(|u| u).geneve(|g| g);
        packets.push(match random.below(5) {
            0 => arp(vxlan(outer().ipv4(|ip| ip))),
            1 => arp(vxlan(outer().ipv6(|ip| ip))),
            2 => arp(geneve(outer().ipv4(|ip| ip))),
            3 => discovery(vxlan(outer().ipv6(|ip| ip))),
            _ => discovery(geneve(outer().ipv4(|ip| ip))),
        });
    }
    packets.iter().map(build).collect()
}

/// Returns a TCP flow that reaches a link with a smaller MTU: a router reports it, and the segments become smaller than
/// the MSS that the SYN announced.
fn narrowed(number: u16, medium: Medium, random: &mut Random) -> Vec<Vec<u8>> {
    let front = if medium.link == Link::Ip { Front::Bare } else { Front::Ethernet };
    let stack = Stack::plain(front, Network::Ipv4, Transport::TcpTimestamps);
    let mut sender = Sender::new(stack, number, medium.mtu, random);
    sender.segment = sender.full;
    let mut frames = sender.handshake(random, Packet::build);
    // Packets in flight at the time of the report are included here as well.
    let in_flight = (0..random.within(1, 4)).map(|_| sender.send(sender.full).build());
    let in_flight: Vec<Vec<u8>> = in_flight.collect();
    let refused = &in_flight[0];
    let start = if medium.link == Link::Ip { 0 } else { 14 };
    let narrow = random.within(medium.mtu / 2 + 100, medium.mtu - 1);
    let router = match medium.link {
        Link::Ip => Packet::new(),
        Link::Ethernet => Packet::new().ethernet(|e| e),
    };
    let rest = [0, 0, (narrow >> 8) as u8, narrow as u8];
    let router = router.ipv4(|ip| ip.source([10, 9, 9, 9]).destination([192, 168, 1, 200]));
    let router = router.icmp(|i| i.kind(3).code(4).rest(rest));
    let said = router.payload(&refused[start..start + 28]).build();
    let before = random.within(1, in_flight.len());
    frames.extend_from_slice(&in_flight[..before]);
    frames.push(said);
    frames.extend_from_slice(&in_flight[before..]);
    sender.segment = narrow - 52;
    frames.extend(sender.packets(random));
    frames
}

/// Returns a packet as its sender passes it to a device that completes checksums.
fn left_to_device(packet: &Packet) -> Vec<u8> {
    let frame = packet.build();
    let link = if frame[0] >> 4 == 4 || frame[0] >> 4 == 6 { Link::Ip } else { Link::Ethernet };
    let parsed = parse(&frame, link, Lengths::Declared);
    let is_transport = |layer: &Layer| matches!(layer.name, "tcp" | "udp");
    match parsed.layers.iter().rposition(is_transport) {
        None => frame,
        // An outer checksum covers the packet with a completed transport checksum (rule C40). Without an inner
        // transport checksum, it is itself partial.
        Some(_) => packet.build_partial().0,
    }
}

/// Returns a random stack half of the time, otherwise one from the complete list. L2TPv3 is left out, because no
/// command knows its format.
pub(crate) fn any_stack(random: &mut Random, link: Link) -> Stack {
    loop {
        let stack = if random.percent(50) {
            Stack::random(random, link)
        } else {
            random.choose(&Stack::all()).clone()
        };
        let has_l2tp = stack.tunnels.iter().any(|(_, tunnel)| *tunnel == Tunnel::L2tp);
        if stack.link() == link && is_remote_alone(&stack) && !has_l2tp {
            return stack;
        }
    }
}

/// Returns whether remote checksum offload is either unused, or used by the innermost tunnel for an inner checksum.
/// Otherwise its header would refer to a missing checksum, or to one that other checksums cover.
fn is_remote_alone(stack: &Stack) -> bool {
    let is_remote =
        |(_, tunnel): &(Network, Tunnel)| matches!(tunnel, Tunnel::VxlanRemote | Tunnel::GueRemote);
    let transports = [Transport::Tcp, Transport::TcpTimestamps, Transport::Udp];
    match stack.tunnels.iter().position(is_remote) {
        None => true,
        Some(place) => place + 1 == stack.tunnels.len() && transports.contains(&stack.transport),
    }
}

/// The sender of one flow.
struct Sender {
    stack: Stack,
    place: Place,
    /// Maximum payload bytes that the link allows.
    full: usize,
    /// Payload bytes per segment in this flow.
    segment: usize,
    /// Step of the identification from packet to packet, for each IP level.
    steps: Vec<u16>,
}

impl Sender {
    fn new(stack: Stack, number: u16, mtu: usize, random: &mut Random) -> Self {
        let levels = stack.tunnels.len() + 1;
        let ids = (0..levels).map(|_| random.bits() as u16).collect();
        // Identifications are counted, constant, or shared with other flows.
        let steps = (0..levels).map(|_| *random.choose(&[1, 1, 0, 3])).collect();
        let sequence = random.bits() as u32;
        let place = Place { flow: number, sequence, ids, ..Place::default() };
        let bare = stack.packet(&place).build();
        let parsed = parse(&bare, stack.link(), Lengths::Declared);
        let network = parsed.layers.iter().find(|layer| layer.is_ip()).expect("an IP header");
        let full = mtu - (bare.len() - network.offset);
        let segment = if random.percent(70) { full } else { random.within(1, full) };
        Self { stack, place, full, segment, steps }
    }

    /// Returns the next packet with this payload; the flow advances by `packets` wire packets.
    fn send_as(&mut self, len: usize, packets: usize) -> Packet {
        let packet = self.stack.packet(&self.place).payload_len(len);
        self.place.sequence = self.place.sequence.wrapping_add(len as u32);
        for (id, step) in self.place.ids.iter_mut().zip(&self.steps) {
            *id = id.wrapping_add(step.wrapping_mul(packets as u16));
        }
        packet
    }

    fn send(&mut self, len: usize) -> Packet {
        self.send_as(len, 1)
    }

    /// Returns the SYNs: at most one in each direction, if the flow is TCP.
    ///
    /// The peer's MSS option bounds the segments, options included (RFC 6691 section 2). The sender's own option bounds
    /// only the segments that it receives.
    fn handshake(
        &mut self,
        random: &mut Random,
        build: impl Fn(&Packet) -> Vec<u8>,
    ) -> Vec<Vec<u8>> {
        if !self.is_tcp() || random.percent(50) {
            return Vec::new();
        }
        let options = if self.stack.transport == Transport::TcpTimestamps { 12 } else { 0 };
        let needed = self.segment + options;
        let peer = *random.choose(&[needed, self.full + options, 1460, 8960, 65495]);
        let own = *random.choose(&[536, 1000, 1220, 1460, self.full + options, 8960]);
        let option = |mss: usize| [&[2, 4][..], &(mss as u16).to_be_bytes()].concat();
        let place = Place { sequence: self.place.sequence.wrapping_sub(1), ..self.place.clone() };
        let packet = self.stack.packet(&place);
        let syn = packet.clone().edit_tcp(|t| t.options(&option(own)).syn().no_ack().ack(0));
        let answer = packet.answer().edit_tcp(|t: Tcp| {
            let t = t.options(&option(peer.max(needed))).syn();
            t.sequence(place.ack.wrapping_sub(1)).ack(self.place.sequence)
        });
        let frames = [build(&syn), build(&answer)];
        match random.below(3) {
            0 => frames.to_vec(),
            chosen => vec![frames[chosen - 1].clone()],
        }
    }

    /// Returns wire packets: mostly full, with pushes, retransmissions and reordering.
    fn packets(&mut self, random: &mut Random) -> Vec<Vec<u8>> {
        let count = random.within(2, 30).min(FLOW_BYTES_MAX / self.full + 2);
        let mut frames: Vec<Vec<u8>> = Vec::new();
        for _ in 0..count {
            let is_short = random.percent(15);
            let len = if is_short { random.within(0, self.segment) } else { self.segment };
            let packet = self.send(len);
            let packet = if is_short { packet.edit_tcp(Tcp::psh) } else { packet };
            // The shortest Ethernet frame; no header counts the padding.
            let is_padded = self.stack.link() == Link::Ethernet && random.percent(50);
            frames.push(if is_padded { packet.pad_to(60).build() } else { packet.build() });
            if random.one_in(20) {
                frames.push(random.choose(&frames).clone());
            }
            if random.one_in(20) && frames.len() > 1 {
                let last = frames.len() - 1;
                frames.swap(last - 1, last);
            }
        }
        frames
    }

    /// Returns the flow on the host: superframes of many segments, and packets.
    fn superframes(&mut self, random: &mut Random) -> Vec<Vec<u8>> {
        let mut bytes = 0;
        let mut frames = Vec::new();
        while bytes < FLOW_BYTES_MAX && frames.len() < 12 {
            let can_be_cut = self.stack.couples() && self.segment >= SEGMENT_BYTES_MIN;
            if can_be_cut && random.percent(60) {
                let most = (SUPERFRAME_BYTES_MAX / self.segment).clamp(2, 64);
                let segments = random.within(2, most);
                let rest = random.within(1, self.segment);
                let len = (segments - 1) * self.segment + rest;
                let packet = self.send_as(len, segments);
                frames.push(packet.edit_tcp(Tcp::psh).build_superframe().0);
                bytes += len;
            } else {
                let len = random.within(0, self.segment);
                frames.push(left_to_device(&self.send(len)));
                bytes += len;
            }
        }
        frames
    }

    fn is_tcp(&self) -> bool {
        matches!(self.stack.transport, Transport::Tcp | Transport::TcpTimestamps)
    }
}

/// Approximate limit on the payload bytes of one flow, to keep the tests short.
const FLOW_BYTES_MAX: usize = 60_000;
/// Maximum payload bytes of a superframe, so that all headers fit below 64 KB.
const SUPERFRAME_BYTES_MAX: usize = 50_000;
/// Segment size below which no sender creates superframes.
const SEGMENT_BYTES_MIN: usize = 64;
