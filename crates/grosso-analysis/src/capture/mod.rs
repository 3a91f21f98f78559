//! Reading and writing of captures, and the trait for commands that process them. Several captures can be read as one.
//!
//! | module | job |
//! |---|---|
//! | `session` | settings for reading, and the observer that shows notes and progress |
//! | `open` | files, directories of files, pipes and bytes in memory as one input, read once or twice |
//! | `read` | reading with cancellation, hash and progress |
//! | `filter` | filters in tcpdump syntax |
//! | `survey` | the first of two passes, in which the classifier (`Judge`) learns the flows |
//! | `target`, `write` | writing with provenance, never over the input and never to a terminal |
//! | `transform` | reads one capture and writes another, packet by packet |
//! | `outcome` | a command on captures, and its result |
//!
//! Reading prints nothing: notes, hints and progress go to the [`Observer`] of the [`Session`].

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
    outcome::EndWording,
    read::{Ending, Input, Next, Unparsed},
    survey::{survey, survey_of},
    transform::{Frame, Transform, Transformed, transform},
    write::{Output, refuse_input},
};

/// Returns an unpredictable seed, which prevents crafted captures from causing hash collisions (P50).
pub fn random_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}
