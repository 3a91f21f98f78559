//! Packet header formats: views, builders and one bounded dissector.
#![no_std]
#![forbid(unsafe_code)]

mod dissect;
pub mod ethernet;
pub mod geneve;
pub mod gre;
pub mod gue;
pub mod ipv4;
pub mod ipv6;
pub mod mpls;
pub mod pppoe;
pub mod tcp;
pub mod udp;
pub mod vlan;
pub mod vxlan;
mod stack;

pub use dissect::{LinkType, Ports, dissect, dissect_into};
pub use stack::{Extent, Kind, LAYERS_MAX, Layer, Stack, Stop};
