//! Tests ports that use the running kernel's devices and sockets.

mod live_path;
mod unix_port;
mod vhost_driver;
mod vhost_hostile;
mod vhost_offloads;
mod vhost_pairs;
mod vhost_port;
