//! Method for choosing hold times.

/// Method for choosing how long a train may be held across polls. The maximum is always
/// [`Limits::hold_ns`](super::Limits::hold_ns), counted from the first packet of the train (P22).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Hold {
    /// Every train is held for the maximum time.
    #[default]
    Fixed,
    /// Hold times are chosen for each flow: a train is held for as long as that saves work.
    Controlled,
}
