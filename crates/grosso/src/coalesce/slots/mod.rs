//! Storage by slot: the IDs of headers, trains and predictions, tables keyed by them, and the pool of buffers.

pub(crate) mod pool;
pub(crate) mod prediction_id;
pub(crate) mod shape_id;
pub(crate) mod slot_map;
pub(crate) mod train_id;
