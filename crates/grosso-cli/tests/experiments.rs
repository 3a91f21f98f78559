//! Runs the lab's experiments: they test the claims of publications, and fill tables. Each experiment measures on a
//! dedicated CPU. Together they take minutes: `cargo test -p grosso-cli --test experiments`.

#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_methods, reason = "tests make their files themselves")]

mod common;
mod sources;
mod tables;
mod veth_lab;
