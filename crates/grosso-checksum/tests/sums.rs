//! Tests sums and copies with every backend.

#[macro_use]
mod common;

mod algebra;
mod copy;
mod kernel;
mod oracle;
