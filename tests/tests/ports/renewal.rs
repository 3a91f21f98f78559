//! Tests frames that wait for a guest while the guest reboots with fewer features.

use grosso::{
    Meta,
    checksum::{self, Checksum},
    features::{Device, Features},
    meta::Gso,
};
use grosso_io::{
    Transmitted,
    egress::Egress,
    port::{PortError, Transmit},
};
use grosso_testkit::Packet;
use grosso_wire::{LinkType, Ports};

/// A port that receives frames and has these features. A flush may change the features, and then also makes room.
struct Guest {
    features: Features,
    at_flush: Vec<Features>,
    has_room: bool,
    got: Vec<(Vec<u8>, Meta)>,
}

impl Transmit for Guest {
    fn device(&self) -> Device {
        Device::new(self.features)
    }

    fn transmit(&mut self, slices: &[&[u8]], meta: &Meta) -> Result<Transmitted, PortError> {
        if !self.has_room {
            return Ok(Transmitted::NoRoom);
        }
        self.got.push((slices.concat(), *meta));
        Ok(Transmitted::Taken)
    }

    fn flush(&mut self) -> Result<Transmitted, PortError> {
        if let Some(features) = self.at_flush.pop() {
            (self.features, self.has_room) = (features, true);
        }
        Ok(Transmitted::Taken)
    }
}

impl Guest {
    /// Returns a guest that accepts TCP superframes but has no room for any.
    fn full() -> Self {
        let features = LEAST
            | Features::CHECKSUM_GENERIC
            | Features::TCP_SEGMENTATION
            | Features::TCP_MANGLEID_SEGMENTATION;
        Self { features, at_flush: Vec::new(), has_room: false, got: Vec::new() }
    }

    /// Returns the packets that the guest received, each with its checksum complete.
    fn packets(&self) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        for (bytes, meta) in &self.got {
            assert_eq!(meta.gso, None);
            let mut packet = bytes.clone();
            if let Checksum::Partial { start, offset } = meta.checksum {
                assert!(self.features.contains(Features::CHECKSUM_GENERIC));
                checksum::complete(&mut packet, start, offset).unwrap();
            }
            packets.push(packet);
        }
        packets
    }
}

/// Features of a guest that accepts only packets.
const LEAST: Features = Features::SCATTER_GATHER;
const PACKET_LEN: usize = 1000;

fn packet(i: u32, len: usize) -> Packet {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(i as u16));
    packet.tcp(|t| t.sequence(i * PACKET_LEN as u32)).payload_len(len)
}

/// Sends a superframe of ten packets to the guest.
fn send(guest: &mut Guest) -> Egress {
    let (bytes, start, offset) = packet(0, 10 * PACKET_LEN).build_superframe();
    let checksum = Checksum::Partial { start: start as u16, offset: offset as u16 };
    let meta = Meta { checksum, gso: Gso::every(PACKET_LEN as u16), ..Meta::default() };
    let mut egress = Egress::new(LinkType::Ethernet, guest.device(), Ports::ASSIGNED);
    egress.send(&[&bytes], &meta, guest).unwrap();
    assert!(egress.has_waiting() && guest.got.is_empty());
    egress
}

fn expected() -> Vec<Vec<u8>> {
    (0..10).map(|i| packet(i, PACKET_LEN).build()).collect()
}

#[test]
fn a_superframe_that_waits_is_made_anew_for_a_guest_that_takes_less() {
    for features in [LEAST, LEAST | Features::CHECKSUM_GENERIC] {
        let mut guest = Guest::full();
        let mut egress = send(&mut guest);
        (guest.features, guest.has_room) = (features, true);
        assert!(egress.drain(&mut guest).unwrap());
        assert_eq!(guest.packets(), expected());
    }
}

#[test]
fn a_guest_that_boots_anew_while_it_is_asked_for_room_gets_nothing_made_for_the_one_before() {
    let mut guest = Guest::full();
    guest.at_flush.push(LEAST);
    let mut egress = send(&mut guest);
    assert!(egress.drain(&mut guest).unwrap());
    assert_eq!(guest.packets(), expected());
}

#[test]
fn a_guest_that_takes_more_by_now_gets_what_waited_as_it_was() {
    let mut guest = Guest::full();
    guest.features = LEAST;
    let mut egress = send(&mut guest);
    (guest.features, guest.has_room) = (Guest::full().features, true);
    assert!(egress.drain(&mut guest).unwrap());
    assert_eq!(guest.packets(), expected());
}
