//! Captures from other sources: round trips, damage, compression, and other tools.

mod build;
mod compression;
mod damage;
mod oracle;
mod origins;
mod packets;
mod round_trip;
