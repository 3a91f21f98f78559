//! Expansion of acknowledgments: restores the acknowledgments that a receiver would have sent for the individual
//! packets of a train.
//!
//! A host that receives superframes acknowledges each superframe only once. An [`Expander`] that observes both
//! directions records the trains. It expands each acknowledgment into an [`Expansion`], or returns the reason why it
//! does not ([`Unexpanded`]).

mod expander;
mod expansion;
mod run;

pub use expander::Expander;
pub use expansion::{Expansion, Unexpanded};
