use super::*;
use crate::daemon::port::Device;

/// What is wrong with a text, as the user reads it.
fn wrong(text: &str) -> String {
    Config::parse(text).unwrap_err().to_string()
}

#[test]
fn every_key_is_understood() {
    let text = r#"
metrics = "127.0.0.1:9469"

[[path]]
name = "edge"
left = "eth1"
gro = false
rx-usecs = 20
queues = 2
cpus = [0, 1]
impair = "delay 5ms loss 0.1%"

[path.right]
port = "tap:grosso0"
mtu = 9000
up = false
persist = true
vnet_hdr = 24
features = { tso = false, "tx-udp-segmentation" = false }

[[path]]
left = { port = "packet:eth2", promisc = false, rx = 1024, rx-buf-len = 2048 }
right = { port = "xdp:eth3:1", partial-checksums = true }
"#;
    let config = Config::parse(text).unwrap();
    assert_eq!(config.metrics, Some("127.0.0.1:9469".parse().unwrap()));
    let [edge, other] = config.paths.try_into().unwrap();
    assert_eq!((edge.name.as_str(), edge.coalesce, edge.queues), ("edge", false, 2));
    assert_eq!((edge.hold, edge.processors), (Duration::from_micros(20), vec![0, 1]));
    assert_eq!(edge.impairment.unwrap().delay, Duration::from_millis(5));
    assert_eq!(edge.left, PortSpec::new(Device::Packet("eth1".into())));
    assert_eq!((edge.right.mtu, edge.right.up), (Some(9000), Some(false)));
    assert_eq!((edge.right.persistent, edge.right.header), (Some(true), Some(Form::Tunnel)));
    assert!(!edge.right.features.contains(Features::TCP6_SEGMENTATION));
    assert!(!edge.right.features.contains(Features::UDP_SEGMENTATION));
    assert!(edge.right.features.contains(Features::CHECKSUM_GENERIC));
    assert_eq!((other.name.as_str(), other.coalesce, other.queues), ("eth2-eth3", true, 1));
    assert_eq!((other.left.ring_slots, other.left.slot_bytes), (Some(1024), Some(2048)));
    assert_eq!(other.left.promiscuous, Some(false));
    assert_eq!(other.right.partial_checksums, Some(true));
}

#[test]
fn what_is_wrong_is_said_with_line_and_column_and_what_was_meant() {
    let path = "[[path]]\nleft = \"eth1\"\nright = \"tap:t\"\n";
    for (text, expected) in [
        (format!("{path}rx-usec = 20\n"), "4:1: no key \"rx-usec\"; did you mean rx-usecs?"),
        (format!("{path}colour = 1\n"), "4:1: no key \"colour\" here; there are name, left,"),
        (format!("metric = 1\n{path}"), "1:1: no key \"metric\"; did you mean metrics?"),
        (format!("{path}queues = 0\n"), "4:10: queues are 1 to 64"),
        (format!("{path}queues = 65\n"), "4:10: queues are 1 to 64"),
        (format!("{path}name = \"a b\"\n"), "4:8: \"a b\" is no name"),
        (format!("{path}impair = \"lose 1%\"\n"), "4:10: impairment: unknown word"),
        (format!("{path}gro = \"on\"\n"), "4:7: invalid type: string \"on\""),
        (format!("{path}rx-usecs = -1\n"), "4:12: invalid value"),
        (format!("{path}metrics = 1"), "4:1: no key \"metrics\""),
        ("[[path]]\nleft = \"eth1\"\n".into(), "1:1: missing field `right`"),
        ("[[path]]\nleft = \"vlan:1\"\nright = \"tap:t\"\n".into(), "2:8: no kind of port"),
        ("[[path]]\nleft = 1\nright = \"tap:t\"\n".into(), "2:8: invalid type: integer `1`"),
        ("[[path]\nleft = 1\n".into(), "1:8: "),
        (String::new(), "1:1: no [[path]]"),
        ("[[path]]\nleft = \"e\"\nright = \"e\"\n".into(), "1:1: e is both ends of the path"),
        (format!("{path}\n{path}"), "5:1: there is a path \"eth1-t\" already"),
        (format!("{path}\n{path}name = \"x\""), "5:1: eth1 is in path \"eth1-t\" already"),
        (
            "[[path]]\nleft = \"eth1\"\nright = \"tun:t\"\n".into(),
            "1:1: eth1 and tun:t: Ethernet frames and IP packets do not mix",
        ),
        (
            "[[path]]\nleft = { port = \"eth1\", persist = true }\nright = \"tap:t\"\n".into(),
            "2:8: persist is for tap, tun and fd ports, and this is eth1",
        ),
        (
            "[[path]]\nleft = { port = \"eth1\", features = { tx-udp-segment = false } }\nright = \"tap:t\"\n"
                .into(),
            "2:8: no feature \"tx-udp-segment\"; did you mean tx-udp-segmentation?",
        ),
        (
            "[[path]]\nleft = \"e\"\nright = { port = \"tap:t\", mtuu = 9 }\n".into(),
            "3:27: no key \"mtuu\"; did you mean mtu?",
        ),
        (
            "[[path]]\nleft = \"fd:3\"\nright = \"tap:t\"\nqueues = 2\n".into(),
            "1:1: fd:3 is one queue, and the path has more",
        ),
        (
            "[[path]]\nleft = \"xdp:e:63\"\nright = \"tap:t\"\nqueues = 2\n".into(),
            "1:1: xdp:e:63 has no 2 queues behind it",
        ),
        (
            "[[path]]\nleft = \"e\"\nright = { port = \"tap:t\", vnet_hdr = 11 }\n".into(),
            "3:9: no virtio header has 11 bytes",
        ),
    ] {
        let found = wrong(&text);
        assert!(found.starts_with(expected), "{text}\n found: {found}\n expected: {expected}");
    }
}

#[test]
fn columns_are_counted_in_characters() {
    let text = "[[path]]\nleft = \"eth1\" # \u{e4}\u{f6}\nright = \"\u{e4}\u{f6}:x\"\n";
    assert!(wrong(text).starts_with("3:9: "), "{}", wrong(text));
}

#[test]
fn more_paths_than_there_may_be_are_refused() {
    let path = |i| format!("[[path]]\nleft = \"a{i}\"\nright = \"b{i}\"\n");
    let text: String = (0..PATHS_MAX).map(path).collect();
    assert_eq!(Config::parse(&text).unwrap().paths.len(), PATHS_MAX);
    assert!(wrong(&(text + &path(PATHS_MAX))).contains("more than 64 paths"));
}
