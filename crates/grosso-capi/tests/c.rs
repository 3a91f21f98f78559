//! The C interface: its contract and its behavior.

mod abi;
mod api;
mod header;
