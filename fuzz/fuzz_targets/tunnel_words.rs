//! The words of tunnels: what is read, written as words or as a file, and read again is the same. And those of security
//! associations: what a table is made of is read as one.

use std::net::{IpAddr, Ipv4Addr};

use grosso_cli::fuzzing;

use crate::text;

/// The end of the associations that the examples have.
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let data = text(data);
    fuzzing::tunnel(data);
    fuzzing::associations(data, HERE);
}
