//! An impaired link with any arguments: each frame sent through it is delivered once, delivered twice if it was
//! duplicated, or counted as lost.

use crate::Decisions;
use grosso::{
    LinkType, Meta,
    features::{Device, Features},
};
use grosso_io::{
    Port, Transmitted,
    impair::{Impair, Impairment},
    memory::wire,
};

/// Maximum number of frames. More frames would take longer without finding more.
const FRAMES_MAX: u64 = 64;

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let end = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let (words, rest) = data.split_at(end);
    let Ok(words) = str::from_utf8(words) else { return };
    let Ok(impairment) = words.parse::<Impairment>() else { return };
    let mut decisions = Decisions::new(rest.get(1..).unwrap_or_default());
    let (mut far, near) = wire(LinkType::Ethernet, Device::new(Features::NONE), 4096);
    let mut near = Impair::new(near, impairment);
    let (mut sent, mut arrived, mut now_ns) = (0, 0, 0_u64);
    while !decisions.is_over() && sent < FRAMES_MAX {
        let frame = vec![decisions.byte(); decisions.byte().into()];
        assert_eq!(far.transmit(&[&frame], &Meta::default()).unwrap(), Transmitted::Taken);
        sent += 1;
        now_ns = now_ns.saturating_add(u64::from(decisions.byte()) << (decisions.byte() % 57));
        near.receive(now_ns, usize::MAX, &mut |_| arrived += 1).unwrap();
    }
    // Frames arrive when they are due, and every frame is due eventually.
    while let Some(at_ns) = near.deadline() {
        now_ns = now_ns.max(at_ns);
        near.receive(now_ns, usize::MAX, &mut |_| arrived += 1).unwrap();
    }
    let stats = near.stats();
    assert_eq!(arrived + stats.lost + stats.overflowed, sent + stats.duplicated, "{stats:?}");
}
