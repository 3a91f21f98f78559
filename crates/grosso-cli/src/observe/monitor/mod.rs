//! The view of running data paths: rates from two readings, as a screen and as text.
//!
//! | module | job |
//! |---|---|
//! | `rates` | what one device did in an interval |
//! | `state` | what the screen shows, and what keys do to it |
//! | `screen` | how it is drawn |

pub(crate) mod rates;
pub(crate) mod screen;
pub(crate) mod state;

#[cfg(test)]
mod tests;
