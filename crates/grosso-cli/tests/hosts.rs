//! Tests commands on live paths between hosts. A host is a network namespace or a guest.

#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_methods, reason = "tests make their files themselves")]

mod another_kernel;
mod bridge;
mod capture;
mod common;
mod confined_capture;
mod decap_kernel;
mod dev;
mod doctor;
mod edges;
mod evidence;
mod extcap;
mod forwarding;
mod fragments_kernel;
mod guest_dpdk;
mod guest_sockets;
mod guest_vhost;
mod lab;
mod lab_nic;
mod live;
mod live_schemas;
mod machines;
mod monitor;
mod monitoring_tools;
mod monitors;
mod network;
mod rings;
mod run;
mod service;
mod slowdown;
mod stages;
mod stats;
mod stuck;
mod tap;
mod tunnel;
mod tunnel_loops;
mod tunnel_paths;
mod twins;
mod vantage;
mod veth_lab;
