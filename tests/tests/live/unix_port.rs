//! Tests ports on Unix sockets. The peer program is implemented here, from the documented formats.

#![cfg(target_os = "linux")]

use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::Shutdown,
    num::NonZeroU16,
    os::unix::{
        fs::{PermissionsExt, chown, symlink},
        net::{UnixDatagram, UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use grosso::{
    Meta,
    checksum::Checksum,
    meta::{Gso, GsoSize},
    vnet::VnetError,
};
use grosso_io::{
    Port, Transmitted,
    live::{LiveEvent, MODE, UnixEvent, UnixOptions, UnixPort, UnixRole},
};
use grosso_sys::unix_socket::UnixKind;
use grosso_testkit::{Packet, oracle, random::Random};
use grosso_wire::virtio::Form;
use rustix::{
    process::{Gid, Uid, geteuid},
    thread::{set_thread_res_gid, set_thread_res_uid},
};

/// A frame, and the metadata from its virtio header.
type Arrived = (Vec<u8>, Meta);

const KINDS: [UnixKind; 2] = [UnixKind::Stream, UnixKind::Datagram];
const HEADERS: [Option<Form>; 2] = [None, Some(Form::Buffers)];
/// Length of the longest headers in these tests. All headers are in the first slice.
const HEADERS_LEN: usize = 54;
/// Maximum time without a byte, after which the test fails instead of hanging.
const STALLED: Duration = Duration::from_secs(20);
const CONNECT: UnixRole = UnixRole::Connect { local: None, mode: MODE };

/// A directory and its contents.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn options(&self, kind: UnixKind, header: Option<Form>, role: UnixRole) -> UnixOptions {
        let mut options = UnixOptions::new(self.path("port"));
        (options.kind, options.header, options.role) = (kind, header, role);
        if let UnixRole::Connect { local, .. } = &mut options.role {
            *local = (kind == UnixKind::Datagram).then(|| self.path("own"));
        }
        options
    }
}

/// The other program: a socket, and the bytes before each frame.
enum Peer {
    Stream(UnixStream),
    Datagram(UnixDatagram),
}

impl Peer {
    /// Connects a program to a port; a datagram socket is bound to a separate path, `own`.
    fn connect(kind: UnixKind, place: &Place, own: &str) -> Self {
        match kind {
            UnixKind::Stream => Self::Stream(UnixStream::connect(place.path("port")).unwrap()),
            UnixKind::Datagram => {
                let socket = UnixDatagram::bind(place.path(own)).unwrap();
                socket.connect(place.path("port")).unwrap();
                Self::Datagram(socket)
            }
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        match self {
            Self::Stream(stream) => {
                stream.write_all(&(bytes.len() as u32).to_be_bytes()).unwrap();
                stream.write_all(bytes).unwrap();
            }
            Self::Datagram(socket) => assert_eq!(socket.send(bytes).unwrap(), bytes.len()),
        }
    }

    fn receive(&mut self) -> Vec<u8> {
        let mut buffer = vec![0; 1 << 17];
        let len = match self {
            Self::Stream(stream) => {
                stream.set_read_timeout(Some(STALLED)).unwrap();
                let mut len = [0; 4];
                stream.read_exact(&mut len).unwrap();
                let len = u32::from_be_bytes(len) as usize;
                stream.read_exact(&mut buffer[..len]).unwrap();
                len
            }
            Self::Datagram(socket) => {
                socket.set_read_timeout(Some(STALLED)).unwrap();
                socket.recv(&mut buffer).unwrap()
            }
        };
        buffer.truncate(len);
        buffer
    }
}

/// Receives everything that has arrived.
fn arrived(port: &mut UnixPort, now_ns: u64) -> Vec<Arrived> {
    let (mut frames, mut buffers) = (Vec::new(), Vec::new());
    let each = &mut |frame: grosso::Frame<grosso_io::PortBuffer>| {
        frames.push((frame.buffer.as_ref().to_vec(), frame.meta));
        buffers.push(frame.buffer);
    };
    while port.receive(now_ns, 64, each).unwrap() > 0 {}
    port.recycle_all(&mut buffers);
    frames
}

fn transmit(port: &mut UnixPort, frame: &[u8], meta: &Meta) {
    let (start, end) = frame.split_at(HEADERS_LEN.min(frame.len()));
    assert_eq!(port.transmit(&[start, end], meta).unwrap(), Transmitted::Taken);
    assert_eq!(port.flush().unwrap(), Transmitted::Taken);
}

fn frame(len: usize) -> Vec<u8> {
    Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|tcp| tcp).payload_len(len).build()
}

/// Returns a frame after an empty virtio header, if headers are used.
fn plain(header: Option<Form>, frame: &[u8]) -> Vec<u8> {
    [vec![0; header.map_or(0, Form::len)], frame.to_vec()].concat()
}

fn event(port: &UnixPort, event: UnixEvent) -> u64 {
    port.socket_stats().events(event)
}

#[test]
fn frames_of_all_lengths_go_there_and_back_whoever_was_first() {
    for (kind, header) in KINDS.into_iter().flat_map(|kind| HEADERS.map(|header| (kind, header))) {
        for role in [UnixRole::Listen { mode: MODE }, CONNECT] {
            let place = Place::new();
            let options = place.options(kind, header, role.clone());
            let (mut port, mut peer) = match (&role, kind) {
                (UnixRole::Listen { .. }, _) => {
                    let port = UnixPort::open(&options).unwrap();
                    (port, Peer::connect(kind, &place, "peer"))
                }
                (_, UnixKind::Stream) => {
                    let listener = UnixListener::bind(place.path("port")).unwrap();
                    let port = UnixPort::open(&options).unwrap();
                    (port, Peer::Stream(listener.accept().unwrap().0))
                }
                (_, UnixKind::Datagram) => {
                    let socket = UnixDatagram::bind(place.path("port")).unwrap();
                    let port = UnixPort::open(&options).unwrap();
                    socket.connect(place.path("own")).unwrap();
                    (port, Peer::Datagram(socket))
                }
            };
            for len in [0, 1, 1446, 5000, 60_000] {
                let sent = frame(len);
                peer.send(&plain(header, &sent));
                let frames = arrived(&mut port, 0);
                assert_eq!(frames, [(sent.clone(), Meta::default())], "{kind:?} {header:?} {len}");
                transmit(&mut port, &sent, &Meta::default());
                assert_eq!(peer.receive(), plain(header, &sent), "{kind:?} {header:?} {len}");
            }
            assert_eq!(event(&port, UnixEvent::PeerMet), 1);
        }
    }
}

#[test]
fn the_header_describes_partial_checksums_and_superframes() {
    for kind in KINDS {
        let place = Place::new();
        let options = place.options(kind, Some(Form::Buffers), UnixRole::Listen { mode: MODE });
        let mut port = UnixPort::open(&options).unwrap();
        let mut peer = Peer::connect(kind, &place, "peer");
        let whole = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|tcp| tcp).payload_len(9000);
        let (bytes, start, offset) = whole.build_superframe();
        // NEEDS_CSUM, TCPV4, the headers' length, packets of 1448 bytes, and at most two buffers.
        let mut header = vec![1, 1];
        for field in [whole.header_len() as u16, 1448, start as u16, offset as u16, 0] {
            header.extend(field.to_ne_bytes());
        }
        peer.send(&[header.clone(), bytes.clone()].concat());
        let frames = arrived(&mut port, 0);
        let [(received, meta)] = &frames[..] else { panic!("{frames:?}") };
        assert_eq!(*received, bytes);
        let (start, offset) = (start as u16, offset as u16);
        assert_eq!(meta.checksum, Checksum::Partial { start, offset });
        assert!(meta.gso.is_some());
        transmit(&mut port, received, meta);
        let back = peer.receive();
        assert_eq!((back[..2].to_vec(), &back[4..10]), (vec![1, 1], &header[4..10]));
        assert_eq!(back[12..], bytes);
    }
}

#[test]
fn a_program_that_does_not_read_makes_the_port_wait_and_loses_nothing() {
    for (kind, len) in KINDS.into_iter().flat_map(|kind| [100, 1446, 60_000].map(|len| (kind, len)))
    {
        let place = Place::new();
        let role = UnixRole::Listen { mode: MODE };
        let mut port = UnixPort::open(&place.options(kind, None, role)).unwrap();
        let mut peer = Peer::connect(kind, &place, "peer");
        peer.send(&frame(0));
        assert_eq!(arrived(&mut port, 0).len(), 1);
        let numbered = |number: u32| {
            let mut frame = frame(len);
            frame[14..18].copy_from_slice(&number.to_be_bytes());
            frame
        };
        let mut taken = 0;
        while port.transmit(&[&numbered(taken)], &Meta::default()).unwrap() == Transmitted::Taken {
            taken += 1;
            assert!(taken < 1_000_000, "it never waits");
        }
        assert!(taken > 2, "{kind:?} {len}: {taken}");
        for number in 0..taken {
            assert!(peer.receive() == numbered(number), "{kind:?} {len}: {number} of {taken}");
            let _ = port.flush().unwrap();
        }
        transmit(&mut port, &numbered(taken), &Meta::default());
        assert!(peer.receive() == numbered(taken));
        let lost = port.socket_stats().counters().filter(|(counter, _)| counter.is_loss);
        assert_eq!(lost.map(|(_, count)| count).sum::<u64>(), 0);
    }
}

#[test]
fn a_program_that_hangs_up_is_counted_and_the_next_one_is_met() {
    for kind in KINDS {
        let place = Place::new();
        let role = UnixRole::Listen { mode: MODE };
        let mut port = UnixPort::open(&place.options(kind, None, role)).unwrap();
        transmit(&mut port, &frame(1), &Meta::default());
        assert_eq!(event(&port, UnixEvent::TransmitNoPeer), 1);
        for round in 1..=3_u64 {
            let mut peer = Peer::connect(kind, &place, &format!("peer{round}"));
            peer.send(&frame(2));
            // Datagram sockets have no end of stream, so the port notices only at its next check that the peer has
            // closed.
            assert_eq!(arrived(&mut port, round << 40).len(), 1, "{kind:?} {round}");
            transmit(&mut port, &frame(3), &Meta::default());
            assert_eq!(peer.receive(), frame(3));
            drop(peer);
            assert!(arrived(&mut port, (round << 40) + 1).is_empty());
            assert!(arrived(&mut port, (round << 40) + (1 << 30)).is_empty());
            assert!(arrived(&mut port, (round << 40) + (2 << 30)).is_empty());
            transmit(&mut port, &frame(4), &Meta::default());
            let counted = [UnixEvent::PeerMet, UnixEvent::PeerGone].map(|what| event(&port, what));
            assert_eq!(counted, [round, round], "{kind:?}");
            assert_eq!(event(&port, UnixEvent::TransmitNoPeer), 1 + round);
        }
    }
}

#[test]
fn a_port_that_connects_finds_a_program_that_comes_later_and_comes_again() {
    for kind in KINDS {
        let place = Place::new();
        let mut port = UnixPort::open(&place.options(kind, None, CONNECT)).unwrap();
        let mut now_ns = 0;
        for round in 1..=3 {
            assert!(arrived(&mut port, now_ns).is_empty());
            let mut peer = match kind {
                UnixKind::Stream => {
                    let listener = UnixListener::bind(place.path("port")).unwrap();
                    now_ns = port.deadline().expect("it will try again");
                    assert!(arrived(&mut port, now_ns).is_empty());
                    Peer::Stream(listener.accept().unwrap().0)
                }
                UnixKind::Datagram => {
                    let socket = UnixDatagram::bind(place.path("port")).unwrap();
                    socket.connect(place.path("own")).unwrap();
                    now_ns = port.deadline().expect("it will try again");
                    assert!(arrived(&mut port, now_ns).is_empty());
                    Peer::Datagram(socket)
                }
            };
            transmit(&mut port, &frame(3), &Meta::default());
            assert_eq!(peer.receive(), frame(3));
            peer.send(&frame(4));
            assert_eq!(arrived(&mut port, now_ns).len(), 1);
            drop(peer);
            fs::remove_file(place.path("port")).unwrap();
            for _ in 0..2 {
                now_ns = port.deadline().unwrap_or(now_ns);
                assert!(arrived(&mut port, now_ns).is_empty());
            }
            assert_eq!(event(&port, UnixEvent::PeerGone), round, "{kind:?}");
        }
    }
}

/// A user other than root and the user that runs the tests.
const ALICE: u32 = 12_345;

/// Runs as another user, in a thread.
fn as_alice<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let other_user = || {
        let (user, group) = (Uid::from_raw(ALICE), Gid::from_raw(ALICE));
        set_thread_res_gid(group, group, group).unwrap();
        set_thread_res_uid(user, user, user).unwrap();
        work()
    };
    thread::scope(|scope| scope.spawn(other_user).join().unwrap())
}

/// Returns a directory that belongs to another user, and a socket in it that only that user may open.
fn place_of_alice() -> Option<(Place, UnixDatagram)> {
    if !geteuid().is_root() {
        println!("skipped: only root can become another user");
        return None;
    }
    let place = Place::new();
    fs::set_permissions(place.0.path(), fs::Permissions::from_mode(0o711)).unwrap();
    fs::create_dir(place.path("home")).unwrap();
    chown(place.path("home"), Some(ALICE), None).unwrap();
    let log = UnixDatagram::bind(place.path("log")).unwrap();
    fs::set_permissions(place.path("log"), fs::Permissions::from_mode(0o600)).unwrap();
    log.set_nonblocking(true).unwrap();
    Some((place, log))
}

#[test]
fn a_sender_whose_name_leads_to_the_socket_of_another_user_gets_no_answer_there() {
    for is_hard in [false, true] {
        let Some((place, log)) = place_of_alice() else { return };
        let (name, target) = (place.path("home/own"), place.path("log"));
        let replace = || {
            fs::remove_file(&name).unwrap();
            match is_hard {
                // The kernel lets users create hard links to other users' files, unless fs.protected_hardlinks forbids
                // it.
                true => fs::hard_link(&target, &name).unwrap(),
                false => as_alice(|| symlink(&target, &name).unwrap()),
            }
        };
        let role = UnixRole::Listen { mode: 0o666 };
        let mut port = UnixPort::open(&place.options(UnixKind::Datagram, None, role)).unwrap();
        let send = || {
            as_alice(|| {
                let socket = UnixDatagram::bind(&name).unwrap();
                socket.send_to(&frame(1), place.path("port")).unwrap();
                socket
            })
        };
        // The name is replaced by another socket before the port answers.
        let _first = send();
        replace();
        assert_eq!(arrived(&mut port, 0).len(), 1);
        transmit(&mut port, &frame(2), &Meta::default());
        assert_eq!(log.recv(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(event(&port, UnixEvent::PeerMet), 0);

        // The name is replaced after the port has answered. The port detects this at its next check.
        fs::remove_file(&name).unwrap();
        let second = send();
        assert_eq!(arrived(&mut port, 1).len(), 1);
        transmit(&mut port, &frame(3), &Meta::default());
        assert_eq!(second.recv(&mut [0; 4096]).unwrap(), frame(3).len());
        replace();
        let mut now_ns = 1;
        for _ in 0..2 {
            now_ns = port.deadline().unwrap_or(now_ns);
            assert!(arrived(&mut port, now_ns).is_empty());
        }
        transmit(&mut port, &frame(4), &Meta::default());
        assert_eq!(log.recv(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        let counted = [UnixEvent::PeerMet, UnixEvent::PeerGone].map(|what| event(&port, what));
        assert_eq!(counted, [1, 1], "hard: {is_hard}");
    }
}

#[test]
fn a_port_that_connects_follows_no_link_of_another_user_to_a_socket() {
    for is_hard in [false, true] {
        let Some((place, log)) = place_of_alice() else { return };
        let (name, target) = (place.path("home/peer"), place.path("log"));
        let mut options = place.options(UnixKind::Datagram, None, CONNECT);
        options.path.clone_from(&name);
        let mut port = UnixPort::open(&options).unwrap();
        match is_hard {
            true => fs::hard_link(&target, &name).unwrap(),
            false => as_alice(|| symlink(&target, &name).unwrap()),
        }
        let mut now_ns = 0;
        for _ in 0..2 {
            assert!(arrived(&mut port, now_ns).is_empty());
            transmit(&mut port, &frame(1), &Meta::default());
            now_ns = port.deadline().expect("it will try again");
        }
        assert_eq!(log.recv(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(event(&port, UnixEvent::PeerMet), 0, "hard: {is_hard}");
        // Another socket gets the same name, and the port connects to it.
        fs::remove_file(&name).unwrap();
        let peer = as_alice(|| UnixDatagram::bind(&name).unwrap());
        assert!(arrived(&mut port, now_ns).is_empty());
        transmit(&mut port, &frame(2), &Meta::default());
        assert_eq!(peer.recv(&mut [0; 4096]).unwrap(), frame(2).len());
    }
}

#[test]
fn half_a_frame_at_the_end_of_a_stream_is_counted() {
    let place = Place::new();
    let role = UnixRole::Listen { mode: MODE };
    let mut port = UnixPort::open(&place.options(UnixKind::Stream, None, role)).unwrap();
    let mut stream = UnixStream::connect(place.path("port")).unwrap();
    stream.write_all(&[0, 0, 0, 60, 1, 2, 3]).unwrap();
    assert!(arrived(&mut port, 0).is_empty());
    drop(stream);
    assert!(arrived(&mut port, 0).is_empty());
    assert_eq!(event(&port, UnixEvent::ReceiveUnfinished), 1);
}

#[test]
fn lengths_and_headers_that_lie_cost_their_frame_or_the_connection() {
    for kind in KINDS {
        let place = Place::new();
        let role = UnixRole::Listen { mode: MODE };
        let options = place.options(kind, Some(Form::Buffers), role);
        let mut port = UnixPort::open(&options).unwrap();
        let mut peer = Peer::connect(kind, &place, "peer");
        let refused = |port: &UnixPort, error| port.stats().refused(error);
        for bytes in [vec![], vec![0; 11], vec![0; 12], plain(Some(Form::Buffers), &[0; 13])] {
            peer.send(&bytes);
        }
        assert!(arrived(&mut port, 0).is_empty());
        assert_eq!(refused(&port, VnetError::Short), 4, "{kind:?}");
        // A superframe with a segment size of 0, and a checksum outside the frame.
        let lies = [
            (VnetError::SizeZero, [1, 1, 54, 0, 0, 0, 34, 0, 16, 0, 0, 0]),
            (VnetError::ChecksumOutside, [1, 0, 0, 0, 0, 0, 255, 255, 16, 0, 0, 0]),
        ];
        for (error, header) in lies {
            peer.send(&[&header[..], &frame(3000)].concat());
            assert!(arrived(&mut port, 0).is_empty());
            assert_eq!(refused(&port, error), 1, "{kind:?}");
        }
        peer.send(&plain(Some(Form::Buffers), &vec![0; 66 << 10]));
        assert_eq!(arrived(&mut port, 0).len(), 1, "the maximum");
        match &mut peer {
            Peer::Stream(stream) => {
                stream.write_all(&(12 + (66 << 10) + 1_u32).to_be_bytes()).unwrap();
                assert!(arrived(&mut port, 0).is_empty());
                assert_eq!(event(&port, UnixEvent::PeerCutOff), 1);
                assert_eq!(stream.read(&mut [0]).unwrap(), 0, "disconnected");
                peer = Peer::connect(kind, &place, "peer");
            }
            Peer::Datagram(_) => {
                peer.send(&plain(Some(Form::Buffers), &vec![0; (66 << 10) + 1]));
                assert!(arrived(&mut port, 0).is_empty());
                assert_eq!(port.stats().events(LiveEvent::ReceiveTruncated), 1);
            }
        }
        peer.send(&plain(Some(Form::Buffers), &frame(5)));
        assert_eq!(arrived(&mut port, 0).len(), 1, "the port is as it was");
    }
}

/// Tests superframes with a very large number of packets. The port delivers only one of them per call, because
/// segmenting it takes as long as segmenting many normal ones, and packets for which there is no room have to be kept.
#[test]
fn superframes_of_countless_packets_are_handed_out_one_by_one() {
    for kind in KINDS {
        let place = Place::new();
        let options = place.options(kind, Some(Form::Buffers), UnixRole::Listen { mode: MODE });
        let mut port = UnixPort::open(&options).unwrap();
        let mut peer = Peer::connect(kind, &place, "peer");
        for (packet_len, at_once) in [(1_u16, [1, 1, 1]), (1448, [3, 0, 0])] {
            let header =
                [vec![1, 1, 54, 0], packet_len.to_ne_bytes().to_vec(), vec![34, 0, 16, 0, 0, 0]];
            for _ in 0..3 {
                peer.send(&[header.concat(), frame(60_000)].concat());
            }
            for expected in at_once {
                assert_eq!(port.receive(0, 64, &mut |_| ()).unwrap(), expected, "{kind:?}");
            }
        }
    }
}

/// Tests frames that a path would already have segmented and completed. The port must not send them, because without a
/// header it cannot describe them.
#[test]
fn without_headers_no_superframe_and_no_partial_checksum_leaves() {
    for kind in KINDS {
        let place = Place::new();
        let options = place.options(kind, None, UnixRole::Listen { mode: MODE });
        let mut port = UnixPort::open(&options).unwrap();
        let mut peer = Peer::connect(kind, &place, "peer");
        peer.send(&frame(0));
        assert_eq!(arrived(&mut port, 0).len(), 1);
        let whole = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|tcp| tcp).payload_len(2000);
        let (bytes, start, offset) = whole.build_superframe();
        let checksum = Checksum::Partial { start: start as u16, offset: offset as u16 };
        let mut meta = Meta { checksum, ..Meta::default() };
        transmit(&mut port, &bytes, &meta);
        let size = NonZeroU16::new(1448).unwrap();
        meta.gso = Some(Gso { size: GsoSize::Every(size), ..Gso::UNKNOWN });
        transmit(&mut port, &bytes, &meta);
        for len in [1448, 552] {
            let packet = peer.receive();
            assert_eq!(packet.len(), HEADERS_LEN + len, "{kind:?}");
            assert!(oracle::is_right(&packet, oracle::Link::Ethernet));
        }
        assert_eq!(port.stats().refused(VnetError::Inexpressible), 1, "the partial one");
    }
}

#[test]
fn random_bytes_and_random_headers_stop_nothing() {
    let mut random = Random::new(20);
    let place = Place::new();
    let role = UnixRole::Listen { mode: MODE };
    let options = place.options(UnixKind::Stream, Some(Form::Buffers), role);
    let mut port = UnixPort::open(&options).unwrap();
    // If another test has forked a child that has not called `execve` yet, the child holds a copy of each descriptor.
    // This test holds such copies on purpose.
    let mut copies = Vec::new();
    for disconnected in 1..=300 {
        let mut stream = UnixStream::connect(place.path("port")).unwrap();
        // All data fits into the buffers, so no write has to wait for the port.
        stream.set_nonblocking(true).unwrap();
        copies.push(stream.try_clone().unwrap());
        if random.one_in(2) {
            let len = random.below(2000);
            stream.write_all(&random.bytes(len)).unwrap();
        } else {
            for _ in 0..20 {
                let mut bytes = [random.bytes(12), frame(random.below(3000))].concat();
                // Only defined flags and types are used, so that frames get past the first check.
                (bytes[0], bytes[1]) = (random.below(8) as u8, random.below(8) as u8);
                stream.write_all(&(bytes.len() as u32).to_be_bytes()).unwrap();
                stream.write_all(&bytes).unwrap();
            }
        }
        for (frame, meta) in arrived(&mut port, 0) {
            let _ = port.transmit(&[&frame], &meta).unwrap();
        }
        let _ = port.flush().unwrap();
        // Closing the stream is not sufficient while there are copies of it.
        stream.shutdown(Shutdown::Both).unwrap();
        drop(stream);
        arrived(&mut port, 0);
        assert_eq!(event(&port, UnixEvent::PeerGone), disconnected);
    }
    let mut peer = Peer::connect(UnixKind::Stream, &place, "peer");
    peer.send(&plain(Some(Form::Buffers), &frame(5)));
    assert_eq!(arrived(&mut port, 0).len(), 1, "the port is as it was");
}

#[test]
fn a_place_that_cannot_be_is_refused() {
    let place = Place::new();
    let open = |path: &Path| UnixPort::open(&UnixOptions::new(path)).unwrap_err().kind();
    assert_eq!(open(&place.path(&"x".repeat(200))), ErrorKind::InvalidInput);
    assert_eq!(open(&place.path("no/folder")), ErrorKind::NotFound);
    fs::write(place.path("text"), "").unwrap();
    assert_eq!(open(&place.path("text")), ErrorKind::AddrInUse);
    let _port = UnixPort::open(&UnixOptions::new(place.path("port"))).unwrap();
    assert_eq!(open(&place.path("port")), ErrorKind::AddrInUse, "another port is there");
    let mut lacking = place.options(UnixKind::Datagram, None, CONNECT);
    lacking.role = CONNECT;
    assert_eq!(UnixPort::open(&lacking).unwrap_err().kind(), ErrorKind::InvalidInput);
}
