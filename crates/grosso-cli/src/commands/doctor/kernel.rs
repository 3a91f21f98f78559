//! Finds features that the running kernel is too old to support.

use super::finding::Finding;

/// Returns the finding about features for which this kernel release is too old. Does not probe them.
pub(super) fn finding(release: &str) -> Finding {
    let Some(version) = version(release) else {
        return Finding::warn("kernel", format!("{release}: unknown version format"));
    };
    let missing: Vec<String> = SINCE
        .iter()
        .filter(|(since, _)| version < *since)
        .map(|((major, minor), what)| format!("{what} ({major}.{minor})"))
        .collect();
    let (major, minor) = version;
    if missing.is_empty() {
        let what = format!("{major}.{minor}: recent enough for all features of Grosso");
        return Finding::ok("kernel", what);
    }
    let what = format!("{major}.{minor} is too old for {}", missing.join(", "));
    if version < OLDEST {
        return Finding::fail("kernel", what);
    }
    Finding::warn("kernel", what)
}

/// Parses the major and minor version of a release such as `6.18.44-fc-v657`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Oldest kernel on which a data path works. It must support a fanout that keeps flows together, and sockets that
/// ignore outgoing packets.
const OLDEST: (u32, u32) = (4, 20);

/// Features that Grosso uses if the kernel supports them, each with the first kernel release that does.
const SINCE: [((u32, u32), &str); 8] = [
    ((4, 20), "packet sockets that ignore outgoing packets"),
    ((5, 0), "UDP GRO"),
    ((5, 6), "ethtool -c"),
    ((5, 9), "XDP programs attached by file descriptor"),
    ((6, 2), "UDP segmentation on TUN"),
    ((6, 3), "BIG TCP over IPv4"),
    ((6, 6), "12-byte virtio headers on packet sockets"),
    ((6, 17), "superframes in UDP tunnels on TUN"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::finding::FindingState;

    #[test]
    fn an_old_kernel_lacks_what_came_later() {
        assert_eq!(version("6.18.44-fc-v657"), Some((6, 18)));
        assert_eq!(version("5.10-rc1"), Some((5, 10)));
        assert_eq!(version("unknown"), None);
        assert_eq!(finding("6.18.44").state, FindingState::Ok);
        let debian = finding("6.1.0-40-amd64");
        assert_eq!(debian.state, FindingState::Warn);
        let said = format!("{debian:?}");
        assert!(said.contains("UDP segmentation on TUN (6.2)") && !said.contains("UDP GRO"));
        assert_eq!(finding("4.19.1").state, FindingState::Fail);
    }
}
