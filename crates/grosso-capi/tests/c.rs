//! Tests the contract and the behavior of the C interface.

mod abi;
mod api;
mod header;
