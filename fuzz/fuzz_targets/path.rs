//! The data path: packets, fragments and random bytes pass through a merging path, a fragmenting stage, a reassembling
//! stage, and a segmenting path. Every frame that fits its link is delivered, byte for byte.

use crate::{Decisions, stack};
use grosso::{
    Frame, LinkType, Meta,
    features::{Device, Features},
};
use grosso_io::{
    Port, PortBuffer, Transmitted,
    memory::{MemoryPort, wire},
    path::{Direction, PathOptions},
    stage::{Fragmentation, FragmentationOptions},
};
use grosso_testkit::{oracle::Link, stack::Place};

/// Maximum number of frames. More frames would take longer without finding more.
const FRAMES_MAX: usize = 32;
/// Capacity of a wire in frames, enough for the fragments of all frames.
const ROOM: usize = 4096;

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let mut decisions = Decisions::new(data);
    let (link, kit) =
        decisions.choose(&[(LinkType::Ethernet, Link::Ethernet), (LinkType::Raw, Link::Ip)]);
    let mut frames = frames(&mut decisions, kit);
    let features = decisions.choose(&[Features::ALL, Features::ALL, Features::NONE]);
    let joined = through(&frames, link, Features::NONE, features);
    let mut cut: Vec<_> = through_described(joined, link, features, Features::NONE)
        .into_iter()
        .map(|(f, _)| f)
        .collect();
    frames.sort();
    cut.sort();
    assert_eq!(cut, frames, "merged packets are segmented into the same packets");
    fragmented(&frames, link, decisions.word());
}

/// Returns packets of several flows, some of them changed, and random bytes.
fn frames(decisions: &mut Decisions<'_>, kit: Link) -> Vec<Vec<u8>> {
    let stacks = [stack(decisions, kit), stack(decisions, kit)];
    let mut sequence = [u32::MAX - 3000, 7];
    let mut frames = Vec::new();
    while !decisions.is_over() && frames.len() < FRAMES_MAX {
        let action = decisions.byte();
        let flow = usize::from(action & 1);
        let len = if action & 2 == 0 { 400 } else { usize::from(decisions.byte()) };
        let place = Place { flow: flow as u16, sequence: sequence[flow], ..Place::default() };
        let mut frame = stacks[flow].packet(&place).payload_len(len).build();
        sequence[flow] = sequence[flow].wrapping_add(len as u32);
        if action & 0x1c == 0 {
            let at = usize::from(decisions.byte()) % frame.len();
            frame[at] ^= decisions.byte();
        }
        if action & 0xe0 == 0 {
            frame.truncate(usize::from(decisions.byte()));
        }
        frames.push(frame);
    }
    frames
}

fn through(
    frames: &[Vec<u8>],
    link: LinkType,
    from: Features,
    to: Features,
) -> Vec<(Vec<u8>, Meta)> {
    let described = frames.iter().map(|frame| (frame.clone(), Meta::default())).collect();
    through_described(described, link, from, to)
}

/// Returns the frames delivered by a path between two ports with these features.
fn through_described(
    frames: Vec<(Vec<u8>, Meta)>,
    link: LinkType,
    from: Features,
    to: Features,
) -> Vec<(Vec<u8>, Meta)> {
    let (mut source, mut outside) = wire(link, Device::new(from), ROOM);
    let (mut inside, mut target) = wire(link, Device::new(to), ROOM);
    let mut direction = Direction::new(PathOptions::new(1), link, inside.device());
    for (frame, meta) in &frames {
        assert_eq!(source.transmit(&[frame], meta).unwrap(), Transmitted::Taken);
    }
    let mut received = Vec::new();
    for now_ns in 0.. {
        let moved = direction.poll(&mut outside, &mut inside, now_ns).unwrap();
        receive(&mut target, &mut received);
        if moved == 0 && !direction.is_waiting() {
            break;
        }
    }
    let stats = direction.stats();
    assert_eq!(stats.rx_frames, frames.len() as u64);
    received
}

fn receive(port: &mut impl Port, received: &mut Vec<(Vec<u8>, Meta)>) {
    let mut take =
        |frame: Frame<PortBuffer>| received.push((frame.buffer.as_ref().to_vec(), frame.meta));
    port.receive(0, usize::MAX, &mut take).unwrap();
}

/// Fragments frames to an MTU and reassembles them. No fragment is held forever, and packets that needed no
/// fragmentation are unchanged.
fn fragmented(frames: &[Vec<u8>], link: LinkType, mtu: u16) {
    let (near, far) = wire(link, Device::new(Features::NONE), ROOM);
    let mut options = FragmentationOptions::new(7);
    options.mtu = Some(mtu);
    let stage = |port: MemoryPort, options| Fragmentation::new(port, options);
    // The stage refuses an MTU that no link can have.
    let Ok(mut near) = stage(near, &options) else { return };
    let mut far = stage(far, &FragmentationOptions::new(7)).expect("no MTU, no refusal");
    for frame in frames {
        while near.transmit(&[frame], &Meta::default()).unwrap() == Transmitted::NoRoom {}
        while near.flush().unwrap() == Transmitted::NoRoom {}
    }
    let mut received = Vec::new();
    loop {
        let before = received.len();
        far.receive(0, 64, &mut |frame| received.push(frame.buffer.as_ref().to_vec())).unwrap();
        if received.len() == before && far.deadline() != Some(0) {
            break;
        }
    }
    assert!(received.len() <= frames.len(), "{} of {}", received.len(), frames.len());
    assert!(far.held_bytes() <= frames.iter().map(Vec::len).sum::<usize>() + ROOM * 64);
}
