//! The report of each command that reads captures, and those about tunnels.

pub(crate) mod coalesce;
pub(crate) mod csum;
pub(crate) mod decap;
pub(crate) mod encap;
pub(crate) mod explain;
#[cfg(feature = "parquet")]
pub(crate) mod export;
pub(crate) mod fragment;
pub(crate) mod inspect;
pub(crate) mod reassemble;
pub(crate) mod segment;
#[cfg(target_os = "linux")]
pub(crate) mod tunnel;
pub(crate) mod whatif;
pub(crate) mod wire;
