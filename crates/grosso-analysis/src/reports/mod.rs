//! Reports of the commands that read captures.

pub mod coalesce;
pub mod csum;
pub mod decap;
pub mod encap;
pub mod explain;
pub mod export;
pub mod fragment;
pub mod inspect;
pub mod profiles;
pub mod reassemble;
pub mod segment;
pub mod whatif;
pub mod wire;
