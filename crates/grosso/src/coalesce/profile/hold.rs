//! Time for which trains may be held.

/// Time for which a train may be held across polls. [`Limits::hold_ns`](super::Limits::hold_ns) is the most in either
/// case, from the first packet of the train (P22).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Hold {
    /// As long as the limit says.
    #[default]
    Fixed,
    /// As long as it pays, flow by flow.
    Controlled,
}
