//! Choice of hold times.

/// Choice of the time that a train may be held across polls. [`Limits::hold_ns`](super::Limits::hold_ns) is the maximum
/// in both cases, counted from the first packet of the train (P22).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Hold {
    /// Always the maximum.
    #[default]
    Fixed,
    /// As long as holding saves work, decided per flow.
    Controlled,
}
