//! Writes a tunnel's configuration in the syntax of other programs.

use std::{fmt::Write, net::IpAddr};

use grosso::tunnel::{Carrier, DontFragment, Dscp, Endpoint, Header, TimeToLive, Udp};

use grosso_io::stage::Forwarding;

use super::{
    Definition, Description,
    kind::Kind,
    value::{Value, link_address},
};

/// The configuration of a tunnel for another program, and notes about settings that the program does not support.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// Configuration text for the other program.
    pub text: String,
    /// Notes on settings that the text leaves out.
    pub notes: Vec<String>,
}

/// Returns the iproute2 commands that create the same tunnel in the kernel.
pub fn ip(definition: &Definition) -> Exported {
    let Definition { name, mtu, description } = definition;
    let mut notes = Vec::new();
    let mut words = Vec::new();
    for (word, value) in description.words().iter() {
        let spelt = word.spell(value);
        if let Some(setting) = word.grosso_only {
            notes.push(format!("omitted {spelt}: ip has no option for {setting}"));
            continue;
        }
        let why = match (word.name, description.kind) {
            ("geneve_opts", _) => "the kernel takes these options from routes, not from tunnels",
            ("local" | "srcport", Kind::Geneve) => "ip does not have this option for geneve",
            ("gbp", _) if spelt != "gbp" => {
                words.push("gbp".to_owned());
                "the kernel derives the group policy of a packet from its mark"
            }
            ("gpe", _) => {
                words.push("external gpe".to_owned());
                continue;
            }
            // The kernel supports GPE devices only with `external`.
            ("id" | "remote", _) if is_generic(&description.endpoint) => {
                "the kernel supports gpe only with external, and then takes this value from routes"
            }
            // iproute2 prints `encap-csum6`, but reads `encap-udp6-csum`.
            ("encap-csum6", _) => {
                words.push(spelt.replace("encap-csum6", "encap-udp6-csum"));
                continue;
            }
            ("ttl", _) if spelt != "ttl inherit" && inherits_ttl(description) => {
                "ip does not accept ttl together with nopmtudisc"
            }
            ("remote", _) => {
                words.push(word.spell(&Value::Address(description.endpoint.remote)));
                continue;
            }
            // Kernel tunnels never probe the path MTU.
            ("probe", _) => continue,
            // Separate commands below set the entries.
            ("fdb", Kind::Vxlan) => continue,
            // One note covers all these keywords.
            ("fdb" | "learning" | "ageing" | "maxaddress", kind) if kind != Kind::Vxlan => {
                continue;
            }
            _ => {
                words.push(spelt);
                continue;
            }
        };
        notes.push(format!("omitted {}: {why}", word.spell(value)));
    }
    let mut text = String::new();
    if let Some((port, encapsulation)) = receiver(&description.endpoint, description.kind) {
        let family = if description.endpoint.local.is_ipv6() { "ip -6" } else { "ip" };
        let _ = writeln!(text, "{family} fou add port {port} {encapsulation}");
    }
    let kind = description.kind.name();
    let _ = writeln!(text, "ip link add {name} mtu {mtu} type {kind} {}", words.join(" "));
    for (link, remote) in entries(description, &mut notes) {
        // Creating the link has already added the first entry for unknown destinations.
        let verb = if link == ANYBODY { "append" } else { "add" };
        let link = link_address(&link);
        let _ = writeln!(text, "bridge fdb {verb} {link} dev {name} dst {remote}");
    }
    let _ = writeln!(text, "ip link set {name} up");
    Exported { text, notes }
}

/// Returns whether packets carry their protocol in VXLAN's generic protocol extension.
fn is_generic(endpoint: &Endpoint) -> bool {
    matches!(endpoint.header, Header::Vxlan { generic_protocol: true, .. })
}

/// Returns whether iproute2 refuses a TTL: it accepts none with `nopmtudisc`, except for GRE tunnels.
fn inherits_ttl(description: &Description) -> bool {
    let Description { kind, endpoint, .. } = description;
    matches!(kind, Kind::Ipip | Kind::Sit) && endpoint.dont_fragment != DontFragment::Set
}

/// Returns the kernel's forwarding entries for several remote endpoints; only VXLAN has them.
fn entries(description: &Description, notes: &mut Vec<String>) -> Vec<([u8; 6], IpAddr)> {
    let Some(Forwarding { configured, .. }) = &description.forwarding else { return Vec::new() };
    if description.kind != Kind::Vxlan {
        let (kind, remote) = (description.kind.name(), description.endpoint.remote);
        notes.push(format!(
            "kernel tunnels of type {kind} have only one remote: all remotes except {remote} are \
             omitted"
        ));
        return Vec::new();
    }
    let more = description.remotes().skip(1).map(|remote| (ANYBODY, remote));
    more.chain(configured.iter().copied()).collect()
}

/// Ethernet address of the forwarding entry that applies to groups and to unknown destinations.
const ANYBODY: [u8; 6] = [0; 6];

/// Returns the port that the kernel needs a receiver for, and the protocol that arrives there.
fn receiver(endpoint: &Endpoint, kind: Kind) -> Option<(u16, &'static str)> {
    match &endpoint.carrier {
        Carrier::Udp(_) if kind.has_port() => None,
        Carrier::Udp(udp) if kind.is_gre() => Some((udp.destination, "ipproto 47")),
        Carrier::Udp(udp) if kind == Kind::Ipip => Some((udp.destination, "ipproto 4")),
        Carrier::Udp(udp) => Some((udp.destination, "ipproto 41")),
        Carrier::Gue(udp) | Carrier::DirectGue(udp) => Some((udp.destination, "gue")),
        Carrier::Ip => None,
    }
}

/// Returns the systemd-networkd units that create the same tunnel in the kernel.
pub fn networkd(definition: &Definition) -> Exported {
    let Definition { name, mtu, description } = definition;
    let mut notes = Vec::new();
    let mut text = format!(
        "# /etc/systemd/network/25-{name}.netdev\n[NetDev]\nName={name}\nKind={}\nMTUBytes={mtu}\n",
        description.kind.name()
    );
    let mut section = match description.kind {
        Kind::Vxlan => Section::new("VXLAN"),
        Kind::Geneve => Section::new("GENEVE"),
        _ => Section::new("Tunnel"),
    };
    let endpoint = &description.endpoint;
    header(&mut section, description, &mut notes);
    outer(&mut section, description.kind, endpoint);
    for (word, value) in description.words().iter() {
        if let Some(setting) = word.grosso_only {
            let spelt = word.spell(value);
            notes.push(format!("omitted {spelt}: networkd has no key for {setting}"));
        }
    }
    if description.kind.has_port() {
        udp(&mut section, description.kind, endpoint);
    } else {
        encapsulation(&mut section, endpoint, &mut notes);
    }
    // Otherwise networkd waits for an interface that refers to the tunnel.
    section.put("Independent", true);
    let _ = write!(text, "\n{}", section.0);
    if let Some((port, what)) = receiver(endpoint, description.kind) {
        let mut section = Section::new("FooOverUDP");
        section.put("Port", port);
        match what.strip_prefix("ipproto ") {
            Some(protocol) => section.put("Protocol", protocol),
            None => section.put("Encapsulation", "GenericUDPEncapsulation"),
        }
        let _ = write!(
            text,
            "\n# /etc/systemd/network/25-{name}-port.netdev\n[NetDev]\nName={name}-port\nKind=fou\n\n{}",
            section.0
        );
    }
    let entries = entries(description, &mut notes);
    if !entries.is_empty() {
        let mut sections = format!("[Match]\nName={name}\n");
        for (link, remote) in entries {
            let mut section = Section::new("BridgeFDB");
            section.put("MACAddress", link_address(&link));
            section.put("Destination", remote);
            let _ = write!(sections, "\n{}", section.0);
        }
        let _ = write!(text, "\n# /etc/systemd/network/25-{name}.network\n{sections}");
    }
    Exported { text, notes }
}

/// A section of a unit.
struct Section(String);

impl Section {
    fn new(name: &str) -> Self {
        Self(format!("[{name}]\n"))
    }

    fn put(&mut self, key: &str, value: impl ToString) {
        let value = match value.to_string() {
            value if value == "true" => "yes".to_owned(),
            value if value == "false" => "no".to_owned(),
            value => value,
        };
        let _ = writeln!(self.0, "{key}={value}");
    }
}

fn header(section: &mut Section, description: &Description, notes: &mut Vec<String>) {
    let Description { kind, endpoint, forwarding, .. } = description;
    match &endpoint.header {
        Header::Vxlan { identifier, policy, generic_protocol } => {
            section.put("VNI", identifier);
            learning(section, forwarding.as_ref());
            if policy.is_some() {
                section.put("GroupPolicyExtension", true);
            }
            if *generic_protocol {
                section.put("GenericProtocolExtension", true);
                notes.push(
                    "the kernel rejects this configuration, because it supports gpe only with \
                     external"
                        .to_owned(),
                );
            }
            if policy.is_some_and(|policy| policy > 0) {
                notes.push(
                    "omitted the value of gbp: the kernel derives the group policy of a packet \
                     from its mark"
                        .to_owned(),
                );
            }
        }
        Header::Geneve { identifier, options, inherit_protocol } => {
            section.put("Id", identifier);
            if *inherit_protocol {
                section.put("InheritInnerProtocol", true);
            }
            if !options.is_empty() {
                notes.push("omitted the Geneve options: networkd has no key for them".to_owned());
            }
        }
        Header::Gre { key, checksum, sequence, .. } => {
            if let Some(key) = key {
                section.put("Key", key);
            }
            for (name, is_on) in [("csum", checksum), ("seq", sequence)] {
                if *is_on {
                    notes.push(format!("omitted {name}: networkd has no key for this GRE option"));
                }
            }
        }
        Header::Ip if *kind == Kind::Ip6tnl => section.put("Mode", description.mode()),
        Header::Ip => {}
    }
}

/// Writes whether the kernel learns the addresses that are reached through each endpoint, how many it learns, and how
/// long it keeps them.
fn learning(section: &mut Section, forwarding: Option<&Forwarding>) {
    let age_ns = forwarding.and_then(|forwarding| forwarding.age_ns);
    section.put("MacLearning", age_ns.is_some());
    if let (Some(Forwarding { addresses_max, .. }), Some(age_ns)) = (forwarding, age_ns) {
        let seconds = if age_ns == u64::MAX { 0 } else { age_ns / NS_PER_SECOND };
        section.put("FDBAgeingSec", seconds);
        section.put("MaximumFDBEntries", addresses_max);
    }
}

/// Writes the fields of the outer header.
fn outer(section: &mut Section, kind: Kind, endpoint: &Endpoint) {
    if kind != Kind::Geneve {
        section.put("Local", endpoint.local);
    }
    section.put("Remote", endpoint.remote);
    match endpoint.ttl {
        TimeToLive::Fixed(ttl) => section.put("TTL", ttl),
        TimeToLive::Inherit if kind.has_port() => section.put("TTL", "inherit"),
        // For other tunnels, the TTL of the inner packet is the default.
        TimeToLive::Inherit => {}
    }
    match endpoint.dscp {
        Dscp::Fixed(dscp) => section.put("TOS", u16::from(dscp) << 2),
        // The kernel encodes `inherit` as this value.
        Dscp::Inherit => section.put("TOS", 1),
    }
    if let Some(label) = endpoint.flow_label {
        section.put(if kind.has_port() { "FlowLabel" } else { "IPv6FlowLabel" }, label);
    }
    if kind.is_over_ipv6() == Some(true) {
        let limit = endpoint.encapsulation_limit;
        section.put(
            "EncapsulationLimit",
            limit.map_or_else(|| "none".to_owned(), |limit| limit.to_string()),
        );
    } else if kind.has_port() && endpoint.local.is_ipv4() {
        section.put(
            "IPDoNotFragment",
            match endpoint.dont_fragment {
                DontFragment::Set => "yes",
                DontFragment::Unset | DontFragment::Ignored => "no",
                DontFragment::Inherit => "inherit",
            },
        );
    } else if endpoint.local.is_ipv4() {
        section.put("DiscoverPathMTU", endpoint.dont_fragment == DontFragment::Set);
        if endpoint.dont_fragment == DontFragment::Ignored {
            section.put("IgnoreDontFragment", true);
        }
    }
}

/// Writes the UDP header of VXLAN and Geneve.
fn udp(section: &mut Section, kind: Kind, endpoint: &Endpoint) {
    let Some(udp) = endpoint.udp() else { return };
    section.put("DestinationPort", udp.destination);
    if kind == Kind::Vxlan {
        section.put("PortRange", format!("{}-{}", udp.source.start(), udp.source.end()));
    }
    if endpoint.local.is_ipv6() {
        section.put("UDP6ZeroChecksumTx", !udp.checksum);
        section.put("UDP6ZeroChecksumRx", udp.ipv6_without_checksum);
    } else {
        section.put("UDPChecksum", udp.checksum);
    }
    if kind == Kind::Vxlan {
        section.put("RemoteChecksumTx", udp.remote_checksum.transmit);
        section.put("RemoteChecksumRx", udp.remote_checksum.receive);
    }
}

/// Writes the UDP header of other tunnels.
fn encapsulation(section: &mut Section, endpoint: &Endpoint, notes: &mut Vec<String>) {
    let Some(Udp { source, destination, remote_checksum, .. }) = endpoint.udp() else { return };
    section.put("FooOverUDP", true);
    section.put("FOUDestinationPort", destination);
    if source.start() == source.end() {
        section.put("FOUSourcePort", source.start());
    }
    section.put(
        "Encapsulation",
        match endpoint.carrier {
            Carrier::Udp(_) => "FooOverUDP",
            _ => "GenericUDPEncapsulation",
        },
    );
    notes.push("networkd has no key for encap-csum: the outer UDP checksum is disabled".to_owned());
    if remote_checksum.transmit {
        notes.push("omitted encap-remcsum: networkd has no key for it".to_owned());
    }
}

const NS_PER_SECOND: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tunnel::describe;

    fn definition(line: &str) -> Definition {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let description = describe("test", &words).unwrap();
        Definition { name: "t0".to_owned(), mtu: 1400, description }
    }

    #[test]
    fn options_of_ip_are_exported_and_others_are_noted() {
        let vxlan = "vxlan id 42 local 192.0.2.1 remote 192.0.2.2 remcsumtx gbp 7";
        let exported = ip(&definition(vxlan));
        assert_eq!(
            exported.text,
            "ip link add t0 mtu 1400 type vxlan id 42 local 192.0.2.1 remote 192.0.2.2 ttl 64 \
             tos inherit df unset srcport 49152 65535 dstport 4789 udpcsum remcsumtx gbp\n\
             ip link set t0 up\n"
        );
        let note = "omitted gbp 7: the kernel derives the group policy of a packet from its mark";
        assert_eq!(exported.notes, [note]);
        let gue = ip(&definition("ip6tnl local fd00::1 remote fd00::2 encap gue"));
        assert!(gue.text.starts_with("ip -6 fou add port 6080 gue\nip link add t0 "), "{gue:?}");
        let port = " encap gue encap-sport auto encap-dport 6080 encap-udp6-csum ";
        assert!(gue.text.contains(port), "{gue:?}");
        // The kernel's default is 4, which makes every packet 8 bytes longer.
        assert!(gue.text.contains(" encaplimit none "), "{gue:?}");
        assert!(gue.notes.is_empty(), "{gue:?}");
        let geneve = ip(&definition("geneve id 1 local 192.0.2.1 remote 192.0.2.2"));
        assert!(!geneve.text.contains("local"), "{geneve:?}");
        assert_eq!(geneve.notes.len(), 2);
    }

    #[test]
    fn settings_that_only_grosso_has_are_noted() {
        let ends = "local 192.0.2.1 remote 192.0.2.2";
        for (line, setting, word) in [
            ("ipip mtu-min 1300", "a minimum path MTU", "mtu-min 1300"),
            ("ipip encap gue encap-variant 1", "GUE variant 1", "encap-variant 1"),
            (
                "vxlan id 1 remcsumrx noremcsumpartial",
                "complete remote checksums",
                "noremcsumpartial",
            ),
            (
                "ipip encap gue noencap-remcsumpartial",
                "complete remote checksums",
                "noencap-remcsumpartial",
            ),
        ] {
            let definition = definition(&format!("{line} {ends}"));
            for (exported, lacks) in [
                (ip(&definition), "ip has no option"),
                (networkd(&definition), "networkd has no key"),
            ] {
                let note = format!("omitted {word}: {lacks} for {setting}");
                assert!(exported.notes.contains(&note), "{line}: {exported:?}");
                assert!(!exported.text.contains(word), "{line}: {exported:?}");
            }
        }
    }

    #[test]
    fn a_ttl_that_ip_refuses_is_noted() {
        let ends = "local 192.0.2.1 remote 192.0.2.2 nopmtudisc";
        for kind in ["ipip", "sit"] {
            let exported = ip(&definition(&format!("{kind} {ends}")));
            assert!(!exported.text.contains("ttl"), "{exported:?}");
            let note = "omitted ttl 64: ip does not accept ttl together with nopmtudisc";
            assert_eq!(exported.notes, [note]);
        }
        let same = ip(&definition(&format!("ipip {ends} ttl inherit")));
        assert!(same.notes.is_empty(), "{same:?}");
        let gre = ip(&definition(&format!("gre {ends}")));
        assert!(gre.text.contains(" ttl 64 ") && gre.notes.is_empty(), "{gre:?}");
    }

    #[test]
    fn gpe_leaves_the_other_end_to_routes() {
        let exported = ip(&definition("vxlan id 42 local 192.0.2.1 remote 192.0.2.2 gpe"));
        assert_eq!(
            exported.text,
            "ip link add t0 mtu 1400 type vxlan local 192.0.2.1 ttl 64 tos inherit df unset \
             srcport 49152 65535 dstport 4790 udpcsum external gpe\nip link set t0 up\n"
        );
        let why =
            "the kernel supports gpe only with external, and then takes this value from routes";
        let left = ["id 42", "remote 192.0.2.2"].map(|word| format!("omitted {word}: {why}"));
        assert_eq!(exported.notes, left);
        let units = networkd(&definition("vxlan id 42 local 192.0.2.1 remote 192.0.2.2 gpe"));
        assert_eq!(
            units.notes,
            ["the kernel rejects this configuration, because it supports gpe only with external"]
        );
    }

    #[test]
    fn several_other_ends_are_entries_of_a_table_where_there_is_one() {
        let more = "local 192.0.2.1 remote 192.0.2.2 remote 192.0.2.3 ageing 9 \
                    fdb 02:00:00:00:00:07 192.0.2.3";
        let units = networkd(&definition(&format!("vxlan id 42 {more}"))).text;
        assert!(units.contains("MacLearning=yes\nFDBAgeingSec=9\nMaximumFDBEntries=4096\n"));
        assert!(
            units.ends_with(
                "\n# /etc/systemd/network/25-t0.network\n[Match]\nName=t0\n\n[BridgeFDB]\n\
                 MACAddress=00:00:00:00:00:00\nDestination=192.0.2.3\n\n[BridgeFDB]\n\
                 MACAddress=02:00:00:00:00:07\nDestination=192.0.2.3\n"
            ),
            "{units}"
        );
        for exported in [ip, networkd] {
            let gretap = exported(&definition(&format!("gretap {more}")));
            let note = "kernel tunnels of type gretap have only one remote: all remotes except \
                        192.0.2.2 are omitted";
            assert!(gretap.notes.contains(&note.to_owned()), "{gretap:?}");
            for word in ["192.0.2.3", "fdb", "ageing", "learning", "BridgeFDB"] {
                assert!(!gretap.text.contains(word), "{gretap:?}");
            }
        }
    }

    #[test]
    fn networkd_gets_its_sections() {
        let vxlan = networkd(&definition("vxlan id 42 local fd00::1 remote fd00::2"));
        assert_eq!(
            vxlan.text,
            "# /etc/systemd/network/25-t0.netdev\n[NetDev]\nName=t0\nKind=vxlan\nMTUBytes=1400\n\n\
             [VXLAN]\nVNI=42\nMacLearning=no\nLocal=fd00::1\nRemote=fd00::2\nTTL=64\nTOS=1\n\
             DestinationPort=4789\nPortRange=49152-65535\nUDP6ZeroChecksumTx=no\n\
             UDP6ZeroChecksumRx=no\nRemoteChecksumTx=no\nRemoteChecksumRx=no\nIndependent=yes\n"
        );
        let fou = "ipip local 192.0.2.1 remote 192.0.2.2 encap fou encap-dport 5555";
        let fou = networkd(&definition(fou)).text;
        assert!(fou.contains("\nFooOverUDP=yes\nFOUDestinationPort=5555\n"), "{fou}");
        assert!(fou.ends_with("Kind=fou\n\n[FooOverUDP]\nPort=5555\nProtocol=4\n"), "{fou}");
    }
}
