//! Tests rules G70 to G74: when trains are delivered.

use grosso::{Frame, Profile, coalesce::reason::Close};
use grosso_rig::{
    engine::{Engine, payloads},
    frames::{Path, plain},
};

/// Returns a profile that holds trains across polls for up to this time.
fn holding(hold_ns: u64) -> Profile {
    let mut profile = Profile::linux();
    profile.limits.hold_ns = hold_ns;
    profile
}

/// Size of the Ethernet, IPv4 and TCP headers, in bytes.
const HEADERS: usize = 54;

/// Returns the first segments of `count` connections, which differ in their source ports.
fn connections(count: u16) -> Vec<Vec<u8>> {
    let first =
        |port| Path::Ipv4.train(&[100], move |_, s| s.tcp(move |tcp| tcp.source_port(port)));
    (0..count).flat_map(first).collect()
}

#[test]
fn g71_end_of_poll_delivers_everything() {
    let mut engine = Engine::new(Profile::linux());
    connections(20).iter().for_each(|frame| {
        engine.push(frame);
    });
    assert!(engine.delivered.is_empty());
    engine.poll_end(0);
    assert_eq!(engine.delivered.len(), 20);
    assert!(engine.delivered.iter().all(|out| out.closed == Close::PollEnd));
    assert_eq!(engine.deadline(), None);
}

#[test]
fn g71_a_hold_time_keeps_trains_across_polls() {
    let mut engine = Engine::new(holding(200_000));
    for (index, frame) in Path::Ipv4.train(&[100; 3], plain).into_iter().enumerate() {
        let now = index as u64 * 50_000;
        engine.push_frame(Frame::new(frame), now);
        engine.poll_end(now);
    }
    assert!(engine.delivered.is_empty());
    engine.poll_end(199_999);
    assert!(engine.delivered.is_empty());
    engine.poll_end(200_000);
    assert_eq!(payloads(&engine.delivered, HEADERS), [300]);
    assert_eq!(engine.delivered[0].closed, Close::HoldTime);
}

#[test]
fn g72_a_full_poll_ends_no_train_that_is_younger_than_a_jiffy() {
    let mut engine = Engine::new(Profile::linux());
    let packets = Path::Ipv4.train(&[100; 45], plain);
    for (index, frame) in packets.into_iter().enumerate() {
        engine.push_frame(Frame::new(frame), index as u64 * 20_000);
        engine.poll_end_full(index as u64 * 20_000);
    }
    assert!(engine.delivered.is_empty(), "it is 880 microseconds old");
    engine.push_frame(Frame::new(connections(1).remove(0)), 900_000);
    engine.poll_end_full(999_999);
    assert!(engine.delivered.is_empty());
    engine.poll_end_full(1_000_000);
    assert_eq!(payloads(&engine.delivered, HEADERS), [4500], "the other one is younger");
    engine.poll_end(1_000_001);
    assert_eq!(payloads(&engine.delivered, HEADERS), [4500, 100]);
    assert!(engine.delivered.iter().all(|out| out.closed == Close::PollEnd));
}

#[test]
fn g72_profiles_of_others_end_all_trains_with_a_full_poll() {
    for profile in Profile::all() {
        let (name, holds) = (profile.name.clone(), profile.limits.hold_ns > 0);
        let mut engine = Engine::new(profile);
        engine.push(&connections(1)[0]);
        engine.poll_end_full(0);
        assert_eq!(engine.delivered.is_empty(), name.starts_with("linux") || holds, "{name}");
    }
}

// Rules: P23
#[test]
fn g71_only_trains_held_long_enough_leave() {
    let mut engine = Engine::new(holding(100));
    for (index, frame) in connections(3).into_iter().enumerate() {
        engine.push_frame(Frame::new(frame), index as u64 * 60);
    }
    engine.expire(160);
    assert_eq!(engine.delivered.len(), 2);
    assert_eq!(engine.deadline(), Some(220));
}

// Rules: P25
#[test]
fn g71_the_end_of_everything_delivers_what_is_held() {
    let mut engine = Engine::new(holding(u64::MAX));
    let frames = connections(3);
    frames.iter().for_each(|frame| {
        engine.push(frame);
    });
    engine.poll_end(0);
    assert!(engine.delivered.is_empty());
    engine.finish();
    assert_eq!(engine.checked(&frames).len(), 3);
}

#[test]
fn g73_oldest_train_leaves_first() {
    let frames = connections(50);
    let mut engine = Engine::new(Profile::linux());
    frames.iter().for_each(|frame| {
        engine.push(frame);
    });
    engine.poll_end(0);
    let bytes: Vec<_> = engine.delivered.into_iter().map(|out| out.bytes).collect();
    assert_eq!(bytes, frames);
}

#[test]
fn g74_age_counts_from_the_first_packet() {
    let mut engine = Engine::new(holding(100));
    for (index, frame) in Path::Ipv4.train(&[100; 20], plain).into_iter().enumerate() {
        let now = index as u64 * 10;
        engine.expire(now);
        engine.push_frame(Frame::new(frame), now);
    }
    assert_eq!(payloads(&engine.delivered, HEADERS), [1000]);
    assert_eq!(engine.deadline(), Some(200));
}

#[test]
fn g74_full_table_delivers_the_oldest_train() {
    let mut profile = Profile::linux();
    profile.limits.flows = 3;
    let frames = connections(5);
    let mut engine = Engine::new(profile);
    frames.iter().for_each(|frame| {
        engine.push(frame);
    });
    let early: Vec<_> = engine.delivered.iter().map(|out| (&out.bytes, out.closed)).collect();
    assert_eq!(early, [(&frames[0], Close::TableFull), (&frames[1], Close::TableFull)]);
}
