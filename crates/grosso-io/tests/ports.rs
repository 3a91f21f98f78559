//! Ports, stages and captures in memory, and paths between them.

mod around;
mod capture;
mod expansion;
mod faults;
mod path;
mod runner;
mod stage;
