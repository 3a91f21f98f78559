//! Corrects checksums.

use grosso_checksum::Sum;
use grosso_wire::{Kind, Layer, Stack, ipv4};

use super::verdict::{Claim, Level, Levels, Verdict, judge};
use crate::headers::{put_u16, u16_at};

/// Sets every checksum selected by `which` to its expected value, innermost first, and returns the number of checksums
/// written.
///
/// `levels` is the result of [`judge`]. An outer checksum that covers a changed checksum may have been valid for the
/// old bytes or for the new ones (rule C40). If it was valid for the old bytes, it is updated to stay valid.
pub fn fix(
    packet: &mut [u8],
    is_cut: bool,
    stack: &Stack,
    levels: &mut Levels,
    which: impl Fn(&Level) -> bool,
) -> usize {
    let mut fixed = 0;
    for index in (0..levels.len()).rev() {
        let Some(before) = levels.at(index) else { continue };
        let mut now = before;
        if fixed > 0 && before.layer.kind != Kind::Ipv4 {
            let mut changed = Levels::default();
            judge(packet, is_cut, stack, Claim::None, &mut changed);
            now = changed.at(index).unwrap_or(before);
        }
        let follows = before.verdict == Verdict::Valid && now.verdict == Verdict::Bad;
        if let Some(expected) = now.expected
            && (which(&before) || follows)
        {
            before.put(packet, expected);
            fixed += usize::from(!follows);
        }
    }
    fixed
}

/// Completes an IPv4 header checksum that was left to a device, so that receivers accept the packet, as `csum verify`
/// already does.
pub fn complete_header(packet: &mut [u8], ip: &Layer) {
    let at = usize::from(ip.offset) + ipv4::field::CHECKSUM.start;
    let header = packet.get(ip.offset.into()..ip.end()).unwrap_or_default();
    if ip.kind == Kind::Ipv4 && u16_at(packet, at) == 0 {
        let checksum = Sum::of(header).checksum();
        put_u16(packet, at, checksum);
    }
}

/// Completes the partial checksums of a packet. Returns how many there were.
pub fn complete(
    packet: &mut [u8],
    is_cut: bool,
    stack: &Stack,
    claim: Claim,
    levels: &mut Levels,
) -> usize {
    judge(packet, is_cut, stack, claim, levels);
    fix(packet, is_cut, stack, levels, |level| level.verdict == Verdict::Partial)
}
