//! Options of a coalescer.

use grosso_wire::{LinkType, Ports};

use super::Profile;

/// Options of a [`Coalescer`](super::Coalescer).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CoalesceOptions {
    /// The rules, and the limits of trains.
    pub profile: Profile,
    /// The first header of every frame.
    pub link: LinkType,
    /// The UDP ports of tunnels.
    pub ports: Ports,
    /// Key of the flow hash. It should be random, so that nobody can choose packets that share a
    /// bucket (P50).
    pub seed: u64,
}

impl CoalesceOptions {
    /// The rules of Linux, and the assigned ports of tunnels, for frames of this link type.
    #[must_use]
    pub fn new(link: LinkType, seed: u64) -> Self {
        Self { profile: Profile::linux(), link, ports: Ports::ASSIGNED, seed }
    }

    /// Other rules.
    #[must_use]
    pub fn profile(self, profile: Profile) -> Self {
        Self { profile, ..self }
    }

    /// Other ports of tunnels.
    #[must_use]
    pub fn ports(self, ports: Ports) -> Self {
        Self { ports, ..self }
    }
}
