//! Counters of a tunnel.

use std::sync::LazyLock;

use grosso::tunnel::{
    NotAdmitted,
    decapsulate::{self, DecapsulateStats},
    encapsulate::{self, EncapsulateStats},
};

use crate::port::PortCounter;

/// Counters of a tunnel's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TunnelStageStats {
    /// Counters of encapsulated frames and packets, and of refusals by reason.
    pub put_in: EncapsulateStats,
    /// Counters of decapsulated packets, and of refusals by reason.
    pub taken_out: DecapsulateStats,
    /// Number of packets that belong to another tunnel, by reason.
    pub foreign: [u64; NotAdmitted::COUNT],
    /// Number of packets with the tunnel device's own Ethernet address as the source (rule W30).
    pub own_address: u64,
    /// Number of superframes segmented before encapsulation, because outer headers cannot describe their packets.
    pub cut_before: u64,
    /// Number of superframes segmented before decapsulation, because they were made of several outer datagrams.
    pub cut_inbound: u64,
    /// Number of packets that were too long for the tunnel, and whose senders got an ICMP error.
    pub told: u64,
    /// Number of packets that were too long for the tunnel, and whose senders got no ICMP error.
    pub untold: u64,
    /// Number of the tunnel's own outer packets, and fragments of them, that entered the tunnel again.
    pub looped: u64,
    /// Number of frames that were sent to all remote endpoints, because the destination was a group or was unknown.
    pub flooded: u64,
    /// Number of packets whose source was not learned because the table was full.
    pub unlearned: u64,
    /// Number of packets whose source is not a unicast Ethernet address, in a tunnel that learns addresses.
    pub no_device: u64,
    /// Number of packets whose source is configured to be behind another endpoint.
    pub moved: u64,
    /// Number of packets whose checksum had not been completed by a device and was completed here.
    pub left_open: u64,
    /// Number of TCP superframes that were left for a device to segment, but that no device segmented. They are
    /// segmented here, to the tunnel's MTU.
    pub left_whole: u64,
}

impl Default for TunnelStageStats {
    fn default() -> Self {
        Self {
            put_in: EncapsulateStats::default(),
            taken_out: DecapsulateStats::default(),
            foreign: [0; NotAdmitted::COUNT],
            own_address: 0,
            cut_before: 0,
            cut_inbound: 0,
            told: 0,
            untold: 0,
            looped: 0,
            flooded: 0,
            unlearned: 0,
            no_device: 0,
            moved: 0,
            left_open: 0,
            left_whole: 0,
        }
    }
}

impl TunnelStageStats {
    /// Returns the number of packets that were classified as belonging to another tunnel for this reason.
    #[must_use]
    pub const fn foreign(&self, reason: NotAdmitted) -> u64 {
        self.foreign[reason.index()]
    }

    /// Returns every counter with its description.
    pub fn counters(&self) -> impl Iterator<Item = (PortCounter, u64)> {
        let event = |name, sentence| PortCounter { name, is_loss: false, sentence };
        let loss = |name, sentence| PortCounter { name, is_loss: true, sentence };
        let Self { put_in, taken_out, foreign, .. } = *self;
        let events = [
            (event("tunnel_out_frames", "A frame was encapsulated."), put_in.frames),
            (event("tunnel_out_packets", "A packet was encapsulated."), put_in.packets),
            (
                event(
                    "tunnel_out_remote_checksums",
                    "A checksum was left for the peer to complete.",
                ),
                put_in.remote_checksums,
            ),
            (
                event(
                    "tunnel_out_cut_before",
                    "A superframe was split before it was encapsulated.",
                ),
                self.cut_before,
            ),
            (
                loss(
                    "tunnel_out_too_big",
                    "Dropped: a packet exceeds the tunnel's MTU; an ICMP error was sent.",
                ),
                self.told,
            ),
            (
                loss(
                    "tunnel_out_too_big_untold",
                    "Dropped: a packet exceeds the tunnel's MTU; no ICMP error was sent.",
                ),
                self.untold,
            ),
            (
                loss(
                    "tunnel_out_loop",
                    "Dropped: a packet of the tunnel itself; the route to the peer leads into \
                     the tunnel.",
                ),
                self.looped,
            ),
            (
                event("tunnel_out_flooded", "A frame was sent to every peer of the tunnel."),
                self.flooded,
            ),
            (
                event(
                    "tunnel_in_unlearned",
                    "A source address was not learned because the address table is full.",
                ),
                self.unlearned,
            ),
            (
                loss(
                    "tunnel_in_no_device",
                    "Dropped: the source address is not a unicast address.",
                ),
                self.no_device,
            ),
            (
                loss(
                    "tunnel_in_moved",
                    "Dropped: the source address is configured for another peer.",
                ),
                self.moved,
            ),
            (event("tunnel_in_packets", "A packet was decapsulated."), taken_out.packets),
            (
                event(
                    "tunnel_in_cut_before",
                    "A superframe of tunnel datagrams was split before decapsulation (rule B29).",
                ),
                self.cut_inbound,
            ),
            (
                event(
                    "tunnel_in_left_open",
                    "An inner packet had a partial checksum, which was completed. To have the \
                     sender compute checksums, run ethtool -K DEV tx off on it.",
                ),
                self.left_open,
            ),
            (
                event(
                    "tunnel_in_left_whole",
                    "An inner TCP superframe was split to fit the tunnel's MTU. To have the sender \
                     split superframes, run ethtool -K DEV tx off on it.",
                ),
                self.left_whole,
            ),
            (
                loss(
                    "tunnel_in_own_address",
                    "Dropped: the source address is the address of the tunnel device.",
                ),
                self.own_address,
            ),
        ];
        let DropCounters { put_in: out, taken_out: refused, foreign: others } = &*DROPS;
        let out = out.iter().map(move |(counter, why)| (*counter, put_in.refused(*why)));
        let refused = refused.iter().map(move |(counter, why)| (*counter, taken_out.refused(*why)));
        let others = others.iter().map(move |(counter, why)| (*counter, foreign[why.index()]));
        events.into_iter().chain(out).chain(refused).chain(others)
    }
}

/// Adds the encapsulator counters of one remote endpoint.
pub(super) fn add(total: &mut EncapsulateStats, more: &EncapsulateStats) {
    total.frames += more.frames;
    total.packets += more.packets;
    total.bytes += more.bytes;
    total.superframes += more.superframes;
    total.remote_checksums += more.remote_checksums;
    for (total, more) in total.refused.iter_mut().zip(more.refused) {
        *total += more;
    }
}

/// Lists of counters for dropped packets, each with the reason that it counts.
struct DropCounters {
    put_in: Vec<(PortCounter, encapsulate::Refusal)>,
    taken_out: Vec<(PortCounter, decapsulate::Refusal)>,
    foreign: Vec<(PortCounter, NotAdmitted)>,
}

static DROPS: LazyLock<DropCounters> = LazyLock::new(|| {
    let counter = |way: &str, what: &str, name: &str, sentence: &str| PortCounter {
        name: format!("tunnel_{way}_{name}").leak(),
        is_loss: true,
        sentence: format!("{what}: {sentence}").leak(),
    };
    let put_in = encapsulate::Refusal::ALL
        .iter()
        .map(|why| (counter("out", "Dropped, not encapsulated", why.name(), why.sentence()), *why));
    let taken_out = decapsulate::Refusal::ALL
        .iter()
        .map(|why| (counter("in", "Dropped, not decapsulated", why.name(), why.sentence()), *why));
    let foreign = NotAdmitted::ALL.iter().map(|why| {
        (counter("in", "Dropped, not accepted by this tunnel", why.name(), why.sentence()), *why)
    });
    DropCounters {
        put_in: put_in.collect(),
        taken_out: taken_out.collect(),
        foreign: foreign.collect(),
    }
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_has_a_name_of_its_own() {
        let names: Vec<_> =
            TunnelStageStats::default().counters().map(|(counter, _)| counter.name).collect();
        let distinct: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), names.len(), "{names:?}");
    }
}
