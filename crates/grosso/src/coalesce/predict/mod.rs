//! Predictions: the expected headers of a flow's next packet, and the header shape of consecutive passed packets.

pub(crate) mod passthrough;
pub(crate) mod prediction;
pub(crate) mod predictions;
