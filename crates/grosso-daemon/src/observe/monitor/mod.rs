//! The view of running data paths: rates from two readings, as a screen and as text.
//!
//! | module | job |
//! |---|---|
//! | `rates` | the rates of one device in an interval |
//! | `state` | the contents of the screen, and the effect of keys |
//! | `screen` | drawing the screen |

pub mod rates;
pub mod screen;
pub mod state;

#[cfg(test)]
mod tests;
