//! Tests the rules for decapsulation, and invariants for every header stack.

mod checksums;
mod congestion;
mod headers;
mod hostile;
mod links;
mod round_trip;
mod superframes;
mod taking;
