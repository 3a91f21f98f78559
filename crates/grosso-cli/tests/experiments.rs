//! Experiments of the lab: the claims of publications that they test, and the tables that they fill. Each experiment
//! measures on a dedicated CPU. Together they take minutes: `cargo test -p grosso-cli --test experiments`.

#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_methods, reason = "tests make their files themselves")]

mod common;
mod sources;
mod tables;
mod veth_lab;
