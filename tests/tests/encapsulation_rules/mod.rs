//! Tests the rules for encapsulation, and invariants for every format.

mod belonging;
mod checksums;
mod fields;
mod formats;
mod hostile;
mod kernel_cases;
mod path_mtu;
mod putting;
mod round_trip;
mod superframes;
