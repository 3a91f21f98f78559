//! Verifies every checksum of a frame.

use super::parse::{Layer, Lengths, Link, Parsed, Stop, parse};
use super::sum::{add, checksum, sum};

/// State of one checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The checksum is correct.
    Right,
    /// The checksum is wrong.
    Wrong,
    /// The field is zero, which in UDP means no checksum.
    Absent,
    /// A tunnel header asks the receiver to complete the checksum (rule C50), and the field contains the correct
    /// pseudo-header sum.
    Remote,
}

/// One checksum in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Index of the header that contains the checksum, counted from the outside.
    pub layer: usize,
    /// Kind of the header that contains the checksum.
    pub name: &'static str,
    /// The state of the checksum.
    pub state: State,
    /// The value in the field.
    pub found: u16,
    /// The value that a sender would write.
    pub expected: u16,
}

/// Verifies every checksum of `frame`, outermost first. Omits the transport checksum of a fragment, because it covers
/// bytes in other fragments.
pub fn verify(frame: &[u8], link: Link) -> Vec<Verdict> {
    let parsed = parse(frame, link, Lengths::Declared);
    (0..parsed.layers.len()).filter_map(|index| verdict(frame, &parsed, index)).collect()
}

/// Returns whether every checksum of `frame` is correct.
pub fn is_right(frame: &[u8], link: Link) -> bool {
    verify(frame, link).iter().all(|verdict| verdict.state != State::Wrong)
}

fn verdict(frame: &[u8], parsed: &Parsed, index: usize) -> Option<Verdict> {
    let layer = &parsed.layers[index];
    let bytes = &frame[layer.offset..layer.end];
    let (cover, field) = match layer.name {
        "ipv4" => (bytes[..layer.len].to_vec(), 10),
        "tcp" => ([pseudo(parsed, index, 6)?, bytes.to_vec()].concat(), 16),
        "udp" => ([pseudo(parsed, index, 17)?, bytes.to_vec()].concat(), 6),
        "icmp" => (bytes.to_vec(), 2),
        "icmp6" => ([pseudo(parsed, index, 58)?, bytes.to_vec()].concat(), 2),
        "gre" if layer.number("flags") & 0x8000 != 0 => (bytes.to_vec(), 4),
        _ => return None,
    };
    let at = cover.len() - if layer.name == "ipv4" { layer.len } else { bytes.len() } + field;
    let found = layer.number("checksum") as u16;
    let expected = expected(&cover, at, layer.name);
    let state = match layer.name {
        "udp" if found == 0 => State::Absent,
        "tcp" | "udp" if is_remote(parsed, index) => remote(parsed, index, layer)?,
        _ if sum(&cover) == 0xffff => State::Right,
        _ => State::Wrong,
    };
    Some(Verdict { layer: index, name: layer.name, state, found, expected })
}

/// Returns the checksum that a sender writes. It is computed with the field set to zero, and is never zero in UDP (RFC
/// 768).
fn expected(cover: &[u8], at: usize, name: &str) -> u16 {
    let mut zeroed = cover.to_vec();
    zeroed[at..at + 2].fill(0);
    match checksum(&zeroed) {
        0 if name == "udp" => 0xffff,
        value => value,
    }
}

fn is_remote(parsed: &Parsed, index: usize) -> bool {
    parsed.has_remote_checksum()
        && parsed.stop == Stop::Transport
        && index + 1 == parsed.layers.len()
}

fn remote(parsed: &Parsed, index: usize, layer: &Layer) -> Option<State> {
    let seed = seed(parsed, index)?;
    Some(if layer.number("checksum") as u16 == seed { State::Remote } else { State::Wrong })
}

/// Returns the folded, uncomplemented pseudo-header sum for the transport header at `index`.
pub(crate) fn seed(parsed: &Parsed, index: usize) -> Option<u16> {
    let protocol = if parsed.layers[index].name == "tcp" { 6 } else { 17 };
    // Adding zero leaves the folded sum unchanged.
    Some(add(sum(&pseudo(parsed, index, protocol)?), 0))
}

fn pseudo(parsed: &Parsed, index: usize, protocol: u8) -> Option<Vec<u8>> {
    let layer = &parsed.layers[index];
    parsed.pseudo_header_of(index, protocol, layer.end - layer.offset)
}
