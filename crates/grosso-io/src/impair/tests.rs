use std::time::Duration;

use grosso::{
    Meta,
    checksum::Checksum,
    features::{Device, Features},
    meta::Gso,
};
use grosso_testkit::{
    Packet,
    oracle::{self, Description, Link},
};
use grosso_wire::LinkType;

use super::{Impair, Impairment};
use crate::{
    memory::{MemoryPort, wire},
    port::{Port, Transmitted},
};

/// Sends numbered frames, one per microsecond, and returns what arrives, with arrival times.
fn pass(impairment: Impairment, count: u32) -> (Vec<(u64, Vec<u8>)>, Impair<MemoryPort>) {
    let (mut far, near) = wire(LinkType::Ethernet, Device::new(Features::NONE), 100_000);
    let mut near = Impair::new(near, impairment);
    let mut arrived = Vec::new();
    for now_us in 0..u64::from(count) + 100_000 {
        if now_us < u64::from(count) {
            let frame = (now_us as u32).to_be_bytes();
            assert_eq!(
                far.transmit(&[&frame, &[0; 96]], &Meta::default()).unwrap(),
                Transmitted::Taken
            );
        }
        let now_ns = now_us * 1000;
        if now_us >= u64::from(count) && near.deadline().is_none() {
            break;
        }
        near.receive(now_ns, usize::MAX, &mut |frame| {
            arrived.push((now_ns, frame.buffer.as_ref().to_vec()));
        })
        .unwrap();
    }
    (arrived, near)
}

fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]])
}

#[test]
fn a_perfect_wire_changes_nothing() {
    let (arrived, _) = pass(Impairment::default(), 1000);
    assert!(
        arrived
            .iter()
            .enumerate()
            .all(|(i, (at, f))| number(f) as usize == i && *at == i as u64 * 1000)
    );
    assert_eq!(arrived.len(), 1000);
}

#[test]
fn the_same_seed_gives_the_same_wire_and_another_one_another() {
    let impairment = |seed: u64| -> Impairment {
        format!("delay 50us jitter 20us loss 2% reorder 3% duplicate 2% corrupt 2% seed {seed}")
            .parse()
            .unwrap()
    };
    assert_eq!(pass(impairment(7), 2000).0, pass(impairment(7), 2000).0);
    assert_ne!(pass(impairment(7), 2000).0, pass(impairment(8), 2000).0);
}

#[test]
fn every_other_frame_takes_the_longer_path() {
    let (arrived, _) = pass("delay 5us skew 4us".parse().unwrap(), 6);
    let arrived: Vec<_> =
        arrived.iter().map(|(at_ns, frame)| (at_ns / 1000, number(frame))).collect();
    assert_eq!(arrived, [(5, 0), (7, 2), (9, 4), (10, 1), (12, 3), (14, 5)]);
}

#[test]
fn every_fault_happens_as_often_as_it_should_and_is_counted() {
    let (arrived, wire) = pass("loss 5% duplicate 10%".parse().unwrap(), 20_000);
    let stats = wire.stats();
    assert!((800..1200).contains(&stats.lost), "{stats:?}");
    assert!((1700..2100).contains(&stats.duplicated), "{stats:?}");
    assert_eq!(arrived.len() as u64, 20_000 - stats.lost + stats.duplicated);
    let (arrived, wire) = pass("corrupt 10%".parse().unwrap(), 5_000);
    let changed = |(i, (_, frame)): (usize, &(u64, Vec<u8>))| {
        number(frame) as usize != i || frame[4..] != [0; 96]
    };
    let corrupted = arrived.iter().enumerate().filter(|entry| changed(*entry)).count();
    assert_eq!(corrupted as u64, wire.stats().corrupted);
    assert!((400..600).contains(&corrupted), "{corrupted}");
}

#[test]
fn delay_and_rate_add_up() {
    let (arrived, _) = pass("delay 10us".parse().unwrap(), 10);
    assert!(arrived.iter().enumerate().all(|(i, (at, _))| *at == (i as u64 + 10) * 1000));
    // A frame of 100 bytes takes 8 us at 100 Mb/s, so the last byte of the tenth frame arrives 80 us after the first
    // frame starts.
    let (arrived, _) = pass("rate 100M".parse().unwrap(), 10);
    assert_eq!(arrived.last().map(|(at, _)| *at), Some(80_000));
}

#[test]
fn a_delay_without_end_and_more_keeps_what_comes() {
    for words in ["delay 1e19s skew 1e19s", "delay 1e19s jitter 1e19s rate 1"] {
        let (arrived, wire) = pass(words.parse().unwrap(), 20);
        assert_eq!((arrived.len(), wire.stats().lost), (0, 0), "{words}");
    }
}

#[test]
fn reordered_frames_overtake_and_none_is_lost() {
    let (arrived, wire) = pass("delay 20us reorder 5%".parse().unwrap(), 2000);
    let mut numbers: Vec<_> = arrived.iter().map(|(_, frame)| number(frame)).collect();
    assert!(wire.stats().reordered > 50 && !numbers.is_sorted());
    numbers.sort_unstable();
    assert!(numbers.iter().enumerate().all(|(i, number)| *number as usize == i));
}

#[test]
fn a_full_wire_loses_what_comes_and_counts_it() {
    let (arrived, wire) = pass("delay 1s limit 5".parse().unwrap(), 20);
    assert_eq!((arrived.len(), wire.stats().overflowed), (0, 15));
}

/// Checks that corrupted bytes never arrive with a valid checksum, because no receiver could detect that.
#[test]
fn what_is_corrupted_before_its_checksum_is_made_arrives_with_a_wrong_one() {
    let tcp = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t).payload_len(5000);
    let (superframe, start, offset) = tcp.build_superframe();
    let (partial, ..) = tcp.build_partial();
    let checksum = Checksum::Partial { start: start as u16, offset: offset as u16 };
    let description = Description { gso_size: 1000, fixed_ids: 0, cwr_on_all: false };
    let cut = oracle::segment(&superframe, Link::Ethernet, description).unwrap();
    for (frame, gso, packets) in
        [(partial, None, vec![tcp.build()]), (superframe, Gso::every(1000), cut)]
    {
        for seed in 0..200 {
            let (mut far, near) = wire(LinkType::Ethernet, Device::new(Features::ALL), 10);
            let corrupt = Impairment { corrupt: 1.0, seed, ..Impairment::default() };
            let mut near = Impair::new(near, corrupt);
            let meta = Meta { checksum, gso, ..Meta::default() };
            assert_eq!(far.transmit(&[&frame], &meta).unwrap(), Transmitted::Taken);
            let mut arrived = Vec::new();
            near.receive(0, 10, &mut |frame| arrived.push(frame)).unwrap();
            assert!(arrived.iter().all(|frame| frame.meta == Meta::default()));
            assert_eq!((arrived.len(), near.stats().corrupted), (packets.len(), 1));
            let pairs = arrived.iter().map(|frame| frame.buffer.as_ref()).zip(&packets);
            let bits = |(found, right): (&[u8], &Vec<u8>)| {
                assert_eq!(found.len(), right.len());
                found.iter().zip(right).map(|(a, b)| (a ^ b).count_ones()).sum::<u32>()
            };
            assert_eq!(pairs.map(bits).sum::<u32>(), 1, "seed {seed}");
        }
    }
}

#[test]
fn options_are_parsed_or_named_in_the_error() {
    let parsed: Impairment =
        "delay 5ms jitter 1ms loss 0.1% rate 10G limit 7 seed 9".parse().unwrap();
    assert_eq!(parsed.delay, Duration::from_millis(5));
    assert_eq!((parsed.rate_bits, parsed.limit_frames, parsed.seed), (Some(10_000_000_000), 7, 9));
    assert!((parsed.loss - 0.001).abs() < 1e-12);
    for (text, what) in [
        ("delay", "delay needs a value"),
        ("delay 5", "invalid delay \"5\""),
        ("delay -5ms", "invalid delay \"-5ms\""),
        ("loss 101%", "invalid loss \"101%\""),
        ("fog 1%", "unknown keyword \"fog\""),
    ] {
        let error = text.parse::<Impairment>().unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }
}

#[test]
fn a_caller_about_to_sleep_learns_that_the_port_may_have_more() {
    let (mut far, near) = wire(LinkType::Ethernet, Device::new(Features::NONE), 10);
    let mut impaired = Impair::new(near, Impairment { loss: 1.0, ..Impairment::default() });
    for _ in 0..3 {
        assert_eq!(far.transmit(&[b"x"], &Meta::default()).unwrap(), Transmitted::Taken);
    }
    let mut poll = || {
        let received = impaired.receive(0, 2, &mut |_| ()).unwrap();
        (received, impaired.deadline())
    };
    assert_eq!([poll(), poll(), poll()], [(0, Some(0)), (0, None), (0, None)]);
}

#[test]
fn what_the_port_has_to_do_is_due_whatever_is_on_the_wire() {
    let (mut far, near) = wire(LinkType::Ethernet, Device::new(Features::NONE), 10);
    let slow = Impair::new(near, "delay 50us".parse().unwrap());
    let mut slower = Impair::new(slow, "delay 1s".parse().unwrap());
    assert_eq!(slower.deadline(), None);
    assert_eq!(far.transmit(&[b"x"], &Meta::default()).unwrap(), Transmitted::Taken);
    assert_eq!(slower.receive(0, 10, &mut |_| ()).unwrap(), 0);
    assert_eq!(slower.deadline(), Some(50_000));
    assert_eq!(slower.receive(50_000, 10, &mut |_| ()).unwrap(), 0);
    assert_eq!(slower.deadline(), Some(1_000_050_000));
}
