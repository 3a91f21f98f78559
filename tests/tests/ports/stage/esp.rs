//! Tests the stage that encrypts and decrypts ESP.

use std::{collections::BTreeSet, net::IpAddr, path::Path};

use grosso::{
    Meta,
    checksum::Checksum,
    meta::Gso,
    tunnel::esp::{EspMode, Prefix},
};
use grosso_io::{
    Port, Transmitted,
    memory::MemoryPort,
    stage::{EspOptions, EspStage, Level, SequenceFile, SequenceRecorder},
};
use grosso_testkit::{
    Packet,
    oracle::{self, Link},
};

use super::ends::{Reluctant, association, counter, ethernet, hosts, insist, receive, send};

#[test]
fn datagrams_pass_encrypted_and_in_fragments_both_ways() {
    let (mut left, mut right) = hosts(64);
    let v4 = Packet::new().ethernet(|e| e).ipv4(|ip| ip.df(false)).udp(|u| u);
    let v6 = Packet::new().ethernet(|e| e).ipv6(|ip| ip).udp(|u| u);
    for frame in [v4.payload_len(8000).build(), v6.payload_len(60_000).build()] {
        assert_eq!(send(&mut left, &frame), Transmitted::Taken);
        let received = receive(&mut right, 1);
        assert_eq!(received.len(), 1);
        assert!(received[0].0 == frame);
        assert_eq!(send(&mut right, &frame), Transmitted::Taken);
        assert!(receive(&mut left, 1)[0].0 == frame);
    }
    for host in [&mut left, &mut right] {
        assert_eq!((counter(host, "ip_frag_oks"), counter(host, "ip_reasm_oks")), (2, 2));
        assert_eq!((counter(host, "esp_out_packets"), counter(host, "esp_in_packets")), (2, 2));
    }
}

/// Returns the sequence numbers in ESP packets over IPv6.
fn sequences(frames: &[Vec<u8>]) -> Vec<u32> {
    let number = |frame: &Vec<u8>| {
        assert_eq!(frame[20], 50, "ESP");
        u32::from_be_bytes(frame[58..62].try_into().unwrap())
    };
    frames.iter().map(number).collect()
}

fn udp6(len: usize) -> Vec<u8> {
    Packet::new().ethernet(|e| e).ipv6(|ip| ip).udp(|u| u).payload_len(len).build()
}

fn pair(refusing: f64) -> (EspStage<Reluctant<MemoryPort>>, MemoryPort) {
    let (near, far) = ethernet(1024);
    let [out, back] = [0x101, 0x102].map(|spi| association(spi, EspMode::Transport));
    let options = EspOptions::new(out, back, 0);
    (EspStage::new(Reluctant::new(near, refusing), options).unwrap(), far)
}

/// Creates a host at one end of a wire. `level` sets whether the host accepts unencrypted frames.
fn peer(port: MemoryPort, level: Level) -> EspStage<MemoryPort> {
    let [out, back] = [0x102, 0x101].map(|spi| association(spi, EspMode::Transport));
    let mut options = EspOptions::new(out, back, 0);
    options.level = level;
    EspStage::new(port, options).unwrap()
}

#[test]
fn b25_every_segment_has_its_number_and_no_number_is_used_twice_whatever_the_room() {
    let (mut near, far) = pair(0.6);
    let train = Packet::new().ethernet(|e| e).ipv6(|ip| ip).tcp(|t| t).payload_len(12_000);
    let (frame, start, offset) = train.build_partial();
    let checksum = Checksum::Partial { start: start as u16, offset: offset as u16 };
    let superframe = Meta { gso: Gso::every(1200), checksum, ..Meta::default() };
    for _ in 0..20 {
        insist(&mut near, &frame, &superframe);
        insist(&mut near, &udp6(50), &Meta::default());
    }
    let sent = &near.inner().sent;
    assert_eq!(sequences(sent), (1..=20 * 11).collect::<Vec<_>>());
    let received = receive(&mut peer(far, Level::Required), 0);
    assert_eq!(received.len(), 20 * 11);
    assert!(received.iter().all(|(frame, _)| oracle::is_right(frame, Link::Ethernet)));
}

#[test]
fn nothing_is_taken_while_packets_of_a_superframe_wait() {
    let (near, mut far) = ethernet(3);
    let [out, back] = [0x101, 0x102].map(|spi| association(spi, EspMode::Transport));
    let mut near = EspStage::new(near, EspOptions::new(out, back, 0)).unwrap();
    let train = Packet::new().ethernet(|e| e).ipv6(|ip| ip).tcp(|t| t).payload_len(12_000).build();
    let superframe = Meta { gso: Gso::every(1200), ..Meta::default() };
    assert_eq!(near.transmit(&[&train], &superframe).unwrap(), Transmitted::Taken);
    let mut wire = Vec::new();
    while near.flush().unwrap() == Transmitted::NoRoom {
        assert_eq!(near.transmit(&[&train], &superframe).unwrap(), Transmitted::NoRoom);
        wire.extend(receive(&mut far, 0).into_iter().map(|(frame, _)| frame));
    }
    wire.extend(receive(&mut far, 0).into_iter().map(|(frame, _)| frame));
    assert_eq!(sequences(&wire), (1..=10).collect::<Vec<_>>());
}

#[test]
fn arp_and_neighbour_discovery_pass_in_the_clear_and_nothing_else_does() {
    let neighbour = |kind: u8, hops: u8| {
        let ip = Packet::new().ethernet(|e| e).ipv6(move |ip| ip.hop_limit(hops).next_header(58));
        ip.payload(&[&[kind, 0, 0, 0][..], &[0; 20]].concat()).build()
    };
    let ether = |kind: u16| [&[2; 12][..], &kind.to_be_bytes(), &[0; 46]].concat();
    for (frame, passes) in [
        (ether(0x0806), true),
        (neighbour(135, 255), true),
        (neighbour(136, 255), true),
        (neighbour(135, 64), false),
        (neighbour(128, 255), false),
        (ether(0x88b5), false),
        (udp6(10), false),
    ] {
        let (mut near, far) = pair(0.0);
        let is_ip = frame[12..14] == [0x86, 0xdd];
        assert_eq!(send(&mut near, &frame), Transmitted::Taken);
        let in_the_clear = near.inner().sent == [frame.clone()];
        assert_eq!(in_the_clear, passes, "{frame:02x?}");
        assert_eq!(counter(&mut near, "esp_out_clear"), u64::from(passes));
        assert_eq!(counter(&mut near, "esp_out_packets"), u64::from(is_ip && !passes));
        assert_eq!(counter(&mut near, "esp_out_not_ip"), u64::from(!is_ip && !passes));

        let (mut clear, back) = ethernet(8);
        drop(far);
        let mut strict = peer(back, Level::Required);
        assert_eq!(send(&mut clear, &frame), Transmitted::Taken);
        assert_eq!(receive(&mut strict, 0).len(), usize::from(passes));
        assert_eq!(strict.stats().in_dropped.total(), u64::from(!passes));
        let (mut clear, back) = ethernet(8);
        let mut lenient = peer(back, Level::Use);
        assert_eq!(send(&mut clear, &frame), Transmitted::Taken);
        assert_eq!(receive(&mut lenient, 0)[0].0, frame);
    }
}

/// Tests RFC 4301 section 5.1: a packet that no policy protects or bypasses is discarded.
#[test]
fn packets_that_no_selector_holds_are_neither_encrypted_nor_sent_in_the_clear() {
    let train = Packet::new().ethernet(|e| e).ipv6(|ip| ip).tcp(|t| t).payload_len(12_000).build();
    let superframe = Meta { gso: Gso::every(1200), ..Meta::default() };
    let solicitation = |ip: Packet| ip.payload(&[&[135, 0, 0, 0][..], &[0; 20]].concat()).build();
    let solicitation =
        solicitation(Packet::new().ethernet(|e| e).ipv6(|ip| ip.hop_limit(255).next_header(58)));
    let to = |frame: &[u8]| IpAddr::from(*frame[38..].first_chunk::<16>().unwrap());
    for level in [Level::Required, Level::Use] {
        for (address, bits, carried) in
            [(to(&train), 128, true), ("2001:db8:ffff::".parse().unwrap(), 48, false)]
        {
            let (near, far) = ethernet(64);
            let [mut out, back] = [0x101, 0x102].map(|spi| association(spi, EspMode::Transport));
            out.selectors.destinations.push(Prefix::new(address, bits).unwrap());
            let mut options = EspOptions::new(out, back, 0);
            options.level = level;
            let mut near = EspStage::new(Reluctant::new(near, 0.0), options).unwrap();
            insist(&mut near, &train, &superframe);
            insist(&mut near, &udp6(50), &Meta::default());
            insist(&mut near, &solicitation, &Meta::default());
            // Neighbor discovery works in the same way as without selectors.
            let (clear, esp): (Vec<_>, Vec<_>) =
                near.inner().sent.iter().partition(|sent| **sent == solicitation);
            assert_eq!((clear.len(), esp.len()), (1, if carried { 11 } else { 0 }), "{level:?}");
            assert!(esp.iter().all(|packet| packet[20] == 50), "ESP");
            let refused = if carried { 0 } else { 11 };
            assert_eq!(counter(&mut near, "esp_out_selectors"), refused, "{level:?}");
            assert_eq!(near.stats().out_dropped.total(), refused);
            drop(far);
        }
    }
}

#[test]
fn what_was_replayed_changed_cut_or_is_for_others_is_dropped_by_name() {
    let (mut near, _far) = pair(0.0);
    for _ in 0..5 {
        assert_eq!(send(&mut near, &udp6(100)), Transmitted::Taken);
    }
    let wire = near.inner().sent.clone();
    for level in [Level::Required, Level::Use] {
        let (mut sender, port) = ethernet(16);
        let mut peer = peer(port, level);
        let changed = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut frame = wire[1].clone();
            change(&mut frame);
            frame
        };
        let truncated = changed(&|frame| {
            frame.truncate(54 + 20);
            frame[18..20].copy_from_slice(&20_u16.to_be_bytes());
        });
        for frame in [
            wire[0].clone(),
            wire[0].clone(),
            changed(&|frame| frame[90] ^= 1),
            truncated,
            changed(&|frame| frame[57] ^= 1),
        ] {
            assert_eq!(send(&mut sender, &frame), Transmitted::Taken);
        }
        let taken = receive(&mut peer, 0);
        let lenient = level == Level::Use;
        assert_eq!(taken.len(), 1 + usize::from(lenient), "{level:?}");
        assert_eq!(taken[0].0, udp6(100));
        let counts =
            ["esp_in_replayed", "esp_in_integrity", "esp_in_truncated", "esp_in_other_spi"]
                .map(|name| counter(&mut peer, name));
        assert_eq!(counts, [1, 1, 1, u64::from(!lenient)], "{level:?}");
        assert_eq!(peer.stats().in_dropped.total(), counts.iter().sum::<u64>());
    }
}

#[test]
fn numbers_are_in_the_file_before_they_are_used_and_exact_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("edge.sequence");
    let numbers = || {
        let text = std::fs::read_to_string(&path).unwrap();
        let number = |line: &str| line.split(' ').nth(1).unwrap().parse::<u64>().unwrap();
        text.lines().skip(2).map(number).collect::<Vec<_>>()
    };
    let start = || {
        let (near, far) = ethernet(64);
        let [out, back] = [0x101, 0x102].map(|spi| association(spi, EspMode::Transport));
        let mut options = EspOptions::new(out, back, 0);
        options.sequences =
            Some(SequenceRecorder::here(SequenceFile::open(&path, 9).unwrap()).unwrap());
        (EspStage::new(Reluctant::new(near, 0.0), options).unwrap(), far)
    };
    let (mut near, _far) = start();
    assert_eq!(numbers(), [0, 0]);
    assert_eq!(send(&mut near, &udp6(10)), Transmitted::Taken);
    assert_eq!(numbers(), [1 + (1 << 20), 0]);
    let crashed = std::fs::read(&path).unwrap();
    assert_eq!(send(&mut near, &udp6(10)), Transmitted::Taken);
    drop(near);
    assert_eq!(numbers(), [2, 0]);
    let (mut near, _far) = start();
    assert_eq!(send(&mut near, &udp6(10)), Transmitted::Taken);
    assert_eq!(sequences(&near.inner().sent), [3]);
    drop(near);
    std::fs::write(&path, crashed).unwrap();
    let (mut near, _far) = start();
    assert_eq!(send(&mut near, &udp6(10)), Transmitted::Taken);
    assert_eq!(sequences(&near.inner().sent), [2 + (1 << 20)]);
}

/// Creates a host that records its sequence numbers in a file, and the peer's port.
fn remembered(path: &Path, salt: u64) -> (EspStage<MemoryPort>, MemoryPort) {
    let (near, far) = ethernet(4096);
    let [out, back] = [0x102, 0x101].map(|spi| association(spi, EspMode::Transport));
    let mut options = EspOptions::new(out, back, salt);
    options.sequences = Some(SequenceRecorder::here(SequenceFile::open(path, 9).unwrap()).unwrap());
    (EspStage::new(near, options).unwrap(), far)
}

/// Tests a program that is killed at arbitrary moments, even while it delivers packets. The next program knows only the
/// contents of the file at that moment.
#[test]
fn no_recorded_packet_passes_again_whenever_the_program_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("edge.sequence");
    let (mut sender, mut far) = pair(0.0);
    let mut dice = fastrand::Rng::with_seed(16);
    let (mut recorded, mut passed) = (Vec::<Vec<u8>>::new(), BTreeSet::new());
    for kill in 0..200 {
        let (mut host, mut wire) = remembered(&path, 0);
        for packet in &recorded[recorded.len().saturating_sub(2000)..] {
            assert_eq!(send(&mut wire, packet), Transmitted::Taken);
            for (frame, _) in receive(&mut host, 0) {
                assert!(passed.insert(frame), "kill {kill}");
            }
        }
        let last = dice.u32(1..300);
        let (mut delivered, mut killed) = (0, None);
        while killed.is_none() {
            for _ in 0..dice.usize(1..80) {
                let payload = u64::to_be_bytes(recorded.len() as u64);
                let plain = Packet::new().ethernet(|e| e).ipv6(|ip| ip).udp(|u| u);
                assert_eq!(send(&mut sender, &plain.payload(&payload).build()), Transmitted::Taken);
                let (packet, _) = receive(&mut far, 0).remove(0);
                assert_eq!(send(&mut wire, &packet), Transmitted::Taken);
                recorded.push(packet);
            }
            host.receive(0, dice.usize(1..64), &mut |frame| {
                delivered += 1;
                if killed.is_none() {
                    assert!(passed.insert(frame.buffer.as_ref().to_vec()), "kill {kill}");
                }
                if delivered == last {
                    killed = Some(std::fs::read(&path).unwrap());
                }
            })
            .unwrap();
        }
        drop(host);
        std::fs::write(&path, killed.unwrap()).unwrap();
    }
    assert!(passed.len() > recorded.len() / 2, "{} of {}", passed.len(), recorded.len());
}

/// Tests that after a crash in a quiet period, the peer's next packet is not refused.
#[test]
fn nothing_is_refused_after_a_crash_while_nothing_comes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("edge.sequence");
    let (mut sender, mut far) = pair(0.0);
    for burst in [1, 200, 3] {
        let (mut host, mut wire) = remembered(&path, 0);
        for _ in 0..burst {
            assert_eq!(send(&mut sender, &udp6(20)), Transmitted::Taken);
            let (packet, _) = receive(&mut far, 0).remove(0);
            assert_eq!(send(&mut wire, &packet), Transmitted::Taken);
        }
        assert_eq!(receive(&mut host, 0).len(), burst);
        let killed = std::fs::read(&path).unwrap();
        drop(host);
        std::fs::write(&path, killed).unwrap();
    }
}

/// Counts the packets that are refused after a crash. A quiet peer has to retransmit these packets, seconds apart.
#[test]
fn after_a_crash_fewer_packets_are_refused_than_had_come_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("edge.sequence");
    let (mut sender, mut far) = pair(0.0);
    let mut next = || {
        assert_eq!(send(&mut sender, &udp6(20)), Transmitted::Taken);
        receive(&mut far, 0).remove(0).0
    };
    for came in [1, 2, 3, 10, 64] {
        let (mut host, mut wire) = remembered(&path, 0);
        for _ in 0..came {
            assert_eq!(send(&mut wire, &next()), Transmitted::Taken);
        }
        let (mut delivered, mut killed) = (0, Vec::new());
        host.receive(0, 64, &mut |_| {
            delivered += 1;
            killed = std::fs::read(&path).unwrap();
        })
        .unwrap();
        assert_eq!(delivered, came);
        drop(host);
        std::fs::write(&path, killed).unwrap();
        let (mut host, mut wire) = remembered(&path, 0);
        let refused = (0..)
            .take_while(|_| {
                assert_eq!(send(&mut wire, &next()), Transmitted::Taken);
                receive(&mut host, 0).is_empty()
            })
            .count();
        assert!(refused < came, "{refused} of {came}");
    }
}

/// Tests that if an old file is restored, sequence numbers repeat, but the initialization vectors derived from them do
/// not.
#[test]
fn no_vector_repeats_though_a_file_is_restored() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("edge.sequence");
    drop(remembered(&path, 0));
    let backup = std::fs::read(&path).unwrap();
    let mut vectors = BTreeSet::new();
    for start in 0..5 {
        std::fs::write(&path, &backup).unwrap();
        let (mut host, mut wire) = remembered(&path, 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(start));
        for _ in 0..200 {
            assert_eq!(send(&mut host, &udp6(20)), Transmitted::Taken);
            let (frame, _) = receive(&mut wire, 0).remove(0);
            assert!(vectors.insert(frame[62..70].to_vec()), "start {start}");
        }
    }
    assert_eq!(vectors.len(), 1000);
}
