//! Tests captures from other sources: round trips, damage, compression, and comparison with other tools.

mod build;
mod compression;
mod damage;
mod oracle;
mod origins;
mod packets;
mod round_trip;
