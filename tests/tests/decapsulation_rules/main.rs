//! Packets out of tunnels: what the rules say, and what must hold for every stack of headers.

mod checksums;
mod congestion;
mod headers;
mod hostile;
mod links;
mod round_trip;
mod superframes;
mod taking;
