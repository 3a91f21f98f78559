//! Predictions: the headers expected in a flow's next packet, and the header shape of consecutive packets that are
//! delivered unmerged.

pub(crate) mod passthrough;
pub(crate) mod prediction;
pub(crate) mod predictions;
