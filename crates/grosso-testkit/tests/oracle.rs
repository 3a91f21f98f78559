//! Compares the oracles with the cases of the kernel's own tests (K1 to K33), with rules observed on a running kernel,
//! and with each other.

use grosso_testkit::headers::{Geneve, Gre, Gue, Ipv4, Tcp, Udp};
use grosso_testkit::oracle::{
    Description, Link, Refusal, Rules, State, join, segment, trains, verify,
};
use grosso_testkit::stack::{Place, Stack, Tunnel};
use grosso_testkit::strategy;
use grosso_testkit::{Packet, Traffic};
use proptest::prelude::*;

/// Returns one packet of the kernel's test connection: `len` bytes, starting at sequence number 100 + `at`.
fn tcp4(at: u32, len: usize, edit: impl FnOnce(Tcp) -> Tcp) -> Vec<u8> {
    both(at, len, |ip| ip, edit)
}

fn both(
    at: u32,
    len: usize,
    ip: impl FnOnce(Ipv4) -> Ipv4,
    tcp: impl FnOnce(Tcp) -> Tcp,
) -> Vec<u8> {
    let packet = Packet::new().ethernet(|e| e).ipv4(ip);
    packet.tcp(|t| tcp(t.sequence(at.wrapping_add(100)))).payload_len(len).build()
}

fn udp4(len: usize) -> Vec<u8> {
    Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).payload_len(len).build()
}

/// Returns the number of packets in each train.
fn shape(frames: &[Vec<u8>]) -> Vec<usize> {
    let trains = trains(frames, Link::Ethernet, Rules::default());
    trains.iter().map(|train| train.packets.len()).collect()
}

fn plain(tcp: Tcp) -> Tcp {
    tcp
}

#[test]
fn k01_to_k04_lengths() {
    assert_eq!(shape(&[tcp4(0, 100, plain), tcp4(100, 100, plain)]), [2]);
    assert_eq!(shape(&[tcp4(0, 100, plain), tcp4(100, 50, plain)]), [2]);
    assert_eq!(shape(&[tcp4(0, 100, plain), tcp4(100, 1, plain)]), [2]);
    assert_eq!(shape(&[tcp4(0, 50, plain), tcp4(50, 100, plain)]), [1, 1]);
    // Rule G11: padding that no length field includes.
    let padded = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t.sequence(200));
    let padded = padded.payload_len(1).pad_to(60).build();
    assert_eq!(shape(&[tcp4(0, 100, plain), padded]), [1, 1]);
    // Rule G39: a shorter segment can merge only as the last one.
    let frames = [tcp4(0, 100, plain), tcp4(100, 50, plain), tcp4(150, 100, plain)];
    assert_eq!(shape(&frames), [2, 1]);
}

#[test]
fn k06_acks_stay_alone() {
    let ack = |number| tcp4(0, 0, |t: Tcp| t.ack(number));
    assert_eq!(shape(&[ack(100), ack(100), ack(101)]), [1, 1, 1]);
}

#[test]
fn k07_to_k11_flags() {
    let five = |edit: &dyn Fn(usize, Tcp) -> Tcp| {
        let frame = |index: usize| tcp4(index as u32 * 100, 100, |t| edit(index, t));
        shape(&(0..5).map(frame).collect::<Vec<_>>())
    };
    assert_eq!(five(&|_, t| t), [5]);
    assert_eq!(five(&|index, t| if index == 2 { t.psh() } else { t }), [3, 2]);
    assert_eq!(five(&|index, t| if index == 1 || index == 2 { t.cwr() } else { t }), [1, 2, 2]);
    // Rule G34.
    assert_eq!(five(&|_, t| t.ece()), [5]);
    assert_eq!(five(&|_, t| t.ae()), [5]);
    assert_eq!(five(&|_, t| t.no_ack()), [5]);
    assert_eq!(five(&|index, t| if index == 3 { t.ece() } else { t }), [3, 1, 1]);
    for edit in [Tcp::syn, Tcp::rst, Tcp::urg] {
        let frames = [
            tcp4(0, 100, plain),
            tcp4(100, 100, plain),
            tcp4(200, 0, edit),
            tcp4(200, 100, plain),
            tcp4(300, 100, plain),
        ];
        assert_eq!(shape(&frames), [2, 1, 2]);
    }
}

#[test]
fn k12_k13_checksum_and_sequence() {
    let first = tcp4(0, 100, plain);
    assert_eq!(shape(&[first.clone(), tcp4(100, 100, |t| t.checksum_xor(1))]), [1, 1]);
    assert_eq!(shape(&[first.clone(), tcp4(101, 100, plain)]), [1, 1]);
    // A stricter form of rule G75: the packet with the wrong checksum ends the train, because no packet may overtake
    // another.
    let after = tcp4(100, 100, plain);
    assert_eq!(shape(&[first, tcp4(100, 100, |t| t.checksum_xor(1)), after]), [1, 1, 1]);
}

#[test]
fn k14_k15_options() {
    let stamped = |at, value| tcp4(at, 100, |t: Tcp| t.timestamps(value, 0));
    let moved = tcp4(300, 100, |t| t.options(&[1, 8, 10, 0, 0, 0, 100, 0, 0, 0, 0, 1]));
    let frames = [stamped(0, 0), stamped(100, 0), stamped(200, 100), moved];
    assert_eq!(shape(&frames), [2, 1, 1]);
    let scaled = tcp4(200, 100, |t| t.options(&[1, 3, 3, 7]));
    assert_eq!(shape(&[stamped(0, 0), stamped(100, 0), scaled]), [2, 1]);
}

#[test]
fn k16_to_k21_ipv4() {
    let two = |edit: &dyn Fn(Ipv4) -> Ipv4| {
        shape(&[tcp4(0, 100, plain), both(100, 100, edit, plain), tcp4(200, 100, plain)])
    };
    assert_eq!(two(&|ip| ip), [3]);
    assert_eq!(two(&|ip| ip.tos(2)), [1, 1, 1]);
    assert_eq!(two(&|ip| ip.ttl(7)), [1, 1, 1]);
    assert_eq!(two(&|ip| ip.checksum_xor(1)), [1, 1, 1]);
    assert_eq!(two(&|ip| ip.options(&[68, 8, 5, 0, 0, 0, 0, 0])), [1, 1, 1]);
    assert_eq!(two(&|ip| ip.df(false)), [1, 1, 1]);
    assert_eq!(two(&|ip| ip.reserved_bit(true)), [1, 1, 1]);
    // A fragment belongs to no flow, so it does not end the train.
    assert_eq!(
        shape(&[tcp4(0, 100, plain), both(100, 100, |ip| ip.more_fragments(true), plain)]),
        [1, 1]
    );
}

#[test]
fn k22_to_k27_identification() {
    let ids = |df, ids: &[u16]| {
        let frames = ids.iter().enumerate();
        let frame = |(index, id): (usize, &u16)| {
            both(index as u32 * 100, 100, |ip| ip.df(df).id(*id), plain)
        };
        shape(&frames.map(frame).collect::<Vec<_>>())
    };
    for df in [true, false] {
        assert_eq!(ids(df, &[8, 9]), [2]);
        assert_eq!(ids(df, &[8, 8]), [2]);
        assert_eq!(ids(df, &[8, 9, 9]), [2, 1]);
        assert_eq!(ids(df, &[8, 8, 9]), [2, 1]);
        assert_eq!(ids(df, &[65535, 0]), [2]);
        assert_eq!(ids(df, &[8, 10]), [1, 1]);
        assert_eq!(ids(df, &[8, 9, 10, 11]), [4]);
    }
}

#[test]
fn k28_to_k30_ipv6() {
    let frame = |at: u32, through: &dyn Fn(Packet) -> Packet| {
        let packet = through(Packet::new().ethernet(|e| e).ipv6(|ip| ip));
        packet.tcp(|t| t.sequence(at.wrapping_add(100))).payload_len(100).build()
    };
    let options = |packet: Packet| packet.destination_options(|d| d);
    let others = |packet: Packet| packet.destination_options(|d| d.data(&[1, 4, 0x11, 0, 0, 0]));
    assert_eq!(shape(&[frame(0, &options), frame(100, &options)]), [2]);
    assert_eq!(shape(&[frame(0, &options), frame(100, &others)]), [1, 1]);
    assert_eq!(shape(&[frame(0, &|p| p), frame(100, &|p| p.fragment(|f| f))]), [1, 1]);
}

#[test]
fn k31_k32_size() {
    let mss = 4096 - 40;
    let max = 65535 - 40;
    let full = max / mss;
    let mut frames: Vec<_> =
        (0..full).map(|index| tcp4((index * mss) as u32, mss, plain)).collect();
    let rest = max % mss;
    frames.push(tcp4((full * mss) as u32, rest, plain));
    assert_eq!(shape(&frames), [full + 1]);
    frames.pop();
    frames.push(tcp4((full * mss) as u32, rest + 1, plain));
    assert_eq!(shape(&frames), [full, 1]);
    // Rule G60: a train holds 45 segments of 1448 bytes; the 46th segment starts the next train.
    let frames: Vec<_> = (0..46).map(|index| tcp4(index * 1448, 1448, plain)).collect();
    assert_eq!(shape(&frames), [45, 1]);
}

/// Tests that unusual packets never merge, even with packets that are unusual in the same way.
#[test]
fn g10_g11_g21_g36_equal_oddities_do_not_couple() {
    let two = |edit: &dyn Fn(u32) -> Vec<u8>| shape(&[edit(0), edit(100)]);
    let ip = |edit: fn(Ipv4) -> Ipv4| two(&|at| both(at, 100, edit, plain));
    assert_eq!(ip(|ip| ip), [2]);
    assert_eq!(ip(|ip| ip.reserved_bit(true)), [1, 1]);
    assert_eq!(ip(|ip| ip.options(&[1, 1, 1, 0])), [1, 1]);
    for edit in [Tcp::urg, Tcp::psh, Tcp::rst, Tcp::syn, Tcp::fin] {
        assert_eq!(two(&|at| tcp4(at, 100, edit)), [1, 1]);
    }
    let offset = |at| tcp4(at, 100, |t| t.data_offset_raw(4));
    assert_eq!(two(&offset), [1, 1]);
    let atomic = |at: u32| {
        let packet = Packet::new().ethernet(|e| e).ipv6(|ip| ip).fragment(|f| f);
        packet.tcp(|t| t.sequence(at)).payload_len(100).build()
    };
    assert_eq!(two(&atomic), [1, 1]);
    let short = |at| both(at, 100, |ip| ip.total_len_raw(200), plain);
    assert_eq!(two(&short), [1, 1]);
}

/// Tests rule G5a: the length field of PPPoE counts two bytes more than that of IP.
#[test]
fn g05a_no_train_outgrows_the_length_of_pppoe() {
    let shape_of = |last: usize, pppoe: bool| {
        let frame = |index: usize| {
            let packet = Packet::new().ethernet(|e| e);
            let packet = if pppoe { packet.pppoe(|p| p) } else { packet };
            let packet = packet.ipv4(|ip| ip).tcp(|t| t.sequence((index * 10_000) as u32));
            packet.payload_len(if index == 6 { last } else { 10_000 }).build()
        };
        shape(&(0..7).map(frame).collect::<Vec<_>>())
    };
    let room = 65535 - 40 - 60_000;
    assert_eq!(shape_of(room, false), [7]);
    assert_eq!(shape_of(room + 1, false), [6, 1]);
    assert_eq!(shape_of(room - 2, true), [7]);
    assert_eq!(shape_of(room - 1, true), [6, 1]);
}

/// Tests rule S20: every segment of a UDP superframe gets a checksum, even if the superframe has none.
#[test]
fn s20_every_datagram_has_a_checksum() {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u.checksum_zero());
    let description = Description { gso_size: 100, ..Description::default() };
    let superframe = packet.payload_len(250).build();
    let cut = segment(&superframe, Link::Ethernet, description).expect("a superframe");
    for packet in cut {
        let states: Vec<State> = verify(&packet, Link::Ethernet).iter().map(|v| v.state).collect();
        assert_eq!(states, [State::Right; 2]);
    }
}

#[test]
fn g33_urgent_pointer_must_be_equal() {
    let frames = [tcp4(0, 100, |t| t.urgent_pointer(1)), tcp4(100, 100, |t| t.urgent_pointer(2))];
    assert_eq!(shape(&frames), [1, 1]);
}

#[test]
fn g40_sequence_wraps_and_order_counts() {
    let at = 0xffff_ff9c_u32.wrapping_sub(100);
    assert_eq!(shape(&[tcp4(at, 100, plain), tcp4(at.wrapping_add(100), 100, plain)]), [2]);
    assert_eq!(
        shape(&[tcp4(0, 100, plain), tcp4(200, 100, plain), tcp4(100, 100, plain)]),
        [1, 1, 1]
    );
}

#[test]
fn u10_to_u13_datagrams() {
    assert_eq!(shape(&[udp4(100), udp4(60), udp4(100)]), [2, 1]);
    assert_eq!(shape(&[udp4(60), udp4(100)]), [1, 1]);
    assert_eq!(shape(&[udp4(100), udp4(0), udp4(100)]), [1, 1, 1]);
    assert_eq!(shape(&vec![udp4(100); 130]), [64, 64, 2]);
    let without = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u.checksum_zero());
    assert_eq!(shape(&vec![without.payload_len(100).build(); 3]), [1, 1, 1]);
}

#[test]
fn t02_to_t05_tunnels() {
    let vxlan = |at: u32, edit: &dyn Fn(usize, Packet) -> Packet| {
        let packet = edit(0, Packet::new().ethernet(|e| e).ipv4(|ip| ip));
        let packet = edit(1, packet.udp(|u| u)).vxlan(|v| v).ethernet(|e| e);
        edit(2, packet)
            .ipv4(|ip| ip)
            .tcp(|t| t.sequence(at.wrapping_add(100)))
            .payload_len(100)
            .build()
    };
    let same = |_: usize, packet: Packet| packet;
    assert_eq!(shape(&[vxlan(0, &same), vxlan(100, &same)]), [2]);
    let outer = |frame: Vec<u8>, at: usize| {
        // If the outer UDP source ports differ, the flows differ.
        let mut frame = frame;
        frame[at] ^= 1;
        frame
    };
    assert_eq!(shape(&[vxlan(0, &same), outer(vxlan(100, &same), 35)]), [1, 1]);
    assert_eq!(shape(&[vxlan(0, &same), outer(vxlan(100, &same), 120)]), [1, 1]);
}

#[test]
fn linux_couples_one_tunnel_level_and_no_udp() {
    let two = |packet: Packet| {
        let frames = vec![packet.clone().payload_len(100).build(); 2];
        let count = |rules| trains(&frames, Link::Ethernet, rules).len();
        (count(Rules::default()), count(Rules::linux()))
    };
    let start = || Packet::new().ethernet(|e| e).ipv6(|ip| ip);
    assert_eq!(two(start().udp(|u| u)), (1, 2));
    // TCP packets with equal sequence numbers would be retransmissions, so the tunnels are tested with UDP, whose
    // merging is enabled here.
    let nested = |count| {
        let packet = (0..count).fold(start(), |packet, _| packet.gre(|g| g).ipv6(|ip| ip));
        let frames = vec![packet.udp(|u| u).payload_len(100).build(); 2];
        trains(&frames, Link::Ethernet, Rules { udp: true, ..Rules::linux() }).len()
    };
    assert_eq!((nested(0), nested(1), nested(2)), (1, 1, 2));
}

/// Tests rule C54: without an outer checksum that has been verified, nothing protects the payload.
#[test]
fn c54_remote_checksum_needs_an_outer_checksum() {
    let two = |outer: &dyn Fn(Udp) -> Udp, gue: &dyn Fn(Gue) -> Gue, tcp: &dyn Fn(Tcp) -> Tcp| {
        let frame = |at: u32| {
            let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(outer).gue(gue);
            packet.ipv4(|ip| ip).tcp(|t| tcp(t.sequence(at))).payload_len(100).build()
        };
        shape(&[frame(0), frame(100)])
    };
    let (same, zero) = (|u: Udp| u, |u: Udp| u.checksum_zero());
    let remote = |g: Gue| g.remote_checksum();
    assert_eq!(two(&same, &remote, &plain), [2]);
    assert_eq!(two(&zero, &remote, &plain), [1, 1]);
    assert_eq!(two(&zero, &|g| g, &plain), [2]);
    // The same fields, encoded by hand. In the second case, the offset does not point to the TCP checksum; in the
    // third, the TCP checksum is already complete.
    let place = |offset| move |g: Gue| g.flags(1).options(&[0x80, 0, 0, 0, 0, 20, 0, offset]);
    let seed = |t: Tcp| t.checksum_seed();
    assert_eq!(two(&same, &place(36), &seed), [2]);
    assert_eq!(two(&same, &place(38), &seed), [1, 1]);
    assert_eq!(two(&same, &place(36), &plain), [1, 1]);
}

#[test]
fn two_remote_checksums_are_one_too_many() {
    let two = |outer: &dyn Fn(Gue) -> Gue| {
        let frame = |at: u32| {
            let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).gue(outer);
            let packet = packet.ipv4(|ip| ip).udp(|u| u).gue(|g| g.remote_checksum());
            packet.ipv4(|ip| ip).tcp(|t| t.sequence(at)).payload_len(100).build()
        };
        shape(&[frame(0), frame(100)])
    };
    assert_eq!(two(&|g| g), [2]);
    assert_eq!(two(&|g| g.remote_checksum()), [1, 1]);
}

#[test]
fn t21_gre() {
    let two = |gre: &dyn Fn(Gre) -> Gre| {
        let frame = |at: u32| {
            let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).gre(gre).ipv6(|ip| ip);
            packet.tcp(|t| t.sequence(at)).payload_len(100).build()
        };
        shape(&[frame(0), frame(100)])
    };
    assert_eq!(two(&|g| g), [2]);
    assert_eq!(two(&|g| g.checksum().key(1)), [2]);
    assert_eq!(two(&|g| g.sequence(1)), [1, 1]);
    assert_eq!(two(&|g| g.checksum().checksum_xor(1)), [1, 1]);
    assert_eq!(two(&|g| g.extra_flags(0x0800)), [1, 1]);
}

#[test]
fn t06_geneve() {
    let two = |first: &dyn Fn(Geneve) -> Geneve, second: &dyn Fn(Geneve) -> Geneve| {
        let frame = |at: u32, geneve: &dyn Fn(Geneve) -> Geneve| {
            let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).geneve(geneve);
            let packet = packet.ethernet(|e| e).ipv4(|ip| ip);
            packet.tcp(|t| t.sequence(at)).payload_len(100).build()
        };
        shape(&[frame(0, first), frame(100, second)])
    };
    assert_eq!(two(&|g| g.critical(true), &|g| g.critical(true)), [2]);
    assert_eq!(two(&|g| g.control(true), &|g| g.control(true)), [1, 1]);
    assert_eq!(two(&|g| g.option(1, 2, &[3]), &|g| g.option(1, 2, &[3])), [2]);
    assert_eq!(two(&|g| g.option(1, 2, &[3]), &|g| g.option(1, 2, &[4])), [1, 1]);
    assert_eq!(two(&|g| g, &|g| g.reserved(1)), [1, 1]);
}

#[test]
fn g05a_pppoe() {
    let frame = |at: u32, session, pad| {
        let packet = Packet::new().ethernet(|e| e).pppoe(|p| p.session(session)).ipv4(|ip| ip);
        packet.tcp(|t| t.sequence(at)).payload_len(100).pad_to(pad).build()
    };
    assert_eq!(shape(&[frame(0, 1, 0), frame(100, 1, 0)]), [2]);
    assert_eq!(shape(&[frame(0, 1, 0), frame(100, 2, 0)]), [1, 1]);
    assert_eq!(shape(&[frame(0, 1, 0), frame(100, 1, 200)]), [1, 1]);
}

#[test]
fn a_changed_mac_ends_the_train_of_its_flow() {
    let frame = |at: u32, mac: u8| {
        let packet = Packet::new().ethernet(|e| e.source([mac; 6])).ipv4(|ip| ip);
        packet.tcp(|t| t.sequence(at.wrapping_add(100))).payload_len(100).build()
    };
    assert_eq!(shape(&[frame(0, 2), frame(100, 4), frame(100, 2)]), [1, 1, 1]);
    // A packet from another flow in between does not end the train.
    let other = udp4(10);
    assert_eq!(shape(&[frame(0, 2), other, frame(100, 2)]), [2, 1]);
}

#[test]
fn segments_of_a_hand_made_superframe() {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(65535));
    let packet = packet.tcp(|t| t.sequence(u32::MAX).fin().psh().cwr().urg()).payload_len(250);
    let (superframe, ..) = packet.build_superframe();
    let description = Description { gso_size: 100, ..Description::default() };
    let cut = segment(&superframe, Link::Ethernet, description).expect("a superframe");
    let expected = |id, sequence, flags, len| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(id));
        packet.tcp(|t| t.sequence(sequence).flags(flags)).payload_len(len).build()
    };
    let (common, cwr) = (Tcp::ACK | Tcp::URG, Tcp::CWR);
    assert_eq!(cut[0], expected(65535, u32::MAX, common | cwr, 100));
    assert_eq!(cut[1], expected(0, 99, common, 100));
    assert_eq!(cut[2], expected(1, 199, common | Tcp::FIN | Tcp::PSH, 50));
    let all = Description { cwr_on_all: true, fixed_ids: 1, ..description };
    let cut = segment(&superframe, Link::Ethernet, all).expect("a superframe");
    assert_eq!(cut[1], expected(65535, 99, common | cwr, 100));
}

#[test]
fn what_cannot_be_cut_is_refused() {
    let cut = |packet: Packet, gso_size| {
        let description = Description { gso_size, ..Description::default() };
        segment(&packet.payload_len(300).build(), Link::Ethernet, description).err()
    };
    let start = || Packet::new().ethernet(|e| e).ipv4(|ip| ip);
    assert_eq!(cut(start().tcp(|t| t), 0), Some(Refusal::NoSize));
    assert_eq!(cut(start().icmp(|i| i), 100), Some(Refusal::NoTransport));
    let gre = start().gre(|g| g.sequence(1)).ipv4(|ip| ip).tcp(|t| t);
    assert_eq!(cut(gre, 100), Some(Refusal::GreSequence));
    assert_eq!(cut(start().tcp(|t| t), 100), None);
}

/// Tests that the builder's superframe with one long payload equals the superframe that the oracle forms by merging the
/// segments.
#[test]
fn the_builder_and_the_oracle_agree_on_superframes() {
    for stack in Stack::all().into_iter().filter(Stack::couples) {
        let (superframe, ..) = stack.packet(&Place::default()).payload_len(950).build_superframe();
        let description = Description { gso_size: 100, ..Description::default() };
        let cut =
            segment(&superframe, stack.link(), description).expect("a stack whose packets merge");
        if stack.transport == grosso_testkit::stack::Transport::Udp {
            // UDP has no sequence numbers, so only the order of the packets determines how they merge.
            assert_eq!(cut.len(), 10, "{stack:?}");
        }
        let (joined, again) = join(&cut, stack.link());
        assert_eq!(joined, superframe, "{stack:?}");
        assert_eq!(again, description, "{stack:?}");
    }
}

proptest! {
    #[test]
    fn a_train_is_one_train_and_cutting_gives_it_back(train in strategy::train()) {
        let train = train.value;
        let link = train.stack.link();
        let found = trains(&train.frames, link, Rules::default());
        prop_assert_eq!(found.len(), 1, "{:?}", found);
        let (superframe, description) = join(&train.frames, link);
        let cut = segment(&superframe, link, description);
        prop_assert_eq!(cut.as_deref(), Ok(&train.frames[..]));
    }

    #[test]
    fn whatever_is_coupled_is_given_back_by_cutting(traffic in strategy::traffic(300)) {
        let frames = traffic.value;
        let found = trains(&frames, Link::Ethernet, Rules::default());
        let mut seen: Vec<usize> = found.iter().flat_map(|train| train.packets.clone()).collect();
        seen.sort_unstable();
        prop_assert_eq!(seen, (0..frames.len()).collect::<Vec<_>>());
        for train in found.iter().filter(|train| train.packets.len() > 1) {
            let packets: Vec<_> = train.packets.iter().map(|at| frames[*at].clone()).collect();
            let (superframe, description) = join(&packets, Link::Ethernet);
            prop_assert_eq!(segment(&superframe, Link::Ethernet, description), Ok(packets));
        }
    }
}

proptest! {
    /// Asserts that for any bytes, no oracle panics and packets are neither lost nor added.
    #[test]
    fn oracles_survive_hostile_bytes(
        frames in proptest::collection::vec(hostile(), 1..20),
        gso_size in 0..300_usize,
    ) {
        for link in [Link::Ethernet, Link::Ip] {
            let found = trains(&frames, link, Rules::default());
            prop_assert_eq!(found.iter().map(|t| t.packets.len()).sum::<usize>(), frames.len());
            for frame in &frames {
                let _ = verify(frame, link);
                let description = Description { gso_size, ..Description::default() };
                let _ = segment(frame, link, description);
            }
        }
    }

    #[test]
    fn bare_ip_traffic_is_coupled_and_given_back(seed in any::<u64>()) {
        let frames: Vec<Vec<u8>> = Traffic::over(Link::Ip, seed).take(100).collect();
        for train in trains(&frames, Link::Ip, Rules::default()) {
            if train.packets.len() > 1 {
                let packets: Vec<_> = train.packets.iter().map(|at| frames[*at].clone()).collect();
                let (superframe, description) = join(&packets, Link::Ip);
                prop_assert_eq!(segment(&superframe, Link::Ip, description), Ok(packets));
            }
        }
    }
}

/// Generates frames of random bytes. Some begin with valid headers that lead deep into the parser.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let bytes = proptest::collection::vec(any::<u8>(), 0..120);
    (0..Stack::all().len(), 0..130_usize, bytes).prop_map(|(stack, keep, bytes)| {
        let mut frame = Stack::all()[stack].packet(&Place::default()).payload_len(20).build();
        frame.truncate(keep);
        frame.extend(bytes);
        frame
    })
}

#[test]
fn trains_step_their_identification_or_keep_it() {
    let fixed = |seed| {
        let train = strategy::train_of(seed, 5);
        let (_, description) = join(&train.frames, train.stack.link());
        (train.frames.len() > 1).then_some(description.fixed_ids)
    };
    let found: Vec<u32> = (0..200).filter_map(fixed).collect();
    let count = |wanted: &dyn Fn(u32) -> bool| found.iter().filter(|ids| wanted(**ids)).count();
    assert!(count(&|ids| ids == 0) > 20 && count(&|ids| ids & 1 != 0) > 10, "{found:?}");
    assert!(count(&|ids| ids & 6 != 0) > 10, "{found:?}");
}

/// Tests that traffic is varied: most benign packets merge, deviations of every kind end trains, and tunnels occur.
#[test]
fn traffic_is_varied() {
    let count = |traffic: Traffic| {
        let frames: Vec<Vec<u8>> = traffic.take(300).collect();
        trains(&frames, Link::Ethernet, Rules::default()).len()
    };
    let benign: usize = (0..50).map(|seed| count(Traffic::benign(seed))).sum();
    let hostile: usize = (0..50).map(|seed| count(Traffic::new(seed))).sum();
    assert!(benign * 5 < hostile * 4, "{benign} trains of benign traffic, {hostile} of hostile");
    let stacks: Vec<Stack> = (0..300)
        .flat_map(|seed| Traffic::new(seed).stacks().cloned().collect::<Vec<_>>())
        .collect();
    for tunnel in [Tunnel::GueRemote, Tunnel::Fou, Tunnel::GreChecksum, Tunnel::VxlanVlan] {
        assert!(stacks.iter().any(|s| s.tunnels.len() == 2 && s.tunnels[1].1 == tunnel));
    }
}

/// Tests that in hostile traffic every reason to end a train occurs, so at least one packet violates each rule.
#[test]
fn every_reason_occurs() {
    let mut reasons = std::collections::BTreeSet::new();
    for seed in 0..1000 {
        let frames: Vec<Vec<u8>> = Traffic::new(seed).take(200).collect();
        let found = trains(&frames, Link::Ethernet, Rules::default());
        reasons.extend(found.iter().map(|train| train.closed_by));
    }
    for reason in [
        "no flow",
        "no TCP or UDP",
        "a checksum",
        "no payload",
        "a flag",
        "a shorter segment",
        "the end",
        "a longer segment",
        "sequence",
        "ack",
        "window",
        "options",
        "offset_flags",
        "urgent_pointer",
        "id",
        "ttl",
        "tos",
        "fragment",
        "word",
        "hop_limit",
        "data",
        "source",
        "destination",
        "tag",
        "flags",
        "reserved",
        "checksum",
        "entry",
        "other headers",
        "a header that the rules do not merge",
        "a length field that does not match the frame",
        "UDP that the rules do not merge",
        "the size",
        "the number of datagrams",
        "unverified remote checksum offload",
    ] {
        assert!(reasons.contains(reason), "{reason} is not among {reasons:?}");
    }
}
