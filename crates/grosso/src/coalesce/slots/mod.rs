//! Storage in slots: the IDs of headers, trains and predictions, the tables that use these IDs as keys, and the pool of
//! buffers.

pub(crate) mod pool;
pub(crate) mod prediction_id;
pub(crate) mod shape_id;
pub(crate) mod slot_map;
pub(crate) mod train_id;
