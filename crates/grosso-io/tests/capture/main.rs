//! Captures from the outside: round trips, damage, compression, and other people's tools.

mod build;
mod compression;
mod damage;
mod oracle;
mod packets;
mod round_trip;
