//! Tests the sending side with a port that fails or is full at any chosen frame.

use std::io;

use grosso_testkit::Packet;

use super::*;

/// A port that accepts a chosen number of frames and then fails or is full.
struct Mock {
    features: Features,
    /// Packets that the port accepted. Superframes are stored as segments.
    packets: Vec<Vec<u8>>,
    frames: usize,
    /// Number of frames that the port accepts at first.
    room: usize,
    then: Then,
    /// Number of frames rejected so far.
    rejected: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Full,
    /// Twice, the port reports that it is full; then it accepts frames again.
    Briefly,
    Gone,
    Broken,
}

impl Mock {
    fn new(features: Features, room: usize, then: Then) -> Self {
        Self { features, packets: Vec::new(), frames: 0, room, then, rejected: 0 }
    }
}

impl Transmit for Mock {
    fn device(&self) -> Device {
        Device::new(self.features)
    }

    fn transmit(&mut self, slices: &[&[u8]], meta: &Meta) -> Result<Transmitted, PortError> {
        if self.frames == self.room && (self.then != Then::Briefly || self.rejected < 2) {
            self.rejected += 1;
            return match self.then {
                Then::Full | Then::Briefly => Ok(Transmitted::NoRoom),
                Then::Gone => Err(PortError::Gone { name: "mock".to_owned() }),
                Then::Broken => {
                    let (name, source) = ("mock".to_owned(), io::Error::from_raw_os_error(14));
                    Err(PortError::Device { name, action: "write", source })
                }
            };
        }
        self.frames += 1;
        let mut apart = Segmented(&mut self.packets);
        let none = Device::new(Features::NONE);
        let mut egress = Egress::new(LinkType::Raw, none, Ports::ASSIGNED);
        egress.send(slices, meta, &mut apart)?;
        Ok(Transmitted::Taken)
    }

    fn flush(&mut self) -> Result<Transmitted, PortError> {
        Ok(Transmitted::Taken)
    }
}

/// A port without offload features, which collects packets in a list.
struct Segmented<'a>(&'a mut Vec<Vec<u8>>);

impl Transmit for Segmented<'_> {
    fn device(&self) -> Device {
        Device::new(Features::NONE)
    }

    fn transmit(&mut self, slices: &[&[u8]], _: &Meta) -> Result<Transmitted, PortError> {
        self.0.push(slices.concat());
        Ok(Transmitted::Taken)
    }

    fn flush(&mut self) -> Result<Transmitted, PortError> {
        Ok(Transmitted::Taken)
    }
}

/// Returns packets of three interleaved flows: two TCP flows, which merge, and a UDP flow with datagrams of unequal
/// length.
fn traffic() -> Vec<Vec<u8>> {
    let tcp = |port: u16, i: u32| {
        let packet = Packet::new().ipv4(|ip| ip.id(i as u16));
        packet.tcp(|tcp| tcp.source_port(port).sequence(i * 100)).payload(&[i as u8; 100]).build()
    };
    let udp = |i: u32| {
        let payload = vec![7; 20 + i as usize];
        Packet::new().ipv4(|ip| ip).udp(|udp| udp.source_port(3)).payload(&payload).build()
    };
    (0..6).flat_map(|i| [tcp(1, i), tcp(2, i), udp(i)]).collect()
}

fn merger(port: Mock) -> Merger<Vec<u8>, Mock> {
    Merger::new(LinkType::Raw, port, Trust::Verify)
}

fn superframes() -> Features {
    Features::SCATTER_GATHER
        | Features::CHECKSUM_GENERIC
        | Features::TCP_SEGMENTATION
        | Features::TCP_MANGLEID_SEGMENTATION
        | Features::GSO_ROBUST
}

/// Sorts packets by flow. The source port identifies the flow.
fn by_flow(packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut packets = packets.to_vec();
    packets.sort_by_key(|packet| packet[20..22].to_vec());
    packets
}

#[test]
fn five_pushes_and_five_sends_are_five_packets() {
    let mut merger = merger(Mock::new(superframes(), usize::MAX, Then::Full));
    let mut batch = Batch::new();
    let packets = &traffic()[..5];
    for packet in packets {
        batch.push_copy(packet);
        assert_eq!(merger.try_send(&mut batch).unwrap(), 1);
        assert!(batch.is_empty());
    }
    assert_eq!(merger.port.packets, packets);
    assert_eq!(core::iter::from_fn(|| batch.spare()).count(), 1, "one buffer served all");
}

#[test]
fn a_single_packet_that_is_not_accepted_stays_in_the_batch() {
    for then in [Then::Full, Then::Gone, Then::Broken] {
        let mut merger = merger(Mock::new(superframes(), 0, then));
        let mut batch = Batch::from_iter([traffic()[0].clone()]);
        let taken = merger.try_send(&mut batch).ok();
        assert_eq!(taken, matches!(then, Then::Full).then_some(0), "{then:?}");
        assert_eq!((batch.len(), merger.port.packets.len()), (1, 0), "{then:?}");
        merger.port.room = usize::MAX;
        assert_eq!(merger.try_send(&mut batch).unwrap(), 1, "{then:?}");
        assert_eq!(merger.port.packets, traffic()[..1], "{then:?}");
        assert!(batch.is_empty() && batch.spare().is_some(), "{then:?}");
    }
}

#[test]
fn after_a_failure_at_any_frame_the_batch_holds_exactly_the_packets_that_were_not_sent() {
    for features in [superframes(), Features::NONE] {
        let mut whole = merger(Mock::new(features, usize::MAX, Then::Full));
        whole.try_send(&mut traffic().into_iter().collect()).unwrap();
        let frames = whole.port.frames;
        assert_eq!(frames, if features == Features::NONE { 18 } else { 8 });
        for (room, then) in (0..=frames).flat_map(|room| {
            [Then::Full, Then::Briefly, Then::Gone, Then::Broken].map(|then| (room, then))
        }) {
            let case = format!("{then:?} after {room} of {frames} frames");
            let mut merger = merger(Mock::new(features, room, then));
            let mut batch: Batch = traffic().into_iter().collect();
            let result = merger.try_send(&mut batch);
            let fails = matches!(then, Then::Gone | Then::Broken) && room < frames;
            assert_eq!(result.is_err(), fails, "{case}");
            let sent = merger.port.packets.len();
            assert_eq!(batch.len() + sent, 18, "{case}");
            if let Ok(taken) = result {
                assert_eq!(taken, sent, "{case}");
            }
            // The device works again: the second call sends each remaining packet once, and each flow stays in order.
            merger.port.room = usize::MAX;
            merger.try_send(&mut batch).unwrap();
            assert!(batch.is_empty(), "{case}");
            assert_eq!(by_flow(&merger.port.packets), by_flow(&traffic()), "{case}");
            assert_eq!(core::iter::from_fn(|| batch.spare()).count(), 18, "{case}");
        }
    }
}

#[test]
fn a_frame_that_meets_a_full_port_is_queued_and_the_next_is_not_accepted() {
    let mut merger = merger(Mock::new(Features::NONE, 1, Then::Full));
    let packet = &traffic()[0];
    let send = |merger: &mut Merger<Vec<u8>, Mock>| {
        merger.try_send_frame(&[packet], &Meta::default()).unwrap()
    };
    assert_eq!(
        [send(&mut merger), send(&mut merger), send(&mut merger)],
        [Some(()), Some(()), None]
    );
    assert!(!merger.try_flush().unwrap());
    assert_eq!(merger.try_send(&mut traffic().into_iter().collect()).unwrap(), 0);
    merger.port.room = usize::MAX;
    assert!(merger.try_flush().unwrap());
    assert_eq!(merger.port.packets.len(), 2);
}
