//! Packet header formats: views, builders and one bounded dissector.
#![no_std]
#![forbid(unsafe_code)]

mod dissect;
mod error;
pub mod esp;
pub mod ethernet;
pub mod fou;
pub mod geneve;
pub mod gre;
pub mod gue;
pub mod icmp;
pub mod ipv4;
pub mod ipv6;
pub mod ipv6_extension;
pub mod ipv6_fragment;
mod layout;
pub mod mpls;
pub mod null;
pub mod pppoe;
pub mod sll;
pub mod sll2;
mod stack;
pub mod tcp;
#[cfg(test)]
mod testing;
pub mod udp;
pub mod vlan;
pub mod vxlan;

pub use dissect::{LinkType, Ports, dissect, dissect_into};
pub use error::{Malformed, Reason};
pub use stack::{Extent, Kind, LAYERS_MAX, Layer, Stack, Stop};
