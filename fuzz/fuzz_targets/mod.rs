//! The fuzz targets: each is a module here, and a program with the same name in `src/bin`. As modules of one library,
//! they are compiled once, with one copy of the generic code that they share.

pub mod capi;
pub mod capture;
pub mod coalesce;
pub mod configuration;
pub mod decapsulate;
pub mod dissect;
pub mod encapsulate;
pub mod esp;
pub mod expand;
pub mod files;
pub mod framing;
pub mod impair;
pub mod judge;
pub mod path;
pub mod path_mtu;
pub mod probing;
pub mod profile;
pub mod reassemble;
pub mod request;
pub mod segment;
pub mod stages;
pub mod tunnel_words;
pub mod vhost;
pub mod virtio;
