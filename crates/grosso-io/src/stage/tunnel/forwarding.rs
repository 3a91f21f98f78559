//! Forwarding table of a tunnel with several remote endpoints. It contains learned and configured Ethernet addresses,
//! and the endpoint for each address.

use std::{
    collections::{HashMap, hash_map::Entry},
    net::IpAddr,
};

use grosso_wire::ethernet;

/// Remote endpoints of a tunnel that carries Ethernet, in addition to
/// [`Endpoint::remote`](grosso::tunnel::Endpoint::remote), and the Ethernet addresses that can be reached through them.
///
/// A frame is sent to the endpoint through which its destination can be reached. If that endpoint is unknown, or the
/// destination is a group address, the frame is sent to all endpoints. Frames received from one endpoint are not
/// forwarded to another: connect hosts behind two endpoints with a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Forwarding {
    /// Additional remote endpoints. Including the one in the [`Endpoint`](grosso::tunnel::Endpoint), there may be at
    /// most [`REMOTES_MAX`].
    pub remotes: Vec<Remote>,
    /// Ethernet addresses, each with the endpoint through which it can be reached. Learning never changes these
    /// entries.
    pub configured: Vec<([u8; 6], IpAddr)>,
    /// Lifetime of a learned address in nanoseconds, counted from its last packet; `None` disables learning.
    pub age_ns: Option<u64>,
    /// Maximum number of learned addresses. Packets from other addresses are still accepted, but frames to these
    /// addresses are sent to all endpoints.
    pub addresses_max: usize,
}

/// A remote endpoint in addition to the configured one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// IP address. It must have the same family as the address of the endpoint.
    pub address: IpAddr,
    /// Ethernet address of the next hop, if it differs from
    /// [`EthernetLink::destination`](super::EthernetLink::destination).
    pub next: Option<[u8; 6]>,
}

impl Forwarding {
    /// Creates the configuration for endpoints behind the same next hop. Learned addresses stay valid for 300 s, as in
    /// Linux.
    #[must_use]
    pub fn new(remotes: impl IntoIterator<Item = IpAddr>) -> Self {
        let remote = |address| Remote { address, next: None };
        Self {
            remotes: remotes.into_iter().map(remote).collect(),
            configured: Vec::new(),
            age_ns: Some(AGE_NS),
            addresses_max: ADDRESSES_MAX,
        }
    }
}

/// Map from Ethernet addresses to remote endpoints.
#[derive(Debug)]
pub(super) struct Table {
    /// Entries by Ethernet address. The hash has a random key, so that an attacker cannot choose colliding addresses.
    entries: HashMap<[u8; 6], ForwardingEntry>,
    configured: usize,
    age_ns: Option<u64>,
    addresses_max: usize,
    swept_ns: u64,
    /// Number of packets whose source was not learned because the table was full.
    pub(super) unlearned: u64,
}

/// The endpoint through which an address can be reached.
#[derive(Clone, Copy, Debug)]
struct ForwardingEntry {
    end: usize,
    /// Time of the last packet from the address, in nanoseconds, or `None` for a configured address.
    seen_ns: Option<u64>,
}

/// The remote endpoints that a frame is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recipients {
    One(usize),
    All,
}

/// Reason why packets from a source are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unlearnable {
    /// The source is not a unicast address.
    Source,
    /// The source is configured to be behind another endpoint.
    Moved,
}

impl Table {
    /// Creates the table for `ends`, which are numbered in the given order. Returns a message if the configuration is
    /// invalid.
    pub(super) fn new(options: &Forwarding, ends: &[IpAddr]) -> Result<Self, String> {
        let mut entries = HashMap::new();
        for (address, remote) in &options.configured {
            let end = ends.iter().position(|end| end == remote);
            let end = end.ok_or_else(|| format!("{remote} is not a remote of the tunnel"))?;
            if !is_one_device(address) || entries.contains_key(address) {
                let address = address.map(|byte| format!("{byte:02x}")).join(":");
                return Err(format!(
                    "MAC address {address} is not a unicast address, or is configured for two remotes"
                ));
            }
            entries.insert(*address, ForwardingEntry { end, seen_ns: None });
        }
        Ok(Self {
            configured: entries.len(),
            entries,
            age_ns: options.age_ns,
            addresses_max: options.addresses_max,
            swept_ns: 0,
            unlearned: 0,
        })
    }

    /// Returns the destination of a frame.
    pub(super) fn recipients(&self, frame: &[u8], now_ns: u64) -> Recipients {
        let destination = frame.get(ethernet::field::DESTINATION);
        match destination.and_then(|address| self.entries.get(address)) {
            Some(entry) if self.is_young(entry, now_ns) => Recipients::One(entry.end),
            _ => Recipients::All,
        }
    }

    /// Learns that the source address of a frame can be reached through endpoint `end`, from which the frame arrived.
    pub(super) fn learn(
        &mut self,
        frame: &[u8],
        end: usize,
        now_ns: u64,
    ) -> Result<(), Unlearnable> {
        let source = frame.get(ethernet::field::SOURCE).and_then(<[u8]>::first_chunk::<6>);
        let source = *source.filter(|source| is_one_device(source)).ok_or(Unlearnable::Source)?;
        let is_full = self.entries.len() - self.configured >= self.addresses_max;
        if is_full && !self.entries.contains_key(&source) {
            self.sweep(now_ns);
        }
        let has_room = self.entries.len() - self.configured < self.addresses_max;
        let seen_ns = self.age_ns.map(|_| now_ns);
        match self.entries.entry(source) {
            Entry::Occupied(entry) => match entry.into_mut() {
                ForwardingEntry { end: other, seen_ns: None } if *other != end => {
                    Err(Unlearnable::Moved)
                }
                ForwardingEntry { seen_ns: None, .. } => Ok(()),
                entry => {
                    *entry = ForwardingEntry { end, seen_ns };
                    Ok(())
                }
            },
            Entry::Vacant(entry) => {
                if seen_ns.is_some() && has_room {
                    entry.insert(ForwardingEntry { end, seen_ns });
                } else {
                    self.unlearned += u64::from(seen_ns.is_some());
                }
                Ok(())
            }
        }
    }

    /// Removes expired addresses, at most once per [`SWEEP_NS`], so that each packet of a flood of new sources costs
    /// only one lookup.
    fn sweep(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.swept_ns) < SWEEP_NS {
            return;
        }
        self.swept_ns = now_ns;
        let age_ns = self.age_ns;
        self.entries.retain(|_, entry| is_young(entry, age_ns, now_ns));
    }

    fn is_young(&self, entry: &ForwardingEntry, now_ns: u64) -> bool {
        is_young(entry, self.age_ns, now_ns)
    }
}

fn is_young(entry: &ForwardingEntry, age_ns: Option<u64>, now_ns: u64) -> bool {
    match (entry.seen_ns, age_ns) {
        (Some(seen_ns), Some(age_ns)) => now_ns.saturating_sub(seen_ns) <= age_ns,
        _ => true,
    }
}

/// Returns whether an address belongs to one device. Group addresses are not learned, because all frames to the group
/// would then be sent to one endpoint.
fn is_one_device(address: &[u8; 6]) -> bool {
    address[0] & 1 == 0 && *address != [0; 6]
}

/// Maximum number of remote endpoints of a tunnel. The number is limited because a frame to all endpoints is sent once
/// per endpoint.
pub const REMOTES_MAX: usize = 64;
/// Default lifetime of learned addresses in nanoseconds, the same as in Linux's `vxlan`.
const AGE_NS: u64 = 300 * 1_000_000_000;
/// Default limit of learned addresses, which take about 128 bytes each.
const ADDRESSES_MAX: usize = 4096;
/// Minimum interval between removals of expired addresses, in nanoseconds.
const SWEEP_NS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const ENDS: [IpAddr; 3] = [
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)),
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, 3)),
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, 4)),
    ];

    fn frame(destination: u8, source: u8) -> Vec<u8> {
        [[2, 0, 0, 0, 0, destination], [2, 0, 0, 0, 0, source]].concat()
    }

    fn table(change: impl FnOnce(&mut Forwarding)) -> Table {
        let mut options = Forwarding::new([ENDS[1], ENDS[2]]);
        change(&mut options);
        Table::new(&options, &ENDS).unwrap()
    }

    #[test]
    fn an_address_is_where_it_was_last_seen_and_not_for_ever() {
        let mut table = table(|_| ());
        assert_eq!(table.recipients(&frame(7, 1), 0), Recipients::All);
        assert_eq!(table.learn(&frame(1, 7), 2, 0), Ok(()));
        assert_eq!(table.recipients(&frame(7, 1), AGE_NS), Recipients::One(2));
        assert_eq!(table.recipients(&frame(7, 1), AGE_NS + 1), Recipients::All);
        assert_eq!(table.learn(&frame(1, 7), 1, 9), Ok(()));
        assert_eq!(table.recipients(&frame(7, 1), AGE_NS + 9), Recipients::One(1));
    }

    #[test]
    fn what_is_configured_neither_moves_nor_ages() {
        let mut table = table(|options| options.configured = vec![([2, 0, 0, 0, 0, 7], ENDS[1])]);
        assert_eq!(table.recipients(&frame(7, 1), u64::MAX), Recipients::One(1));
        assert_eq!(table.learn(&frame(1, 7), 1, 5), Ok(()));
        assert_eq!(table.learn(&frame(1, 7), 2, 5), Err(Unlearnable::Moved));
        assert_eq!(table.recipients(&frame(7, 1), u64::MAX), Recipients::One(1));
    }

    #[test]
    fn sources_that_are_no_device_are_not_learned_and_groups_go_to_all() {
        let mut table = table(|_| ());
        for source in [[0; 6], [0xff; 6], [1, 0, 0x5e, 0, 0, 1]] {
            let frame = [[2, 0, 0, 0, 0, 1], source].concat();
            assert_eq!(table.learn(&frame, 1, 0), Err(Unlearnable::Source));
            assert_eq!(table.recipients(&[source, source].concat(), 0), Recipients::All);
        }
        assert_eq!(table.learn(&[2; 11], 1, 0), Err(Unlearnable::Source));
        assert_eq!(table.recipients(&[2; 5], 0), Recipients::All);
    }

    #[test]
    fn a_full_table_learns_no_more_until_something_is_too_old() {
        let mut table = table(|options| options.addresses_max = 4);
        for source in 0..200 {
            assert_eq!(table.learn(&frame(1, source), 1, u64::from(source)), Ok(()));
        }
        assert_eq!((table.entries.len(), table.unlearned), (4, 196));
        assert_eq!(table.recipients(&frame(3, 1), 200), Recipients::One(1));
        assert_eq!(table.recipients(&frame(4, 1), 200), Recipients::All);
        // One address is used again before it expires; the others do expire.
        assert_eq!(table.learn(&frame(1, 2), 1, AGE_NS), Ok(()));
        assert_eq!(table.learn(&frame(1, 9), 2, AGE_NS + 4), Ok(()));
        assert_eq!(table.entries.len(), 2);
        assert_eq!(table.recipients(&frame(9, 1), AGE_NS + 4), Recipients::One(2));
    }

    #[test]
    fn without_learning_only_configured_entries_exist() {
        let mut table = table(|options| {
            options.age_ns = None;
            options.configured = vec![([2, 0, 0, 0, 0, 7], ENDS[0])];
        });
        assert_eq!(table.learn(&frame(1, 8), 1, 0), Ok(()));
        assert_eq!(table.recipients(&frame(8, 1), 0), Recipients::All);
        assert_eq!(table.recipients(&frame(7, 1), 0), Recipients::One(0));
        assert_eq!(table.unlearned, 0);
    }

    #[test]
    fn what_cannot_be_configured_is_refused() {
        for configured in [
            vec![([2; 6], "192.0.2.9".parse().unwrap())],
            vec![([1; 6], ENDS[1])],
            vec![([2; 6], ENDS[1]), ([2; 6], ENDS[2])],
        ] {
            let mut options = Forwarding::new([ENDS[1]]);
            options.configured = configured;
            assert!(Table::new(&options, &ENDS).is_err());
        }
    }
}
