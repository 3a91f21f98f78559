//! Stages between two hosts: ESP over fragments, and tunnels of every kind. On a perfect wire, everything is delivered
//! unchanged. On a wire that loses, duplicates and damages frames, ESP delivers only frames that were sent, each at
//! most once.

use std::{collections::BTreeMap, net::Ipv4Addr};

use crate::{Decisions, endpoint, stack};
use grosso::{
    Meta,
    features::{Device, Features},
    tunnel::esp::{EspMode, KeyMaterial, Outer, SecurityAssociation},
};
use grosso_io::{
    Port, PortBuffer, Transmitted,
    memory::{MemoryPort, wire},
    stage::{
        EspOptions, EspStage, EthernetLink, Fragmentation, FragmentationOptions, TunnelOptions,
        TunnelStage,
    },
};
use grosso_testkit::{oracle::Link, stack::Place};
use grosso_wire::{Kind, LinkType, Ports, dissect};

/// Maximum number of frames. More frames would take longer without finding more.
const FRAMES_MAX: usize = 16;
/// Capacity of a wire in frames, enough for the fragments of all frames.
const ROOM: usize = 4096;

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let mut decisions = Decisions::new(data);
    let is_good = decisions.byte() & 1 == 0;
    // ESP does not protect link headers, so there are none on an impaired wire.
    let links = [(LinkType::Raw, Link::Ip), (LinkType::Ethernet, Link::Ethernet)];
    let (link, kit) = decisions.choose(if is_good { &links } else { &links[..1] });
    if decisions.byte() & 1 == 0 {
        secured(&mut decisions, link, kit, is_good);
    } else {
        tunnelled(&mut decisions, link, is_good);
    }
}

/// Connects two hosts with ESP, whose packets are fragmented and reassembled.
fn secured(decisions: &mut Decisions<'_>, link: LinkType, kit: Link, is_good: bool) {
    let mut options = FragmentationOptions::new(7);
    options.mtu = Some(decisions.choose(&[1280, 1500, 9000]));
    options.ignore_df = true;
    let ends = Outer::V4 { source: Ipv4Addr::LOCALHOST, destination: Ipv4Addr::BROADCAST };
    // Transport mode leaves the IP header unprotected, so it is not used on an impaired wire.
    let modes = [EspMode::Tunnel(ends), EspMode::Transport];
    let mode = decisions.choose(if is_good { &modes } else { &modes[..1] });
    let association = |spi: u32| {
        let key = KeyMaterial::aes_gcm(&[spi as u8; 20]).expect("a key");
        SecurityAssociation::new(spi, mode, key)
    };
    let host = |port, out, back| {
        let port = Fragmentation::new(port, &options).expect("an MTU that links have");
        EspStage::new(port, EspOptions::new(association(out), association(back), 0))
            .expect("two associations")
    };
    let mut road = Road::new(link);
    let (mut near, mut far) = (host(road.near(), 0x101, 0x102), host(road.far(), 0x102, 0x101));
    let sent = frames(decisions, kit);
    sent.iter().for_each(|frame| insist(&mut near, frame));
    road.carry(decisions, is_good);
    let received = receive(&mut far);
    let mut left: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    for frame in &sent {
        *left.entry(comparable(frame, link)).or_default() += 1;
    }
    for frame in &received {
        let count = left.get_mut(&comparable(frame, link)).expect("a frame that was sent");
        assert!(*count > 0, "a frame was delivered twice");
        *count -= 1;
    }
    if is_good {
        let stats = near.stats();
        let refused = stats.out_dropped.total() + near.inner().stats().cut.refused();
        assert!(received.len() as u64 + refused >= sent.len() as u64, "{stats:?}");
    }
}

/// Connects the two endpoints of a tunnel of any kind.
fn tunnelled(decisions: &mut Decisions<'_>, link: LinkType, is_good: bool) {
    let there = endpoint(decisions);
    let mut back = there.clone();
    (back.local, back.remote) = (there.remote, there.local);
    let kit = if there.carries_ethernet() { Link::Ethernet } else { Link::Ip };
    let mut road = Road::new(link);
    let end = |port, endpoint, [source, destination]: [[u8; 6]; 2]| {
        let mut options = TunnelOptions::new(endpoint, 7);
        options.link = (link == LinkType::Ethernet).then_some(EthernetLink { source, destination });
        TunnelStage::new(port, options)
    };
    let [one, other] = [[2; 6], [4; 6]];
    let Ok(mut near) = end(road.near(), there, [one, other]) else { return };
    let mut far = end(road.far(), back, [other, one]).expect("the other end of a tunnel");
    let sent = frames(decisions, kit);
    sent.iter().for_each(|frame| insist(&mut near, frame));
    road.carry(decisions, is_good);
    for frame in receive(&mut far) {
        assert!(!is_good || sent.contains(&frame), "a frame that was not sent");
    }
}

/// A link that loses, duplicates and damages frames in transit.
struct Road {
    ends: [Option<MemoryPort>; 2],
    middle: [MemoryPort; 2],
}

impl Road {
    fn new(link: LinkType) -> Self {
        let device = Device::new(Features::NONE);
        let (near, left) = wire(link, device, ROOM);
        let (right, far) = wire(link, device, ROOM);
        Self { ends: [Some(near), Some(far)], middle: [left, right] }
    }

    fn near(&mut self) -> MemoryPort {
        self.ends[0].take().expect("once")
    }

    fn far(&mut self) -> MemoryPort {
        self.ends[1].take().expect("once")
    }

    /// Forwards the frames that are in transit.
    fn carry(&mut self, decisions: &mut Decisions<'_>, is_good: bool) {
        for mut frame in receive(&mut self.middle[0]) {
            let fate = if is_good { 0 } else { decisions.byte() };
            match fate & 7 {
                1 => continue,
                2 => insist(&mut self.middle[1], &frame),
                3 => frame.truncate(decisions.byte().into()),
                4 => {
                    let at = usize::from(decisions.word()) % frame.len().max(1);
                    frame.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= decisions.byte());
                }
                _ => {}
            }
            insist(&mut self.middle[1], &frame);
        }
    }
}

/// Returns packets with random header stacks.
fn frames(decisions: &mut Decisions<'_>, kit: Link) -> Vec<Vec<u8>> {
    let count = 1 + usize::from(decisions.byte()) % FRAMES_MAX;
    let frame = |number: usize| {
        let place = Place { sequence: number as u32, ..Place::default() };
        let len = usize::from(decisions.word()) % 3000;
        stack(decisions, kit).packet(&place).payload_len(len).build()
    };
    (0..count).map(frame).collect()
}

/// Returns a frame, from its IP header on if it has one, with DF, identification and header checksum cleared, because
/// fragmenting an IPv4 packet with DF changes them.
fn comparable(frame: &[u8], link: LinkType) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let stack = dissect(&frame, link, &Ports::NONE);
    let ip = stack.layers().iter().find(|layer| matches!(layer.kind, Kind::Ipv4 | Kind::Ipv6));
    let Some(ip) = ip else { return frame };
    frame.drain(..usize::from(ip.offset));
    if ip.kind == Kind::Ipv4 {
        [4, 5, 10, 11].into_iter().for_each(|byte| frame[byte] = 0);
        frame[6] &= !0x40;
    }
    frame
}

fn insist(port: &mut impl Port, frame: &[u8]) {
    while port.transmit(&[frame], &Meta::default()).unwrap() == Transmitted::NoRoom {}
    while port.flush().unwrap() == Transmitted::NoRoom {}
}

/// Receives all available frames from a port.
fn receive<P: Port>(port: &mut P) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    loop {
        let before = frames.len();
        let mut each =
            |frame: grosso::Frame<PortBuffer>| frames.push(frame.buffer.as_ref().to_vec());
        port.receive(0, 64, &mut each).unwrap();
        if frames.len() == before && port.deadline() != Some(0) {
            return frames;
        }
    }
}
