//! Checks which files outside the registry name header kinds.
//!
//! A header's specification (`HeaderSpec`) contains everything that depends on its kind, so a new header needs one file
//! and one line. The files below need more than that, each for the stated reason. The two IP versions, TCP and UDP are
//! excluded, because all code here depends on them.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use grosso_wire::Kind;

/// Source files, the kinds that each names, and the reason.
const PLACES: &[(&str, &[&str], &str)] = &[
    (
        "grosso/src/expand/expander.rs",
        &["Ethernet", "Null", "Sll", "Sll2", "Vlan"],
        "link layers after which a lone acknowledgment is known to be the rest of the frame",
    ),
    (
        "grosso/src/coalesce/rx/examine.rs",
        &["Esp", "Geneve", "Gre", "Ipv6Extension", "Ipv6Fragment"],
        "packets that cannot be in a train, each with its own public reason",
    ),
    (
        "grosso/src/reassemble/examine.rs",
        &["Ipv6Fragment"],
        "the header that marks a packet as a fragment",
    ),
    (
        "grosso/src/reassemble/recent.rs",
        &["Ethernet", "Vlan"],
        "the plain link layers of the fast path, which gives the same results sooner",
    ),
    (
        "grosso/src/segment/fragments/header.rs",
        &["Ipv6Extension", "Ipv6Fragment", "Pppoe"],
        "extension headers that are repeated in every fragment, and the length of a PPPoE session",
    ),
    ("grosso/src/segment/jumbo.rs", &["Ipv6Extension"], "the jumbo payload option"),
    (
        "grosso/src/segment/mod.rs",
        &["Gre", "Ipv6Fragment"],
        "superframes that cannot be segmented, each with its own public reason",
    ),
    ("grosso/src/tunnel/admission.rs", &["Ethernet"], "whether a tunnel carries frames or packets"),
    (
        "grosso/src/tunnel/decapsulate/headers.rs",
        &[
            "Esp",
            "Ethernet",
            "Geneve",
            "Gre",
            "Gue",
            "Ipv6Extension",
            "Ipv6Fragment",
            "Mpls",
            "Vxlan",
        ],
        "headers that announce a tunnel, and the fields of a tunnel header that a receiver reports",
    ),
    (
        "grosso/src/tunnel/decapsulate/mod.rs",
        &["Ethernet", "Mpls", "Pppoe", "Vlan"],
        "the link layer in front of the decapsulated packet",
    ),
    (
        "grosso/src/tunnel/decapsulate/reason.rs",
        &["Gre", "Gue", "Vxlan", "VxlanGpe"],
        "the public names of refused headers, which are older than the specifications' checks",
    ),
    (
        "grosso/src/tunnel/encapsulate/inside.rs",
        &["Ethernet", "Ipv6Extension", "Null", "Sll", "Sll2", "Vlan"],
        "the link layer in front of the packet to encapsulate, and the encapsulation limit option",
    ),
    (
        "grosso/src/tunnel/encapsulate/write.rs",
        &["Ethernet"],
        "the number by which the written tunnel header announces its payload",
    ),
    (
        "grosso/src/tunnel/endpoint.rs",
        &["Geneve", "Gue", "Vxlan", "VxlanGpe"],
        "the UDP port of the tunnel header that an endpoint writes",
    ),
    ("grosso/src/tunnel/esp/place.rs", &["Ipv6Fragment"], "fragments, which ESP refuses"),
    (
        "grosso/src/tunnel/kind.rs",
        &["Geneve", "Gre", "Mpls", "Vxlan", "VxlanGpe"],
        "the public names of tunnels in the terms of ip link",
    ),
    (
        "grosso/src/tunnel/decapsulate/on_link.rs",
        &["Ethernet", "Mpls", "Pseudowire", "Vlan"],
        "a label stack of the link layer around a frame, without an IP header after it",
    ),
    (
        "grosso/src/tunnel/link.rs",
        &["Ethernet", "Pppoe", "Sll", "Sll2", "Vlan"],
        "the field in which a link layer names its payload, when the payload is replaced",
    ),
    (
        "grosso/src/tunnel/path_mtu.rs",
        &["Ethernet", "Icmp", "Ipv6Extension", "Vlan"],
        "the frame of an ICMP error, and received ICMP errors, which must not be answered",
    ),
    (
        "grosso-analysis/src/checksums/verdict.rs",
        &["Gre", "Icmp", "Pppoe", "Sctp", "UdpLite"],
        "verdicts on wrong checksums, including those of protocols that are never merged",
    ),
    (
        "grosso-analysis/src/convert/decap/unwrap.rs",
        &["Ethernet", "Ipv6Extension", "Ipv6Fragment"],
        "fragments around a tunnel, which are reassembled first, and frames inside the link layer",
    ),
    (
        "grosso-analysis/src/convert/encap.rs",
        &["Ethernet", "Geneve", "Gue", "Sll", "Sll2", "Vlan", "Vxlan", "VxlanGpe"],
        "the link layer of the written capture, and the port of the tunnel",
    ),
    ("grosso-analysis/src/inspect.rs", &["Ipv6Fragment"], "datagrams counted by their fragments"),
    (
        "grosso-analysis/src/evidence/announced.rs",
        &["Icmp"],
        "an MTU that an ICMP message announces",
    ),
    (
        "grosso-analysis/src/evidence/judge.rs",
        &["Sctp"],
        "SCTP superframes, which are never merged",
    ),
    ("grosso-analysis/src/evidence/strides.rs", &["Esp"], "encrypted payload repeats no headers"),
    (
        "grosso-analysis/src/evidence/vantage.rs",
        &["Sll", "Sll2"],
        "a cooked capture records the direction",
    ),
    ("grosso-analysis/src/headers.rs", &["Ipv6Extension"], "the jumbo payload option"),
    (
        "grosso-analysis/src/reports/inspect.rs",
        &["Esp"],
        "encrypted packets, which are no tunnel to decapsulate",
    ),
    (
        "grosso-analysis/src/suspicion.rs",
        &["Ethernet", "Geneve", "Gue", "Vlan", "Vxlan", "VxlanGpe"],
        "the tunnels with which a payload is compared, and the headers that may precede them",
    ),
    (
        "grosso-io/src/stage/esp.rs",
        &["Ethernet", "Icmp", "Sll", "Vlan"],
        "neighbour discovery, which ESP does not encrypt",
    ),
    (
        "grosso-wire/src/dissect.rs",
        &["Ethernet", "Ipv6Extension", "Ipv6Fragment", "Null", "Ppp", "Pppoe", "Sll", "Sll2"],
        "the first header of each link type, and the numbers that IPv6 alone gives to its extensions",
    ),
    ("grosso-wire/src/stack.rs", &["Ethernet"], "the header that fills unused slots of a stack"),
];

/// Kinds that any file may name.
const COMMON: &[Kind] = &[Kind::Ipv4, Kind::Ipv6, Kind::Tcp, Kind::Udp];

/// Directories that may name header kinds: the registry, the oracles, and the parser for `ip link` arguments, which has
/// its own kinds.
const APART: &[&str] = &[
    "grosso-wire/src/header/",
    "grosso-wire/src/registry.rs",
    "grosso-testkit/",
    "grosso-daemon/src/tunnel/",
];

#[test]
fn only_the_listed_places_name_kinds_of_headers() {
    let found = places();
    let listed: BTreeMap<&str, Vec<&str>> =
        PLACES.iter().map(|(file, kinds, _)| (*file, kinds.to_vec())).collect();
    for (file, kinds) in &found {
        let expected = listed.get(file.as_str()).cloned().unwrap_or_default();
        assert_eq!(
            *kinds, expected,
            "{file} names other kinds of headers than PLACES lists: use the HeaderSpec, or list them with a reason"
        );
    }
    for (file, _, reason) in PLACES {
        assert!(
            found.contains_key(*file),
            "{file} names no kinds of headers: remove it from the list"
        );
        assert!(reason.split(' ').count() > 3, "{file}: give a reason");
    }
}

/// Checks the formatting of files that a registry declares. `cargo fmt` does not find these files, because the registry
/// is a macro.
#[test]
fn the_files_of_the_registries_are_formatted() {
    let headers = sources(&root().join("crates/grosso-wire/src/header"));
    assert!(headers.len() > Kind::ALL.len() / 2, "{headers:?}");
    let mut files = headers;
    for folder in
        ["grosso-cli/src/commands", "grosso-daemon/src/port", "grosso-daemon/src/tunnel/keywords"]
    {
        let found = sources(&root().join("crates").join(folder));
        assert!(found.len() > 3, "{folder}: {found:?}");
        files.extend(found);
    }
    let rustfmt = Command::new("rustfmt")
        .args(["--check", "--edition", "2024", "--config-path"])
        .arg(root().join("rustfmt.toml"))
        .args(&files)
        .output()
        .expect("rustfmt runs");
    let difference = String::from_utf8_lossy(&rustfmt.stdout);
    assert!(rustfmt.status.success(), "rustfmt --edition 2024 FILE\n{difference}");
}

/// Returns the kinds that each source file names outside its tests, except the common ones.
fn places() -> BTreeMap<String, Vec<String>> {
    let crates = root().join("crates");
    let mut places = BTreeMap::new();
    for path in sources(&crates) {
        let file = path.strip_prefix(&crates).expect("a crate's file").display().to_string();
        let is_test = ["tests.rs", "testing.rs"].iter().any(|end| file.ends_with(end));
        if is_test || !file.contains("/src/") || APART.iter().any(|apart| file.starts_with(apart)) {
            continue;
        }
        let kinds = kinds_in(&fs::read_to_string(&path).expect("text"));
        if !kinds.is_empty() {
            places.insert(file, kinds);
        }
    }
    places
}

fn kinds_in(text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code: Vec<&str> =
        code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = code.join("\n");
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let names = |kind: &&Kind| {
        let name = format!("Kind::{kind:?}");
        code.match_indices(&name).any(|(at, _)| {
            let before = code[..at].chars().next_back().is_some_and(is_word);
            !before && !code[at + name.len()..].chars().next().is_some_and(is_word)
        })
    };
    let kinds = Kind::ALL.iter().filter(|kind| !COMMON.contains(kind)).filter(names);
    let mut kinds: Vec<String> = kinds.map(|kind| format!("{kind:?}")).collect();
    kinds.sort();
    kinds
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

/// Returns the Rust files of a directory and its subdirectories.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension() == Some("rs".as_ref()) {
            found.push(path);
        }
    }
    found.sort();
    found
}
