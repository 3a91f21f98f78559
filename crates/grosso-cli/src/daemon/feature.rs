//! Features of ports by the names that users know, and names of features that no port has.

use grosso::features::Features;

use crate::wrong::similar;

/// The feature with this name, or with one of the short names of `ethtool -K`.
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
            return format!("no feature \"{name}\" of a port: {instead}");
        }
        let known = Features::NAMES.iter().map(|(name, _)| *name).chain(["sg", "tx", "gso", "tso"]);
        match similar(name, known) {
            Some(meant) => format!("no feature \"{name}\"; did you mean {meant}?"),
            None => format!("no feature \"{name}\"; grosso dev -k IFACE lists them"),
        }
    })
}

/// The reason why no port has the feature of this name, and what does its work; `None` for any other name.
pub(super) fn elsewhere(name: &str) -> Option<&'static str> {
    ELSEWHERE.iter().find(|(names, _)| names.contains(&name)).map(|(_, instead)| *instead)
}

/// Features of ethtool that no port has, by its names, with the reason and what does their work.
const ELSEWHERE: [(&[&str], &str); 3] = [
    (
        &["ufo", "udp-fragmentation-offload", "tx-udp-fragmentation"],
        "no device has it since Linux 4.14; fragments = { mtu = 1500 } cuts datagrams into \
         fragments, and joins what comes",
    ),
    (
        &["fraglist", "tx-scatter-gather-fraglist"],
        "the kernel takes no list of packets as one frame from a program; tx-scatter-gather lets \
         the packets of a train lie where they came",
    ),
    (
        &["rx-gro-list", "tx-gso-list"],
        "only inside the kernel are packets a list; profile = \"linux\" joins them so that they \
         are cut into the very same again",
    ),
];
