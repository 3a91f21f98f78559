//! Shows running data paths on a screen or as text. Rates are computed from two readings of the counters.
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
