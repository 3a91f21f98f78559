//! Causes that slow the TCP connections of a capture: loss, reordering, acknowledgments, windows, path MTU, and traffic
//! that receive offload cannot merge.
//!
//! [`Connections`] processes every frame once and keeps two fixed-size streams per connection, for at most
//! [`CONNECTIONS_MAX`] connections. [`Connections::conclude`] converts the figures to [`Slowdowns`]: causes, each with
//! its evidence, its packets and its remedies.
//!
//! | module | job |
//! |---|---|
//! | `frame` | the fields of one TCP frame |
//! | `identification` | the order in which a host sent its packets |
//! | `datagrams` | UDP flows, for the table of flows |
//! | `flows` | the table of the largest directions |
//! | `mark` | marks of frames, by which a coalescer reports their trains later |
//! | `merging` | trains of one direction, as a coalescer delivers them |
//! | `holes` | sequence ranges that are missing |
//! | `event` | what the sequence numbers of a frame show |
//! | `figures` | the figures of one direction |
//! | `stream` | one direction: sequence numbers and acknowledgments |
//! | `turns` | how many other flows have packets between two packets of a flow |
//! | `connection` | both directions, and the round-trip time |
//! | `cause` | causes, their evidence and their remedies |
//! | `causes` | derivation of causes from the figures, one file per group |
//! | `summary` | causes of all directions |
//! | `text` | causes as text |
//! | `slots` | flows that a table tracks at once, in bounded memory |
//! | `table` | trackers of TCP connections and UDP flows |

mod cause;
mod causes;
mod connection;
mod datagrams;
mod event;
mod figures;
mod flows;
mod frame;
mod holes;
mod identification;
mod mark;
mod merging;
mod slots;
mod stream;
mod summary;
mod table;
mod text;
mod turns;

pub(crate) use self::mark::{EndedTrain, FlowMark};
pub use self::{
    cause::{Basis, Cause, Finding},
    event::SequenceEvent,
    flows::{FlowOrder, FlowRow, FlowTable, ROWS_MAX},
    merging::FlowMerging,
    slots::CONNECTIONS_MAX,
    summary::{Slow, Slowdowns},
    table::Connections,
};
