//! Measurements of the gain from packet offload, with the kernel's own TCP and without root or special hardware.
//!
//! ```text
//!  sender                 engine                 receiver
//!  s0 (veth) ----------- e0  data path  (TAP) --- r0          (TAP, or another veth pair)
//!  10.93.0.1                                     10.93.0.2
//! ```
//!
//! Hosts are network namespaces without names, so there is nothing to clean up after a crash. Segmentation offload is
//! off at the sender, so packets that fit the MTU cross the wire. Grosso replaces the receiver's NIC and its driver.
//!
//! | module | job |
//! |---|---|
//! | [`netns`] | the hosts and the wire between them |
//! | [`traffic`] | traffic between the sockets of the hosts |
//! | [`cpu_time`] | CPU time by role, and TCP's counters |
//! | [`trial`] | one measurement, and its parameters |
//! | [`model`] | a model of a sender's congestion control |
//! | [`userspace`] | a TCP sender in userspace, used if the kernel senders are unavailable |
//! | [`acks`] | the effect of merged acknowledgments on a sender: measured, and by the model |
//! | [`tunnel`] | the tunnels that experiments measure, and the endpoints of a tunnel |
//! | [`tunnels`] | tunnels that end in userspace, and checksums left to the peer |
//! | [`cost`] | the cost of a packet to a data path, by part |
//! | [`guest`] | a second, real kernel beside the running one, in a VM that QEMU emulates |
//! | [`vms`] | comparison of transports for the frames of a virtual machine, and of a guest's receive buffers |
//! | [`nic_offloads`] | the gain from a device's own offloads |
//! | [`sink`] | the peer of a measured stream, and the client that starts the stream |
//! | [`nic`] | a model of a NIC with a limited number of receive buffers |
//! | [`network`] | the hosts on which users run their own commands, and the link between them, which may be impaired |
//! | [`custom`] | custom experiments that compare settings, with any hosts, links and paths |
//! | [`experiment`] | the common part of all experiments: trials that alternate between settings to answer a question |
//! | [`report`] | results as JSON, as a table and as a page |
//! | [`beside`] | published ratios next to the measured ones |
//! | `publications`, `setups`, `lessons` | texts and drawings on the pages of the publications |
//! | [`statistics`], [`verdict`] | medians and percentiles; claims, and whether the figures support them |
//! | [`offload`] | the gain from coalescing and from superframes, each measured on and off |
//! | [`fragments`] | fragmented ESP packets, sent to a NIC with few receive buffers |
//!
//! ```no_run
//! use std::sync::atomic::AtomicBool;
//!
//! use grosso_lab::{
//!     experiment::{Experiment, Plan},
//!     offload::Offload,
//! };
//! use grosso_sys::userns;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Call this before the process has threads: it becomes root in its own user namespace.
//! userns::enter()?;
//! let report = Offload::headline(Plan::default())?.run(&AtomicBool::new(false), |_| {})?;
//! print!("{}", report.table());
//! # Ok(())
//! # }
//! ```
//!
//! The crate supports Linux only: on every other system it compiles to nothing.
#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make their files themselves"))]

pub mod acks;
pub mod beside;
pub mod cost;
pub mod cpu_time;
pub mod custom;
pub mod experiment;
pub mod fragments;
pub mod guest;
mod lessons;
pub mod model;
pub mod netns;
pub mod network;
pub mod nic;
pub mod nic_offloads;
pub mod offload;
mod page;
mod pages;
mod profiler;
pub mod profiles;
mod publications;
pub mod report;
mod running;
mod setups;
pub mod sink;
pub mod statistics;
mod table;
pub mod traffic;
pub mod trial;
pub mod tunnel;
pub mod tunnels;
pub mod userspace;
pub mod verdict;
pub mod vms;

/// The example in `README.md`, compiled and run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
