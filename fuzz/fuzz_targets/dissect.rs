//! The dissector: layers are in order and inside the frame, and the reported extent matches the length fields.

use crate::Decisions;
use grosso_rig::engine::PORTS;
use grosso_testkit::oracle::{Lengths, Link, parse};
use grosso_wire::{Extent, Kind, LAYERS_MAX, LinkType, Ports, Stack, dissect, dissect_into};

const LINKS: [LinkType; 7] = [
    LinkType::Ethernet,
    LinkType::Raw,
    LinkType::Null,
    LinkType::LinuxSll,
    LinkType::LinuxSll2,
    LinkType::Ppp,
    LinkType::PppEther,
];

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let mut decisions = Decisions::new(data);
    let link = decisions.choose(&LINKS);
    let ports = decisions.choose(&[PORTS, PORTS, Ports::ASSIGNED, Ports::NONE]);
    let frame = decisions.rest();
    let stack = dissect(frame, link, &ports);
    assert_bounds(frame, &stack);
    let mut used = dissect(&[0x45; 100], LinkType::Raw, &ports);
    dissect_into(frame, link, &ports, &mut used);
    assert_eq!(used, stack);
    let _ = stack.to_string();
    if ports == PORTS && matches!(link, LinkType::Ethernet | LinkType::Raw) {
        assert_as_the_oracle(frame, link, &stack);
    }
}

fn assert_bounds(frame: &[u8], stack: &Stack) {
    let layers = stack.layers();
    assert!(layers.len() <= LAYERS_MAX);
    let mut end = 0;
    for layer in layers {
        assert_eq!(usize::from(layer.offset), end, "{stack}");
        let least = if layer.kind == Kind::Ppp { 1 } else { 4 };
        assert!(layer.len >= least, "{stack}");
        end = layer.end();
    }
    assert!(end <= frame.len(), "{stack}");
    assert_eq!(stack.header_len(), end);
    let declared = stack.end as usize;
    match stack.extent {
        Extent::Exact | Extent::Jumbo => assert_eq!(declared, frame.len(), "{stack}"),
        Extent::Padded => assert!(declared < frame.len(), "{stack}"),
        // A later header may declare less than an earlier one that declared too much.
        Extent::Short => {}
    }
}

/// Asserts that the slow oracle finds the same headers in the part that both implementations parse.
fn assert_as_the_oracle(frame: &[u8], link: LinkType, stack: &Stack) {
    let kit = if link == LinkType::Raw { Link::Ip } else { Link::Ethernet };
    let parsed = parse(frame, kit, Lengths::Declared);
    for (layer, slow) in stack.layers().iter().zip(&parsed.layers) {
        assert!(is_called(layer.kind, slow.name), "{stack}: {}", slow.name);
        assert_eq!(usize::from(layer.offset), slow.offset, "{stack}");
        // If a GRE header has the routing flag or a version other than 0, only its first word can be interpreted (rule
        // W50).
        let is_readable = slow.name != "gre" || slow.number("flags") & 0x4007 == 0;
        if is_readable {
            assert_eq!(usize::from(layer.len), slow.len, "{stack}");
        }
    }
}

/// Returns whether the oracle has this name for a kind of header.
fn is_called(kind: Kind, slow: &str) -> bool {
    match kind.name() {
        "eth" => slow == "ethernet",
        "ip4" => slow == "ipv4",
        "ip6" => slow == "ipv6",
        "ext6" => matches!(slow, "hop_by_hop" | "routing" | "destination_options"),
        "frag6" => slow == "fragment",
        "icmp" => matches!(slow, "icmp" | "icmp6"),
        "gpe" => slow == "vxlan-gpe",
        name => slow == name,
    }
}
