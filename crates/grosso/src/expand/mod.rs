//! Expansion of acknowledgments: those that a receiver would have sent for the packets of a train.
//!
//! A host that is handed trains acknowledges each once. An [`Expander`], at a point that both directions pass, knows
//! the trains, and puts the [`Expansion`] in place of each acknowledgment, or says why not: [`Unexpanded`].

mod expander;
mod expansion;
mod run;

pub use expander::Expander;
pub use expansion::{Expansion, Unexpanded};
