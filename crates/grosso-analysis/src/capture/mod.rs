//! Captures that are read as one, perhaps written as another, and the commands on them.
//!
//! | module | job |
//! |---|---|
//! | `session` | the settings of a reading, and the observer that shows notes and progress |
//! | `open` | files, directories of files, pipes and bytes in memory as one input, read once or twice |
//! | `read` | reading with cancellation, hash and progress |
//! | `filter` | filters in the language of tcpdump |
//! | `survey` | the first of two passes, in which a judge learns the flows |
//! | `target`, `write` | writing: never over the input, never to a terminal, and with provenance |
//! | `transform` | a capture in, a capture out, packet by packet |
//! | `outcome` | a command on captures, and its result |
//!
//! A reading prints nothing: notes, hints and progress go to the [`Observer`] of the [`Session`].

mod filter;
mod open;
mod outcome;
mod read;
mod session;
mod survey;
mod target;
mod transform;
mod write;

use std::hash::{BuildHasher, Hasher, RandomState};

#[cfg(target_os = "linux")]
pub use self::filter::compile;
pub use self::{
    open::Captures,
    outcome::{CaptureCommand, End, Files, Outcome},
    session::{Observer, ReadingProgress, Session, Unobserved},
    target::Target,
    write::{OUTPUT_MODE, note_others, refuse_same_file},
};
pub(crate) use self::{
    outcome::EndWords,
    read::{Ending, Input, Next, Unparsed},
    survey::{survey, survey_of},
    transform::{Transform, Transformed, transform},
    write::{Output, refuse_input},
};

/// Returns an unpredictable seed, so that no capture can be made to collide (P50).
pub fn random_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}
