//! Tests that device settings can be changed and read back.

use std::io;

use grosso_sys::ethtool::{
    Rings, channels, coalesce, coalesce_parameters, driver, features, rings, set_channels,
    set_coalesce, set_features, set_rings, statistics,
};
use grosso_sys::interface::InterfaceName;
use grosso_sys::netlink::{LinkChange, Netlink};

use super::{isolated, tap};

#[test]
fn features_change_together_with_those_that_depend_on_them() {
    isolated(|control| {
        let [here, there] = ["here", "there"].map(|name| InterfaceName::new(name).unwrap());
        Netlink::new()?.add_veth((&here, LinkChange::new()), (&there, LinkChange::new()))?;
        let before = features(control, &here)?;
        let fixed = before.iter().find(|feature| feature.fixed).expect("a fixed feature").clone();
        let wishes = [("tx-checksum-ip-generic", false), (&fixed.name, !fixed.active)];
        let changes = set_features(control, &here, &wishes)?;
        assert_eq!(changes.refused, [fixed]);
        let changed = |name: &str| {
            changes
                .changed
                .iter()
                .find(|feature| feature.name == name)
                .map(|f| (f.active, f.requested))
        };
        assert_eq!(changed("tx-checksum-ip-generic"), Some((false, false)));
        assert_eq!(changed("tx-tcp-segmentation"), Some((false, true)), "[requested on]");
        let back = set_features(control, &here, &[("tx-checksum-ip-generic", true)])?;
        assert!(back.refused.is_empty() && back.changed.len() == changes.changed.len());
        assert_eq!(features(control, &here)?, before);
        let unknown = set_features(control, &here, &[("warp-drive", true)]).unwrap_err();
        assert_eq!(unknown.kind(), io::ErrorKind::NotFound);
        Ok(())
    });
}

#[test]
fn a_tap_coalesces_and_a_veth_has_channels() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        assert_eq!(driver(control, tap.name())?.name, "tun");
        assert_eq!(driver(control, tap.name())?.bus, "tap");
        let mut parameters = coalesce(control, tap.name())?;
        assert!(parameters.set("rx-frames", 17));
        set_coalesce(control, tap.name(), &parameters)?;
        assert_eq!(coalesce(control, tap.name())?.value("rx-frames"), Some(17));
        assert_eq!(
            coalesce_parameters(tap.name())?,
            [("rx-frames", 17)],
            "only changed parameters are listed"
        );
        let none = coalesce_parameters(&InterfaceName::new("lo")?).unwrap_err();
        assert_eq!(none.raw_os_error(), Some(libc::EOPNOTSUPP));
        parameters.set("tx-usecs", 3);
        let lacking = set_coalesce(control, tap.name(), &parameters).unwrap_err();
        assert_eq!(lacking.raw_os_error(), Some(libc::EOPNOTSUPP));
        rings(control, tap.name()).unwrap_err();

        let [here, there] = ["here", "there"].map(|name| InterfaceName::new(name).unwrap());
        let two = LinkChange::new().queues(2);
        Netlink::new()?.add_veth((&here, two), (&there, two))?;
        assert_eq!(driver(control, &here)?.name, "veth");
        let counters = statistics(control, &here)?;
        let peer = counters.iter().find(|(name, _)| name == "peer_ifindex").expect("a counter");
        assert_eq!(peer.1, u64::from(control.index(&there)?));
        assert!(statistics(control, &InterfaceName::new("lo")?)?.is_empty());
        let mut queues = channels(control, &here)?;
        assert_eq!((queues.receive_max, queues.transmit_max, queues.combined), (2, 2, 0));
        (queues.receive, queues.transmit) = (1, 1);
        set_channels(control, &here, &queues)?;
        assert_eq!(channels(control, &here)?, queues);
        queues.receive = 3;
        set_channels(control, &here, &queues).unwrap_err();
        for fixed in
            [rings(control, &here).map(|_| ()), set_rings(control, &here, &Rings::default())]
        {
            assert_eq!(fixed.unwrap_err().raw_os_error(), Some(libc::EOPNOTSUPP));
        }
        Ok(())
    });
}
