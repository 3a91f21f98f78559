//! Options of a coalescer.

use grosso_wire::{LinkType, Ports};

use super::Profile;

/// Options of a [`Coalescer`](crate::coalesce::Coalescer).
///
/// ```
/// use grosso::{CoalesceOptions, LinkType, Profile};
///
/// let seed = 0x5eed; // random in production
/// let options = CoalesceOptions::new(LinkType::Raw, seed).profile(Profile::wireguard());
/// # assert_eq!(options.link, LinkType::Raw);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CoalesceOptions {
    /// Rules and limits of trains.
    pub profile: Profile,
    /// Link type of all frames.
    pub link: LinkType,
    /// UDP ports that identify tunnels.
    pub ports: Ports,
    /// Key of the flow hash. Use a random value, so that an attacker cannot choose flows that share a bucket (P50).
    pub seed: u64,
}

impl CoalesceOptions {
    /// Creates options with the rules of Linux and the assigned UDP ports of tunnels.
    #[must_use]
    pub fn new(link: LinkType, seed: u64) -> Self {
        Self { profile: Profile::linux(), link, ports: Ports::ASSIGNED, seed }
    }

    /// Replaces the profile.
    #[must_use]
    pub fn profile(self, profile: Profile) -> Self {
        Self { profile, ..self }
    }

    /// Replaces the UDP ports that identify tunnels.
    #[must_use]
    pub fn ports(self, ports: Ports) -> Self {
        Self { ports, ..self }
    }
}
