//! The C interface: its contract and its behaviour.

mod abi;
mod api;
mod header;
