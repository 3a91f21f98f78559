//! Verification of all checksums in a packet, and correction of invalid ones.

mod crc32c;
mod fix;
mod prefix;
mod pseudo;
mod verdict;

pub use fix::{complete, complete_header, fix};
pub use prefix::sizes as prefix_sizes;
pub use verdict::{
    Claim, Level, Levels, Verdict, Why, has_gre_checksum_to_come, is_large_send_without_length,
    is_left_to_device, is_seeded, is_seeded_anywhere, is_seeded_to_the_end,
    is_seeded_without_length, judge, seeded_around,
};
