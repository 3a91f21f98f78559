//! `ethtool`'s names for feature groups, which are older than the kernel's feature names.

/// Group of features that share a name.
pub(super) struct Group {
    /// Name that `-K` accepts.
    pub(super) short: &'static str,
    /// Name that `-k` prints.
    pub(super) long: &'static str,
    /// Pattern for the kernel's names of the group's features: the part before an asterisk, and the part after it if
    /// there is an asterisk.
    members: (&'static str, Option<&'static str>),
}

impl Group {
    /// Returns whether a kernel feature belongs to the group.
    pub(super) fn has(&self, feature: &str) -> bool {
        match self.members {
            (name, None) => feature == name,
            (start, Some(end)) => feature.starts_with(start) && feature.ends_with(end),
        }
    }
}

/// Groups, in the order in which they are printed (`off_flag_def` in ethtool).
pub(super) const GROUPS: [Group; 11] = [
    group("rx", "rx-checksumming", "rx-checksum", None),
    group("tx", "tx-checksumming", "tx-checksum-", Some("")),
    group("sg", "scatter-gather", "tx-scatter-gather", Some("")),
    group("tso", "tcp-segmentation-offload", "tx-tcp", Some("-segmentation")),
    group("gso", "generic-segmentation-offload", "tx-generic-segmentation", None),
    group("gro", "generic-receive-offload", "rx-gro", None),
    group("lro", "large-receive-offload", "rx-lro", None),
    group("rxvlan", "rx-vlan-offload", "rx-vlan-hw-parse", None),
    group("txvlan", "tx-vlan-offload", "tx-vlan-hw-insert", None),
    group("ntuple", "ntuple-filters", "rx-ntuple-filter", None),
    group("rxhash", "receive-hashing", "rx-hashing", None),
];

/// Names of UDP fragmentation offload, which was removed in Linux 4.14. Scripts still turn it off.
pub(super) const REMOVED: [&str; 3] = ["ufo", UDP_FRAGMENTATION, "tx-udp-fragmentation"];

/// Long name of UDP fragmentation offload.
pub(super) const UDP_FRAGMENTATION: &str = "udp-fragmentation-offload";

const fn group(
    short: &'static str,
    long: &'static str,
    start: &'static str,
    end: Option<&'static str>,
) -> Group {
    Group { short, long, members: (start, end) }
}
