//! Tests section 6.2: which virtio headers may be written, and which are refused.

use grosso::vnet::VnetError;
use grosso::{checksum::Checksum, meta::Gso};
use grosso_rig::kernel::{GsoOracle, Host, VirtioHeader, skip};
use grosso_testkit::random::Random;

use super::{Case, isolated, observer, shown, taken, tap, tcp4, tcp6, udp4, udp6, vxlan};

fn superframes() -> [Case; 4] {
    [tcp4(), tcp6(), udp4(), udp6()].map(|packet| Case::superframe(packet.payload_len(3000), 1000))
}

// Rules: P51
#[test]
fn v01_b33_frames_shorter_than_their_headers_are_refused() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        let bare = |len| Case { header: VirtioHeader::default(), frame: vec![0x02; len] };
        assert!(bare(14).kernel_takes(&tap) && bare(14).understood().is_ok());
        for len in 0..14 {
            bare(len).both_refuse(&tap, VnetError::Short);
        }
        for (header_length, takes) in [(1, false), (13, false), (14, true), (60, true), (61, false)]
        {
            let case = bare(60).with(|h| h.header_length = header_length);
            assert_eq!(case.kernel_takes(&tap), takes, "{header_length} of 60");
            assert!(case.understood().is_ok());
        }
        for len in 0..24 {
            assert!(!taken(tap.write(&vec![0; len])), "{len} bytes are no header");
        }
        // The kernel trusts the header length; Grosso does not (rule V20).
        for case in superframes() {
            let len = case.frame.len() as u16;
            // The kernel raises the header length to the end of the checksum, so smaller lengths have no effect.
            for (header_length, takes) in
                [(0, true), (1, true), (14, true), (len, true), (len + 1, false)]
            {
                let case = case.with(|h| h.header_length = header_length);
                assert_eq!(case.kernel_takes(&tap), takes, "{header_length} of {len}");
                assert!(case.understood().is_ok());
            }
        }
        Ok(())
    });
}

// Rules: B37
#[test]
fn v02_types_and_sizes_that_do_not_exist_are_refused() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        for case in superframes() {
            let own = case.header.gso_type;
            assert!(case.kernel_takes(&tap) && case.understood().is_ok());
            for gso_type in 0..=u8::MAX {
                let case = case.with(|h| h.gso_type = gso_type);
                let exists = matches!(gso_type & 0x1f, 0 | 1 | 3 | 4 | 5) && gso_type & 0x60 == 0;
                let takes = case.kernel_takes(&tap);
                assert!(!takes || exists, "the kernel takes the type {gso_type:#x}");
                // The kernel accepts all of these types. Grosso accepts only the types that match the headers of the
                // frame.
                let is_own = gso_type == own
                    || gso_type == own | VirtioHeader::ECN && own != VirtioHeader::UDP_SEGMENTS
                    || gso_type == 3 && own == VirtioHeader::UDP_SEGMENTS
                    || gso_type == 0;
                assert_eq!(case.understood().is_ok(), is_own, "{gso_type:#x} on {own:#x}");
                assert!(!is_own || takes, "the kernel refuses {gso_type:#x} on {own:#x}");
            }
            case.with(|h| h.gso_size = 0).both_refuse(&tap, VnetError::SizeZero);
            case.with(|h| h.gso_size = u16::MAX).both_refuse(&tap, VnetError::SizeReserved);
        }
        Ok(())
    });
}

// Rules: P51
#[test]
fn v03_b32_checksums_outside_the_frame_or_inside_its_first_headers_are_refused() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        for packet in [tcp4(), tcp6(), udp4(), udp6()] {
            let plain = Case::superframe(packet.payload_len(30), 1000);
            let plain = plain.with(|h| (h.gso_type, h.gso_size) = (0, 0));
            let len = plain.frame.len() as u16;
            let place = |start, offset| {
                plain.with(|h| (h.checksum_start, h.checksum_offset) = (start, offset))
            };
            assert!(
                place(len - 10, 8).kernel_takes(&tap) && place(len - 10, 8).understood().is_ok()
            );
            for (start, offset) in [(len - 10, 9), (len, 0), (len - 1, 0), (u16::MAX, 0), (34, len)]
            {
                place(start, offset).both_refuse(&tap, VnetError::ChecksumOutside);
            }
        }
        for (case, least) in superframes().into_iter().zip([20, 40, 20, 20]) {
            // A TAP counts these bytes from the Ethernet header, so it accepts offsets inside the IP header.
            let place = |start| case.with(|h| h.checksum_start = start);
            assert!(!place(least - 1).kernel_takes(&tap));
            assert!(place(least).kernel_takes(&tap) || least == 40 || case.header.gso_type == 5);
            assert_eq!(place(33).understood(), Err(VnetError::ChecksumInHeaders));
            assert!(place(least).understood().is_err());
        }
        Ok(())
    });
}

#[test]
fn v04_the_checksum_is_that_of_the_type_and_datagrams_are_at_most_128() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        let [tcp4, tcp6, udp4, udp6] = superframes();
        for tcp in [tcp4, tcp6] {
            for offset in [0, 6, 15, 17] {
                let case = tcp.with(|h| h.checksum_offset = offset);
                case.both_refuse(&tap, VnetError::ChecksumPlace);
            }
            assert!(tcp.with(|h| h.gso_type |= VirtioHeader::ECN).kernel_takes(&tap));
        }
        for udp in [udp4, udp6] {
            for offset in [0, 5, 16] {
                let case = udp.with(|h| h.checksum_offset = offset);
                case.both_refuse(&tap, VnetError::ChecksumPlace);
            }
            udp.with(|h| h.flags = 0).both_refuse(&tap, VnetError::ChecksumMissing);
            let ecn = udp.with(|h| h.gso_type |= VirtioHeader::ECN);
            ecn.both_refuse(&tap, VnetError::EcnWithoutTcp);
        }
        let most = Case::superframe(super::udp4().payload_len(128 * 20), 20);
        assert!(most.kernel_takes(&tap));
        assert_eq!(most.understood().unwrap().gso.unwrap().segments, 128);
        most.with(|h| h.gso_size = 19).both_refuse(&tap, VnetError::TooManySegments);
        Ok(())
    });
}

#[test]
fn v05_b37_a_type_that_is_not_that_of_the_headers_is_refused_here_though_a_tap_takes_it() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        for case in superframes() {
            let own = case.header.gso_type;
            // Without a checksum to complete, the kernel does not know the position of the transport header.
            for gso_type in [1, 3, 4, 5] {
                let case = case.with(|h| (h.flags, h.gso_type) = (0, gso_type));
                let fits = gso_type == own || gso_type == 3 && own == VirtioHeader::UDP_SEGMENTS;
                let wants_checksum = gso_type == VirtioHeader::UDP_SEGMENTS;
                assert!(!wants_checksum || !case.kernel_takes(&tap));
                let understood = case.understood();
                assert_eq!(understood.is_ok(), fits && !wants_checksum, "{gso_type} on {own}");
                if !fits {
                    assert_eq!(understood, Err(VnetError::TypeMismatch));
                }
            }
        }
        Ok(())
    });
}

#[test]
fn v06_one_segment_is_a_plain_packet_to_the_kernel_and_to_us() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        let observer = observer(&tap)?;
        // The kernel counts TCP options as payload, so the packet has no options.
        let tcp4 = super::ethernet().ipv4(|ip| ip).tcp(|t| t);
        for packet in [tcp4, tcp6(), udp4(), udp6()] {
            for (payload_len, superframe) in [(999, false), (1000, false), (1001, true)] {
                let case = Case::superframe(packet.clone().payload_len(payload_len), 1000);
                assert!(case.kernel_takes(&tap));
                let [(header, frame)] = shown(&observer)?.try_into().unwrap();
                assert_eq!((header.gso_type != 0, frame), (superframe, case.frame.clone()));
                assert_eq!(case.understood().unwrap().gso.is_some(), superframe);
            }
        }
        Ok(())
    });
}

#[test]
fn v06_the_kernel_verifies_again_despite_a_verified_mark() {
    let mut host = match Host::new() {
        Ok(host) => host,
        Err(why) => return skip(&why),
    };
    let packet = |payload: &[u8]| {
        let packet = grosso_testkit::Packet::new();
        let packet = packet.ipv4(|ip| ip.source(Host::PEER).destination(Host::ADDRESS));
        packet.udp(|u| u.destination_port(8000)).payload(payload)
    };
    let mut wrong = packet(b"wrong").build();
    *wrong.last_mut().unwrap() ^= 1;
    let valid = VirtioHeader { flags: VirtioHeader::DATA_VALID, ..VirtioHeader::default() };
    let (partial, start, offset) = packet(b"partial").build_partial();
    let needs = VirtioHeader {
        flags: VirtioHeader::NEEDS_CHECKSUM,
        checksum_start: start as u16,
        checksum_offset: offset as u16,
        ..VirtioHeader::default()
    };
    let packets = vec![(valid, wrong), (valid, packet(b"right").build()), (needs, partial)];
    let datagrams = host.datagrams(8000, packets).unwrap();
    assert_eq!(datagrams, [&b"right"[..], b"partial"]);
}

#[test]
fn b31_tails_of_every_length_are_taken() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        for packet in [tcp4(), tcp6(), udp4(), udp6()] {
            for tail in 1..=100 {
                let case = Case::superframe(packet.clone().payload_len(300 + tail), 100);
                assert!(case.kernel_takes(&tap), "a tail of {tail} bytes: the fallback is wanted");
                assert_eq!(case.understood().unwrap().gso.unwrap().segments, 4);
            }
        }
        Ok(())
    });
}

#[test]
fn v07_written_superframes_are_untrusted_and_their_segments_are_counted() {
    for case in superframes() {
        for (size, segments) in [(1000, 3), (999, 4), (1499, 3), (1500, 2), (2999, 2)] {
            let meta = case.with(|h| h.gso_size = size).understood().unwrap();
            let expected = Gso { segments, untrusted: true, ..Gso::every(size).unwrap() };
            assert_eq!(meta.gso, Some(expected));
        }
    }
}

#[test]
fn v08_places_of_a_tunnel_are_compared_with_its_headers_here_and_only_ordered_there() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        for (outer_ipv6, inner_ipv6) in [(false, false), (false, true), (true, false), (true, true)]
        {
            let case = vxlan(outer_ipv6, inner_ipv6, 3000, 1000);
            if !case.kernel_takes(&tap) {
                println!("skipped: tunnel superframes wants Linux 6.17");
                return Ok(());
            }
            assert_eq!(case.understood().unwrap().gso.unwrap().segments, 3);
            let other = VirtioHeader::TUNNEL_IPV4 | VirtioHeader::TUNNEL_IPV6;
            let least = if outer_ipv6 { 54 } else { 34 };
            case.with(|h| h.gso_type |= other).both_refuse(&tap, VnetError::TunnelTwice);
            case.with(|h| h.gso_type &= !0x1f).both_refuse(&tap, VnetError::TunnelInner);
            case.with(|h| h.gso_type = h.gso_type & !0x1f | 3)
                .both_refuse(&tap, VnetError::TunnelInner);
            case.with(|h| h.flags = 0).both_refuse(&tap, VnetError::ChecksumMissing);
            case.with(|h| h.tunnel.outer_transport = least - 1)
                .both_refuse(&tap, VnetError::TunnelPlaces);
            case.with(|h| h.tunnel.inner_network = h.tunnel.outer_transport + 7)
                .both_refuse(&tap, VnetError::TunnelPlaces);
            // The kernel trusts the bit and the offset of the outer header.
            for lie in
                [case.with(|h| h.gso_type ^= other), case.with(|h| h.tunnel.inner_network -= 2)]
            {
                assert_eq!(lie.understood(), Err(VnetError::TunnelPlaces));
            }
        }
        Ok(())
    });
}

// Rules: B54
#[test]
fn v09_a_tunnel_type_on_one_packet_breaks_readers_and_is_never_written() {
    let mut kernel = match GsoOracle::new() {
        Ok(kernel) => kernel,
        Err(why) => return skip(&why),
    };
    let case = vxlan(false, false, 700, 1000);
    let stack = grosso_wire::dissect(
        &case.frame,
        grosso_wire::LinkType::Ethernet,
        &grosso_wire::Ports::ASSIGNED,
    );
    let meta = grosso::Meta {
        checksum: Checksum::Partial {
            start: case.header.checksum_start,
            offset: case.header.checksum_offset,
        },
        gso: Gso::every(1000),
        ..grosso::Meta::default()
    };
    let form = grosso_wire::virtio::Form::Tunnel;
    let written =
        grosso::vnet::describe(&case.frame, case.frame.len(), &stack, &meta, form).unwrap();
    assert_eq!((written.header.gso_type, written.header.gso_size), (0, 0));
    let plain = case.with(|h| (h.flags, h.gso_type, h.gso_size) = (written.header.flags, 0, 0));
    let packets = kernel.segment(&plain.header, &plain.frame).unwrap();
    assert_eq!(packets.len(), 1, "it arrives");
    // The kernel itself leaves the type in place, so the reader gets an error instead of a packet.
    let result = kernel.segment(&case.header, &case.frame);
    println!("a tunnel type on one packet: {:?}", result.as_ref().map(Vec::len));
    assert!(result.is_ok_and(|packets| packets.len() == 1) || kernel_keeps_the_type());
}

/// Returns whether the kernel has the bug. All kernels that support this header format have it.
fn kernel_keeps_the_type() -> bool {
    grosso_rig::kernel::release() >= (6, 17)
}

// Rules: P51
#[test]
fn whatever_a_tap_refuses_is_refused_here() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        let mut random = Random::new(std::process::id().into());
        let seed = random.clone();
        let tunnels = [vxlan(false, false, 2000, 700), vxlan(true, true, 2000, 700)];
        let bases: Vec<Case> = superframes().into_iter().chain(tunnels).collect();
        let (mut refused, mut both_take) = (0, 0);
        for _ in 0..20_000 {
            let mut case = random.choose(&bases).clone();
            for _ in 0..random.within(1, 3) {
                mutate(&mut case, &mut random);
            }
            let (kernel, ours) = (case.kernel_takes(&tap), case.understood());
            assert!(kernel || ours.is_err(), "{seed:?}: only the kernel refuses {case:?}");
            refused += u32::from(!kernel);
            both_take += u32::from(kernel && ours.is_ok());
        }
        assert!(refused > 1000 && both_take > 1000, "{refused} {both_take}");
        Ok(())
    });
}

/// Changes one field of a header or one bit in its frame. Sets the header length to zero, because Grosso does not use
/// it.
fn mutate(case: &mut Case, random: &mut Random) {
    let near = |value: u16, random: &mut Random| match random.below(3) {
        0 => random.bits() as u16,
        1 => value.wrapping_add(random.within(0, 4) as u16).wrapping_sub(2),
        _ => *random.choose(&[0, 1, 14, 20, 34, 40, 54, 1000, u16::MAX]),
    };
    case.header.header_length = 0;
    let header = &mut case.header;
    match random.below(9) {
        0 => header.flags = random.bits() as u8,
        1 => header.gso_type = *random.choose(&[0, 1, 2, 3, 4, 5, 0x21, 0x25, 0x44, 0x45, 0x81]),
        2 => header.gso_type = random.bits() as u8,
        3 => header.gso_size = near(header.gso_size, random),
        4 => header.checksum_start = near(header.checksum_start, random),
        5 => header.checksum_offset = near(header.checksum_offset, random),
        6 => header.tunnel.outer_transport = near(header.tunnel.outer_transport, random),
        7 => header.tunnel.inner_network = near(header.tunnel.inner_network, random),
        _ => {
            let at = random.below(case.frame.len().min(100));
            case.frame[at] ^= 1 << random.below(8);
        }
    }
}
