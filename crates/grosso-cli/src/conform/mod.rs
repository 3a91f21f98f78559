//! Conformance of other programs: the cases that they get, how they are run, and the laws by which they are judged.
//!
//! | module | job |
//! |---|---|
//! | `vectors` | the packets of each case, its rules and its flows |
//! | `framing` | the records that go to the program and come from it |
//! | `program` | a running program, with a bound on its time and on its output |
//! | `superframe` | the packets that a record stands for |
//! | `judge` | the laws: nothing lost, changed, reordered, or joined that must stay apart |
//! | `difference` | the field in which two packets differ, and the rule about it |

mod difference;
pub(crate) mod framing;
mod judge;
mod program;
pub(crate) mod superframe;
mod vectors;

pub(crate) use self::{
    judge::{Fault, Law, RULES_OF_ALL, judge},
    program::{Breakdown, Judged},
    vectors::{Vector, vectors},
};
