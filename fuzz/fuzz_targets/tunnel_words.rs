//! Tunnel arguments that are read, written as arguments or as a file, and read again are unchanged. Arguments for
//! security associations result in a valid table.

use std::net::{IpAddr, Ipv4Addr};

use grosso_cli::fuzzing;

use crate::text;

/// Local endpoint of the associations in the seed inputs.
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let data = text(data);
    fuzzing::tunnel(data);
    fuzzing::associations(data, HERE);
}
