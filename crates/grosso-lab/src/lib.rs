//! What packet offload is worth, measured on the kernel's own TCP, without root and without
//! hardware.
//!
//! ```text
//!  sender                 engine                 receiver
//!  s0 (veth) ----------- e0  data path  (TAP) --- r0          (TAP, or another veth pair)
//!  10.93.0.1                                     10.93.0.2
//! ```
//!
//! Hosts are network namespaces without names: after a crash nothing is left to clean up. The
//! sender's segmentation is off, so that packets of the MTU cross the wire, and Grosso stands where
//! the receiver's NIC and its driver would.
//!
//! | module | job |
//! |---|---|
//! | [`permit`] | may this process do that, and if not, why and what now |
//! | [`hosts`] | the hosts and the wire between them |
//! | [`traffic`] | what the sockets of the hosts send each other |
//! | [`account`] | processor time by role, and what TCP counts |
//! | [`trial`] | one measurement, and several of the same |
//! | [`acks`] | what merged acknowledgments do to a sender: measured, and by a model |
//! | [`tunnels`] | tunnels that end in userspace, and checksums left to the other end |
//! | [`cost`] | what a packet costs a data path, by part |
//! | [`nic`] | a NIC with receive buffers of its own, of which there may be few |
//! | [`network`] | the hosts for commands of one's own, behind a wire that may be bad |
//! | [`experiment`] | which trials answer a question, and their table |
//!
//! ```no_run
//! use std::sync::atomic::AtomicBool;
//!
//! use grosso_lab::{
//!     experiment::{Experiment, Plan},
//!     permit,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Before the process has threads: it becomes root in a user namespace of its own.
//! permit::enter()?;
//! let report = Experiment::headline(Plan::default())?.run(&AtomicBool::new(false), |_| {})?;
//! print!("{}", report.table());
//! # Ok(())
//! # }
//! ```
//!
//! The crate is for Linux only: on every other system it compiles to nothing.
#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

pub mod account;
pub mod acks;
mod clocks;
pub mod conditions;
pub mod cost;
pub mod experiment;
pub mod fragments;
pub mod hosts;
pub mod network;
pub mod nic;
mod page;
pub mod permit;
pub mod profiles;
mod running;
pub mod traffic;
pub mod trial;
pub mod tunnels;
