//! Causes that slow down the TCP connections in a capture: loss, reordering, acknowledgments, windows, path MTU, and
//! traffic that receive offload cannot merge.
//!
//! [`Connections`] processes every frame once and keeps two fixed-size streams per connection, for at most
//! [`CONNECTIONS_MAX`] connections. [`Connections::conclude`] derives [`Slowdowns`] from the collected statistics: the
//! causes, each with its evidence, the affected packets and remedies.
//!
//! | module | job |
//! |---|---|
//! | `frame` | the fields of one TCP frame |
//! | `identification` | the order in which a host sent its packets |
//! | `datagrams` | UDP flows, for the table of flows |
//! | `flows` | the table of the largest directions |
//! | `mark` | marks on frames, which assign delivered trains to flows |
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
//! | `slots` | table of the currently tracked flows, in bounded memory |
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
