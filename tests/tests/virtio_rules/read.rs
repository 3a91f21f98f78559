//! Tests section 6.3: how virtio headers are read.

use grosso_rig::kernel::VirtioHeader;
use grosso_sys::tun::Offloads;
use grosso_wire::virtio::{self, Form, Order};

use super::{Case, isolated, packet_socket, read_all, tap, tcp4, tcp6, udp4};

/// Returns every offload, except tunnels, that a reader can accept.
fn plain_offloads() -> Offloads {
    let tcp = Offloads::TCP_IPV4 | Offloads::TCP_IPV6 | Offloads::TCP_ECN;
    Offloads::CHECKSUM | tcp | Offloads::UDP
}

/// Returns a packet socket's bytes for a case: the short form.
fn short(case: &Case) -> Vec<u8> {
    [&case.header.to_bytes()[..VirtioHeader::BYTES], &case.frame].concat()
}

// Rules: B61
#[test]
fn v20_b38_what_is_read_is_what_was_sent_and_every_byte_of_every_form_is_written() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        tap.set_offloads(plain_offloads())?;
        let sender = packet_socket().bind(tap.name())?;
        for form in [10_u8, 12, 20, 24, 40] {
            tap.set_header_bytes(form)?;
            for packet in [tcp4(), tcp6(), udp4()] {
                let case = Case::superframe(packet.payload_len(3000), 1000);
                sender.send(&short(&case))?;
                let [packet] = read_all(&tap)?.try_into().unwrap();
                let (header, frame) = packet.split_at(form.into());
                let read = VirtioHeader::parse(header.first_chunk().unwrap());
                assert_eq!(frame, case.frame);
                // The header length is the length of the skb's linear part, so it is only a hint.
                assert!(usize::from(read.header_length) >= 54.min(frame.len()));
                assert_eq!(read, VirtioHeader { header_length: read.header_length, ..case.header });
                assert!(header[10..].iter().all(|byte| *byte == 0), "{form}: {header:x?}");
                for form in Form::ALL.into_iter().filter(|known| known.len() <= form.into()) {
                    let (ours, _) =
                        virtio::VirtioHeader::parse(&packet, form, Order::NATIVE).unwrap();
                    assert_eq!((ours.gso_type, ours.gso_size), (read.gso_type, read.gso_size));
                }
            }
        }
        Ok(())
    });
}

#[test]
fn v20_a_reader_without_offloads_gets_whole_packets_with_whole_checksums() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        let sender = packet_socket().bind(tap.name())?;
        let case = Case::superframe(tcp6().payload_len(3000), 1000);
        for (offloads, packets, flags) in [
            (Offloads::NONE, 3, 0),
            (Offloads::CHECKSUM, 3, VirtioHeader::NEEDS_CHECKSUM),
            (Offloads::CHECKSUM | Offloads::TCP_IPV4, 3, VirtioHeader::NEEDS_CHECKSUM),
            (Offloads::CHECKSUM | Offloads::TCP_IPV6, 1, VirtioHeader::NEEDS_CHECKSUM),
        ] {
            tap.set_offloads(offloads)?;
            sender.send(&short(&case))?;
            let read = read_all(&tap)?;
            assert_eq!(read.len(), packets, "{offloads:?}");
            assert!(read.iter().all(|packet| packet[0] == flags), "{offloads:?}");
        }
        Ok(())
    });
}

#[test]
fn v21_packet_sockets_have_no_form_for_tunnels() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        for bytes in [0, 9, 11, 20, 24] {
            let refused = packet_socket().virtio_header_bytes(bytes).bind(tap.name()).err();
            assert_eq!(refused.is_some(), bytes != 0, "{bytes}: {refused:?}");
        }
        // A tunneled superframe appears as its inner superframe; only the start of the checksum reveals the tunnel
        // (rule T12).
        let observer = packet_socket().bind(tap.name())?;
        let case = super::vxlan(false, false, 3000, 1000);
        if !case.kernel_takes(&tap) {
            println!("skipped: tunnel superframes wants Linux 6.17");
            return Ok(());
        }
        let [(header, frame)] = super::shown(&observer)?.try_into().unwrap();
        assert_eq!(frame, case.frame);
        assert_eq!(header.gso_type, VirtioHeader::UDP_SEGMENTS);
        assert_eq!(header.checksum_start, case.header.checksum_start);
        let shown = Case { header, frame };
        assert_eq!(shown.understood().unwrap().gso.unwrap().segments, 3);
        Ok(())
    });
}

// Rules: B36
#[test]
fn v33_packets_of_af_xdp_ask_for_nothing_and_are_whole() {
    use grosso_io::{
        Port,
        live::{XdpPort, XdpPortOptions},
    };
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        let port = match XdpPort::open(tap.name().as_str(), &XdpPortOptions::default()) {
            Ok(port) => port,
            Err(error) => {
                grosso_rig::kernel::skip(&format!("no program for AF_XDP: {error}"));
                return Ok(());
            }
        };
        // No metadata is written for the driver, so the driver cannot read it twice (B36).
        assert_eq!(port.device().features, grosso::features::Features::NONE);
        Ok(())
    });
}
