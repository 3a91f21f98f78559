//! Steps that the benchmarks and the instruction counts measure: the engine processes workloads from `grosso-testkit`.
//!
//! | item | work that it repeats |
//! |---|---|
//! | [`Receiver`] | coalesces a workload, poll by poll |
//! | [`Sender`] | segments the superframes of a workload into complete packets |
//! | [`Scatterer`] | segments superframes and leaves the payload in place |
//! | [`Joiner`] | reassembles the fragments of a workload, poll by poll |
//! | [`Terminator`] | decapsulates a workload and coalesces it, in either order |
//! | [`TunnelSender`] | encapsulates superframes and segments them, with and without remote checksum offload |
//! | [`Cutter`] | fragments the datagrams of a workload |
//! | `Bench` | times any of them with Criterion: nanoseconds per packet, hot or cold |
//!
//! The first seven items are [`Step`]s, which `peers` times next to the work of other projects.
//!
//! `docs/performance.md` contains the figures and the commands.

#![forbid(unsafe_code)]

#[cfg(feature = "criterion")]
mod bench;
mod cutter;
mod joiner;
mod receiver;
mod sender;
mod step;
mod terminator;
mod tunnel_sender;

use grosso::{
    Profile,
    coalesce::{Acknowledgments, Batch, Bypass, Hold, Reorder},
};

#[cfg(feature = "criterion")]
pub use bench::{Bench, configuration, group};
pub use cutter::Cutter;
pub use joiner::{Join, Joiner};
pub use receiver::{Receiver, Trust, leave_checksums};
pub use sender::{Scatterer, Sender};
pub use step::{Cache, Step, touch};
pub use terminator::{Ends, Terminator};
pub use tunnel_sender::{SentTunnel, TunnelSender};

/// The workloads to coalesce. Fragments are left out, because they pass through the coalescer unchanged.
pub const COALESCED: &[&str] = &[
    "tcp4_1",
    "tcp4_jumbo",
    "tcp4_8rr",
    "tcp4_64burst",
    "tcp4_1000rr",
    "tcp6_16burst",
    "tcp4_acks",
    "tcp4_reorder",
    "tcp4_small",
    "udp4_quic",
    "vxlan_tcp4",
    "gre_tcp4",
    "gue_rco_tcp4",
];

/// The workloads that are also coalesced with checksums that the sender left to a device.
pub const LEFT: &[&str] = &["tcp4_1", "tcp4_64burst", "vxlan_tcp4"];

/// The workloads that are coalesced with every profile except the default one.
pub const PROFILED: &[&str] = &["tcp4_1", "tcp4_64burst", "tcp4_acks"];

/// Returns all other built-in profiles, and variants of the default profile with one additional stage each.
#[must_use]
pub fn profiles() -> Vec<Profile> {
    let with = |name: &'static str, edit: fn(&mut Profile)| {
        let mut profile = Profile::linux();
        profile.name = name.into();
        edit(&mut profile);
        profile
    };
    let staged = [
        with("batch", |profile| profile.batch = Batch::ByFlow { packets: 64 }),
        with("bypass", |profile| profile.bypass = Some(Bypass::default())),
        // Acknowledgments reveal the round-trip time, as on a real path.
        with("hold", |profile| {
            profile.hold = Hold::Controlled;
            profile.limits.hold_ns = 100_000;
            profile.reorder.round_trip_ns = 200_000;
        }),
        with("hold-blind", |profile| {
            profile.hold = Hold::Controlled;
            profile.limits.hold_ns = 100_000;
        }),
        with("reorder", |profile| profile.reorder = Reorder::WITHIN_BATCH),
        with("filter", |profile| profile.rules.acknowledgments = Acknowledgments::Filter),
        with("vector", |profile| profile.rules.acknowledgments = Acknowledgments::Vector),
    ];
    Profile::all().into_iter().skip(1).chain(staged).collect()
}

/// The segmented workloads.
pub const SEGMENTED: &[&str] = &["gso_tcp4", "gso_udp4", "gso_vxlan", "gso_gre"];

/// The workloads of superframes that are encapsulated.
pub const ENCAPSULATED: &[&str] = &["gso_tcp4"];

/// The decapsulated workloads.
pub const TERMINATED: &[&str] = &["vxlan_tcp4"];

/// Workloads with fragments to reassemble. In the first ones, the fragments are in order; in the others, the fragments
/// of each datagram are shuffled.
pub const JOINED: &[&str] =
    &["frag4_8k", "frag4_64k", "frag6_64k", "frag4_8k_shuffled", "frag_shuffled", "frag6_shuffled"];

/// The workloads of whole datagrams to fragment.
pub const CUT: &[&str] = &["frag4_8k", "frag4_64k", "frag6_64k"];

/// The seed of every workload.
pub const SEED: u64 = 1;
