//! Tests rules S1, S2 and S48: the features that a device needs to accept a superframe, and the work left for software
//! without them.

use grosso::{
    Meta,
    features::{Device, Features, Work, needed},
    meta::{Cwr, Gso, GsoSize, IpLevels},
    segment::Outgoing,
};
use grosso_rig::{engine::PORTS, superframe::Superframe};
use grosso_testkit::{
    Packet,
    headers::{Gre, Tcp, Udp},
};
use grosso_wire::{LinkType, dissect};

/// Returns TCP after these headers, in segments of 100 bytes.
fn tcp(headers: Packet) -> Superframe {
    Superframe::new(&headers.tcp(|tcp| tcp).payload_len(250), 100).gso(|gso| gso.segments = 3)
}

fn ethernet() -> Packet {
    Packet::new().ethernet(|e| e)
}

fn vxlan(udp: impl Fn(Udp) -> Udp) -> Packet {
    ethernet().ipv4(|ip| ip).udp(udp).vxlan(|v| v).ethernet(|e| e).ipv4(|ip| ip)
}

fn needs(frame: &Superframe) -> Features {
    let stack = dissect(&frame.bytes, LinkType::Ethernet, &PORTS);
    needed(&frame.bytes, &stack, &frame.meta.gso.unwrap())
}

fn work(device: &Device, frame: &Superframe) -> Work {
    let stack = dissect(&frame.bytes, LinkType::Ethernet, &PORTS);
    device.work(&frame.bytes, frame.bytes.len(), &stack, &frame.meta)
}

#[test]
fn s01_every_kind_of_superframe_needs_its_features() {
    let gre = |change: fn(Gre) -> Gre| tcp(ethernet().ipv4(|ip| ip).gre(change).ipv4(|ip| ip));
    let cwr = |kind| {
        let packet = ethernet().ipv4(|ip| ip).tcp(Tcp::cwr).payload_len(250);
        Superframe::new(&packet, 100).gso(|gso| gso.cwr = kind)
    };
    let udp = ethernet().ipv4(|ip| ip).udp(|udp| udp).payload_len(250);
    let remote = ethernet().ipv4(|ip| ip).udp(|udp| udp).vxlan(|v| v.remote_checksum());
    let tcp4 = Features::TCP_SEGMENTATION;
    let cases = [
        (tcp(ethernet().ipv4(|ip| ip)), tcp4),
        (tcp(ethernet().ipv6(|ip| ip)), Features::TCP6_SEGMENTATION),
        (Superframe::new(&udp, 100), Features::UDP_SEGMENTATION),
        (cwr(Cwr::First), tcp4 | Features::TCP_ECN_SEGMENTATION),
        (cwr(Cwr::Every), tcp4 | Features::TCP_ACCECN_SEGMENTATION),
        (gre(|g| g), tcp4 | Features::GRE_SEGMENTATION),
        (gre(Gre::checksum), tcp4 | Features::GRE_CHECKSUM_SEGMENTATION),
        (tcp(ethernet().ipv4(|ip| ip).ipv4(|ip| ip)), tcp4 | Features::IPXIP4_SEGMENTATION),
        (tcp(ethernet().ipv6(|ip| ip).ipv4(|ip| ip)), tcp4 | Features::IPXIP6_SEGMENTATION),
        (tcp(vxlan(Udp::checksum_zero)), tcp4 | Features::UDP_TUNNEL_SEGMENTATION),
        (tcp(vxlan(|udp| udp)), tcp4 | Features::UDP_TUNNEL_CHECKSUM_SEGMENTATION),
        (
            tcp(remote.ethernet(|e| e).ipv4(|ip| ip)),
            tcp4 | Features::UDP_TUNNEL_CHECKSUM_SEGMENTATION
                | Features::REMOTE_CHECKSUM_SEGMENTATION,
        ),
    ];
    for (frame, features) in cases {
        assert_eq!(needs(&frame), features);
        let device = Device::new(features | Features::CHECKSUM_GENERIC);
        assert_eq!(work(&device, &frame), Work::Nothing);
        let lacking = Device::new((features | Features::CHECKSUM_GENERIC).without(tcp4));
        if features.contains(tcp4) {
            assert!(matches!(work(&lacking, &frame), Work::Segment(_)));
        }
    }
}

/// Tests headers for which ethtool has no feature name: a device either repeats such a header unparsed or gets
/// segmented packets. A kernel accepts such a superframe from a TAP device, but drops it if it has to segment it.
#[test]
fn s01_no_feature_names_a_service_header_a_label_or_a_session() {
    for frame in [
        tcp(ethernet().nsh(|n| n).ipv4(|ip| ip)),
        tcp(ethernet().ipv4(|ip| ip).gre(|g| g).nsh(|n| n).ipv4(|ip| ip)),
        tcp(ethernet().ipv4(|ip| ip).l2tp(|l| l).ethernet(|e| e).ipv4(|ip| ip)),
        tcp(ethernet().mpls(|m| m).ipv4(|ip| ip)),
        tcp(ethernet().pppoe(|p| p).ipv4(|ip| ip)),
    ] {
        let partial = Work::Segment(Outgoing::GSO_PARTIAL);
        assert_eq!(work(&Device::new(Features::ALL), &frame), partial);
        let device = Device::new(Features::ALL.without(Features::GSO_PARTIAL));
        assert_eq!(work(&device, &frame), Work::Segment(Outgoing::PARTIAL_CHECKSUMS));
        let plain = Device::new(Features::CHECKSUM_IPV4);
        assert_eq!(work(&plain, &frame), Work::Segment(Outgoing::COMPLETE));
    }
}

#[test]
fn s48_fixed_identifications_need_a_device_that_mangles_them() {
    let udp = ethernet().ipv4(|ip| ip).udp(|udp| udp).payload_len(250);
    let udp = Superframe::new(&udp, 100).gso(|gso| gso.segments = 3);
    for (frame, without) in [
        (tcp(ethernet().ipv4(|ip| ip)), Features::TCP_SEGMENTATION),
        (udp, Features::UDP_SEGMENTATION),
    ] {
        assert_eq!(needs(&frame), without);
        let fixed = frame.gso(|gso| gso.fixed_ids = IpLevels::from_bits(1));
        assert_eq!(needs(&fixed), without | Features::TCP_MANGLEID_SEGMENTATION);
        let device = Device::new(without | Features::CHECKSUM_GENERIC);
        assert!(matches!(work(&device, &fixed), Work::Segment(_)));
    }
}

#[test]
fn s02_limits_of_the_device_mean_software() {
    let frame = tcp(ethernet().ipv4(|ip| ip));
    let software = Work::Segment(Outgoing::PARTIAL_CHECKSUMS);
    let mut device = Device::new(Features::ALL);
    assert_eq!(work(&device, &frame), Work::Nothing);
    // The link-layer header does not count towards the maximum size.
    device.gso_max_size = frame.bytes.len() as u32 - 14;
    assert_eq!(work(&device, &frame), software);
    device.gso_max_size += 1;
    assert_eq!(work(&device, &frame), Work::Nothing);
    device.gso_max_segs = 3;
    assert_eq!(work(&device, &frame), Work::Nothing);
    device.gso_max_segs = 2;
    assert_eq!(work(&device, &frame), software);
}

#[test]
fn s01_untrusted_superframes_are_cut_unless_the_device_is_robust() {
    let frame = tcp(ethernet().ipv4(|ip| ip)).gso(|gso| gso.untrusted = true);
    let fragile = Device::new(Features::ALL.without(Features::GSO_ROBUST));
    assert_eq!(work(&fragile, &frame), Work::Segment(Outgoing::PARTIAL_CHECKSUMS));
    assert_eq!(work(&Device::new(Features::ALL), &frame), Work::Nothing);
}

#[test]
fn s47_partial_segmentation_stands_in_for_tunnel_features() {
    let frame = tcp(vxlan(|udp| udp));
    let features = Features::TCP_SEGMENTATION | Features::CHECKSUM_GENERIC | Features::GSO_PARTIAL;
    assert_eq!(work(&Device::new(features), &frame), Work::Segment(Outgoing::GSO_PARTIAL));
}

#[test]
fn s02_size_of_each_part_is_no_number() {
    let frame = tcp(ethernet().ipv4(|ip| ip)).gso(|gso| gso.size = GsoSize::Parts);
    assert!(matches!(work(&Device::new(Features::ALL), &frame), Work::Segment(_)));
    assert_eq!(frame.meta.gso.and_then(|gso| gso.size()), None);
    assert_eq!(Gso::every(0xffff).and_then(|gso| gso.size()), Some(0xffff));
}

#[test]
fn c02_a_frame_without_description_needs_its_checksum_at_most() {
    let packet = ethernet().ipv4(|ip| ip).tcp(|tcp| tcp).payload_len(100);
    let mut frame = Superframe::new(&packet, 100);
    frame.meta.gso = None;
    assert_eq!(work(&Device::new(Features::NONE), &frame), Work::Complete);
    assert_eq!(work(&Device::new(Features::CHECKSUM_IPV4), &frame), Work::Nothing);
    frame.meta = Meta::default();
    assert_eq!(work(&Device::new(Features::NONE), &frame), Work::Nothing);
}

#[test]
fn b22_devices_that_parse_a_fixed_header_do_not_see_behind_others() {
    let plain = Features::CHECKSUM_IPV6 | Features::CHECKSUM_IPV4;
    let partial = |headers: Packet| {
        let mut frame = tcp(headers);
        frame.meta.gso = None;
        frame
    };
    let works = |headers: Packet| work(&Device::new(plain), &partial(headers));
    assert_eq!(works(ethernet().ipv6(|ip| ip)), Work::Nothing);
    assert_eq!(works(ethernet().ipv6(|ip| ip).hop_by_hop(|h| h)), Work::Complete);
    assert_eq!(works(ethernet().ipv4(|ip| ip).ipv6(|ip| ip)), Work::Complete);
    assert_eq!(works(vxlan(|udp| udp)), Work::Complete);
    assert_eq!(works(ethernet().vlan(|v| v).ipv4(|ip| ip)), Work::Nothing);
    assert_eq!(works(ethernet().mpls(|m| m).ipv4(|ip| ip)), Work::Complete);
    assert_eq!(works(ethernet().pppoe(|p| p).ipv6(|ip| ip)), Work::Complete);
    let generic = Device::new(Features::CHECKSUM_GENERIC);
    let extended = partial(ethernet().ipv6(|ip| ip).hop_by_hop(|h| h));
    assert_eq!(work(&generic, &extended), Work::Nothing);
}
