//! Policies: what the merge path asks wherever implementations of receive offload differ.
//!
//! The path is written once and compiled for each policy. To the exact laws the answers are constants, so that the
//! default has no instruction for what it does not do; a profile's rules are read from the headers that they are for.

use crate::coalesce::{Rules, shapes::Known};

/// The answers of one policy.
pub(super) trait Policy {
    /// Whether trains may be watched: what they acknowledge, and how long they pay.
    const IS_WATCHED: bool;

    /// The rules of trains with these headers.
    fn rules(known: &Known) -> &Rules;

    /// Whether trains with these headers can be cut into the packets that went in.
    fn is_invertible(known: &Known) -> bool;

    /// Tiers that may answer, of those that are allowed.
    fn tiers(allowed: Tiers) -> Tiers;
}

/// The exact laws: a superframe can be cut into the very packets that went in.
#[derive(Debug)]
pub(super) enum Laws {}

/// The rules of a profile.
#[derive(Debug)]
pub(super) enum Profiled {}

impl Policy for Laws {
    const IS_WATCHED: bool = false;

    #[inline(always)]
    fn rules(_: &Known) -> &Rules {
        &Rules::INVERTIBLE
    }

    #[inline(always)]
    fn is_invertible(_: &Known) -> bool {
        Rules::INVERTIBLE.is_invertible()
    }

    #[inline(always)]
    fn tiers(_: Tiers) -> Tiers {
        Tiers::ALL
    }
}

impl Policy for Profiled {
    const IS_WATCHED: bool = true;

    #[inline(always)]
    fn rules(known: &Known) -> &Rules {
        &known.rules
    }

    #[inline(always)]
    fn is_invertible(known: &Known) -> bool {
        known.is_invertible
    }

    #[inline(always)]
    fn tiers(allowed: Tiers) -> Tiers {
        allowed
    }
}

/// The tiers of the merge path that come before each law is asked. A tier may answer sooner, never otherwise: a
/// property test runs every workload with and without them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tiers {
    /// Header prediction: the next packet of a train is known byte for byte.
    pub(super) prediction: bool,
    /// Masks: one comparison tells that a packet has known headers, or that it obeys the laws of equality.
    pub(super) masks: bool,
}

impl Tiers {
    pub(super) const ALL: Self = Self { prediction: true, masks: true };

    /// Every packet is dissected and asked law by law.
    pub(super) const NONE: Self = Self { prediction: false, masks: false };
}
