use std::net::IpAddr;

use proptest::prelude::*;

use grosso::tunnel::{
    Carrier, DontFragment, Dscp, Endpoint, Header, IpVersion, RemoteChecksumUse, TimeToLive, Udp,
};

use super::*;
use crate::tunnel::kind::Kind;

fn describe(line: &str) -> Result<Description, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    Words::parse(&words).and_then(|words| Description::try_from(&words))
}

fn end(line: &str) -> Endpoint {
    describe(line).unwrap_or_else(|why| panic!("{line}: {why}")).endpoint
}

fn refused(line: &str) -> String {
    describe(line).expect_err(line)
}

const V4: &str = "local 192.0.2.1 remote 192.0.2.2";
const V6: &str = "local 2001:db8::1 remote 2001:db8::2";

#[test]
fn vxlan_means_what_ip_link_means() {
    let vxlan = end(&format!("vxlan id 42 {V4}"));
    let header = Header::Vxlan { identifier: 42, policy: None, generic_protocol: false };
    assert_eq!(vxlan.header, header);
    let udp = vxlan.udp().unwrap();
    assert_eq!((udp.destination, udp.checksum), (4789, true));
    assert_eq!(vxlan.mtu(1500), Some(1450));

    let line = format!(
        "vxlan vni 0x2a {V4} dstport 8472 srcport 1000 2000 ttl inherit tos 0x28 df inherit \
         udpcsum noudp6zerocsumtx noudp6zerocsumrx remcsumtx remcsumrx noremcsumpartial gbp 7 \
         nolearning norsc"
    );
    let vxlan = end(&line);
    let header = Header::Vxlan { identifier: 42, policy: Some(7), generic_protocol: false };
    assert_eq!(vxlan.header, header);
    assert_eq!((vxlan.ttl, vxlan.dscp), (TimeToLive::Inherit, Dscp::Fixed(10)));
    assert_eq!(vxlan.dont_fragment, DontFragment::Inherit);
    let udp = vxlan.udp().unwrap();
    assert_eq!((udp.source.clone(), udp.destination), (1000..=2000, 8472));
    let all = RemoteChecksumUse { transmit: true, receive: true, complete: true };
    assert_eq!(udp.remote_checksum, all);

    let zero = end(&format!("vxlan id 1 {V6} udp6zerocsumtx udp6zerocsumrx"));
    let udp = zero.udp().unwrap();
    assert_eq!((udp.checksum, udp.ipv6_without_checksum), (false, true));
    assert_eq!(end(&format!("vxlan id 1 {V4} gpe")).udp().unwrap().destination, 4790);
    assert!(!end(&format!("vxlan id 1 {V4} noudpcsum")).udp().unwrap().checksum);
}

#[test]
fn every_type_has_its_header_and_carrier() {
    let geneve = end(&format!("geneve id 7 {V6} geneve_opts 0102:80:00000001,0103:01:"));
    let options = vec![1, 2, 0x80, 1, 0, 0, 0, 1, 1, 3, 1, 0];
    let header = Header::Geneve { identifier: 7, options, inherit_protocol: false };
    assert_eq!(geneve.header, header);
    assert_eq!(geneve.udp().unwrap().destination, 6081);
    let gre = end(&format!("gretap {V4} key 1.2.3.4 csum iseq oseq nopmtudisc"));
    let key = Some(0x0102_0304);
    assert_eq!(gre.header, Header::Gre { key, checksum: true, sequence: true, ethernet: true });
    assert_eq!((gre.carrier, gre.dont_fragment), (Carrier::Ip, DontFragment::Inherit));
    let gre = end(&format!("gre {V4} nopmtudisc ignore-df ikey 5 okey 5"));
    assert_eq!(gre.dont_fragment, DontFragment::Ignored);
    let ip6 = end(&format!("ip6tnl {V6} mode ip6ip6"));
    assert_eq!((ip6.header, ip6.encapsulation_limit), (Header::Ip, Some(4)));
    let version = |words: &str| end(words).version;
    assert_eq!(version(&format!("ip6tnl {V6} mode ip6ip6")), Some(IpVersion::V6));
    assert_eq!(version(&format!("ip6tnl {V6} mode ipip6")), Some(IpVersion::V4));
    assert_eq!(version(&format!("sit {V4} mode ip6ip")), Some(IpVersion::V6));
    assert_eq!(version(&format!("ipip {V4} mode ipip")), Some(IpVersion::V4));
    assert_eq!(version(&format!("ipip {V4} mode any")), None);
    let ip6 = end(&format!("ip6gre {V6} encaplimit none hoplimit 3 tclass 0xb8 flowlabel 0x12345"));
    assert_eq!((ip6.encapsulation_limit, ip6.ttl), (None, TimeToLive::Fixed(3)));
    assert_eq!((ip6.dscp, ip6.flow_label), (Dscp::Fixed(46), Some(0x12345)));
}

#[test]
fn a_path_is_probed_unless_a_keyword_forbids_it() {
    for (line, probes) in [
        ("vxlan id 1 V4 df unset", true),
        ("vxlan id 1 V4 noprobe", false),
        ("ip6tnl V6 probe", true),
        ("ip6tnl V6 noprobe", false),
        ("ipip V4 pmtudisc", true),
        ("ipip V4 pmtudisc noprobe", false),
        ("ipip V4 nopmtudisc", false),
        ("ipip V4 nopmtudisc noprobe", false),
    ] {
        let described = describe(&line.replace("V4", V4).replace("V6", V6)).unwrap();
        assert_eq!(described.probes, probes, "{line}");
        assert_eq!(described.to_string().contains(" noprobe"), !probes, "{line}");
    }
}

#[test]
fn the_example_of_the_guide_has_its_mtu() {
    let line = format!("ipip {V4} encap gue encap-sport auto encap-dport 6080 encap-remcsum");
    let gue = describe(&line).unwrap();
    let Carrier::Gue(udp) = &gue.endpoint.carrier else { panic!("{gue:?}") };
    assert_eq!((udp.source.clone(), udp.checksum), (49152..=65535, true));
    assert!(udp.remote_checksum.transmit && udp.remote_checksum.receive);
    assert_eq!(gue.endpoint.mtu(1500), Some(1460));
    assert_eq!(gue.summary(), "ipip over gue, remcsum");
    let fou = end(&format!("sit {V4} encap fou encap-dport 5555 encap-sport 7 noencap-csum"));
    let Carrier::Udp(udp) = fou.carrier else { panic!("{fou:?}") };
    assert_eq!((udp.source, udp.destination, udp.checksum), (7..=7, 5555, false));
    let direct = end(&format!("ip6tnl {V6} encap gue encap-variant 1 noencap-csum6"));
    assert!(matches!(direct.carrier, Carrier::DirectGue(Udp { checksum: false, .. })));
}

#[test]
fn several_other_ends_have_a_table() {
    let line = format!("vxlan id 1 {V4} remote 192.0.2.3 remote 192.0.2.4");
    let usual = describe(&line).unwrap();
    let remotes: Vec<String> = usual.remotes().map(|remote| remote.to_string()).collect();
    assert_eq!(remotes, ["192.0.2.2", "192.0.2.3", "192.0.2.4"]);
    let forwarding = usual.forwarding.unwrap();
    assert_eq!((forwarding.age_ns, forwarding.addresses_max), (Some(300_000_000_000), 4096));

    let table = "fdb 02:00:00:00:00:07 192.0.2.2 fdb 2:0:0:0:0:8 192.0.2.4 ageing 0 maxaddr 9";
    let told = describe(&format!("{line} {table}")).unwrap();
    assert!(told.to_string().contains("fdb 02:00:00:00:00:07 192.0.2.2 fdb 02:00:00:00:00:08 "));
    let forwarding = told.forwarding.unwrap();
    let remote = |text: &str| text.parse::<IpAddr>().unwrap();
    assert_eq!(
        forwarding.configured,
        [([2, 0, 0, 0, 0, 7], remote("192.0.2.2")), ([2, 0, 0, 0, 0, 8], remote("192.0.2.4"))]
    );
    assert_eq!((forwarding.age_ns, forwarding.addresses_max), (Some(u64::MAX), 9));
    let silent = describe(&format!("{line} nolearning")).unwrap();
    assert_eq!(silent.forwarding.unwrap().age_ns, None);
    // The defaults are written as `ip -d link` prints them.
    let one = describe(&format!("vxlan id 1 {V4} learning ageing 300 maxaddr 7")).unwrap();
    assert_eq!(one.forwarding, None);
}

#[test]
fn what_contradicts_is_named_on_both_sides() {
    for (line, says) in [
        ("vxlan id 1 local 192.0.2.1 remote ::1", "local 192.0.2.1 and remote ::1 must both be"),
        ("ipip local ::1 remote ::2", "ipip needs an IPv4 remote, not ::2"),
        ("ip6tnl local 10.0.0.1 remote 10.0.0.2", "ip6tnl needs an IPv6 remote, not 10.0.0.2"),
        (
            "vxlan id 1 local ::1 remote ::2 df set",
            "option `df set` applies only to IPv4, but remote is ::2",
        ),
        (
            "vxlan id 1 local ::1 remote ::2 mtu-min 1279",
            "mtu-min 1279: the minimum for ::2 is 1280",
        ),
        ("vxlan id 1 local ::1 remote ff02::1", "remote ff02::1 is not a unicast address"),
        ("gre local 10.0.0.1 remote 10.0.0.1", "local and remote are both 10.0.0.1: packets"),
        ("vxlan id 1 local ::1 remote ::2 remote ::1", "local and remote are both ::1: packets"),
    ] {
        assert!(refused(line).starts_with(says), "{line}: {}", refused(line));
    }
    for (line, says) in [
        ("vxlan id 1 V4 udpcsum noudpcsum", "udpcsum and noudpcsum cannot be combined"),
        ("vxlan id 1 V4 id 2", "id 1 and id 2 cannot be combined"),
        ("vxlan id 1 V4 id 1", "id is set twice"),
        ("vxlan id 1 V4 remote 192.0.2.2", "remote 192.0.2.2 is configured twice"),
        (
            "vxlan id 1 V4 remote ::2",
            "local 192.0.2.1 and remote ::2 must both be IPv4 or both be IPv6",
        ),
        (
            "vxlan id 1 gpe V4 remote 192.0.2.3",
            "several remotes require a tunnel that carries Ethernet frames",
        ),
        (
            "gre V4 remote 192.0.2.3",
            "several remotes require a tunnel that carries Ethernet frames, unlike gre",
        ),
        ("vxlan id 1 V4 fdb 02:00:00:00:00:01 192.0.2.2", "fdb needs several remotes"),
        (
            "vxlan id 1 V4 remote 192.0.2.3 fdb 02:00:00:00:00:01 192.0.2.4",
            "fdb 02:00:00:00:00:01 192.0.2.4: 192.0.2.4 is not a remote of this tunnel",
        ),
        (
            "vxlan id 1 V4 remote 192.0.2.3 fdb 01:00:00:00:00:01 192.0.2.3",
            "fdb 01:00:00:00:00:01: not a unicast Ethernet address",
        ),
        (
            "gretap V4 remote 192.0.2.3 fdb 2:0:0:0:0:1 192.0.2.3 fdb 02:00:00:00:00:01 192.0.2.2",
            "fdb 02:00:00:00:00:01 is configured twice",
        ),
        ("vxlan id 1 V4 gbp gpe", "gbp and gpe cannot be combined"),
        ("vxlan id 1 V4 gpe remcsumrx", "gpe and remcsumrx cannot be combined"),
        ("vxlan id 1 V4 noudpcsum remcsumtx", "noudpcsum and remcsumtx cannot be combined"),
        ("vxlan id 1 V6 noudpcsum", "option `noudpcsum` applies only to IPv4"),
        ("vxlan id 1 V4 udp6zerocsumtx", "option `udp6zerocsumtx` applies only to IPv6"),
        (
            "vxlan id 1 V4 flowlabel 1",
            "option `flowlabel 0x1` applies only to IPv6, but remote is 192.0.2.2",
        ),
        ("ip6gre V6 flowlabel inherit", "flowlabel: \"inherit\" is not a number"),
        ("vxlan id 1 V4 tos 0x29", "tos 0x29: the two lowest bits must be 0"),
        ("vxlan id 1 V4 noremcsumpartial", "noremcsumpartial needs remcsumrx"),
        (
            "gre V4 ikey 1 okey 2",
            "key 1 for receiving and key 2 for sending, but both directions must use",
        ),
        (
            "gre V4 ikey 1",
            "key 1 for receiving and no key for sending, but both directions must use",
        ),
        (
            "gre V4 icsum",
            "icsum and ocsum differ, but both directions must use the same setting: use csum",
        ),
        ("gre V4 ignore-df", "ignore-df and pmtudisc cannot be combined"),
        ("gre V4 nopmtudisc probe", "probe and nopmtudisc cannot be combined"),
        ("ipip V4 mode ip6ip6", "mode ip6ip6 does not apply to ipip; expected any, ipip"),
        ("ipip V4 encap-dport 6080", "encap-dport needs encap fou or encap gue"),
        ("ipip V4 encap fou", "encap-dport is missing: encap fou has no default port"),
        ("ipip V4 encap fou encap-dport 1 encap-remcsum", "encap-remcsum requires a GUE header"),
        ("ipip V4 encap gue encap-variant 1 encap-remcsum", "encap-remcsum requires a GUE header"),
        ("ipip V4 encap gue noencap-csum encap-remcsum", "noencap-csum and encap-remcsum"),
        ("gre V4 encap gue encap-variant 1", "encap-variant 1 carries IP packets only"),
        ("ip6tnl V6 encap gue encaplimit 4", "encaplimit 4 cannot be combined with encap"),
    ] {
        let line = line.replace("V4", V4).replace("V6", V6);
        assert!(refused(&line).starts_with(says), "{line}: {}", refused(&line));
    }
}

#[test]
fn what_is_not_understood_comes_with_what_was_meant() {
    for (line, says) in [
        ("", "type is missing; expected vxlan, geneve, gre, ipip, ..."),
        ("vxlna", "no type \"vxlna\"; did you mean vxlan?"),
        ("wireguard", "no type \"wireguard\"; types are vxlan, geneve, gre,"),
        ("vxlan id 1 dstprot 4789", "no option \"dstprot\"; did you mean dstport?"),
        ("vxlan id 1 noudpcsm", "no option \"noudpcsm\"; did you mean noudpcsum?"),
        ("vxlan id 1 qqq", "vxlan has no option \"qqq\"; options are id, local, remote,"),
        (
            "vxlan key 3",
            "option `key` applies only to gre, gretap, ip6gre, ip6gretap, not to vxlan",
        ),
        ("vxlan nolocal", "no option \"nolocal\""),
        ("vxlan group 239.1.1.1", "group: multicast is not supported: list each peer"),
        (
            "gre learning",
            "option `learning` applies only to vxlan, geneve, gretap, ip6gretap, not to gre",
        ),
        ("vxlan fdb 02:00:00:00:00:01", "fdb needs an Ethernet address and an IP address"),
        ("vxlan fdb 02:00:00:00:01 ::1", "fdb: \"02:00:00:00:01 ::1\" is not an Ethernet address"),
        ("vxlan fdb 02:00:00:00:00:00:01 ::1", "fdb: \"02:00:00:00:00:00:01 ::1\" is not"),
        ("vxlan fdb +2:00:00:00:00:01 ::1", "fdb: \"+2:00:00:00:00:01 ::1\" is not"),
        ("vxlan maxaddress 0", "maxaddress: \"0\" is not a number from 1 to 1048576"),
        ("vxlan id", "id needs a number from 0 to 16777215"),
        ("vxlan id 16777216", "id: \"16777216\" is not a number from 0 to 16777215"),
        ("vxlan id -1", "id: \"-1\" is not a number"),
        ("vxlan srcport 5 4", "srcport: \"5 4\" is not two ports, the lower first"),
        ("vxlan dstport 0", "dstport: \"0\" is not a number from 1 to 65535"),
        ("vxlan local here", "local: \"here\" is not an IP address"),
        ("vxlan ttl 0", "ttl: \"0\" is not a number from 1 to 255 or inherit or auto"),
        ("vxlan df maybe", "df: \"maybe\" is not one of set, unset, inherit"),
        ("vxlan dev eth0", "dev: not supported: routes choose the interface for outgoing packets"),
        ("geneve geneve_opts 1:2:3", "geneve_opts: \"1:2:3\" is not CLASS:TYPE:DATA"),
        ("geneve geneve_opts 0:0:é012345", "geneve_opts:"),
        ("vxlan local ::1 remote ::2", "id is missing"),
        ("vxlan id 1 local ::1", "remote is missing"),
    ] {
        let why = refused(line);
        assert!(why.starts_with(says), "{line}: {why}");
    }
}

/// Generates one of these words or nothing.
fn some(words: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    prop::sample::select(words)
}

/// Generates lines of keywords that may be used together.
fn lines() -> impl Strategy<Value = String> {
    let outside = (
        some(&["", "ttl inherit", "ttl auto", "ttl 255 mtu-min 1400", "hoplimit 1 noprobe"]),
        some(&["", "tos inherit", "tos 0xb8", "tclass 4", "tos 1"]),
    );
    let udp = (
        some(&["", "dstport 1", "dstport 65535"]),
        some(&["", "srcport 1 1", "srcport 1024 65535"]),
        some(&["", "gbp", "gbp 9", "gpe"]),
        some(&["", "noremcsumpartial remcsumrx", "remcsumtx"]),
        some(&["", "geneve_opts 0102:80:00000001,0103:01:", "innerprotoinherit"]),
        some(&[
            "",
            "learning ageing 7",
            "remote MORE",
            "remote MORE nolearning fdb 02:00:00:00:00:01 MORE",
            "remote MORE ageing 0 maxaddress 5",
            "remote MORE nolearning maxaddress 5",
        ]),
    );
    let inner = (
        some(&["", "key 0", "key 4294967295"]),
        some(&["", "csum", "seq nocsum", "icsum ocsum"]),
        some(&["", "nopmtudisc"]),
        some(&["", "encaplimit none", "encaplimit 0"]),
        some(&[
            "",
            "encap none",
            "encap fou encap-dport 1",
            "encap gue",
            "encap gue encap-remcsum encap-sport 9",
            "encap gue noencap-csum noencap-csum6",
            "encap gue noencap-remcsumpartial",
        ]),
    );
    let kind = prop::sample::select(&Kind::ALL[..]);
    (kind, any::<bool>(), any::<bool>(), 0..1_u32 << 24, outside, udp, inner).prop_map(
        |(kind, over_ipv6, off, id, outside, udp, inner)| {
            let over_ipv6 = kind.is_over_ipv6().unwrap_or(over_ipv6);
            let mut words = vec![kind.name().to_owned(), if over_ipv6 { V6 } else { V4 }.into()];
            words.extend([outside.0, outside.1].map(str::to_owned));
            if kind.has_port() {
                words.push(format!("id {id}"));
                words.extend([udp.0, udp.1].map(str::to_owned));
            }
            if kind == Kind::Vxlan {
                let policy = if udp.2 == "gpe" && !udp.3.is_empty() { "gbp" } else { udp.2 };
                words.extend([policy, udp.3].map(str::to_owned));
            }
            if kind == Kind::Geneve {
                words.push(udp.4.to_owned());
            }
            if kind.has_port() && off && udp.3.is_empty() {
                let zero = if over_ipv6 { "udp6zerocsumtx udp6zerocsumrx" } else { "noudpcsum" };
                words.push(zero.to_owned());
            }
            let carries_ip = udp.2 == "gpe" || udp.4 == "innerprotoinherit";
            if matches!(kind, Kind::Gretap | Kind::Ip6gretap) || kind.has_port() && !carries_ip {
                let more = if over_ipv6 { "2001:db8::3" } else { "192.0.2.3" };
                words.push(udp.5.replace("MORE", more));
            }
            if kind.is_gre() {
                words.extend([inner.0, inner.1].map(str::to_owned));
            }
            if kind.is_over_ipv6() == Some(false) {
                words.push(inner.2.to_owned());
            }
            if !kind.has_port() {
                words.push(inner.4.to_owned());
                if kind.is_over_ipv6() == Some(true) && matches!(inner.4, "" | "encap none") {
                    words.push(inner.3.to_owned());
                }
            }
            words.join(" ")
        },
    )
}

proptest! {
    #[test]
    fn keywords_are_printed_as_parsed(line in lines()) {
        let described = describe(&line).unwrap();
        let said = described.to_string();
        prop_assert_eq!(describe(&said).unwrap(), described, "{}", said);
        let again = describe(&said).unwrap().to_string();
        prop_assert_eq!(again, said);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn keys_and_keywords_describe_the_same_tunnel(line in lines()) {
        let described = describe(&line).unwrap();
        let table = described.to_toml();
        let read: Description = toml::from_str(&table)
            .map_err(|error| TestCaseError::fail(format!("{error}\n{table}")))?;
        prop_assert_eq!(read, described, "{}", table);
    }

    #[test]
    fn no_arguments_cause_a_panic(words in prop::collection::vec("\\PC{0,12}", 0..6), kind in 0..9_usize) {
        let words: Vec<String> =
            core::iter::once(Kind::ALL[kind].name().to_owned()).chain(words).collect();
        let _ = Words::parse(&words).and_then(|words| Description::try_from(&words));
    }
}
