//! Packet header formats: views, builders and one bounded dissector.
#![no_std]
#![forbid(unsafe_code)]

mod dissect;
mod stack;

pub use dissect::{LinkType, Ports, dissect};
pub use stack::{Extent, Kind, LAYERS_MAX, Layer, Stack, Stop};
