//! Storage in slots: IDs of headers, trains and predictions, tables keyed by these IDs, and the buffer pool.

pub(crate) mod pool;
pub(crate) mod prediction_id;
pub(crate) mod shape_id;
pub(crate) mod slot_map;
pub(crate) mod train_id;
