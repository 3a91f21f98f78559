//! Packets of any kind and length, which may exceed the MTU of a tunnel. Packets that fit are accepted. An ICMP message
//! about another packet is short and correct, goes back to the sender, and contains the start of the packet. If
//! arbitrary bytes are recognized as a message, they end with the quoted packet.

use crate::{Decisions, stack};
use grosso::{
    LinkType, Meta, Ports,
    tunnel::path_mtu::{self, TunnelMtu},
};
use grosso_testkit::{
    oracle::{Link, is_right},
    stack::Place,
};
use grosso_wire::{Kind, dissect, ipv4, ipv6};

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    if let Some((_, _, quoted)) = path_mtu::read_v6(data) {
        assert!(data.ends_with(quoted) && quoted.len() >= ipv6::HEADER_LEN);
    }
    let mut decisions = Decisions::new(data);
    let (link, kit) =
        decisions.choose(&[(LinkType::Ethernet, Link::Ethernet), (LinkType::Raw, Link::Ip)]);
    let [device, path] = [(); 2].map(|()| usize::from(decisions.word()));
    let mtu = TunnelMtu { device, path };
    let frame = match decisions.byte() % 4 {
        0 => decisions.rest().to_vec(),
        changes => {
            let stack = stack(&mut decisions, kit);
            let len = usize::from(decisions.word() % 3000);
            let mut frame = stack.packet(&Place::default()).payload_len(len).build();
            for _ in 1..changes {
                let at = usize::from(decisions.byte()) % frame.len();
                frame[at] ^= decisions.byte();
            }
            frame
        }
    };
    let mut message = Vec::new();
    let slices = [&frame[..]];
    let fit = path_mtu::fit(&slices, &Meta::default(), link, mtu, &mut message);
    match fit {
        path_mtu::Fit::Told => told(&frame, &message, link, kit),
        _ if frame.len() <= mtu.behind(0) => assert_eq!(fit, path_mtu::Fit::Fits),
        _ => {}
    }
}

/// Checks that a message is complete, has correct checksums, and goes to the source of the packet.
fn told(frame: &[u8], message: &[u8], link: LinkType, kit: Link) {
    let [packet, answer] = [frame, message].map(|bytes| dissect(bytes, link, &Ports::NONE));
    let is_ip = |kind: Kind| matches!(kind, Kind::Ipv4 | Kind::Ipv6);
    let [ip, back] = [&packet, &answer]
        .map(|stack| *stack.layers().iter().find(|layer| is_ip(layer.kind)).expect("an IP header"));
    assert_eq!(ip.kind, back.kind);
    let (source, destination, len_max) = match ip.kind {
        Kind::Ipv4 => (ipv4::field::SOURCE, ipv4::field::DESTINATION, 576),
        _ => (ipv6::field::SOURCE, ipv6::field::DESTINATION, 1280),
    };
    let at = |bytes: &[u8], start: u16, field: core::ops::Range<usize>| {
        bytes[usize::from(start)..][field].to_vec()
    };
    assert_eq!(at(message, back.offset, destination.clone()), at(frame, ip.offset, source));
    assert_eq!(answer.end as usize, message.len());
    assert!(message.len() - usize::from(back.offset) <= len_max, "{} bytes", message.len());
    assert!(is_right(message, kit));
    if ip.kind == Kind::Ipv6 {
        let read = path_mtu::read_v6(&message[usize::from(back.offset) + ipv6::HEADER_LEN..]);
        let (address, _, quoted) = read.expect("a message");
        assert_eq!(address.octets()[..], at(frame, ip.offset, destination));
        assert!(frame[usize::from(ip.offset)..].starts_with(quoted));
    }
}
