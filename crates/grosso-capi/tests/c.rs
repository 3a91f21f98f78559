//! The interface for C: what it promises, and what it does.

mod abi;
mod api;
mod header;
