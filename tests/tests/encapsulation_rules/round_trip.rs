//! Tests for every format that the headers equal those of the test kit, and that the peer removes them.

use grosso::tunnel::encapsulate::Encapsulator;

use super::{
    formats::{Around, all, expected},
    putting::{Known, link_of, packets, put, take},
};

/// Tests for every length that the sent bytes do not depend on the inner checksum's state in the metadata.
// Rules: W23, W32
#[test]
fn every_format_is_what_the_kit_writes_and_comes_off_at_the_other_end() {
    let mut seen = 0;
    for endpoint in all() {
        let mut encapsulator = Encapsulator::new(endpoint.clone(), 7).unwrap();
        let mut sequence = 0;
        for (carried, packet) in packets(&endpoint) {
            for len in [0, 1, 100, 1333] {
                let packet = packet.clone().payload_len(len);
                let whole = packet.build();
                for frame in [Known::new(whole.clone()), Known::partial(&packet)] {
                    let sent = put(&mut encapsulator, &frame, link_of(&endpoint)).unwrap();
                    let around = Around { class: 0x2a, sequence, ..around(&endpoint, &sent.bytes) };
                    let expected = expected(&endpoint, carried, &whole, around).build();
                    assert_eq!(sent.completed(), expected, "{endpoint:?}");
                    let complete = Known::new(sent.completed());
                    assert_eq!(take(&endpoint, &complete).bytes, whole, "{endpoint:?}");
                    // The packet is also decapsulated unchanged, because its receiver may be on this host.
                    assert_eq!(take(&endpoint, &sent).completed(), whole, "{endpoint:?}");
                    sequence += 1;
                    seen += 1;
                }
            }
        }
    }
    assert_eq!(seen, 39 * 4 * 4 * 2);
}

/// Returns the outer fields, with the source port that the kit cannot compute.
fn around(endpoint: &grosso::tunnel::Endpoint, sent: &[u8]) -> Around {
    let ip = if endpoint.local.is_ipv4() { 20 } else { 40 };
    let source_port = match endpoint.udp() {
        Some(udp) => {
            let port = u16::from_be_bytes([sent[ip], sent[ip + 1]]);
            assert!(udp.source.contains(&port));
            port
        }
        None => 0,
    };
    Around { source_port, ..Around::default() }
}
