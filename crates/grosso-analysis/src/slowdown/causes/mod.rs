//! Derives the causes that slow down a direction from its statistics.
//!
//! | module | causes |
//! |---|---|
//! | `path` | path MTU, black holes, routers that merge, wrong checksums |
//! | `loss` | loss, reordering, copies, unnecessary retransmissions |
//! | `acks` | lost and rare acknowledgments |
//! | `window` | closed and small windows, pauses and waits of the sender |
//! | `offload` | traffic that receive offload cannot merge |

mod acks;
mod loss;
mod offload;
mod path;
mod window;

use super::{
    cause::{Basis, Cause, Finding},
    connection::Connection,
    figures::Figures,
    flows::JudgedFlow,
    slots::FlowSlot,
    stream::Stream,
    summary::Totals,
};

/// One direction of a connection, with the data needed to search for causes.
struct View<'a> {
    stream: &'a Stream,
    /// Opposite direction, which carries the acknowledgments.
    peer: &'a Stream,
    figures: &'a Figures,
    /// Minimum round-trip time in nanoseconds; 0 if unknown.
    round_trip_ns: u64,
    /// Mean round-trip time in nanoseconds; 0 if unknown.
    round_trip_mean_ns: u64,
    /// Time of the connection's last frame in nanoseconds.
    last_ns: u64,
}

impl View<'_> {
    /// Returns the total time minus the sender's pauses, in nanoseconds. The first round trip of a pause counts as
    /// active, because the last data is still being acknowledged.
    fn active_ns(&self) -> u64 {
        let acknowledged_ns =
            u64::from(self.figures.pauses).saturating_mul(self.round_trip_mean_ns);
        let paused_ns = self.figures.paused_ns.saturating_sub(acknowledged_ns);
        self.figures.duration_ns().saturating_sub(paused_ns)
    }

    fn found(&self, cause: Cause, basis: Basis, packets: u32) -> Finding {
        Finding {
            cause,
            basis,
            guess: basis == Basis::Timing,
            packets: packets.into(),
            of_packets: u64::from(self.figures.packets) + u64::from(self.figures.damaged),
            bytes: None,
            time_ns: None,
        }
    }
}

/// Finds what slows down each direction of a connection, starting with the most important cause.
pub(super) fn judge(slot: &FlowSlot<Connection>, totals: &mut Totals) {
    let FlowSlot { endpoints, tracked: connection, merging, .. } = slot;
    let [one, other] = &connection.streams;
    let directions = [(*endpoints, one, other), (endpoints.reversed(), other, one)];
    for (side, (flow, stream, peer)) in directions.into_iter().enumerate() {
        if stream.figures.frames == 0 {
            continue;
        }
        let view = View {
            stream,
            peer,
            figures: &stream.figures,
            round_trip_ns: connection.round_trip_ns(),
            round_trip_mean_ns: connection.round_trip_mean_ns(),
            last_ns: connection.last_ns(),
        };
        let mut findings = Vec::new();
        path::find(&view, &mut findings);
        window::find_closed(&view, &mut findings);
        loss::find(&view, &mut findings);
        acks::find(&view, &mut findings);
        if findings.is_empty() {
            window::find_limits(&view, &mut findings);
        }
        if findings.is_empty() {
            acks::find_stretched(&view, &mut findings);
        }
        offload::find(&view, &mut findings);
        if findings.is_empty() {
            window::find_congestion(&view, &mut findings);
        }
        let judged = JudgedFlow {
            flow: &flow,
            figures: &stream.figures,
            round_trip_ns: view.round_trip_ns,
            cause: findings.first().map(|finding| finding.cause),
            merging: merging.as_ref().map(|sides| &sides[side]),
        };
        totals.add(&judged, findings);
    }
}
