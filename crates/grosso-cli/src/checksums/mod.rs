//! A verdict for every checksum of a packet, and the repair of those that are not right.

mod fix;
mod pseudo;
mod verdict;

pub(crate) use fix::{complete, fix};
pub(crate) use verdict::{
    Claim, Level, Levels, Verdict, Why, has_gre_checksum_to_come, has_header_checksum_to_come,
    is_left_to_device, is_seeded, is_seeded_anywhere, is_seeded_to_the_end, judge, seeded_around,
};
