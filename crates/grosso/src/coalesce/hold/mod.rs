//! Held trains, the acknowledgments in them, and how long each train is held.

pub(crate) mod ack_log;
pub(crate) mod address_pairs;
pub(crate) mod deadlines;
pub(crate) mod held;
pub(crate) mod pace;
pub(crate) mod retention;
pub(crate) mod round_trips;
pub(crate) mod train;
