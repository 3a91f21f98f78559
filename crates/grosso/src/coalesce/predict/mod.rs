//! Predictions: the expected headers of the next packet of a flow, and the header shape of consecutive packets that are
//! delivered unmerged.

pub(crate) mod passthrough;
pub(crate) mod prediction;
pub(crate) mod predictions;
