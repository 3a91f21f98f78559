//! Compares the engine with the running kernel: both segment the same superframe, and must create the same packets.
//!
//! The packets must be equal, byte for byte, or differ for a named reason ([`Known`]). `docs/kernel-differences.md` has
//! the table. `GROSSO_SEED=7` tests other superframes.

#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::io;
use std::slice;

use grosso::checksum::{Checksum, complete};
use grosso::segment::{NoSegments, Outgoing};
use grosso_rig::kernel::{GsoOracle, TunnelOffsets, VirtioHeader, dump, release, seed, skip};
use grosso_rig::superframe::Superframe;
use grosso_testkit::Packet;
use grosso_testkit::flows::hex;
use grosso_testkit::headers::Tcp;
use grosso_testkit::random::Random;

/// Number of superframes in the random test.
const SUPERFRAMES: u64 = 1500;
/// Maximum number of packets in a superframe. The oracle's read queue holds more, even without real root privileges.
const PACKETS_MAX: usize = 400;
/// Size of the longest IP packet.
const BYTES_MAX: usize = 65_535;

/// Reason why the kernel and the engine segment a superframe into different packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Known {
    /// The payload of a tunneled superframe fits into one packet. The kernel leaves the tunnel type in place, and a
    /// reader without support for tunnels gets `EINVAL` and no packet (rule V9, B54).
    TunnelWhole,
    /// The payload fits into one packet, but payload plus TCP options do not. The kernel counts the options as payload
    /// when it reads the virtio header. Only segmentation notices that nothing needs to be segmented, and drops the
    /// packet (rules S3, V6).
    WholeButForOptions,
    /// A segment size below 8 is raised to 8 for TCP in 7.2 and later (rule V6, B35).
    TinySize,
}

/// Headers before the transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Path {
    Ipv4,
    Ipv6,
    Ipv6Extensions,
    /// IPv6 in transit: a routing header of this type still has segments left.
    Ipv6Routed(u8),
    /// IPv6 between mobile nodes: in the pseudo-header, the source differs from the IP header, too.
    Ipv6Mobile,
    Vlan,
    DoubleVlan,
    Vxlan {
        outer_ipv6: bool,
        inner_ipv6: bool,
        checksum: bool,
    },
    Geneve {
        outer_ipv6: bool,
        inner_ipv6: bool,
        checksum: bool,
    },
}

/// One superframe for the kernel and the engine.
struct Case {
    path: Path,
    is_udp: bool,
    packet: Packet,
    /// Length of the TCP options.
    options: usize,
    payload_bytes: usize,
    size: u16,
    ecn: bool,
}

impl Case {
    fn random(random: &mut Random, paths: &[Path]) -> Self {
        let path = *random.choose(paths);
        let is_udp = random.percent(35);
        let packet = packet(path, is_udp, random);
        let size = *random.choose(&[1, 2, 7, 8, 9, 100, 536, 1000, 1398, 1448, 8948, 30_000]);
        let room = BYTES_MAX - (packet.header_len() - 14);
        let count_max = (room / size).min(if is_udp { 128 } else { PACKETS_MAX });
        // Exact multiples, one byte more or less, and anything in between.
        let count = random.within(1, count_max);
        let any = random.below(size);
        let beside = *random.choose(&[0, 0, 1, size - 1, any]);
        let payload_bytes = (count * size - beside).clamp(1, room);
        let packet = packet.payload_len(payload_bytes);
        let options = options_bytes(&packet, is_udp);
        let ecn = !is_udp && random.percent(30);
        Self { path, is_udp, packet, options, payload_bytes, size: size as u16, ecn }
    }

    fn header(&self, start: usize, offset: usize) -> VirtioHeader {
        let inner_ipv6 = match self.path {
            Path::Ipv4 | Path::Vlan | Path::DoubleVlan => false,
            Path::Ipv6 | Path::Ipv6Extensions | Path::Ipv6Routed(_) | Path::Ipv6Mobile => true,
            Path::Vxlan { inner_ipv6, .. } | Path::Geneve { inner_ipv6, .. } => inner_ipv6,
        };
        let mut gso_type = match (self.is_udp, inner_ipv6) {
            (true, _) => VirtioHeader::UDP_SEGMENTS,
            (false, true) => VirtioHeader::TCP_IPV6,
            (false, false) => VirtioHeader::TCP_IPV4,
        };
        let mut flags = VirtioHeader::NEEDS_CHECKSUM;
        let mut tunnel = TunnelOffsets::default();
        if let Path::Vxlan { outer_ipv6, checksum, .. }
        | Path::Geneve { outer_ipv6, checksum, .. } = self.path
        {
            let (bit, network) = if outer_ipv6 {
                (VirtioHeader::TUNNEL_IPV6, 40)
            } else {
                (VirtioHeader::TUNNEL_IPV4, 20)
            };
            gso_type |= bit;
            flags |= if checksum { VirtioHeader::TUNNEL_CHECKSUM } else { 0 };
            let inner_network = start - if inner_ipv6 { 40 } else { 20 };
            tunnel = TunnelOffsets {
                outer_transport: 14 + network,
                inner_network: inner_network as u16,
            };
        }
        gso_type |= if self.ecn { VirtioHeader::ECN } else { 0 };
        VirtioHeader {
            flags,
            gso_type,
            gso_size: self.size,
            checksum_start: start as u16,
            checksum_offset: offset as u16,
            tunnel,
            ..VirtioHeader::default()
        }
    }

    /// Returns the known difference that explains the kernel's answer in this case; `None` if there is none.
    fn known(&self, cut: &io::Result<Vec<Vec<u8>>>) -> Option<Known> {
        let size = usize::from(self.size);
        let is_tunnel = matches!(self.path, Path::Vxlan { .. } | Path::Geneve { .. });
        let is_dropped = cut.as_ref().is_ok_and(Vec::is_empty);
        let is_refused = || cut.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::InvalidInput);
        if self.payload_bytes <= size && is_tunnel && is_refused() {
            Some(Known::TunnelWhole)
        } else if self.payload_bytes <= size
            && self.options + self.payload_bytes > size
            && is_dropped
        {
            Some(Known::WholeButForOptions)
        } else if !self.is_udp && self.size < 8 && release() >= (7, 2) {
            Some(Known::TinySize)
        } else {
            None
        }
    }

    /// Compares the kernel with the engine. Returns a known difference, and panics on any other.
    fn compare(&self, kernel: &mut GsoOracle, context: &str) -> Option<Known> {
        let (bytes, start, offset) = self.packet.build_superframe();
        let header = self.header(start, offset);
        let cut = kernel.segment(&header, &bytes);
        let expected = self.engine();
        let describe = || {
            let path = self.path;
            format!(
                "{context}: {path:?} {header:?}, {} bytes\n{}",
                bytes.len(),
                dump(slice::from_ref(&bytes))
            )
        };
        let known = self.known(&cut);
        match cut {
            Ok(packets) if packets == expected => None,
            _ if known.is_some() => known,
            Err(why) => panic!("the kernel refuses: {why}\n{}", describe()),
            Ok(packets) => {
                let pairs = packets.iter().zip(&expected).position(|(one, other)| one != other);
                let place = pairs.unwrap_or_else(|| packets.len().min(expected.len()));
                let shown =
                    |packets: &[Vec<u8>]| packets.get(place).map_or(String::new(), |p| hex(p));
                panic!(
                    "packet {place} of {} and {} differs\nkernel: {}\nengine: {}\n{}",
                    packets.len(),
                    expected.len(),
                    shown(&packets),
                    shown(&expected),
                    describe(),
                );
            }
        }
    }

    /// Returns the engine's packets. A superframe that needs no segmentation is sent whole, with a complete checksum.
    fn engine(&self) -> Vec<Vec<u8>> {
        let superframe = Superframe::new(&self.packet, self.size);
        match superframe.cut(Outgoing::default()) {
            Ok(packets) => {
                assert!(packets.iter().all(|(_, meta)| meta.checksum == Checksum::None));
                packets.into_iter().map(|(bytes, _)| bytes).collect()
            }
            Err(NoSegments::Whole) => {
                let Checksum::Partial { start, offset } = superframe.meta.checksum else {
                    panic!("a superframe has a partial checksum");
                };
                let (mut bytes, ..) = self.packet.build_partial();
                complete(&mut bytes, start, offset).expect("a checksum inside the packet");
                vec![bytes]
            }
            Err(why) => panic!("{why}"),
        }
    }
}

#[test]
fn random_superframes_are_cut_alike() {
    let mut kernel = match GsoOracle::new() {
        Ok(kernel) => kernel,
        Err(why) => return skip(&why),
    };
    let paths = paths();
    let first = seed(5 << 32);
    let (mut counts, mut by_path) = (BTreeMap::new(), BTreeMap::new());
    for seed in first..first + SUPERFRAMES {
        let case = Case::random(&mut Random::new(seed), &paths);
        *by_path.entry(case.path).or_insert(0) += 1;
        if let Some(known) = case.compare(&mut kernel, &format!("GROSSO_SEED={seed}")) {
            *counts.entry(known).or_insert(0) += 1;
        }
    }
    println!("{SUPERFRAMES} superframes {by_path:?}, differences {counts:?}");
}

/// Tests a list of sizes: those of the kernel's own UDP segmentation test (K36 and later), and sizes near the limits of
/// BIG TCP.
#[test]
fn multiples_and_their_neighbours_are_cut_alike() {
    let mut kernel = match GsoOracle::new() {
        Ok(kernel) => kernel,
        Err(why) => return skip(&why),
    };
    let mut random = Random::new(1);
    let mut asked = 0;
    for (path, is_udp) in paths().into_iter().flat_map(|path| [(path, false), (path, true)]) {
        for (size, count) in
            [(1, 2), (1, 100), (8, 3), (1000, 1), (1000, 2), (1000, 64), (1472, 44)]
        {
            for payload_bytes in [count * size - 1, count * size, count * size + 1] {
                let packet = packet(path, is_udp, &mut random).payload_len(payload_bytes);
                if payload_bytes == 0 || packet.header_len() - 14 + payload_bytes > BYTES_MAX {
                    continue;
                }
                let size = size as u16;
                let options = options_bytes(&packet, is_udp);
                let case = Case { path, is_udp, packet, options, payload_bytes, size, ecn: false };
                case.compare(&mut kernel, &format!("{payload_bytes} by {size}"));
                asked += 1;
            }
        }
    }
    println!("{asked} superframes");
}

/// Returns the paths that the running kernel supports.
fn paths() -> Vec<Path> {
    let mut paths =
        vec![Path::Ipv4, Path::Ipv6, Path::Ipv6Extensions, Path::Vlan, Path::DoubleVlan];
    paths.extend([Path::Ipv6Routed(0), Path::Ipv6Routed(2), Path::Ipv6Routed(4), Path::Ipv6Mobile]);
    if release() < (6, 17) {
        println!("skipped: Linux {:?} has no virtio header for tunnels", release());
        return paths;
    }
    for bits in 0..8 {
        let (outer_ipv6, inner_ipv6, checksum) = (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0);
        paths.push(Path::Vxlan { outer_ipv6, inner_ipv6, checksum });
        paths.push(Path::Geneve { outer_ipv6, inner_ipv6, checksum });
    }
    paths
}

fn packet(path: Path, is_udp: bool, random: &mut Random) -> Packet {
    let link = Packet::new().ethernet(|ethernet| ethernet);
    let packet = match path {
        Path::Ipv4 => network(link, false, random),
        Path::Ipv6 => network(link, true, random),
        Path::Ipv6Extensions => network(link, true, random)
            .hop_by_hop(|options| options)
            .routing(|routing| routing)
            .destination_options(|options| options),
        Path::Ipv6Routed(kind) => network(link, true, random)
            .routing(|routing| routing.route(kind, 1, &[[0xa5; 16], [0x5a; 16]])),
        Path::Ipv6Mobile => network(link, true, random)
            .routing(|routing| routing.route(2, 1, &[[0xa7; 16]]))
            .destination_options(|options| options.home_address([0x7a; 16])),
        Path::Vlan => network(link.vlan(|tag| tag.id(7)), false, random),
        Path::DoubleVlan => {
            network(link.vlan(|tag| tag.id(9).service()).vlan(|tag| tag.id(7)), false, random)
        }
        Path::Vxlan { outer_ipv6, inner_ipv6, checksum } => {
            let outer = network(link, outer_ipv6, random)
                .udp(|udp| if checksum { udp } else { udp.checksum_zero() });
            network(outer.vxlan(|vxlan| vxlan.vni(42)).ethernet(|inner| inner), inner_ipv6, random)
        }
        Path::Geneve { outer_ipv6, inner_ipv6, checksum } => {
            let outer = network(link, outer_ipv6, random)
                .udp(|udp| if checksum { udp } else { udp.checksum_zero() });
            let tunnel = outer.geneve(|geneve| geneve.option(0x0102, 3, &[1, 2, 3, 4]));
            network(tunnel.ethernet(|inner| inner), inner_ipv6, random)
        }
    };
    let port = random.bits() as u16;
    if is_udp { packet.udp(|udp| udp.source_port(port)) } else { packet.tcp(|t| tcp(t, random)) }
}

/// Returns the length of TCP options: the bytes after the fixed part of the innermost header.
fn options_bytes(packet: &Packet, is_udp: bool) -> usize {
    let (_, start, _) = packet.build_superframe();
    packet.header_len() - start - if is_udp { 8 } else { 20 }
}

fn network(packet: Packet, is_ipv6: bool, random: &mut Random) -> Packet {
    let (tos, ttl, id) = (random.bits() as u8, random.bits() as u8 | 2, random.bits());
    if is_ipv6 {
        let label = id as u32 & 0xf_ffff;
        return packet.ipv6(|ip| ip.traffic_class(tos).hop_limit(ttl).flow_label(label));
    }
    // One identification out of four wraps.
    let id = if random.one_in(4) { 0xfffe } else { id as u16 };
    let df = random.percent(50);
    packet.ipv4(|ip| ip.tos(tos).ttl(ttl).id(id).df(df))
}

/// Sets any flags (all packets repeat them, rule S11), options, and sequence numbers that wrap.
fn tcp(tcp: Tcp, random: &mut Random) -> Tcp {
    let sequence = if random.one_in(4) { u32::MAX - 1000 } else { random.bits() as u32 };
    let tcp = tcp.source_port(random.bits() as u16).sequence(sequence).window(random.bits() as u16);
    let tcp = tcp.ack(random.bits() as u32).urgent_pointer(random.bits() as u16);
    let tcp = if random.percent(60) { tcp.flag(1 << random.below(12)) } else { tcp };
    let tcp = if random.percent(60) { tcp.flag(1 << random.below(8)) } else { tcp };
    match random.below(3) {
        0 => tcp,
        1 => tcp.timestamps(random.bits() as u32, 7),
        _ => tcp.options(&[1; 40]),
    }
}
