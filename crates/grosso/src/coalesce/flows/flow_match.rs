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
    /// Whether the lookup has already shown that the packet obeys the equality laws of the train that it found.
    pub(crate) agrees: bool,
    /// Prediction of the flow, if the packet resembles earlier packets of the flow and need not be examined.
    pub(crate) resembled: PredictionId,
}
