//! Result of looking up a packet's flow.

use crate::{
    coalesce::slots::{prediction_id::PredictionId, shape_id::ShapeId, train_id::TrainId},
    flow::{FlowHash, Found},
};

/// Headers and flow of a packet, and the result of looking up the flow in the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowMatch {
    pub(crate) known: ShapeId,
    pub(crate) flow: FlowHash,
    pub(crate) found: Found<TrainId>,
    /// Whether the lookup has already shown that the packet's headers agree with the train's wherever they must be
    /// equal.
    pub(crate) agrees: bool,
    /// Prediction of the flow, if the packet resembles the flow's earlier packets so closely that it need not be
    /// examined.
    pub(crate) resembled: PredictionId,
}
