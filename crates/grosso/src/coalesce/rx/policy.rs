//! Policies: the decisions in which receive-offload implementations differ.
//!
//! The merge path is generic over the policy. [`Exact`] merges only packets that segmentation restores exactly. All its
//! decisions are constants, so the default spends no instructions on features that it does not have. [`ByProfile`]
//! follows the rules of a profile, which are stored with the known headers.

use crate::coalesce::{profile::Rules, rx::shapes::CachedStack};

/// Decisions of one policy.
pub(crate) trait Policy {
    /// Whether trains may have state for acknowledgments or for controlled hold times.
    const IS_WATCHED: bool;

    /// Returns the rules for trains with these headers.
    fn rules(known: &CachedStack) -> &Rules;

    /// Returns whether segmenting trains with these headers restores the original packets.
    fn is_invertible(known: &CachedStack) -> bool;

    /// Returns the subset of `allowed` that the policy supports.
    fn tiers(allowed: Tiers) -> Tiers;
}

/// Exact policy: segmenting a superframe restores exactly the original packets.
#[derive(Debug)]
pub(crate) enum Exact {}

/// Policy that follows the rules of a profile.
#[derive(Debug)]
pub(crate) enum ByProfile {}

impl Policy for Exact {
    const IS_WATCHED: bool = false;

    fn rules(_: &CachedStack) -> &Rules {
        &Rules::INVERTIBLE
    }

    #[inline(always)]
    fn is_invertible(_: &CachedStack) -> bool {
        Rules::INVERTIBLE.is_invertible()
    }

    fn tiers(_: Tiers) -> Tiers {
        Tiers::ALL
    }
}

impl Policy for ByProfile {
    const IS_WATCHED: bool = true;

    fn rules(known: &CachedStack) -> &Rules {
        &known.rules
    }

    #[inline(always)]
    fn is_invertible(known: &CachedStack) -> bool {
        known.is_invertible
    }

    fn tiers(allowed: Tiers) -> Tiers {
        allowed
    }
}

/// Enabled fast paths of the merge engine. They avoid checking each condition separately and do not change the result;
/// a property test runs every workload with and without them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tiers {
    /// Header prediction: the next packet of a train is predicted byte for byte.
    pub(crate) prediction: bool,
    /// Masks: a single comparison shows that a packet has known headers, or that its headers agree with the train's.
    pub(crate) masks: bool,
}

impl Tiers {
    pub(crate) const ALL: Self = Self { prediction: true, masks: true };

    /// No fast paths: every packet is dissected, and each condition is checked separately.
    pub(crate) const NONE: Self = Self { prediction: false, masks: false };
}
