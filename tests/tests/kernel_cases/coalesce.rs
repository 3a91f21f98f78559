//! Runs the cases K1 to K36 from the kernel's `gro.c`, with the kernel's header stacks, and K60 to K68 from its UDP
//! scripts.

use grosso::{Profile, coalesce::reason::Close, stats::CoalesceStats};
use grosso_rig::{
    engine::{Engine, coalesce, coalesce_with, segment},
    frames::{Path, Segment, assert_apart, assert_payloads, at, payload_lengths, plain},
};
use grosso_testkit::{
    Packet,
    headers::{Ipv4, Tcp},
    oracle::{Link, is_right},
    stream,
};

/// A change to each packet, which depends on the packet's index.
type Change<'a> = &'a dyn Fn(usize, Segment) -> Segment;

/// Asserts the payload lengths delivered over each of `paths`.
#[track_caller]
fn case(paths: &[Path], lengths: &[usize], change: Change<'_>, expected: &[usize]) {
    for path in paths {
        let delivered = coalesce(&path.train(lengths, change));
        assert_eq!(payload_lengths(&delivered), expected, "{path:?}");
    }
}

#[test]
fn k01_data_same() {
    case(&Path::ALL, &[100, 100], &plain, &[200]);
}

#[test]
fn k02_data_lrg_sml() {
    case(&Path::ALL, &[100, 50], &plain, &[150]);
}

#[test]
fn k03_data_lrg_1byte() {
    case(&Path::ALL, &[100, 1], &plain, &[101]);
}

#[test]
fn k03_data_lrg_1byte_padded_stays_apart() {
    assert_apart(&Path::Ipv4.train(&[100, 1], at(1, |s| s.frame(|packet| packet.pad_to(60)))));
}

#[test]
fn k04_data_sml_lrg() {
    case(&Path::ALL, &[50, 100], &plain, &[50, 100]);
}

#[test]
fn k05_data_burst() {
    for path in Path::ALL {
        let frames = path.train(&[100; 4], plain);
        assert_eq!(payload_lengths(&two_polls(&frames)), [200, 200], "{path:?}");
    }
}

#[test]
fn k06_ack() {
    case(&Path::IP, &[0, 0, 0], &at(2, |s| s.tcp(|tcp| tcp.ack(101))), &[0, 0, 0]);
}

#[test]
fn k07_flags_psh() {
    case(&Path::IP, &[100; 5], &at(2, |s| s.tcp(Tcp::psh)), &[300, 200]);
}

#[test]
fn k08_flags_syn() {
    case(&Path::IP, &[100, 100, 0, 100, 100], &at(2, |s| s.tcp(Tcp::syn)), &[200, 0, 200]);
}

#[test]
fn k09_flags_rst() {
    case(&Path::IP, &[100, 100, 0, 100, 100], &at(2, |s| s.tcp(Tcp::rst)), &[200, 0, 200]);
}

#[test]
fn k10_flags_urg() {
    case(&Path::IP, &[100, 100, 0, 100, 100], &at(2, |s| s.tcp(Tcp::urg)), &[200, 0, 200]);
}

#[test]
fn k11_flags_cwr() {
    let second_and_third =
        |index, s: Segment| if matches!(index, 1 | 2) { s.tcp(Tcp::cwr) } else { s };
    case(&Path::IP, &[100; 5], &second_and_third, &[100, 200, 200]);
}

#[test]
fn k12_tcp_csum() {
    case(&Path::IP, &[100, 100], &at(1, |s| s.tcp(|tcp| tcp.checksum_xor(1))), &[100, 100]);
}

#[test]
fn k13_tcp_seq() {
    case(&Path::IP, &[100, 100], &at(1, |s| s.tcp(|tcp| tcp.sequence(201))), &[100, 100]);
}

#[test]
fn k14_tcp_ts() {
    // The same ten bytes of timestamps follow two NOPs, one NOP, or none.
    let options = |index: usize| {
        let timestamps = [&[8, 10][..], &[0, 0, 0, [0, 0, 100, 100, 100][index]], &[0; 4]].concat();
        match index {
            0..=2 => [&[1, 1][..], &timestamps].concat(),
            3 => [&[1][..], &timestamps, &[1]].concat(),
            _ => [&timestamps[..], &[1, 1]].concat(),
        }
    };
    let change = |index, s: Segment| {
        let options = options(index);
        s.tcp(move |tcp| tcp.options(&options))
    };
    case(&Path::IP, &[100; 5], &change, &[200, 100, 100, 100]);
}

#[test]
fn k15_tcp_opt() {
    let change = |index, s: Segment| match index {
        0 | 1 => s.tcp(|tcp| tcp.timestamps(0, 0)),
        _ => s.tcp(|tcp| tcp.options(&[1, 3, 3, 2])),
    };
    case(&Path::IP, &[100; 3], &change, &[200, 100]);
}

#[test]
fn k16_ip_ecn() {
    case(&Path::IP, &[100, 100], &at(1, |s| s.tos(0b10)), &[100, 100]);
}

#[test]
fn k17_ip_tos() {
    case(&Path::OVER_IPV4, &[100, 100], &at(1, |s| s.tos(1)), &[100, 100]);
    case(&Path::OVER_IPV6, &[100, 100], &at(1, |s| s.tos(0xf0)), &[100, 100]);
}

#[test]
fn k18_ip_csum() {
    let change = at(1, |s| s.ipv4(|ip| ip.checksum_xor(1)));
    case(&Path::OVER_IPV4, &[100; 3], &change, &[100; 3]);
}

#[test]
fn k19_ip_ttl() {
    case(&Path::OVER_IPV4, &[100, 100], &at(1, |s| s.ttl(7)), &[100, 100]);
}

#[test]
fn k20_ip_opt() {
    const TIMESTAMP: [u8; 12] = [68, 12, 9, 0, 0, 0, 0, 1, 0, 0, 0, 2];
    let change = at(1, |s| s.ipv4(|ip| ip.options(&TIMESTAMP)));
    case(&Path::OVER_IPV4, &[100; 3], &change, &[100; 3]);
}

#[test]
fn k21_ip_frag4() {
    for path in Path::OVER_IPV4 {
        assert_apart(&path.train(&[100, 100], at(1, |s| s.ipv4(|ip| ip.more_fragments(true)))));
    }
}

/// Checks which trains result from segments whose innermost IPv4 headers have these identifications.
#[track_caller]
fn ids(df: bool, ids: &[u16], expected: &[usize]) {
    let change = |index: usize, s: Segment| {
        let id = ids[index];
        s.ipv4(move |ip: Ipv4| ip.df(df).id(id))
    };
    case(&Path::OVER_IPV4, &vec![100; ids.len()], &change, expected);
}

#[test]
fn k22_ip_id_df1_inc() {
    ids(true, &[8, 9], &[200]);
}

#[test]
fn k23_ip_id_df1_fixed() {
    ids(true, &[8, 8], &[200]);
}

#[test]
fn k24_ip_id_df0_inc() {
    ids(false, &[8, 9], &[200]);
}

#[test]
fn k25_ip_id_df0_fixed() {
    ids(false, &[8, 8], &[200]);
}

#[test]
fn k26_ip_id_df1_inc_fixed() {
    ids(true, &[8, 9, 9], &[200, 100]);
}

#[test]
fn k27_ip_id_df1_fixed_inc() {
    ids(true, &[8, 8, 9], &[200, 100]);
}

#[test]
fn k28_ip_frag6() {
    for path in Path::OVER_IPV6 {
        let atomic = at(2, |s| s.extensions(|packet| packet.fragment(|fragment| fragment)));
        let frames = path.train(&[100; 4], atomic);
        assert_eq!(payload_lengths(&two_polls(&frames)), [200, 100, 100], "{path:?}");
    }
}

/// Returns a change that adds destination options with one unknown option whose data is all `byte`.
fn option_data(byte: u8) -> impl Fn(Segment) -> Segment {
    move |s| {
        s.extensions(move |p| p.destination_options(|d| d.data(&[0x1e, 4, byte, byte, byte, byte])))
    }
}

#[test]
fn k29_ip_v6ext_same() {
    let same = option_data(0);
    case(&Path::OVER_IPV6, &[100, 100], &|_, s| same(s), &[200]);
}

#[test]
fn k30_ip_v6ext_diff() {
    let change = |index: usize, s| option_data(0x11 * index as u8)(s);
    case(&Path::OVER_IPV6, &[100, 100], &change, &[100, 100]);
}

/// Returns the payload bytes of a packet for a path MTU of 4096, and the maximum payload of a superframe.
fn large(path: Path) -> (usize, usize) {
    (4096 - path.ip_and_tcp_len(), 65535 - path.ip_and_tcp_len())
}

/// Returns full segments, then a segment of `last` bytes, and another such segment at the position that would follow a
/// full one.
fn large_train(path: Path, last: usize) -> Vec<Vec<u8>> {
    let (mss, max) = large(path);
    let full = max / mss;
    let sequence = 100 + ((full + 1) * mss) as u32;
    let lengths = [vec![mss; full], vec![last; 2]].concat();
    path.train(&lengths, at(full + 1, move |s| s.tcp(move |tcp| tcp.sequence(sequence))))
}

#[test]
fn k31_large_max() {
    for path in Path::IP {
        let (mss, max) = large(path);
        assert_payloads(&large_train(path, max % mss), &[max, max % mss]);
    }
}

#[test]
fn k32_large_rem() {
    for path in Path::IP {
        let (mss, max) = large(path);
        let rest = max % mss;
        assert_payloads(&large_train(path, rest + 1), &[max - rest, rest + 1, rest + 1]);
    }
}

#[test]
fn k33_single() {
    case(&Path::ALL, &[100], &plain, &[100]);
}

/// Returns the first segments of `flows` connections, and then the second ones, which have PSH.
fn capacity(flows: u16, path: Path) -> Vec<Vec<u8>> {
    let train = |flow: u16| {
        path.train(&[200, 200], move |index, s| {
            s.tcp(move |tcp| {
                let tcp = tcp.source_port(1500 + flow);
                if index == 1 { tcp.psh() } else { tcp }
            })
        })
    };
    let trains: Vec<_> = (0..flows).map(train).collect();
    (0..2).flat_map(|index| trains.iter().map(move |train| train[index].clone())).collect()
}

#[test]
fn k34_capacity() {
    for path in Path::IP {
        for doublings in 0..7 {
            let flows = 8 << doublings;
            let delivered = coalesce(&capacity(flows, path));
            assert_eq!(payload_lengths(&delivered), vec![400; usize::from(flows)], "{path:?}");
            assert!(delivered.iter().all(|out| out.closed == Close::Push));
        }
    }
}

#[test]
fn k34_capacity_of_linux_s_one_bucket_is_eight() {
    let delivered = coalesce_with(Profile::linux_8x8(), &capacity(8, Path::Ipv4));
    assert_eq!(payload_lengths(&delivered), [400; 8]);
}

#[test]
fn k34_capacity_order_is_that_of_the_second_segments() {
    let frames = capacity(32, Path::Ipv4);
    let ports: Vec<_> = coalesce(&frames).iter().map(|out| out.bytes[34..36].to_vec()).collect();
    let expected: Vec<_> = (1500_u16..1532).map(|port| port.to_be_bytes().to_vec()).collect();
    assert_eq!(ports, expected);
}

#[test]
fn k35_pppoe_sid() {
    for path in [Path::PppoeIpv4, Path::PppoeIpv6] {
        let sessions = [0x1234, 0x4321];
        let frames = path
            .train(&[100, 100], |index, s| s.pppoe(move |pppoe| pppoe.session(sessions[index])));
        assert_apart(&frames);
    }
}

#[test]
fn k36_gro_hw_stats() {
    let count = |frames: &[Vec<u8>]| {
        let mut engine = Engine::new(Profile::linux());
        frames.iter().for_each(|frame| {
            engine.push(frame);
        });
        engine.poll_end(0);
        let CoalesceStats { packets_in, frames_out, superframes, superframe_packets, .. } =
            *engine.stats();
        (packets_in, frames_out, superframes, superframe_packets)
    };
    let single = &capacity(2, Path::Ipv4)[..2];
    assert_eq!(count(single), (2, 2, 0, 0));
    assert_eq!(count(&capacity(500, Path::Ipv4)), (1000, 500, 500, 1000));
}

/// Sends the first half of the frames in one poll and the second half in another.
fn two_polls(frames: &[Vec<u8>]) -> Vec<grosso_rig::engine::Out> {
    let mut engine = Engine::new(Profile::linux());
    for half in frames.chunks(frames.len() / 2) {
        half.iter().for_each(|frame| {
            engine.push(frame);
        });
        engine.poll_end(0);
    }
    engine.checked(frames)
}

#[test]
fn k60_udp_without_gro_is_ten_messages() {
    let mut profile = Profile::linux();
    profile.udp = false;
    let delivered = coalesce_with(profile, &Path::Ipv4.datagrams(&[1400; 10], plain));
    assert_eq!(payload_lengths(&delivered), [1400; 10]);
}

#[test]
fn k61_udp_gro_is_one_message() {
    for (path, size) in [(Path::Ipv4, 1472), (Path::Ipv6, 1452)] {
        let delivered = coalesce(&path.datagrams(&[size; 10], plain));
        assert_eq!(payload_lengths(&delivered), [10 * size]);
        assert_eq!(delivered[0].meta.gso.unwrap().size(), Some(size as u16));
    }
}

#[test]
fn k62_udp_gro_with_segment_500() {
    let delivered = coalesce(&Path::Ipv4.datagrams(&[500; 10], plain));
    assert_eq!(delivered[0].meta.gso.unwrap().size(), Some(500));
}

#[test]
fn k63_an_aggregate_for_a_plain_socket_is_cut_again() {
    let frames = Path::Ipv4.datagrams(&[1472; 10], plain);
    let delivered = coalesce(&frames);
    assert_eq!(segment(&delivered[0]), frames);
}

#[test]
fn k65_udpgro_fwd() {
    let frames = Path::Ipv4.datagrams(&[1400; 10], plain);
    let joins = |udp| {
        let mut profile = Profile::linux();
        profile.udp = udp;
        coalesce_with(profile, &frames).len()
    };
    assert_eq!((joins(false), joins(true)), (10, 1));
}

/// Returns ten datagrams, or TCP segments, inside VXLAN.
fn over_vxlan(tcp: bool) -> Vec<Vec<u8>> {
    let frame = |index: u32| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|udp| udp).vxlan(|v| v);
        let packet = packet.ethernet(|e| e).ipv4(|ip| ip);
        let packet = match tcp {
            true => packet.tcp(|tcp| tcp.sequence(index * 1330)),
            false => packet.udp(|udp| udp),
        };
        packet.payload(&stream(index * 1330, 1330)).build()
    };
    (0..10).map(frame).collect()
}

#[test]
fn k66_udpgro_fwd_over_vxlan() {
    assert_payloads(&over_vxlan(false), &[13300]);
}

#[test]
fn k68_gso_after_gro_over_vxlan_has_no_wrong_checksum() {
    for tcp in [false, true] {
        let frames = over_vxlan(tcp);
        let delivered = coalesce(&frames);
        assert_eq!(delivered.len(), 1);
        let cut = segment(&delivered[0]);
        assert!(cut.iter().all(|packet| is_right(packet, Link::Ethernet)));
        assert_eq!(cut, frames);
    }
}
