//! Tests of commands on captures and of their documentation, which need no network.

#![allow(clippy::disallowed_methods, reason = "tests make their files themselves")]

mod answers;
mod comments;
mod commit;
mod common;
mod conform;
mod decap;
mod documents;
mod encap;
mod exit_codes;
mod explain;
mod filters;
mod flow_table;
mod fragments;
mod grammar;
mod interrupted;
mod laws;
mod line;
mod lua;
mod messages;
mod mirrors;
mod names;
mod options;
mod overflow;
mod pipes;
mod profiles;
mod protocols;
mod round_trip;
mod routing;
mod schemas;
mod slow_jobs;
mod tunnel_ports;
mod whatif;
mod windows;
mod wire;
