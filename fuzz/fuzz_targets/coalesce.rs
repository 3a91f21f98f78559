//! The coalescer, with modified trains and random limits, polls and holds: no packet is lost, no packet overtakes
//! another of its flow, and segmentation restores exactly the pushed packets.

use crate::{Decisions, stack};
use grosso::{Meta, Profile};
use grosso_rig::session::{Session, complete_checksums, random_profile, random_reorder, received};
use grosso_testkit::{
    oracle::Link,
    random::Random,
    stack::{Place, Stack},
};
use grosso_wire::LinkType;

/// Maximum number of frames. More frames would take longer without finding more.
const FRAMES_MAX: usize = 32;
/// Number of parallel flows.
const FLOWS: usize = 3;

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let mut decisions = Decisions::new(data);
    let (link, kit) = decisions.choose(&[
        (LinkType::Ethernet, Link::Ethernet),
        (LinkType::Ethernet, Link::Ethernet),
        (LinkType::Raw, Link::Ip),
    ]);
    let profile = profile(&mut decisions);
    let mut session = Session::new(profile, link, decisions.byte().into());
    let first = stack(&mut decisions, kit);
    let other = stack(&mut decisions, kit);
    let stacks = [first.clone(), first, other];
    let mut senders: Vec<Sender> =
        (0..FLOWS).map(|flow| Sender::new(&stacks[flow], flow)).collect();
    while !decisions.is_over() && session.pushed.len() < FRAMES_MAX {
        step(&mut session, &mut senders, &mut decisions, kit);
    }
    session.finish();
    session.assert_settled();
    session.assert_reversible();
}

/// Returns a profile that mostly has wide limits, so that trains grow.
fn profile(decisions: &mut Decisions<'_>) -> Profile {
    let choice = decisions.byte();
    if choice.is_multiple_of(2) {
        let mut random = Random::new(choice.into());
        let mut profile = random_profile(&mut random);
        profile.reorder = random_reorder(&mut random);
        return profile;
    }
    let mut profile = Profile::linux();
    profile.tunnels_max = 2;
    profile.limits.hold_ns = u64::from(choice / 64) * 20;
    profile.limits.full_poll_ns = u64::from(choice / 8 % 8) * 10;
    profile
}

/// Performs one action: most actions send a frame.
fn step(session: &mut Session, senders: &mut [Sender], decisions: &mut Decisions<'_>, kit: Link) {
    let action = decisions.byte();
    session.now_ns += u64::from(action & 3);
    let sender = &mut senders[usize::from(action >> 2) % FLOWS];
    let (frame, meta) = match action >> 4 {
        0..=5 => (sender.segment(SEGMENT), Meta::default()),
        6 => (sender.segment(decisions.word().into()), Meta::default()),
        7..=8 => received(&sender.segment(SEGMENT), kit, &mut decisions.random()),
        9..=12 => (sender.changed(decisions, kit, action & 8 != 0), Meta::default()),
        13 => (sender.cut(decisions), Meta::default()),
        14 if action & 4 == 0 => return session.poll_end(),
        14 => return session.poll_end_full(),
        _ => return session.expire(),
    };
    session.push(&frame, meta);
}

/// Payload bytes of most packets.
const SEGMENT: usize = 100;

/// A flow whose packets are sent one by one.
struct Sender {
    stack: Stack,
    place: Place,
}

impl Sender {
    fn new(stack: &Stack, flow: usize) -> Self {
        let ids = vec![65530, 7, 7];
        let place = Place { flow: flow as u16, sequence: u32::MAX - 900, ids, ..Place::default() };
        Self { stack: stack.clone(), place }
    }

    /// Returns the next packet of the sequence.
    fn segment(&mut self, len: usize) -> Vec<u8> {
        // No length field may overflow, regardless of the headers.
        let len = len % 1500;
        let frame = self.stack.packet(&self.place).payload_len(len).build();
        self.place.sequence = self.place.sequence.wrapping_add(len as u32);
        for (level, id) in self.place.ids.iter_mut().enumerate() {
            // The innermost identification stays the same.
            *id = id.wrapping_add(u16::from(level < self.stack.tunnels.len()));
        }
        frame
    }

    /// Returns the next packet with some bytes changed. If `follow` is set, its checksums are corrected.
    fn changed(&mut self, decisions: &mut Decisions<'_>, kit: Link, follow: bool) -> Vec<u8> {
        let mut frame = self.segment(SEGMENT);
        for _ in 0..=decisions.byte() % 3 {
            let at = usize::from(decisions.byte()) % frame.len();
            frame[at] ^= decisions.byte();
        }
        if follow {
            complete_checksums(&mut frame, kit);
        }
        frame
    }

    /// Returns the next packet, truncated or with bytes appended.
    fn cut(&mut self, decisions: &mut Decisions<'_>) -> Vec<u8> {
        let mut frame = self.segment(SEGMENT);
        let len = usize::from(decisions.byte());
        frame.resize(if len < 250 { len.min(frame.len()) } else { frame.len() + len - 249 }, 0);
        frame
    }
}
