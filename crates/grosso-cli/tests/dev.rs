//! `grosso dev` compared with the installed ethtool, on the devices of a separate network namespace.

#![cfg(target_os = "linux")]

use std::process::{Command, Output};

use grosso_sys::{
    interface::InterfaceName,
    namespace::NetworkNamespace,
    netlink::{LinkChange, Netlink},
    tun::{Tun, TunBuilder},
};
use serde_json::Value;

use crate::common::{Bench, has, report};

/// A network with a veth pair `v0`, `v1` and a TAP `t0`.
struct Net {
    bench: Bench,
    network: NetworkNamespace,
    _tap: Tun,
}

impl Net {
    /// Creates the network; `None` if the caller cannot create it, or ethtool is missing.
    fn new() -> Option<Self> {
        if !has("ethtool") {
            return None;
        }
        let name = |name| InterfaceName::new(name).unwrap();
        let network = match NetworkNamespace::new() {
            Ok(network) => network,
            Err(error) => {
                println!("skipped: no private network namespace: {error}");
                assert!(std::env::var_os("GROSSO_SKIP_NOTHING").is_none(), "{error}");
                return None;
            }
        };
        let make = || {
            let (v0, v1) = (name("v0"), name("v1"));
            let netlink = Netlink::new().unwrap();
            netlink.add_veth((&v0, LinkChange::new()), (&v1, LinkChange::new())).unwrap();
            TunBuilder::tap(name("t0")).virtio_header(true).multi_queue(true).open().unwrap()
        };
        let tap = network.run(make).unwrap();
        Some(Self { bench: Bench::new(), network, _tap: tap })
    }

    fn run(&self, mut command: Command) -> Output {
        self.network.host(&mut command).unwrap().output().unwrap()
    }

    fn grosso(&self, line: &str) -> (i32, String, String) {
        let output = self.run(self.bench.command(line));
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    fn ethtool(&self, line: &str) -> String {
        let mut command = Command::new("ethtool");
        command.args(line.split(' '));
        String::from_utf8(self.run(command).stdout).unwrap()
    }

    fn assert_same(&self, line: &str) {
        let (code, stdout, stderr) = self.grosso(&format!("dev {line}"));
        assert_eq!((code, stderr.as_str()), (0, ""), "{line}");
        assert_eq!(stdout, self.ethtool(line), "{line}");
    }
}

#[test]
fn what_is_shown_is_what_ethtool_shows_byte_for_byte() {
    let Some(net) = Net::new() else { return };
    for line in ["-k lo", "-k v0", "-k t0", "-S v0", "-c t0"] {
        net.assert_same(line);
    }
    // Some features are now requested but off.
    net.ethtool("-K v0 tx off rxvlan off");
    net.assert_same("-k v0");
    net.ethtool("-C t0 rx-frames 9");
    net.assert_same("-c t0");
}

#[test]
fn the_json_is_that_of_ethtool_and_names_its_schema() {
    let Some(net) = Net::new() else { return };
    for (device, line) in
        [("v0", "dev --json -k v0"), ("t0", "--json dev t0"), ("lo", "dev -k lo --json")]
    {
        let (code, stdout, _) = net.grosso(line);
        assert_eq!(code, 0, "{line}");
        let mut ours = report(&stdout);
        let schema = ours[0].as_object_mut().unwrap().remove("schema");
        assert_eq!(schema, Some("grosso.dev.features/1".into()), "{line}");
        let theirs: Value =
            serde_json::from_str(&net.ethtool(&format!("--json -k {device}"))).unwrap();
        assert_eq!(ours, theirs, "{line}");
    }
    let (_, stdout, _) = net.grosso("dev -S v0 --json");
    let counters = report(&stdout);
    assert!(counters[0]["peer_ifindex"].as_u64().unwrap() > 0);
    let (_, stdout, _) = net.grosso("dev -c t0 --json");
    assert_eq!(
        stdout,
        "[{\"ifname\":\"t0\",\"rx-frames\":0,\"schema\":\"grosso.dev.coalesce/1\"}]\n"
    );
}

#[test]
fn changes_are_reported_as_by_ethtool() {
    let Some(net) = Net::new() else { return };
    // Both devices have the same driver and start from the same state: ethtool changes v0, and Grosso changes v1.
    for changes in [
        "tx off",
        "tso on",
        "tx on",
        "gso off gro on",
        "sg off tso on",
        "sg on",
        "lro on gro off",
        "rx-gro-list on rx-udp-gro-forwarding on",
        "generic-receive-offload on",
        "rx-all on",
        "ntuple on",
    ] {
        let theirs = net.ethtool(&format!("-K v0 {changes}"));
        let (code, ours, _) = net.grosso(&format!("dev -K v1 {changes}"));
        assert_eq!(ours, theirs, "{changes}");
        let none = matches!(changes, "rx-all on" | "ntuple on");
        assert_eq!(code, i32::from(none), "{changes}");
        let state = net.ethtool("-k v1").replace("v1", "v0");
        assert_eq!(state, net.ethtool("-k v0"), "{changes}");
    }
    net.ethtool("-K v1 tx on");
    let (_, stdout, _) = net.grosso("dev v1 tx off -K --json");
    let changes = report(&stdout);
    assert_eq!(changes[0]["schema"], "grosso.dev.changes/1");
    let of = |name: &str| {
        let all = changes[0]["changes"].as_array().unwrap();
        all.iter().find(|change| change["name"] == name).unwrap()["note"].clone()
    };
    assert_eq!(of("tx-checksum-ip-generic"), "as_requested");
    assert_eq!(of("tx-tcp-segmentation"), "not_requested");
}

#[test]
fn interrupt_coalescing_is_set() {
    let Some(net) = Net::new() else { return };
    assert_eq!(net.grosso("dev -C t0 rx-frames 17").0, 0);
    assert!(net.ethtool("-c t0").contains("rx-frames: 17\n"));
    let (code, _, stderr) = net.grosso("dev -C t0 rx-usecs 3");
    assert_eq!(
        (code, stderr.lines().next()),
        (4, Some("grosso: dev -C: t0 does not support rx-usecs"))
    );
    assert_eq!(net.grosso("dev -C t0 rx-usec 3").0, 2);
    assert_eq!(net.grosso("dev -C t0 rx-frames many").0, 2);
    assert_eq!(net.grosso("dev -c v0").0, 4);
}

#[test]
fn what_cannot_be_is_refused_with_what_may_have_been_meant() {
    let Some(net) = Net::new() else { return };
    let said = |line: &str| {
        let (code, stdout, stderr) = net.grosso(line);
        assert_eq!(stdout, "", "{line}");
        (code, stderr.lines().next().unwrap_or_default().to_owned())
    };
    assert_eq!(
        said("dev -K v0 rx-udp-gro-fwd on"),
        (
            2,
            r#"grosso: dev -K: no feature "rx-udp-gro-fwd"; did you mean rx-udp-gro-forwarding?"#
                .into()
        )
    );
    assert_eq!(
        said("dev -K v0 gro yes"),
        (2, r#"grosso: dev -K: gro must be on or off, not "yes""#.into())
    );
    assert_eq!(said("dev -K v0 gro"), (2, "grosso: dev -K: gro needs a value".into()));
    assert_eq!(said("dev -K v0"), (2, "grosso: dev -K: missing NAME VALUE".into()));
    assert_eq!(said("dev v0 gro off"), (2, r#"grosso: dev: unexpected argument "gro""#.into()));
    assert_eq!(said("dev -k -S v0").0, 2);
    assert_eq!(
        said("dev -k lo0"),
        (4, r#"grosso: dev: no interface "lo0"; did you mean lo?"#.into())
    );
    assert_eq!(said("dev -S lo"), (4, "grosso: dev -S: the driver of lo has no counters".into()));
    // Scripts may turn off an offload that current kernels no longer have.
    assert_eq!(said("dev -K v0 ufo off"), (0, String::new()));
    let (code, stdout, _) = net.grosso("dev -K v0 ufo on");
    assert_eq!(
        (code, stdout.as_str()),
        (1, "Actual changes:\nudp-fragmentation-offload: off [fixed]\n")
    );
}

#[test]
fn a_tap_reports_the_features_it_was_opened_with() {
    let Some(net) = Net::new() else { return };
    let program = env!("CARGO_BIN_EXE_grosso");
    let script = format!("mount -t sysfs none /sys && exec {program} dev -k t0");
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]);
    let output = net.run(command);
    let stdout = String::from_utf8(output.stdout).unwrap();
    let own = "\nGrosso features:\nx-virtio-net-hdr: on [fixed]\nx-multi-queue: on [fixed]\n\
               x-napi: off [fixed]\n";
    assert_eq!(stdout, net.ethtool("-k t0") + own, "{}", String::from_utf8_lossy(&output.stderr));
}
