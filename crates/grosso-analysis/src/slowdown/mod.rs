//! Causes that slow the TCP connections of a capture: loss, reordering, acknowledgments, windows, path MTU, and traffic
//! that receive offload cannot merge.
//!
//! [`Connections`] takes in every frame once and keeps two fixed-size streams per connection, at most
//! [`CONNECTIONS_MAX`] of them. [`Connections::conclude`] turns the figures into [`Slowdowns`]: causes, each with its
//! evidence, its packets and its cure.
//!
//! | module | job |
//! |---|---|
//! | `frame` | the fields of one TCP frame |
//! | `identification` | the order in which a host sent its packets |
//! | `flows` | the table of the largest directions |
//! | `holes` | sequence ranges that are missing |
//! | `figures` | the figures of one direction |
//! | `stream` | one direction: sequence numbers and acknowledgments |
//! | `connection` | both directions, and the round trip |
//! | `cause` | causes, their evidence and their cures |
//! | `causes` | the causes that the figures show, one file per group |
//! | `summary` | the causes of all directions |
//! | `text` | the causes as text |
//! | `table` | the connections, in bounded memory |

mod cause;
mod causes;
mod connection;
mod figures;
mod flows;
mod frame;
mod holes;
mod identification;
mod stream;
mod summary;
mod table;
mod text;

pub use self::{
    cause::{Basis, Cause, Finding},
    flows::{FlowOrder, FlowRow, FlowTable, ROWS_MAX},
    summary::{Slow, Slowdowns},
    table::{CONNECTIONS_MAX, Connections},
};
