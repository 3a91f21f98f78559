// Longer than 600 lines: the tables of valid and invalid configurations have one row per message.

use grosso::features::Features;
use grosso_io::live::Opening;
use grosso_wire::virtio::Form;

use super::*;
use crate::port::Device;

/// Parses a configuration as if its file were in `/`.
fn parse(text: &str) -> Result<Config, Wrong> {
    Config::parse(text, Path::new("/"))
}

/// Parses an invalid configuration and returns the error that the user sees.
fn wrong(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

#[test]
fn every_key_is_understood() {
    let text = r#"
metrics = "127.0.0.1:9469"

[[path]]
name = "edge"
left = "eth1"
gro = false
profile = "freebsd"
rx-usecs = 20
queues = 2
cpus = [0, 1]
impair = "delay 5ms loss 0.1%"
poll-budget = 300
busy-poll = 50

[path.right]
port = "tap:grosso0"
mtu = 9000
up = false
persist = true
terminates = true
expand-acks = true
vnet_hdr = 24
features = { tso = false, "tx-udp-segmentation" = false }

[[path]]
adaptive-rx = true
left = { port = "packet:eth2", promisc = false, rx = 1024, rx-buf-len = 2048, tx = 512 }
right = { port = "xdp:eth3:1", partial-checksums = true }
"#;
    let config = parse(text).unwrap();
    assert_eq!(config.metrics, Some("127.0.0.1:9469".parse().unwrap()));
    let [edge, other] = config.paths.try_into().unwrap();
    assert_eq!((edge.name.as_str(), edge.coalesce, edge.queues), ("edge", false, 2));
    assert_eq!((edge.profile.limits.hold_ns, &edge.processors[..]), (20_000, &[0, 1][..]));
    assert_eq!(edge.impairment.as_ref().unwrap().delay, core::time::Duration::from_millis(5));
    assert_eq!(edge.polling, Polling { budget_frames: Some(300), busy_ns: 50_000 });
    assert_eq!(other.polling, Polling::default());
    assert!(edge.profile.name == "freebsd" && edge.right.terminates() && !edge.left.terminates());
    assert!(edge.right.expands_acks() && !edge.left.expands_acks() && !other.right.expands_acks());
    assert_eq!(edge.left, PortSpec::new("eth1".parse().unwrap()));
    let link = edge.right.device.port().link().unwrap();
    assert_eq!((link.mtu, link.up), (Some(9000), Some(false)));
    let Some(Opening::Tun { options, .. }) = edge.right.opening() else { panic!("{edge:?}") };
    assert_eq!((options.persistent, options.header), (Some(true), Form::Tunnel));
    assert!(!edge.right.features.contains(Features::TCP6_SEGMENTATION));
    assert!(!edge.right.features.contains(Features::UDP_SEGMENTATION));
    assert!(edge.right.features.contains(Features::CHECKSUM_GENERIC));
    assert_eq!((other.name.as_str(), other.coalesce, other.queues), ("eth2-eth3", true, 1));
    let Some(Opening::Packet { options, .. }) = other.left.opening() else { panic!("{other:?}") };
    assert_eq!((options.slots, options.slot_bytes), (Some(1024), Some(2048)));
    assert_eq!((options.transmit_slots, options.promiscuous), (512, false));
    assert_eq!((edge.profile.hold, other.profile.hold), (Hold::Fixed, Hold::Controlled));
    assert_eq!(other.profile.limits.hold_ns, 100_000);
    let Some(Opening::Xdp { options, .. }) = other.right.opening() else { panic!("{other:?}") };
    assert!(options.assume_partial);
}

#[test]
fn tunnels_of_two_paths_may_have_one_other_end_but_no_packets_in_common() {
    let path = |number: u8, tap: &str, tunnel: &str| {
        format!(
            "[[path]]\nname = \"{number}\"\nleft = \"{tap}:t{number}\"\n\
             right.tunnel = {{ remote = \"192.0.2.9\", {tunnel} }}\n"
        )
    };
    let both = |tap: &str, one: &str, two: &str| path(1, tap, one) + &path(2, tap, two);
    let vxlan = "type = \"vxlan\", id = 9, local = \"192.0.2.1\"";
    let gre = "type = \"gre\", local = \"192.0.2.1\"";
    let (sit, ipip) =
        ("type = \"sit\", local = \"192.0.2.1\"", "type = \"ipip\", local = \"192.0.2.1\"");
    for (tap, one, two) in [
        ("tap", vxlan, "type = \"vxlan\", id = 9, local = \"192.0.2.2\""),
        ("tap", vxlan, "type = \"vxlan\", id = 9, local = \"192.0.2.1\", dstport = 8472"),
        ("tun", gre, "type = \"gre\", local = \"192.0.2.2\""),
        ("tun", gre, "type = \"gre\", key = 1, local = \"192.0.2.1\""),
    ] {
        assert_eq!(parse(&both(tap, one, two)).unwrap().paths.len(), 2, "{two}");
    }
    for (tap, one, two, name) in [
        ("tap", vxlan, "type = \"vxlan\", id = 8, local = \"192.0.2.1\"", "vxlan:8"),
        ("tun", gre, gre, "gre"),
        ("tun", ipip, sit, "sit"),
    ] {
        let wrong = wrong(&both(tap, one, two));
        let expected =
            format!("5:1: packets for {name}:192.0.2.9 would also be received by path \"1\"");
        assert!(wrong.contains(&expected), "{wrong}");
    }
    // The kernel lets only one socket use a given source port.
    let fou = |sport, dport| {
        format!("{ipip}, encap = \"fou\", encap-sport = {sport}, encap-dport = {dport}")
    };
    for (one, two) in [((5, 6), (5, 7)), ((5, 6), (7, 5)), ((5, 6), (6, 8))] {
        let wrong = wrong(&both("tun", &fou(one.0, one.1), &fou(two.0, two.1)));
        let expected = "the source port of ipip:192.0.2.9 is also used by path \"1\"";
        assert!(wrong.contains(expected), "{wrong}");
    }
    assert!(parse(&both("tun", &fou(5, 6), &fou(8, 7))).is_ok());
}

/// Tests that every socket of every queue needs a separate source port. One of these ports may be the port at which all
/// queues receive.
#[test]
fn a_tunnel_has_a_source_port_for_each_queue_at_least() {
    let path = |queues: u8, lines: &str| {
        let text = to_tunnel("tap:t", &format!("{ENDS}\n{lines}"));
        text.replacen("name", &format!("queues = {queues}\nname"), 1)
    };
    let vxlan =
        |low: u16, high: u16| format!("type = \"vxlan\"\nid = 1\nsrcport = [{low}, {high}]");
    let fou = "type = \"gretap\"\nencap = \"fou\"\nencap-dport = 5\nencap-sport = ";
    for (queues, lines, words) in [
        (
            3,
            vxlan(50_000, 50_001),
            "each of the 3 queues needs a separate port; use fewer queues, or more ports with \
             srcport",
        ),
        (2, vxlan(4789, 4790), "vxlan:1:192.0.2.2 has too few source ports: each of the 2 queues"),
        (2, format!("{fou}7"), "gretap:192.0.2.2 has too few"),
        (2, format!("{fou}7"), "or more ports with encap-sport auto"),
    ] {
        let wrong = wrong(&path(queues, &lines));
        assert!(wrong.starts_with("1:1: ") && wrong.contains(words), "{wrong}");
    }
    for (queues, lines) in [
        (2, vxlan(50_000, 50_001)),
        (1, vxlan(4789, 4790)),
        (64, vxlan(4789, 4789)),
        (64, vxlan(50_000, 50_063)),
        (1, format!("{fou}7")),
        (64, format!("{fou}5")),
        (64, format!("{fou}\"auto\"")),
    ] {
        assert!(parse(&path(queues, &lines)).is_ok(), "{queues} {lines}");
    }
}

#[test]
fn errors_have_line_column_and_a_suggestion() {
    let path = "[[path]]\nleft = \"eth1\"\nright = \"tap:t\"\n";
    for (text, expected) in [
        (format!("{path}rx-usec = 20\n"), "4:1: no key \"rx-usec\"; did you mean rx-usecs?"),
        (
            format!("{path}hold = \"20us\"\n"),
            "4:1: no key \"hold\"; use rx-usecs, or adaptive-rx = true for --hold auto",
        ),
        (
            format!("{path}promisc = false\n"),
            "4:1: key `promisc` is valid only for a port: left = { port = ..., promisc = ... }",
        ),
        (
            "[[path]]\nleft = { port = \"e\", mtu = 70000 }\nright = \"tap:t\"\n".into(),
            "2:28: expected a whole number from 0 to 65535, found 70000",
        ),
        (format!("{path}colour = 1\n"), "4:1: no key \"colour\"; known keys: name, left,"),
        (format!("metric = 1\n{path}"), "1:1: no key \"metric\"; did you mean metrics?"),
        (format!("{path}queues = 0\n"), "4:10: queues must be from 1 to 64"),
        (format!("{path}queues = 65\n"), "4:10: queues must be from 1 to 64"),
        (format!("{path}name = \"a b\"\n"), "4:8: \"a b\" is not a valid name"),
        (format!("{path}impair = \"lose 1%\"\n"), "4:10: unknown keyword"),
        (format!("{path}gro = \"on\"\n"), "4:7: expected true or false, found \"on\""),
        (format!("{path}rx-usecs = -1\n"), "4:12: expected a whole number"),
        (format!("{path}profile = \"linx\"\n"), "1:1: no profile \"linx\"; did you mean linux?"),
        (format!("{path}profile = \"./absent\"\n"), "1:1: /./absent: No such file"),
        (format!("{path}profile = \"inet-lro\"\n"), "1:1: profile inet-lro: merging is lossy"),
        (
            "[[path]]\nleft = { port = \"eth1\", terminates = true }\nright = \"tap:t\"\n".into(),
            "2:8: option `terminates` applies only to tap, tun and fd ports, not to eth1",
        ),
        (
            "[[path]]\nleft = \"e\"\nright = { port = \"tap:t\", terminates = true, fragments = {} }\n"
                .into(),
            "3:9: `terminates` cannot be combined with `fragments` or `esp`",
        ),
        (
            "[[path]]\nleft = \"e\"\nright = { port = \"tap:t\", expand-acks = true }\n".into(),
            "3:9: expand-acks needs a port with terminates = true",
        ),
        (format!("{path}metrics = 1"), "4:1: no key \"metrics\""),
        ("[[path]]\nleft = \"eth1\"\n".into(), "1:1: missing key \"right\""),
        ("[[path]]\nleft = \"vlan:1\"\nright = \"tap:t\"\n".into(), "2:8: no port type"),
        ("[[path]]\nleft = 1\nright = \"tap:t\"\n".into(), "2:8: expected "),
        ("[[path]\nleft = 1\n".into(), "1:8: "),
        (String::new(), "1:1: no [[path]]"),
        ("[[path]]\nleft = \"e\"\nright = \"e\"\n".into(), "1:1: e is used for both ports of the path"),
        (format!("{path}\n{path}"), "5:1: path \"eth1-t\" already exists"),
        (format!("{path}\n{path}name = \"x\""), "5:1: eth1 is also a port of path \"eth1-t\""),
        (
            "[[path]]\nleft = \"eth1\"\nright = \"tun:t\"\n".into(),
            "1:1: eth1 and tun:t: cannot connect a port with Ethernet frames to a port with IP \
             packets",
        ),
        (
            "[[path]]\nleft = { port = \"eth1\", persist = true }\nright = \"tap:t\"\n".into(),
            "2:8: option `persist` applies only to tap, tun and fd ports, not to eth1",
        ),
        (
            "[[path]]\nleft = { port = \"eth1\", features = { tx-udp-segment = false } }\nright = \"tap:t\"\n"
                .into(),
            "2:8: no feature \"tx-udp-segment\"; did you mean tx-udp-segmentation?",
        ),
        (
            "[[path]]\nleft = { port = \"eth1\", features = { ufo = true } }\nright = \"tap:t\"\n".into(),
            "2:8: ports have no feature \"ufo\": Linux removed this feature in version 4.14; use \
             fragments = { mtu = 1500 }",
        ),
        (
            "[[path]]\nleft = { port = \"eth1\", features = { rx-gro-list = true } }\nright = \"tap:t\"\n".into(),
            "2:8: ports have no feature \"rx-gro-list\": packet lists exist only inside the \
             kernel; use profile = \"linux\"",
        ),
        (
            "[[path]]\nleft = { port = \"eth1\", features = { fraglist = true } }\nright = \"tap:t\"\n".into(),
            "2:8: ports have no feature \"fraglist\": a program cannot pass a packet list to the kernel as one \
             frame;",
        ),
        (
            "[[path]]\nleft = \"vhost-user:/s,offloads=csum+ufo\"\nright = \"tap:t\"\n".into(),
            "2:8: VMs have no offload \"ufo\": Linux removed this feature in version 4.14; use \
             fragments = { mtu = 1500 }",
        ),
        (
            format!("{path}poll-budget = 0\n"),
            "1:1: poll-budget: expected 1 to 1024 frames, not 0",
        ),
        (
            format!("{path}poll-budget = 1025\n"),
            "1:1: poll-budget: expected 1 to 1024 frames, not 1025",
        ),
        (
            format!("{path}busy-poll = 1000001\n"),
            "1:1: busy-poll: the maximum is 1000000 us",
        ),
        (
            "[[path]]\nleft = \"e\"\nright = { port = \"tap:t\", mtuu = 9 }\n".into(),
            "3:27: no key \"mtuu\"; did you mean mtu?",
        ),
        (
            "[[path]]\nleft = \"fd:3\"\nright = \"tap:t\"\nqueues = 2\n".into(),
            "1:1: fd:3 has only one queue; set queues = 1",
        ),
        (
            "[[path]]\nleft = \"xdp:e:63\"\nright = \"tap:t\"\nqueues = 2\n".into(),
            "1:1: xdp:e:63: the first queue number plus the number of queues (2) exceeds the limit \
             of 64",
        ),
        (
            "[[path]]\nleft = \"e\"\nright = { port = \"tap:t\", vnet_hdr = 11 }\n".into(),
            "3:9: a virtio header has 10, 12, 20 or 24 bytes, not 11",
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
    assert_eq!(parse(&text).unwrap().paths.len(), PATHS_MAX);
    assert!(wrong(&(text + &path(PATHS_MAX))).contains("more than 64 paths"));
}

/// Returns a path whose left port is a table that contains `stage`.
fn with(stage: &str) -> String {
    format!("[[path]]\nleft = {{ port = \"eth1\", {stage} }}\nright = \"tap:t\"\n")
}

/// Keys that are required for ESP.
const ESP: &str =
    "spi-in = 0x101, spi-out = 0x102, key-file = \"edge.key\", sequence-file = \"edge.seq\"";

#[test]
fn stages_are_understood() {
    let fragments = "fragments = { mtu = 1500, ignore-df = true, ipfrag_high_thresh = 1048576, \
         ipfrag_time = 5, ip6frag_time = 6 }";
    let esp = format!(
        "esp = {{ {ESP}, mode = \"tunnel\", src = \"fd00::1\", dst = \"fd00::2\", icv-bits = 96, \
         esn = true, replay-window = 64, encap = {{ dport = 4501 }}, \
         sel = {{ src = [\"10.1.0.0/16\", \"fd01::/64\"], dst = [\"10.2.0.1\"] }}, level = \"use\" }}"
    );
    let config = parse(&with(&format!("{fragments}, {esp}"))).unwrap();
    let [path] = config.paths.try_into().unwrap();
    assert!(path.left.has_stages() && !path.right.has_stages());
    let other = parse(&with(&format!("fragments = {{}}, {esp}"))).unwrap();
    assert_ne!(path.left, other.paths[0].left, "what changed is started anew");
    assert!(parse(&with("fragments = {}")).is_ok());
    assert!(parse(&with(&format!("esp = {{ {ESP} }}"))).is_ok());
}

#[test]
fn stages_that_cannot_be_are_refused_by_name() {
    let esp = |more: &str| format!("esp = {{ {ESP}, {more} }}");
    for (stage, expected) in [
        ("fragments = { mtu = 67 }".into(), "fragments: the minimum mtu is 68 bytes"),
        (
            "fragments = { reassemble = false }".into(),
            "fragments: set mtu, or reassemble = true, or both",
        ),
        ("fragments = { ignore-df = true }".into(), "fragments: ignore-df needs an mtu"),
        (
            "fragments = { mtu = 1500, reassemble = false, mode = \"local\" }".into(),
            "fragments: `mode` applies to received fragments",
        ),
        ("fragments = { mode = \"host\" }".into(), "unknown value \"host\"; expected "),
        (
            "fragments = { ipfrag_high_thresh = 1000 }".into(),
            "fragments: ipfrag_high_thresh must be",
        ),
        (
            "fragments = { ipfrag_time = 0 }".into(),
            "fragments: a timeout must be from 1 to 3600 seconds",
        ),
        (
            "fragments = { ipfrag_tim = 1 }".into(),
            "no key \"ipfrag_tim\"; did you mean ipfrag_time?",
        ),
        ("esp = { spi-in = 1 }".into(), "missing key \"spi-out\""),
        (esp("mode = \"tunnel\""), "esp: mode = \"tunnel\" needs src and dst"),
        (esp("mode = \"beet\""), "unknown value \"beet\"; expected "),
        (esp("src = \"10.0.0.1\""), "esp: src and dst need mode = \"tunnel\""),
        (
            esp("mode = \"tunnel\", src = \"10.0.0.1\", dst = \"fd00::1\""),
            "esp: src and dst must both be IPv4 or both be IPv6",
        ),
        (esp("sel = { src = [\"10.0.0.1/8\"] }"), "esp: sel: 10.0.0.1/8 is not a prefix"),
        (esp("sel = { dst = [\"fd00::/129\"] }"), "esp: sel: fd00::/129 is not a prefix"),
        (esp("icv-bits = 100"), "esp: the ICV must have 64, 96 or 128 bits"),
        (esp("replay-window = 31"), "esp: the replay window must be 0, or from 32 to 65536 packets"),
        (esp("replay-window = 0, esn = true"), "esp: extended sequence numbers need"),
        (
            "esp = { spi-in = 256, spi-out = 256, key-fd = 3, sequence-file = \"s\", shared-key = true }"
                .into(),
            "esp: shared-key = true needs different values of spi-in and spi-out",
        ),
        (esp("encap = { sport = 0 }"), "esp: UDP port 0 is not valid"),
        (esp("key-fd = 3"), "esp: missing key \"key-file\" or \"key-fd\""),
        (
            "esp = { spi-in = 256, spi-out = 257, key-fd = 2, sequence-file = \"s\" }".into(),
            "esp: key-fd must be at least 3",
        ),
        (esp("key = \"00\""), "no key \"key\"; did you mean key-fd?"),
        (format!("esp = {{ {} }}", ESP.replace("0x102", "255")), "esp: the SPI must be at least 256"),
    ] {
        let found = wrong(&with(&stage));
        let what = found.splitn(3, ':').nth(2).unwrap().trim();
        assert!(what.starts_with(expected), "{stage}\n found: {found}\n expected: {expected}");
    }
    let queues = format!("{}queues = 2\n", with(&format!("esp = {{ {ESP} }}")));
    assert!(wrong(&queues).contains("eth1: esp requires queues = 1"));
}

/// Returns a path whose left and right ports are these tables.
fn between(left: &str, right: &str) -> String {
    format!("[[path]]\nleft = {{ {left} }}\nright = {{ {right} }}\n")
}

#[test]
fn fragments_are_forwarded_unless_they_end_at_the_other_end() {
    let mode = |left: &str, right: &str| {
        let [path] = parse(&between(left, right)).unwrap().paths.try_into().unwrap();
        path.left.fragments_mode(&path.right)
    };
    let said = |mode: &str| format!("port = \"e\", fragments = {{ mode = \"{mode}\" }}");
    let (joins, host) = ("port = \"e\", fragments = {}", "port = \"tap:t\", terminates = true");
    assert_eq!(mode(joins, "port = \"f\""), Some(FragmentsMode::Forward));
    assert_eq!(mode(joins, "port = \"tap:t\""), Some(FragmentsMode::Forward));
    assert_eq!(mode(joins, host), Some(FragmentsMode::Local));
    assert_eq!(mode(&said("forward"), host), Some(FragmentsMode::Forward));
    assert_eq!(mode(&said("local"), "port = \"tap:t\""), Some(FragmentsMode::Local));
    assert_eq!(mode(&said("virtual"), "port = \"f\""), Some(FragmentsMode::Virtual));
    assert_eq!(mode("port = \"e\"", host), None);
    let cuts = "port = \"e\", fragments = { mtu = 1500, reassemble = false }";
    assert_eq!(mode(cuts, "port = \"f\""), None);
    let esp = format!("{joins}, esp = {{ {ESP} }}");
    assert_eq!(mode(&esp, "port = \"tap:t\""), Some(FragmentsMode::Local));
}

#[test]
fn what_would_lose_fragments_is_refused_with_what_cures_it() {
    let esp = format!("esp = {{ {ESP} }}");
    let inside =
        format!("esp = {{ {ESP}, mode = \"tunnel\", src = \"fd00::1\", dst = \"fd00::2\" }}");
    let said = |mode: &str| format!("port = \"e\", fragments = {{ mode = \"{mode}\" }}");
    let joins = "port = \"e\", fragments = {}".to_owned();
    let cut = |port: &str| format!("{port}, fragments = {{ mtu = 1500 }}");
    let far = "port = \"f\"";
    let (both, far_esp) = (cut("port = \"e\""), format!("{far}, {esp}"));
    for (wrong_ends, says, cures) in [
        (
            [&said("local"), far],
            "e: with mode = \"local\", datagrams are forwarded whole and may be longer than the MTU of f:",
            [[&said("local"), &*cut(far)], [&joins, far]],
        ),
        (
            [&joins, &far_esp],
            "e: fragments are reassembled before esp at f encrypts them, so encrypted packets may \
             be longer than the MTU of f;",
            [[&*both, &cut(&far_esp)], ["port = \"tap:t\", fragments = {}", &cut(&far_esp)]],
        ),
        (
            [&said("virtual"), &far_esp],
            "e: mode = \"virtual\" leaves fragments as they are, but esp at f accepts only whole \
             packets:",
            [[&*both, &cut(&far_esp)], [&said("virtual"), &format!("{far}, {inside}")]],
        ),
        (
            [&format!("{joins}, {esp}"), far],
            "e: decrypted packets may be longer than the MTU of f; to fragment them, set fragments \
             = { mtu = 1500 } at f",
            [
                [&format!("{both}, {esp}"), &cut(far)],
                [&format!("{joins}, {esp}"), "port = \"tap:t\""],
            ],
        ),
        (
            [&format!("{}, {esp}", said("forward")), "port = \"tap:t\""],
            "e: esp can decrypt only whole packets: remove `mode` from `fragments`",
            [
                [&format!("{joins}, {esp}"), "port = \"tap:t\""],
                [&format!("{}, {esp}", said("local")), "port = \"tap:t\""],
            ],
        ),
    ] {
        let [left, right] = wrong_ends;
        for text in [between(left, right), between(right, left)] {
            let found = wrong(&text);
            assert!(found.starts_with(&format!("1:1: {says}")), "{text}\n found: {found}");
        }
        for [left, right] in cures {
            for text in [between(left, right), between(right, left)] {
                assert!(parse(&text).is_ok(), "{text}\n found: {}", wrong(&text));
            }
        }
    }
}

#[test]
fn keys_are_read_with_the_file_and_no_two_ports_send_with_the_same() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str, mode: u32| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let key = |byte: &str| byte.repeat(20);
    write("edge.key", &format!("in {}\nout {}\n", key("a1"), key("b2")), 0o600);
    let read = |text: &str| {
        write("paths.toml", text, 0o644);
        Config::read(&folder.path().join("paths.toml")).map_err(|failure| format!("{failure:?}"))
    };
    let one = with(&format!("esp = {{ {ESP} }}"));
    let config = read(&one).unwrap();
    let printed = format!("{config:?}");
    assert!(printed.contains("edge.seq") && !printed.contains("a1a1") && !printed.contains("161"));
    write("edge.key", &format!("in {}\nout {}\n", key("a1"), key("b3")), 0o600);
    assert_ne!(read(&one).unwrap(), config, "another key is another path");

    let two = one.clone() + &one.replace("eth1", "eth2").replace(":t", ":u");
    assert!(read(&two).unwrap_err().contains("two ports use the same sequence file"));
    let two = one.clone()
        + &one.replace("eth1", "eth2").replace(":t", ":u").replace("edge.seq", "other.seq");
    assert!(read(&two).unwrap_err().contains("two ports send with the same key"));
    write("other.key", &format!("in {}\nout {}\n", key("b3"), key("a1")), 0o400);
    let receiving = format!("in {}\nout {}\n", key("a1"), key("c1"));
    let two = two.replacen("edge.key", "other.key", 1);
    write("other.key", &receiving, 0o600);
    assert!(read(&two).unwrap_err().contains("two ports receive with the same key"));
    write("other.key", &format!("in {}\nout {}\n", key("b3"), key("a1")), 0o600);
    assert!(read(&two).is_ok(), "two ends of one association may be in one program");

    for text in ["", "grosso-esp-sequences/2\nkeys 1\nout 1\nin 1\n"] {
        write("edge.seq", text, 0o600);
        let failure = read(&one).unwrap_err();
        assert!(
            failure.contains("edge.seq: the file ") && failure.contains("make new keys"),
            "{failure}"
        );
    }
    std::fs::remove_file(folder.path().join("edge.seq")).unwrap();
    let failure = read(&one.replace("edge.seq", "absent/edge.seq")).unwrap_err();
    assert!(failure.contains("does not exist") && failure.contains("install -d"), "{failure}");
    write("edge.key", "", 0o644);
    assert!(read(&one).unwrap_err().contains("chmod 600"));
}

/// Returns a path from a TUN device to a tunnel whose table contains these lines.
fn to_tunnel(device: &str, lines: &str) -> String {
    format!("[[path]]\nname = \"t\"\nleft = \"{device}\"\n\n[path.right.tunnel]\n{lines}\n")
}

const ENDS: &str = "local = \"192.0.2.1\"\nremote = \"192.0.2.2\"";

#[test]
fn a_port_may_be_a_tunnel_with_ip_link_options_as_keys() {
    let lines = format!(
        "type = \"vxlan\"\n{ENDS}\nid = 42\nsrcport = [1000, 2000]\nttl = \"inherit\"\n\
         udpcsum = true\nremcsumtx = true\ngbp = 7\ntos = 0x28\ndf = \"unset\""
    );
    let config = parse(&to_tunnel("tap:vx0", &lines)).unwrap();
    let Device::Tunnel(tunnel) = &config.paths[0].right.device else { panic!("{config:?}") };
    assert_eq!(
        tunnel.to_string(),
        "vxlan id 42 local 192.0.2.1 remote 192.0.2.2 ttl inherit tos 0x28 df unset srcport 1000 \
         2000 dstport 4789 udpcsum remcsumtx gbp 7"
    );
    let inline =
        "right = { tunnel = { type = \"gre\", local = \"fd00::1\", remote = \"fd00::2\" } }";
    let why = wrong(&format!("[[path]]\nleft = \"tun:t\"\n{inline}\n"));
    assert!(why.contains("gre needs an IPv4 remote, not fd00::2"), "{why}");
}

#[test]
fn what_is_wrong_with_a_tunnel_has_its_line_and_column() {
    let ends = ENDS;
    for (lines, says) in [
        (
            format!("type = \"vxlan\"\n{ends}\nid = 42\ndstprot = 1"),
            "10:1: no key \"dstprot\"; did you mean dstport?",
        ),
        (
            format!("type = \"vxlan\"\n{ends}\nid = 42\nnoudpcsum = true"),
            "10:1: no key \"noudpcsum\"; use udpcsum = false",
        ),
        (
            format!("type = \"vxlan\"\n{ends}\nid = 16777216"),
            "9:6: id: \"16777216\" is not a number from 0 to 16777215",
        ),
        (format!("type = \"vxlna\"\n{ends}"), "6:8: no type \"vxlna\"; did you mean vxlan?"),
        (
            format!("type = \"vxlan\"\n{ends}\nid = 1\nudpcsum = 1"),
            "10:11: udpcsum: expected true or false",
        ),
        (
            format!("type = \"vxlan\"\n{ends}\nid = true"),
            "9:6: id: expected a number from 0 to 16777215",
        ),
        (
            format!("type = \"vxlan\"\n{ends}\nid = 1\nsrcport = 7"),
            "10:11: srcport: \"7\" is not two ports",
        ),
        (format!("type = \"vxlan\"\n{ends}\nid = 1\nkey = 7"), "option `key` applies only to gre"),
        (
            format!("type = \"vxlan\"\n{ends}\nid = 1\ngbp = true\ngpe = true"),
            "tunnel: gbp and gpe cannot be combined",
        ),
        (format!("{ends}\nid = 1"), "tunnel: type is missing"),
    ] {
        let why = wrong(&to_tunnel("tap:vx0", &lines));
        assert!(why.contains(says), "{lines}\n{why}");
    }
    let numbered = to_tunnel("tun:t", &format!("type = \"gre\"\n{ends}\nseq = true"));
    let why = wrong(&numbered.replace("name", "queues = 2\nname"));
    assert!(why.contains("gre:192.0.2.2 has seq, but the path has 2 queues"), "{why}");
    let vxlan = format!("type = \"vxlan\"\n{ends}\nid = 1");
    let why = wrong(&to_tunnel("tun:vx0", &vxlan));
    assert!(
        why.contains("cannot connect a port with Ethernet frames to a port with IP packets"),
        "{why}"
    );
    let why = wrong(&format!(
        "{}mtu = 1\n",
        to_tunnel("tap:vx0", &vxlan)
            .replace("[path.right.tunnel]", "[path.right]\nmtu = 1500\n[path.right.tunnel]")
    ));
    assert!(why.contains("no key \"mtu\""), "{why}");
    let both = to_tunnel("tap:vx0", &vxlan)
        .replace("[path.right.tunnel]", "[path.right]\nport = \"eth0\"\n[path.right.tunnel]");
    assert!(wrong(&both).contains("keys `port` and `tunnel` cannot be combined"));
    let persistent = to_tunnel("tap:vx0", &vxlan)
        .replace("[path.right.tunnel]", "[path.right]\npersist = true\n[path.right.tunnel]");
    assert!(
        wrong(&persistent).contains(
            "option `persist` applies only to tap, tun and fd ports, not to vxlan:1:192.0.2.2"
        ),
        "{}",
        wrong(&persistent)
    );
}

#[test]
fn a_unix_socket_takes_header_and_features_from_its_table_or_its_name() {
    let options = |port: &str| {
        let text = format!("[[path]]\nleft = \"tap:t\"\nright = {port}\n");
        let Some(Opening::Unix(options)) = parse(&text).unwrap().paths[0].right.opening() else {
            panic!("{port} is no socket");
        };
        (options.header, options.transmit)
    };
    let (words, usual) = options("\"unix:/s,dgram,vnet\"");
    assert_eq!(words, Some(Form::Buffers));
    let (header, more) = options(
        "{ port = \"unix:/s\", vnet_hdr = 10, \
         features = { tx-udp-segmentation = true, tx-tcp6-segmentation = false } }",
    );
    assert_eq!(header, Some(Form::Short));
    assert_eq!(more, (usual | Features::UDP_SEGMENTATION).without(Features::TCP6_SEGMENTATION));
    for (port, why) in [
        ("{ port = \"unix:/s\", persist = true }", "tap, tun and fd ports"),
        ("\"unix:/s,offloads=tso4\"", "virtio headers"),
        ("\"unix:/s,dgram,connect\"", "local=PATH"),
    ] {
        let error = wrong(&format!("[[path]]\nleft = \"tap:t\"\nright = {port}\n"));
        assert!(error.contains(why), "{port}: {error}");
    }
    let path = |left, right| format!("[[path]]\nleft = \"{left}\"\nright = \"{right}\"\n");
    let twice = &[path("tap:t", "unix:/s"), path("tap:u", "unix:/s,vnet")].concat();
    assert!(wrong(twice).contains("is also a port of path"), "{}", wrong(twice));
}
