//! The arguments of tunnels: they are unchanged after they are read, written as arguments or as a file, and read again.
//! And the arguments of security associations: the generated table is valid.

use std::net::{IpAddr, Ipv4Addr};

use grosso_cli::fuzzing;

use crate::text;

/// The local endpoint of the associations in the examples.
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let data = text(data);
    fuzzing::tunnel(data);
    fuzzing::associations(data, HERE);
}
