//! Runs the cases from the kernel's own tests, by name: `linux-offloads` section 9.

mod checksum;
mod coalesce;
mod segment;
mod udp_segment;
