//! Method for choosing hold times.

/// Method for choosing the time for which a train may be held across polls. With either method, the maximum is
/// [`Limits::hold_ns`](super::Limits::hold_ns), counted from the first packet of the train (P22).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Hold {
    /// Every train is held for the maximum time.
    #[default]
    Fixed,
    /// Each flow is treated separately: a train is held as long as holding it saves work.
    Controlled,
}
