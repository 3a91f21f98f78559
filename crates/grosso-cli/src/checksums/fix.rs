//! Setting checksums right.

use grosso_wire::{Kind, Stack};

use super::verdict::{Claim, Level, Levels, Verdict, judge};
use crate::headers::put_u16;

/// Writes the expected value of every checksum that `which` picks, innermost first, and returns their number.
///
/// `levels` is the result of [`judge`]. A checksum around one that changed was right either for the old bytes or for
/// the new ones (rule C40). If it was right for the old ones, it is updated too, so that it stays right.
pub(crate) fn fix(
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
            put_u16(packet, before.at, expected);
            fixed += usize::from(!follows);
        }
    }
    fixed
}

/// Completes the partial checksums of a packet, and returns their number.
pub(crate) fn complete(
    packet: &mut [u8],
    is_cut: bool,
    stack: &Stack,
    claim: Claim,
    levels: &mut Levels,
) -> usize {
    judge(packet, is_cut, stack, claim, levels);
    fix(packet, is_cut, stack, levels, |level| level.verdict == Verdict::Partial)
}
