//! Decapsulation: its rules, and invariants for every stack of headers.

mod checksums;
mod congestion;
mod headers;
mod hostile;
mod links;
mod round_trip;
mod superframes;
mod taking;
