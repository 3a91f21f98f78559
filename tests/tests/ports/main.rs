//! Tests ports and stages in memory, and paths between them.

mod around;
mod expansion;
mod faults;
mod path;
mod renewal;
mod runner;
mod stage;
