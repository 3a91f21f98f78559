//! Flows: from a packet to the train of its flow, and the trains that a packet must not overtake.

pub(crate) mod flow_match;
pub(crate) mod flush_scope;
pub(crate) mod last_flow;
pub(crate) mod merge;
pub(crate) mod observed;
