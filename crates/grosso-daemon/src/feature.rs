//! Finds the features of ports by the names that users know, and explains features that no port has.

use grosso::features::Features;

use crate::wrong::similar;

/// Returns the feature whose name, or short name in `ethtool -K`, is `name`.
pub(super) fn named(name: &str) -> Result<Features, String> {
    let short = match name {
        "sg" => Some(Features::SCATTER_GATHER),
        "tx" => Some(Features::CHECKSUM_GENERIC),
        "gso" => Some(Features::GENERIC_SEGMENTATION),
        "tso" => Some(
            Features::TCP_SEGMENTATION
                | Features::TCP_ECN_SEGMENTATION
                | Features::TCP_MANGLEID_SEGMENTATION
                | Features::TCP6_SEGMENTATION
                | Features::TCP_ACCECN_SEGMENTATION,
        ),
        _ => None,
    };
    short.or_else(|| Features::named(name)).ok_or_else(|| {
        if let Some(instead) = elsewhere(name) {
            return format!("ports have no feature \"{name}\": {instead}");
        }
        let known = Features::NAMES.iter().map(|(name, _)| *name).chain(["sg", "tx", "gso", "tso"]);
        match similar(name, known) {
            Some(meant) => format!("no feature \"{name}\"; did you mean {meant}?"),
            None => format!("no feature \"{name}\"; grosso dev -k IFACE lists them"),
        }
    })
}

/// Returns the reason why no port has the feature called `name`, and a replacement. Returns `None` if `name` is not a
/// feature in [`ELSEWHERE`].
pub(super) fn elsewhere(name: &str) -> Option<&'static str> {
    ELSEWHERE.iter().find(|(names, _)| names.contains(&name)).map(|(_, instead)| *instead)
}

/// Features of ethtool that no port has, with the reason and the replacement.
const ELSEWHERE: [(&[&str], &str); 3] = [
    (
        &["ufo", "udp-fragmentation-offload", "tx-udp-fragmentation"],
        "Linux removed this feature in version 4.14; use fragments = { mtu = 1500 } to fragment \
         datagrams and to reassemble received fragments",
    ),
    (
        &["fraglist", "tx-scatter-gather-fraglist"],
        "a program cannot pass a packet list to the kernel as one frame; use tx-scatter-gather, \
         which sends the packets of a train without copying them",
    ),
    (
        &["rx-gro-list", "tx-gso-list"],
        "packet lists exist only inside the kernel; use profile = \"linux\", which merges only \
         packets that can be restored exactly",
    ),
];
