//! The traffic of every benchmark, by name: Ethernet frames generated from a seed, with correct checksums.
//!
//! Beyond what the table of workloads specifies: flows that are not declared as interleaved arrive in bursts of 8
//! packets on average; outer IP headers have identification 0 and the DF flag; all fragments of a datagram arrive
//! before the next datagram, and the sources take turns; the superframes of a `gso_` workload belong to one flow.

use crate::Packet;
use crate::headers::Tcp;
use crate::oracle::Description;
use crate::random::Random;

/// The names of all workloads.
pub const WORKLOADS: &[&str] = &[
    "tcp4_1",
    "tcp4_jumbo",
    "tcp4_8rr",
    "tcp4_64burst",
    "tcp4_1000rr",
    "tcp6_16burst",
    "tcp4_acks",
    "tcp4_reorder",
    "tcp4_small",
    "udp4_quic",
    "vxlan_tcp4",
    "gre_tcp4",
    "gue_rco_tcp4",
    "frag4_8k",
    "frag4_64k",
    "frag6_64k",
    "frag_shuffled",
    "frag4_8k_shuffled",
    "frag6_shuffled",
    "gso_tcp4",
    "gso_udp4",
    "gso_vxlan",
    "gso_gre",
];

/// Number of packets in a workload, unless the table specifies another number.
pub const PACKETS: usize = 16384;

/// Number of packets that the receiver reads in one poll.
pub const POLL: usize = 64;

/// The frames of one workload.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The name of the workload.
    pub name: &'static str,
    /// The Ethernet frames in order, each with a packet, a fragment or a superframe.
    pub frames: Vec<Vec<u8>>,
    /// Number of wire packets, which is greater than the number of frames if these are superframes.
    pub packets: usize,
    /// Number of bytes of transport payload in all frames; for fragments, in the datagrams.
    pub payload_bytes: usize,
    /// Metadata that applies to every frame, if the frames are superframes.
    pub gso: Option<Gso>,
}

/// Segmentation metadata of a workload's superframes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gso {
    /// Description of the segments.
    pub description: Description,
    /// Number of packets that segmenting a superframe produces.
    pub segments: usize,
    /// Offset of the first byte in the frame that the partial checksum covers.
    pub checksum_start: usize,
    /// Offset of the checksum field, in bytes from `checksum_start`.
    pub checksum_offset: usize,
}

/// Returns the workload with this name.
///
/// # Panics
/// Panics if [`WORKLOADS`] does not contain the name.
pub fn workload(name: &str, seed: u64) -> Workload {
    let known = WORKLOADS.iter().copied().find(|known| *known == name);
    let name =
        known.unwrap_or_else(|| panic!("unknown workload {name}; known workloads: {WORKLOADS:?}"));
    let mut random = Random::new(seed);
    match name {
        "frag4_8k" | "frag4_8k_shuffled" => fragments(name, &mut random, 8192, 8, false),
        "frag4_64k" | "frag_shuffled" => fragments(name, &mut random, 65000, 2, false),
        "frag6_64k" | "frag6_shuffled" => fragments(name, &mut random, 65000, 2, true),
        "gso_tcp4" | "gso_udp4" | "gso_vxlan" | "gso_gre" => superframes(name, &mut random),
        "udp4_quic" => datagrams(name, &mut random),
        _ => segments(name, &mut random),
    }
}

/// Headers around the TCP header of a flow.
#[derive(Clone, Copy, Debug)]
enum Path {
    Ipv4,
    Ipv6,
    Vxlan,
    Gre,
    GueRemote,
}

/// One TCP flow.
struct Connection {
    path: Path,
    index: u16,
    sequence: u32,
    ack: u32,
    id: u16,
    clock: u32,
    sent: u32,
}

impl Connection {
    fn new(path: Path, index: u16, random: &mut Random) -> Self {
        let mut number = || random.bits() as u32;
        let (sequence, ack, id, clock) = (number(), number(), number() as u16, number());
        Self { path, index, sequence, ack, id, clock, sent: 0 }
    }

    /// Returns the next packet that the sender sends. The identification advances by `segments`.
    fn packet(&mut self, len: usize, segments: u32, edit: impl FnOnce(Tcp) -> Tcp) -> Packet {
        let (index, id) = (self.index, self.id);
        // One address serves 250 flows: all flows differ in their ports, and some also in their addresses.
        let host = 2 + (index / 250) as u8;
        let ipv4 = |p: Packet| p.ipv4(|ip| ip.source([10, 1, 0, host]).id(id).ttl(64));
        let outer = |p: Packet| p.ethernet(|e| e).ipv4(|ip| ip.ttl(64));
        // The source port of a UDP tunnel is a hash of the inner flow (rule W3).
        let port = 49152 + index;
        let start = Packet::new();
        let packet = match self.path {
            Path::Ipv4 => ipv4(start.ethernet(|e| e)),
            Path::Ipv6 => {
                let label = 0x10000 + u32::from(index);
                start.ethernet(|e| e).ipv6(|ip| ip.hop_limit(64).flow_label(label))
            }
            Path::Vxlan => {
                let udp = outer(start).udp(|u| u.source_port(port).checksum_zero());
                ipv4(udp.vxlan(|v| v.vni(42)).ethernet(|e| e))
            }
            Path::Gre => ipv4(outer(start).gre(|g| g)),
            Path::GueRemote => {
                ipv4(outer(start).udp(|u| u.source_port(port)).gue(|g| g.remote_checksum()))
            }
        };
        // The timestamp clock advances every 44 segments of a flow.
        let now = self.clock.wrapping_add(self.sent / 44);
        let (sequence, ack) = (self.sequence, self.ack);
        let packet = packet.tcp(|t| {
            let t = t.source_port(1500 + index).sequence(sequence).ack(ack);
            edit(t.timestamps(now, 1))
        });
        self.sent += segments;
        self.id = self.id.wrapping_add(segments as u16);
        self.sequence = self.sequence.wrapping_add(len as u32);
        packet.payload_len(len)
    }
}

/// Order in which flows send.
enum Turns {
    /// Each flow sends one packet in turn.
    Each,
    /// A random flow sends a burst; bursts have this mean length.
    Bursts(usize),
    /// A random flow sends each packet.
    Random,
}

/// Generates a workload of TCP segments.
fn segments(name: &'static str, random: &mut Random) -> Workload {
    let (path, flows, len, turns) = match name {
        "tcp4_1" => (Path::Ipv4, 1, 1448, Turns::Each),
        "tcp4_jumbo" => (Path::Ipv4, 1, 8948, Turns::Each),
        "tcp4_8rr" => (Path::Ipv4, 8, 1448, Turns::Each),
        "tcp4_64burst" => (Path::Ipv4, 64, 1448, Turns::Bursts(8)),
        "tcp4_1000rr" => (Path::Ipv4, 1000, 1448, Turns::Each),
        "tcp6_16burst" => (Path::Ipv6, 16, 1428, Turns::Bursts(8)),
        "tcp4_acks" => (Path::Ipv4, 4, 1448, Turns::Bursts(8)),
        "tcp4_reorder" => (Path::Ipv4, 8, 1448, Turns::Bursts(16)),
        "tcp4_small" => (Path::Ipv4, 256, 64, Turns::Random),
        "vxlan_tcp4" => (Path::Vxlan, 16, 1398, Turns::Bursts(8)),
        "gre_tcp4" => (Path::Gre, 16, 1424, Turns::Bursts(8)),
        _ => (Path::GueRemote, 16, 1424, Turns::Bursts(8)),
    };
    let packets = if name == "tcp4_jumbo" { PACKETS / 4 } else { PACKETS };
    let mut connections: Vec<Connection> =
        (0..flows).map(|index| Connection::new(path, index, random)).collect();
    let order = order(&turns, flows.into(), packets, random);
    let mut payload_bytes = 0;
    let mut frames: Vec<Vec<u8>> = order
        .into_iter()
        .map(|flow| {
            let connection = &mut connections[flow];
            // Half of the packets are pure acknowledgments.
            let pure = name == "tcp4_acks" && random.percent(50);
            if pure {
                connection.ack = connection.ack.wrapping_add(2 * len as u32);
            }
            let len = if pure { 0 } else { len };
            payload_bytes += len;
            let edit = |t: Tcp| if name == "tcp4_small" { t.psh() } else { t };
            connection.packet(len, 1, edit).build()
        })
        .collect();
    if name == "tcp4_reorder" {
        displace(&mut frames, random);
    }
    Workload { name, packets: frames.len(), frames, payload_bytes, gso: None }
}

/// Returns the flow that sends each packet.
fn order(turns: &Turns, flows: usize, packets: usize, random: &mut Random) -> Vec<usize> {
    let mut order = Vec::with_capacity(packets);
    while order.len() < packets {
        match turns {
            Turns::Each => order.push(order.len() % flows),
            Turns::Random => order.push(random.below(flows)),
            Turns::Bursts(mean) => {
                let flow = random.below(flows);
                order.extend(vec![flow; random.geometric(*mean)]);
            }
        }
    }
    order.truncate(packets);
    order
}

/// Moves 2 % of the frames 1 to 3 positions toward the end.
fn displace(frames: &mut [Vec<u8>], random: &mut Random) {
    // Iterates from the end so that a move does not affect the frames before it.
    for index in (0..frames.len()).rev() {
        if random.percent(2) {
            let target = (index + random.within(1, 3)).min(frames.len() - 1);
            frames[index..=target].rotate_left(1);
        }
    }
}

/// Generates `udp4_quic`: runs of 1 to 15 datagrams of 1250 bytes, each run ending with a shorter datagram.
fn datagrams(name: &'static str, random: &mut Random) -> Workload {
    let mut ids: Vec<u16> = (0..16).map(|_| random.bits() as u16).collect();
    let (mut frames, mut payload_bytes) = (Vec::with_capacity(PACKETS), 0);
    while frames.len() < PACKETS {
        let flow = random.below(ids.len());
        let run = random.within(1, 15);
        for index in 0..=run {
            let len = if index == run { random.within(30, 1249) } else { 1250 };
            let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(ids[flow]).ttl(64));
            let packet = packet.udp(|u| u.source_port(443).destination_port(40000 + flow as u16));
            frames.push(packet.payload(&random.bytes(len)).build());
            payload_bytes += len;
            ids[flow] = ids[flow].wrapping_add(1);
        }
    }
    for frame in frames.drain(PACKETS..) {
        payload_bytes -= frame.len() - 42;
    }
    Workload { name, packets: PACKETS, frames, payload_bytes, gso: None }
}

/// Generates about [`PACKETS`] fragments: UDP datagrams of `len` bytes from `sources` hosts, fragmented for an MTU of
/// 1500 bytes.
fn fragments(
    name: &'static str,
    random: &mut Random,
    len: usize,
    sources: usize,
    ipv6: bool,
) -> Workload {
    let (mut frames, mut payload_bytes) = (Vec::with_capacity(PACKETS), 0);
    for datagram in 0_usize.. {
        let mut pieces = fragments_of(&random.bytes(len), datagram, datagram % sources, ipv6);
        if frames.len() + pieces.len() > PACKETS {
            break;
        }
        if name.ends_with("shuffled") {
            random.shuffle(&mut pieces);
        }
        frames.extend(pieces);
        payload_bytes += len;
    }
    Workload { name, packets: frames.len(), frames, payload_bytes, gso: None }
}

/// Returns the fragments of one datagram, in order.
fn fragments_of(payload: &[u8], datagram: usize, source: usize, ipv6: bool) -> Vec<Vec<u8>> {
    let host = 2 + source as u8;
    let network = |packet: Packet| {
        if ipv6 {
            packet.ipv6(|mut ip| {
                ip.source[15] = host;
                ip.hop_limit(64)
            })
        } else {
            packet.ipv4(|ip| ip.source([10, 1, 0, host]).id(datagram as u16).df(false).ttl(64))
        }
    };
    let whole = network(Packet::new()).udp(|u| u).payload(payload).build();
    // Each fragment carries the largest multiple of 8 bytes of data that fits into an MTU of 1500.
    let (data, room) = if ipv6 { (&whole[40..], 1448) } else { (&whole[20..], 1480) };
    let pieces = data.chunks(room).enumerate().map(|(index, piece)| {
        let offset = (index * room / 8) as u16;
        let more = (index + 1) * room < data.len();
        let packet = Packet::new().ethernet(|e| e);
        let packet = if ipv6 {
            let id = datagram as u32;
            network(packet).fragment(|f| f.id(id).offset(offset).more(more).next_header(17))
        } else {
            packet.ipv4(|ip| {
                let ip = ip.source([10, 1, 0, host]).id(datagram as u16).df(false).ttl(64);
                ip.fragment_offset(offset).more_fragments(more).protocol(17)
            })
        };
        packet.payload(piece).build()
    });
    pieces.collect()
}

/// Generates superframes of 45 x 1448 (UDP: 50 x 1250) bytes with a partial checksum, which amount to [`PACKETS`]
/// packets or a few more.
fn superframes(name: &'static str, random: &mut Random) -> Workload {
    let (segments, gso_size) = if name == "gso_udp4" { (50, 1250) } else { (45, 1448) };
    let path = match name {
        "gso_vxlan" => Path::Vxlan,
        "gso_gre" => Path::Gre,
        _ => Path::Ipv4,
    };
    // If there is an outer header, its identification is 0 in every packet.
    let fixed_ids = u32::from(matches!(path, Path::Vxlan | Path::Gre));
    let description = Description { gso_size, fixed_ids, cwr_on_all: false };
    let mut connection = Connection::new(path, 0, random);
    let (mut frames, mut place) = (Vec::new(), (0, 0));
    for index in 0..PACKETS.div_ceil(segments) {
        let packet = if name == "gso_udp4" {
            let id = (index * segments) as u16;
            let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(id).ttl(64));
            packet.udp(|u| u).payload(&random.bytes(segments * gso_size))
        } else {
            connection.packet(segments * gso_size, segments as u32, |t| t)
        };
        let (frame, start, offset) = packet.build_superframe();
        place = (start, offset);
        frames.push(frame);
    }
    let (checksum_start, checksum_offset) = place;
    let gso = Gso { description, segments, checksum_start, checksum_offset };
    let payload_bytes = frames.len() * segments * gso_size;
    Workload { name, packets: frames.len() * segments, frames, payload_bytes, gso: Some(gso) }
}
