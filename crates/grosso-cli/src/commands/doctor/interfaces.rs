//! Finds interfaces on this host with features that make captures misleading.

use grosso_sys::{
    ethtool::{self, Feature},
    interface::Control,
    netlink::{Link, Netlink},
};

use super::{finding::Finding, host::Host};

/// Returns a finding for each interface that is hardware, or that a hypervisor presents as hardware.
pub(super) fn findings(host: &Host) -> Vec<Finding> {
    let links = Netlink::new().and_then(|netlink| netlink.links());
    let (Ok(links), Ok(control)) = (links, Control::new()) else {
        return vec![Finding::warn("interfaces", "cannot list the network interfaces")];
    };
    let real = links.iter().filter(|link| link.kind.is_none() && link.hardware_type == ETHERNET);
    let look = |link: &Link| match ethtool::features(&control, &link.name) {
        Ok(features) => finding(host, link.name.as_str(), &features),
        Err(error) => {
            Finding::warn(link.name.as_str(), format!("cannot read the offload features: {error}"))
        }
    };
    real.map(look).collect()
}

/// Returns the finding about features that merge packets before they are captured and that `gro off` does not disable.
fn finding(host: &Host, name: &str, features: &[Feature]) -> Finding {
    let is_merging =
        |feature: &&Feature| feature.active && MERGING.contains(&feature.name.as_str());
    let on: Vec<&Feature> = features.iter().filter(is_merging).collect();
    if on.is_empty() {
        return Finding::ok(name, "no merging in hardware: captures show packets as they arrive");
    }
    let names: Vec<&str> = on.iter().map(|feature| feature.name.as_str()).collect();
    let what = format!("{} on: captures on this interface show merged packets", names.join(", "));
    let off = on.iter().filter(|feature| !feature.fixed);
    let off: String = off.map(|feature| format!(" {} off", feature.name)).collect();
    if off.is_empty() {
        return Finding::warn(name, format!("{what}; cannot be turned off"))
            .fix("grosso wire splits merged packets in captures");
    }
    Finding::warn(name, what).fix(host.sudo(&format!("ethtool -K {name}{off}")))
}

/// `ARPHRD_ETHER` in linux/if_arp.h.
const ETHERNET: u16 = 1;
/// Features that make the device or its driver merge packets.
const MERGING: [&str; 2] = ["rx-gro-hw", "rx-lro"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::finding::FindingState;

    #[test]
    fn what_merges_below_gro_is_named_with_the_command_that_ends_it() {
        let feature = |name: &str, active| {
            let name = name.into();
            Feature { name, active, requested: active, fixed: false }
        };
        let host = Host::look();
        let plain =
            [feature("rx-gro", true), feature("rx-gro-hw", false), feature("rx-lro", false)];
        assert_eq!(finding(&host, "eth0", &plain).state, FindingState::Ok);
        let merging = [feature("rx-gro-hw", true), feature("rx-lro", true)];
        let found = finding(&host, "eth0", &merging);
        assert_eq!(found.state, FindingState::Warn);
        let said = format!("{found:?}");
        assert!(said.contains("ethtool -K eth0 rx-gro-hw off rx-lro off"), "{said}");
        let fixed = merging.map(|feature| Feature { fixed: true, ..feature });
        let said = format!("{:?}", finding(&host, "eth0", &fixed));
        assert!(!said.contains("ethtool") && said.contains("cannot be turned off"), "{said}");
    }
}
