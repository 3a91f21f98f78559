//! Received packets: known header stacks, examination, and the policy for examining a packet.

pub(crate) mod bounds;
pub(crate) mod examine;
pub(crate) mod last_packet;
pub(crate) mod policy;
pub(crate) mod rx_packet;
pub(crate) mod shapes;
