//! Tests corrupted and random frames: the dissector never panics, and every header stays inside the frame.

use grosso_wire::{Kind, LinkType, Ports};
use grosso_wire::{
    esp, ethernet, geneve, gre, gue, icmp, ipv4, ipv6, ipv6_extension, ipv6_fragment, l2tp, mpls,
    nsh, null, pppoe, sll, sll2, tcp, udp, virtio, vlan, vxlan,
};
use proptest::prelude::*;

use crate::common::{L2TP, check, configuration, frame, stacks};

#[test]
fn single_byte_corruptions() {
    for made in stacks() {
        let whole = frame(&made);
        let (link, ports) = configuration(&made);
        let header_len = check(&whole, link, &ports).header_len();
        for place in 0..header_len {
            let right = whole[place];
            for wrong in [0, 0xff, right ^ 1, right ^ 0x40, right.wrapping_add(1), !right] {
                let mut bytes = whole.clone();
                bytes[place] = wrong;
                check(&bytes, link, &ports);
            }
        }
    }
}

/// Tries every value for every byte of two frames, each time also with the frame truncated one byte after the headers.
#[test]
fn every_value_of_every_byte() {
    let all = stacks();
    for made in [&all[0], all.last().expect("at least one stack")] {
        let whole = frame(made);
        let (link, ports) = configuration(made);
        for place in 0..whole.len() {
            for wrong in 0..=u8::MAX {
                let mut bytes = whole.clone();
                bytes[place] = wrong;
                let stack = check(&bytes, link, &ports);
                let cut = (stack.header_len() + 1).min(bytes.len());
                check(&bytes[..cut], link, &ports);
            }
        }
    }
}

const LINKS: [LinkType; 7] = [
    LinkType::Ethernet,
    LinkType::Raw,
    LinkType::Null,
    LinkType::LinuxSll,
    LinkType::LinuxSll2,
    LinkType::Ppp,
    LinkType::PppEther,
];

/// Generates bytes, with a preference for values that are special to the dissector.
fn byte() -> impl Strategy<Value = u8> {
    let known = prop::sample::select(
        &[
            0, 1, 4, 5, 6, 8, 17, 41, 43, 44, 47, 50, 58, 59, 60, 115, 137, 0x11, 0x21, 0x45, 0x60,
            0x65, 0x81, 0x86, 0x89, 0x4f, 0x88, 0x47, 0x64, 0xdd, 0xc2,
        ][..],
    );
    prop_oneof![3 => known, 1 => any::<u8>()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn random_bytes(bytes in prop::collection::vec(byte(), 0..200), protocol in any::<u8>()) {
        for link in LINKS {
            check(&bytes, link, &Ports::NONE);
            let ports = Ports::ASSIGNED.with_fou(1, protocol).with_l2tp(Some(L2TP));
            check(&bytes, link, &ports);
        }
    }

    /// Corrupts several bytes of a valid frame at once.
    #[test]
    fn several_corruptions(
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), byte()), 1..6),
        len in any::<prop::sample::Index>(),
    ) {
        let all = grosso_testkit::stack::Stack::all();
        let made = which.get(&all);
        let mut bytes = frame(made);
        for (place, value) in changes {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        let (link, ports) = configuration(made);
        check(&bytes, link, &ports);
        check(&bytes[..len.index(bytes.len())], link, &ports);
    }

    /// Runs the individual header parsers on the same bytes: they do not panic, option lists end, and no returned part
    /// is longer than the input.
    #[test]
    fn parsers(bytes in prop::collection::vec(byte(), 0..120)) {
        let len = bytes.len();
        let fits = |payload: &[u8]| assert!(payload.len() <= len);
        macro_rules! fixed {
            ($($module:ident::$view:ident)*) => {
                $(if let Ok((header, payload)) = $module::$view::parse(&bytes) {
                    fits(payload);
                    assert!(!header.to_string().is_empty());
                })*
            };
        }
        fixed!(
            esp::EspHeader ethernet::EthernetHeader icmp::IcmpHeader ipv6::Ipv6Header
            ipv6_fragment::Ipv6FragmentHeader mpls::MplsHeader null::NullHeader pppoe::PppoeHeader
            sll::SllHeader sll2::Sll2Header udp::UdpHeader vlan::VlanHeader vxlan::VxlanHeader
        );
        macro_rules! with_options {
            ($($module:ident::$view:ident)*) => {
                $(if let Ok((header, options, payload)) = $module::$view::parse(&bytes) {
                    fits(payload);
                    assert!(options.count() <= len);
                    assert!(!header.to_string().is_empty());
                })*
            };
        }
        with_options!(
            geneve::GeneveHeader ipv4::Ipv4Header tcp::TcpHeader
        );
        if let Ok((_, _, payload)) = gre::GreHeader::parse(&bytes) {
            fits(payload);
        }
        if let Ok((_, _, payload)) = gue::GueHeader::parse(&bytes) {
            fits(payload);
        }
        if let Ok((_, _, payload)) = nsh::NshHeader::parse(&bytes) {
            fits(payload);
        }
        if let Ok((_, _, payload)) = l2tp::L2tpHeader::parse(&bytes, L2TP) {
            fits(payload);
        }
        if let Ok((_, body, payload)) = ipv6_extension::Ipv6ExtensionHeader::parse(&bytes) {
            fits(payload);
            assert!(ipv6_extension::Ipv6Options::new(body).count() <= len);
            assert!(ipv6_extension::Routing::parse(body).is_ok());
        }
        for form in virtio::Form::ALL {
            if let Ok((_, frame)) = virtio::VirtioHeader::parse(&bytes, form, virtio::Order::NATIVE) {
                fits(frame);
            }
        }
    }

    /// The `parse` function of each header type must accept every header of that type that the dissector reports.
    #[test]
    fn parsers_agree_with_the_dissector(bytes in prop::collection::vec(byte(), 0..200)) {
        for link in LINKS {
            let stack = check(&bytes, link, &Ports::ASSIGNED.with_l2tp(Some(L2TP)));
            for layer in stack.layers() {
                let bytes = &bytes[layer.offset.into()..];
                let len = usize::from(layer.len);
                match layer.kind {
                    Kind::Ipv4 => {
                        let (header, ..) = ipv4::Ipv4Header::parse(bytes).expect("listed");
                        prop_assert_eq!(header.header_len(), len);
                    }
                    Kind::Tcp => {
                        let (header, ..) = tcp::TcpHeader::parse(bytes).expect("listed");
                        prop_assert_eq!(header.header_len(), len);
                    }
                    Kind::Ipv6Extension => {
                        let (header, ..) = ipv6_extension::Ipv6ExtensionHeader::parse(bytes).expect("listed");
                        prop_assert_eq!(header.header_len(), len);
                    }
                    Kind::Nsh => {
                        let (header, ..) = nsh::NshHeader::parse(bytes).expect("listed");
                        prop_assert_eq!(header.header_len(), len);
                    }
                    Kind::Ipv6 => prop_assert!(ipv6::Ipv6Header::parse(bytes).is_ok()),
                    Kind::Pppoe => prop_assert!(pppoe::PppoeHeader::parse(bytes).is_ok()),
                    _ => {}
                }
            }
        }
    }
}
