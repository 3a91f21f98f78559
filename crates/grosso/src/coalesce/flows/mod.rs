//! Lookups of a packet's flow, the train of that flow, and the trains that the packet must not overtake.

pub(crate) mod flow_match;
pub(crate) mod flush_scope;
pub(crate) mod last_flow;
pub(crate) mod merge;
pub(crate) mod observed;
