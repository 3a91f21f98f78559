//! Helpers for the tests of the dissector.

use grosso_testkit::oracle::FOU_PORT;
use grosso_testkit::oracle::Link;
use grosso_testkit::stack::{Front, Network, Place, Stack as Made, TUNNELS, Transport, Tunnel};
use grosso_wire::{CookieLen, Extent, LinkType, Ports, Pseudowire, Stack, dissect};

/// Returns every header stack from the test kit with at most one tunnel, and every pair of tunnels over IPv4 and IPv6.
pub(crate) fn stacks() -> Vec<Made> {
    let mut stacks = Made::all();
    let networks = [Network::Ipv4, Network::Ipv6];
    let ends = TUNNELS.iter().flat_map(|tunnel| networks.map(|network| (network, *tunnel)));
    for outer in ends.clone() {
        for inner in ends.clone() {
            for network in networks {
                let mut stack = Made::plain(Front::Ethernet, network, Transport::Tcp);
                stack.tunnels = vec![outer, inner];
                stacks.push(stack);
            }
        }
    }
    // A FOU port carries only one protocol.
    stacks.retain(|stack| {
        let mut protocols = fou_protocols(stack);
        protocols.dedup();
        protocols.len() <= 1
    });
    stacks
}

/// Returns a frame with this header stack and a payload.
pub(crate) fn frame(stack: &Made) -> Vec<u8> {
    stack.packet(&Place::default()).payload_len(5).build()
}

/// Returns the link type of a stack's frame, and the ports configured for its tunnels.
pub(crate) fn configuration(stack: &Made) -> (LinkType, Ports) {
    let link = if stack.link() == Link::Ip { LinkType::Raw } else { LinkType::Ethernet };
    let ports = Ports::ASSIGNED.with_l2tp(Some(L2TP));
    let fou = fou_protocols(stack).first().map(|protocol| ports.with_fou(FOU_PORT, *protocol));
    (link, fou.unwrap_or(ports))
}

/// Format of the L2TPv3 sessions in the test kit.
pub(crate) const L2TP: Pseudowire = Pseudowire { cookie: CookieLen::Four, has_sublayer: true };

/// Returns the protocols that follow the stack's FOU headers.
fn fou_protocols(stack: &Made) -> Vec<u8> {
    let networks = stack.tunnels.iter().skip(1).map(|(network, _)| *network);
    let inside = networks.chain([stack.network]);
    let fou = stack.tunnels.iter().zip(inside).filter(|((_, tunnel), _)| *tunnel == Tunnel::Fou);
    fou.map(|(_, network)| if network == Network::Ipv4 { 4 } else { 41 }).collect()
}

/// Dissects a frame and asserts what must hold for every result: headers follow each other without gaps or overlaps,
/// lie inside the frame and inside the declared lengths, and the extent agrees with the end.
#[track_caller]
pub(crate) fn check(frame: &[u8], link: LinkType, ports: &Ports) -> Stack {
    let stack = dissect(frame, link, ports);
    let mut end = 0;
    for layer in stack.layers() {
        assert_eq!(usize::from(layer.offset), end, "{stack}");
        assert!(layer.len > 0, "{stack}");
        end = layer.end();
    }
    assert_eq!(stack.header_len(), end);
    assert!(end <= frame.len(), "{stack}");
    assert!(end <= stack.end as usize, "{stack}");
    match stack.extent {
        Extent::Exact | Extent::Jumbo => assert_eq!(stack.end as usize, frame.len(), "{stack}"),
        Extent::Padded => assert!((stack.end as usize) < frame.len(), "{stack}"),
        Extent::Short => {}
    }
    stack
}
