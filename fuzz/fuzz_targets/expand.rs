//! Expansion of acknowledgments, some of them with arbitrary changes, after trains were delivered. The copies are in
//! order, and none acknowledges more than the original. There are as many as announced, and each is as long as the
//! original, and correct if the original is.

use crate::Decisions;
use grosso::{CoalesceOptions, Coalescer, Delivery, Frame, LinkType, Ports, expand::Expander};
use grosso_testkit::{
    Packet,
    oracle::{Link, is_right},
};

/// Number of payload bytes in most packets.
const LEN: usize = 1000;
const HOST: [u8; 4] = [10, 0, 0, 1];
const SERVER: [u8; 4] = [10, 0, 0, 9];
/// Maximum number of actions. More actions would take longer without finding more.
const ACTIONS_MAX: usize = 48;

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let mut decisions = Decisions::new(data);
    let mut expander = Expander::new(LinkType::Ethernet, Ports::ASSIGNED, 1);
    let mut coalescer = Coalescer::new(CoalesceOptions::new(LinkType::Ethernet, 1));
    // The sequence numbers start close to the maximum, so that they wrap.
    let mut next = u32::MAX - 20_000;
    for _ in 0..ACTIONS_MAX {
        if decisions.is_over() {
            break;
        }
        match decisions.byte() % 4 {
            0 | 1 => deliver(&mut coalescer, &mut expander, &mut next, &mut decisions),
            2 => expand(&mut expander, acknowledgment(next, &mut decisions)),
            _ => {
                let mut frame = acknowledgment(next, &mut decisions);
                let at = usize::from(decisions.byte()) % frame.len();
                frame[at] ^= decisions.byte();
                expand(&mut expander, frame);
            }
        }
    }
}

/// Delivers a train, sometimes after a gap.
fn deliver(
    coalescer: &mut Coalescer<Vec<u8>>,
    expander: &mut Expander,
    next: &mut u32,
    decisions: &mut Decisions<'_>,
) {
    let choice = decisions.byte();
    if choice & 0x80 != 0 {
        *next = next.wrapping_add(decisions.word().into());
    }
    let mut sink = |delivery: Delivery<'_, Vec<u8>>| expander.note(&delivery);
    for number in 0..=choice % 24 {
        let len = if number == choice % 24 { usize::from(decisions.byte()) + 1 } else { LEN };
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.source(SERVER).destination(HOST));
        let packet = packet.tcp(|t| t.source_port(80).destination_port(5000).sequence(*next));
        coalescer.push(Frame::new(packet.payload_len(len).build()), 0, &mut sink);
        *next = next.wrapping_add(len as u32);
    }
    coalescer.poll_end(0, &mut sink);
}

/// Returns an acknowledgment from the host, for all delivered data or for a position near its end.
fn acknowledgment(next: u32, decisions: &mut Decisions<'_>) -> Vec<u8> {
    let behind = u32::from(decisions.word() % 4096);
    let window = decisions.choose(&[1000, 1000, 1000, 900, 1100]);
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.source(HOST).destination(SERVER));
    packet
        .tcp(|t| {
            let t = t.source_port(5000).destination_port(80).window(window);
            t.ack(next.wrapping_sub(behind))
        })
        .build()
}

fn expand(expander: &mut Expander, bytes: Vec<u8>) {
    let frame = Frame::new(bytes);
    let Some(Ok(expansion)) = expander.expand(&frame) else { return };
    let numbers = expansion.numbers();
    assert_eq!(expansion.count(), numbers.len());
    assert!((2..=64).contains(&numbers.len()), "{numbers:?}");
    for pair in numbers.windows(2) {
        assert!((pair[1].wrapping_sub(pair[0]) as i32) > 0, "not in order: {numbers:?}");
    }
    let was_right = is_right(&frame.buffer, Link::Ethernet);
    let mut out = vec![0; frame.buffer.len()];
    for index in 0..numbers.len() {
        let len = expansion.write(index, &mut out).expect("room for the packet");
        assert_eq!(len, expansion.len());
        let last = index + 1 == numbers.len();
        assert!(!last || out[..len] == frame.buffer[..len], "the last is the packet itself");
        assert!(!was_right || is_right(&out[..len], Link::Ethernet), "copy {index} is wrong");
    }
    assert_eq!(expansion.write(numbers.len(), &mut out), None);
}
