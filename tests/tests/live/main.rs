//! Ports on devices and sockets of the running kernel.

mod live_path;
mod unix_port;
mod vhost_driver;
mod vhost_hostile;
mod vhost_offloads;
mod vhost_pairs;
mod vhost_port;
