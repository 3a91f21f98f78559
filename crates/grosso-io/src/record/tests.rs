//! Tests that a recording has the right contents and does not affect the traffic.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex, mpsc},
};

use grosso::{
    Meta,
    checksum::Checksum,
    features::{Device, Features},
    meta::{Gso, VlanTag},
};
use grosso_testkit::Packet;
use grosso_wire::{Kind, LinkType, Ports, dissect};

use super::{Noted, Record, RecordOptions, RecordStats};
use crate::{
    capture_port::CapturePort,
    memory::{MemoryPort, wire},
    port::{Port, Transmitted},
};
use grosso_capture::{
    CaptureError, CaptureReader, CaptureWriter, Entry, Format, TunnelPort, WriterOptions, flag,
};

/// A file that the test can read while the recording owns it.
#[derive(Clone, Default)]
struct SharedFile(Arc<Mutex<Vec<u8>>>);

impl Write for SharedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl SharedFile {
    fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}

fn plain() -> (MemoryPort, MemoryPort) {
    wire(LinkType::Ethernet, Device::new(Features::NONE), 10_000)
}

fn record<W: Write + Send + 'static>(
    port: MemoryPort,
    file: W,
    options: RecordOptions,
) -> Record<MemoryPort> {
    let writer = CaptureWriter::new(file, WriterOptions::new(Format::Pcapng));
    Record::start(port, writer, &options).unwrap()
}

fn segment(i: u32) -> Vec<u8> {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(i as u16));
    packet.tcp(|t| t.sequence(i * 700)).payload_len(700).build()
}

fn superframe() -> (Vec<u8>, Meta) {
    let packet = Packet::new().ethernet(|e| e).ipv6(|ip| ip).udp(|u| u).payload_len(5000);
    let (frame, start, offset) = packet.build_superframe();
    let gso = Gso { segments: 5, untrusted: true, ..Gso::every(1200).unwrap() };
    let meta = Meta {
        checksum: Checksum::Partial { start: start as u16, offset: offset as u16 },
        gso: Some(gso),
        vlan: Some(VlanTag { protocol: 0x88a8, tci: 0x2007 }),
        hash: Some(0x1234_5678),
        timestamp_ns: None,
        fragmented: None,
    };
    (frame, meta)
}

/// Receives every frame that has arrived by `now_ns`.
fn receive(port: &mut impl Port, now_ns: u64) -> Vec<(Vec<u8>, Meta)> {
    let mut frames = Vec::new();
    port.receive(now_ns, usize::MAX, &mut |frame| {
        frames.push((frame.buffer.as_ref().to_vec(), frame.meta));
    })
    .unwrap();
    frames
}

/// Returns the frames in a capture, with their metadata.
fn read_back(capture: &[u8]) -> Vec<(Vec<u8>, Meta)> {
    let reader = CaptureReader::new(capture).unwrap();
    let mut port: CapturePort<_, Vec<u8>> =
        CapturePort::new(Some(reader), None, LinkType::Ethernet, Ports::ASSIGNED);
    receive(&mut port, 0)
}

/// Returns the direction flags of every packet.
fn ways(capture: &[u8]) -> Vec<u32> {
    let mut reader = CaptureReader::new(capture).unwrap();
    let mut ways = Vec::new();
    while let Some(entry) = reader.next().unwrap() {
        if let Entry::Packet(packet) = entry {
            ways.push(packet.meta().flags.unwrap_or(0) & 3);
        }
    }
    ways
}

fn at(meta: Meta, timestamp_ns: u64) -> Meta {
    Meta { timestamp_ns: Some(timestamp_ns), ..meta }
}

#[test]
fn recorded_frames_read_back_with_times_directions_and_metadata() {
    let (mut far, near) = plain();
    let file = SharedFile::default();
    let epoch_ns = 1_700_000_000_000_000_000;
    let options = RecordOptions { epoch_ns, ..RecordOptions::default() };
    let mut port = record(near, file.clone(), options);

    let (frame, meta) = superframe();
    let stamped = at(Meta { checksum: Checksum::Unnecessary { levels: 1 }, ..Meta::default() }, 3);
    assert_eq!(far.transmit(&[&segment(1)], &stamped).unwrap(), Transmitted::Taken);
    assert_eq!(far.transmit(&[&frame], &meta).unwrap(), Transmitted::Taken);
    assert_eq!(receive(&mut port, 5), [(segment(1), stamped), (frame.clone(), meta)]);
    // A superframe arrives in slices. Its timestamp is the time of the caller's last receive.
    let (head, rest) = frame.split_at(90);
    let (middle, end) = rest.split_at(1000);
    assert_eq!(port.transmit(&[head, middle, end], &meta).unwrap(), Transmitted::Taken);
    assert_eq!(receive(&mut far, 9), [(frame.clone(), meta)]);

    let (_, recording) = port.finish();
    let stats = RecordStats { written: 3, ..RecordStats::default() };
    assert_eq!((recording.stats(), recording.take_failure().is_none()), (stats, true));
    let since_epoch = |meta, ns| at(meta, options.epoch_ns + ns);
    let expected = [
        (segment(1), since_epoch(stamped, 3)),
        (frame.clone(), since_epoch(meta, 5)),
        (frame, since_epoch(meta, 5)),
    ];
    assert_eq!(read_back(&file.bytes()), expected);
    assert_eq!(ways(&file.bytes()), [flag::INBOUND, flag::INBOUND, flag::OUTBOUND]);
}

/// Checks that a reader that does not know these ports still finds the tunnel.
#[test]
fn tunnels_on_ports_of_their_own_are_recorded() {
    let (mut far, near) = plain();
    let file = SharedFile::default();
    let ports = Ports::ASSIGNED.with(Kind::Vxlan, 8472);
    let mut port = record(near, file.clone(), RecordOptions { ports, ..RecordOptions::default() });
    let outer = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u.destination_port(8472));
    let inner = outer.vxlan(|v| v).ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t);
    let (partial, start, offset) = inner.payload_len(100).build_partial();
    for frame in [&partial, &segment(1)] {
        assert_eq!(far.transmit(&[frame], &Meta::default()).unwrap(), Transmitted::Taken);
    }
    assert_eq!(receive(&mut port, 5).len(), 2);
    port.finish();
    let capture = file.bytes();
    let mut reader = CaptureReader::new(&capture[..]).unwrap();
    let mut said = Vec::new();
    while let Some(entry) = reader.next().unwrap() {
        if let Entry::Packet(packet) = entry {
            said.push((packet.data.to_vec(), packet.meta().offload));
        }
    }
    assert_eq!(said[1], (segment(1), None));
    let offload = said[0].1.clone().unwrap();
    assert_eq!(offload.tunnel_ports, [TunnelPort::new(Kind::Vxlan, 8472)]);
    // The offload metadata says which checksum is the innermost; the flags alone only say that it is partial.
    let stack = dissect(&partial, LinkType::Ethernet, &offload.ports(&Ports::ASSIGNED));
    let innermost = Checksum::of_transport(&stack);
    let (start, offset) = (start as u16, offset as u16);
    assert_eq!(innermost, Checksum::Partial { start, offset });
}

#[test]
fn one_way_alone_can_be_recorded() {
    for (received, transmitted) in [(true, false), (false, true), (false, false)] {
        let (mut far, near) = plain();
        let file = SharedFile::default();
        let options = RecordOptions { received, transmitted, ..RecordOptions::default() };
        let mut port = record(near, file.clone(), options);
        assert_eq!(far.transmit(&[&segment(1)], &Meta::default()).unwrap(), Transmitted::Taken);
        assert_eq!(receive(&mut port, 7).len(), 1);
        assert_eq!(port.transmit(&[&segment(2)], &Meta::default()).unwrap(), Transmitted::Taken);
        port.finish();
        let mut expected = Vec::new();
        expected.extend(received.then(|| (segment(1), at(Meta::default(), 7))));
        // The timestamp is the caller's time even if received frames are not recorded.
        expected.extend(transmitted.then(|| (segment(2), at(Meta::default(), 7))));
        assert_eq!(read_back(&file.bytes()), expected);
    }
}

#[test]
fn a_frame_that_the_port_has_no_room_for_is_recorded_when_it_is_taken() {
    let (mut far, near) = wire(LinkType::Ethernet, Device::new(Features::NONE), 1);
    let file = SharedFile::default();
    let mut port = record(near, file.clone(), RecordOptions::default());
    let mut offer = |i| port.transmit(&[&segment(i)], &Meta::default()).unwrap();
    assert_eq!([offer(1), offer(2), offer(2)], {
        [Transmitted::Taken, Transmitted::NoRoom, Transmitted::NoRoom]
    });
    receive(&mut far, 0);
    assert_eq!(offer(2), Transmitted::Taken);
    port.finish();
    let recorded: Vec<_> = read_back(&file.bytes()).into_iter().map(|(frame, _)| frame).collect();
    assert_eq!(recorded, [segment(1), segment(2)]);
}

/// A disk with limited space that reports each request and waits for a reply.
struct SmallDisk {
    room: usize,
    asked: mpsc::Sender<()>,
    answer: mpsc::Receiver<()>,
}

impl Write for SmallDisk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The test may have stopped waiting for requests.
        let _ = self.asked.send(());
        let _ = self.answer.recv();
        match self.room.checked_sub(bytes.len()) {
            Some(left) => self.room = left,
            None => return Err(io::ErrorKind::StorageFull.into()),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_ends_the_recording_with_one_note_and_no_lost_frame() {
    for (room, written) in [(0, 0), (10_000, 1)] {
        let (mut far, near) = plain();
        let ((asked, was_asked), (answer, answered)) = (mpsc::channel(), mpsc::channel());
        let disk = SmallDisk { room, asked, answer: answered };
        let mut port = record(near, disk, RecordOptions::default());
        let mut send = |numbers: std::ops::Range<u32>| {
            for i in numbers {
                let sent = port.transmit(&[&segment(i)], &Meta::default());
                assert_eq!(sent.unwrap(), Transmitted::Taken);
            }
            port.recording()
        };
        send(0..1);
        was_asked.recv().unwrap();
        let recording = send(1..1000);
        drop(answer);
        while recording.stats().failed == 0 {
            std::thread::yield_now();
        }
        send(1000..2000);
        let passed: Vec<_> = receive(&mut far, 0).into_iter().map(|(frame, _)| frame).collect();
        assert!((0..2000).map(segment).eq(passed), "the recording does not affect the traffic");
        let (_, recording) = port.finish();
        let failed = 2000 - written;
        assert_eq!(recording.stats(), RecordStats { written, failed, ..RecordStats::default() });
        let failure = recording.take_failure();
        assert!(matches!(failure, Some(CaptureError::Write { .. })), "{failure:?}");
        assert!(recording.take_failure().is_none(), "a failure is reported once");
    }
}

/// A file that blocks every write until it is released.
struct Stalled(mpsc::Receiver<()>, SharedFile);

impl Write for Stalled {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The stall ends when the sender is dropped.
        let _ = self.0.recv();
        self.1.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_stalled_file_delays_no_frame_and_holds_no_more_than_the_limit() {
    let (mut far, near) = plain();
    let (stall, stalled) = mpsc::channel();
    let file = SharedFile::default();
    let frame_bytes = segment(0).len() + size_of::<Noted>();
    let waiting_bytes_max = 100 * frame_bytes + frame_bytes / 2;
    let options = RecordOptions { waiting_bytes_max, ..RecordOptions::default() };
    let mut port = record(near, Stalled(stalled, file.clone()), options);
    for i in 0..1000 {
        assert_eq!(port.transmit(&[&segment(i)], &Meta::default()).unwrap(), Transmitted::Taken);
    }
    assert_eq!(receive(&mut far, 0).len(), 1000, "frames are forwarded while the file stalls");
    // The thread may be writing one batch while another is queued.
    let overflowed = port.recording().stats().overflowed;
    assert!((800..=900).contains(&overflowed), "{overflowed}");
    assert!(port.recorder.shared.state().waiting.bytes.len() <= options.waiting_bytes_max);
    drop(stall);
    let (_, recording) = port.finish();
    let stats = recording.stats();
    assert_eq!(stats, RecordStats { written: 1000 - overflowed, overflowed, ..stats });
    assert_eq!(read_back(&file.bytes()).len() as u64, stats.written);
}

#[test]
fn a_recording_ends_where_it_is_as_long_as_it_may_be() {
    let (mut far, near) = plain();
    let file = SharedFile::default();
    let frame_bytes_max = 10 * segment(0).len() as u64 + 1;
    let options = RecordOptions { frame_bytes_max, ..RecordOptions::default() };
    let mut port = record(near, file.clone(), options);
    for i in 0..500 {
        assert_eq!(port.transmit(&[&segment(i)], &Meta::default()).unwrap(), Transmitted::Taken);
    }
    assert_eq!(receive(&mut far, 0).len(), 500);
    let (_, recording) = port.finish();
    let stats = recording.stats();
    assert_eq!(stats, RecordStats { written: 10, beyond_limit: 490, ..RecordStats::default() });
    let recorded: Vec<_> = read_back(&file.bytes()).into_iter().map(|(frame, _)| frame).collect();
    assert!((0..10).map(segment).eq(recorded));
    assert!(recording.take_failure().is_none());
}

#[test]
fn a_recorded_port_has_the_properties_of_its_port() {
    let (far, near) = wire(LinkType::Raw, Device::new(Features::ALL), 3);
    let (link, device) = (near.link(), near.device());
    let file = SharedFile::default();
    let port = record(near, file.clone(), RecordOptions::default());
    assert_eq!((port.link(), port.device(), port.deadline()), (link, device, None));
    assert!(!port.is_finished());
    drop(far);
    assert!(port.is_finished());
    port.finish();
    let reader = CaptureReader::new(&file.bytes()[..]).map(|_| ());
    assert!(reader.is_ok(), "a capture without packets is valid");
}
