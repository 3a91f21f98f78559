//! Tests AF_XDP sockets on one device of a veth pair, with a packet socket on the other.

use std::io::{self, IoSlice};
use std::time::Duration;

use grosso_sys::interface::{Control, InterfaceName};
use grosso_sys::netlink::{LinkChange, Netlink};
use grosso_sys::packet::PacketSocket;
use grosso_sys::wait::{Interest, Waiter};
use grosso_sys::xdp::{AttachMode, CopyMode, Frame, Redirect, XdpOptions, XdpSocket};

use super::{FRAME, SOON, isolated, skip};

/// Options with few chunks and small rings, so that a test wraps around them.
const SMALL: XdpOptions = XdpOptions {
    chunk_bytes: 2048,
    chunks: 64,
    transmit_chunks: 16,
    ring_slots: 32,
    copy: CopyMode::Copy,
    multi_buffer: false,
};

#[test]
fn packets_come_and_go_in_both_modes_for_longer_than_the_rings() {
    for mode in [AttachMode::Native, AttachMode::Generic] {
        with_pair(1500, 1, |index, peer| {
            let Some(program) = attach(index, mode)? else { return Ok(()) };
            let mut socket = XdpSocket::bind(index, 0, &SMALL)?;
            program.set_socket(0, &socket)?;
            assert!(!socket.is_zero_copy()?);
            let mut frames = Vec::new();
            for round in 0..20_u8 {
                for i in 0..10 {
                    peer.send(&marked(round, i))?;
                }
                receive(&mut socket, &mut frames, 10)?;
                for (i, frame) in frames.iter().enumerate() {
                    assert_eq!(frame.as_ref(), marked(round, i as u8));
                    assert!(frame.headroom() >= 256 && !frame.continues());
                }
                // Send the frames back from the chunks in which they arrived, with another mark.
                frames.iter_mut().for_each(|frame| frame.as_mut()[52] = 0x99);
                assert_eq!(socket.transmit(&mut frames)?, 10);
                assert_eq!((frames.len(), socket.flush()?), (0, 0));
                for i in 0..10 {
                    let mut expected = marked(round, i);
                    expected[52] = 0x99;
                    assert_eq!(next(peer)?, expected);
                }
            }
            let statistics = socket.statistics()?;
            assert_eq!(statistics, Default::default(), "{mode:?}");
            assert_eq!(program.mode(), mode);
            drop(program);
            peer.send(&marked(0, 0))?;
            assert_eq!(socket.receive(&mut frames, 1)?, 0, "the program is detached");
            Ok(())
        });
    }
}

#[test]
fn no_chunk_is_lost_or_doubled_when_frames_are_held() {
    with_pair(1500, 1, |index, peer| {
        let Some(program) = attach(index, AttachMode::Native)? else { return Ok(()) };
        let mut socket = XdpSocket::bind(index, 0, &SMALL)?;
        program.set_socket(0, &socket)?;
        // The kernel has 32 of the 64 chunks, and 16 are reserved for sending. It gets the other 16 on the next
        // receive.
        assert_eq!(socket.free_chunks(), 32);
        let mut held: Vec<Frame> = Vec::new();
        for i in 0..100 {
            peer.send(&marked(1, i))?;
            socket.receive(&mut held, 100)?;
        }
        assert_eq!(held.len(), 48, "all chunks except those reserved for sending");
        for (i, frame) in held.iter().enumerate() {
            assert_eq!(frame.as_ref(), marked(1, i as u8), "a held frame was overwritten");
        }
        assert_eq!(socket.free_chunks(), 16);
        let lost = socket.statistics()?;
        assert!(lost.fill_ring_empty + lost.receive_dropped > 0, "{lost:?}");
        let kept: Vec<Frame> = std::iter::from_fn(|| socket.allocate()).collect();
        assert_eq!((kept.len(), socket.free_chunks()), (16, 0));
        drop(kept);

        held.drain(..20);
        socket.receive(&mut held, 0)?;
        peer.send(&marked(2, 2))?;
        receive(&mut socket, &mut held, 1)?;
        assert_eq!(held.last().unwrap().as_ref(), marked(2, 2), "the socket continues to receive");
        // A frame stays valid after its socket is dropped.
        drop(socket);
        assert_eq!(held[0].as_ref(), marked(1, 20));
        Ok(())
    });
}

#[test]
fn a_frame_of_another_socket_is_refused_and_a_full_ring_resumes() {
    with_pair(1500, 2, |index, peer| {
        let mut socket = XdpSocket::bind(index, 0, &XdpOptions { chunks: 128, ..SMALL })?;
        let mut other = XdpSocket::bind(index, 1, &SMALL)?;
        let mut foreign = vec![other.allocate().unwrap()];
        let refused = socket.transmit(&mut foreign).unwrap_err();
        assert_eq!((refused.kind(), foreign.len()), (io::ErrorKind::InvalidInput, 1));

        let mut frames = Vec::new();
        for i in 0..50 {
            let mut frame = socket.allocate().unwrap();
            frame.fill(&[IoSlice::new(&FRAME[..10]), IoSlice::new(&marked(3, i)[10..])]).unwrap();
            frames.push(frame);
        }
        let mut sent = 0;
        for _ in 0..10 {
            sent += socket.transmit(&mut frames)?;
        }
        assert_eq!((sent, frames.len(), socket.flush()?), (50, 0, 0));
        for i in 0..50 {
            assert_eq!(next(peer)?, marked(3, i));
        }
        Ok(())
    });
}

#[test]
fn a_packet_longer_than_a_chunk_comes_in_pieces_and_goes_in_pieces() {
    with_pair(9000, 1, |index, peer| {
        let Some(program) = attach(index, AttachMode::Native)? else { return Ok(()) };
        let options = XdpOptions { multi_buffer: true, ..SMALL };
        let mut socket = match XdpSocket::bind(index, 0, &options) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                println!("skipped: pieces want Linux 6.6");
                return Ok(());
            }
            socket => socket?,
        };
        program.set_socket(0, &socket)?;
        let mut long = FRAME.to_vec();
        long.extend((0..8000_u32).map(|i| (i % 251) as u8));
        peer.send(&long)?;
        let mut frames = Vec::new();
        receive(&mut socket, &mut frames, 5)?;
        let whole: Vec<u8> = frames.iter().flat_map(|frame| frame.as_ref().to_vec()).collect();
        assert_eq!(whole, long);
        let ends: Vec<bool> = frames.iter().map(Frame::continues).collect();
        assert!(!ends[ends.len() - 1] && ends[..ends.len() - 1].iter().all(|continues| *continues));

        // A packet with a missing part is not sent.
        let last = frames.pop().unwrap();
        assert_eq!(socket.transmit(&mut frames)?, 0);
        frames.push(last);
        assert_eq!(socket.transmit(&mut frames)?, ends.len());
        assert_eq!(next(peer)?, long);
        Ok(())
    });
}

#[test]
fn options_that_make_no_sense_and_devices_that_are_not_there_are_refused() {
    with_pair(1500, 1, |index, _| {
        let refused = |options: XdpOptions| XdpSocket::bind(index, 0, &options).unwrap_err();
        for options in [
            XdpOptions { ring_slots: 33, ..SMALL },
            XdpOptions { ring_slots: 0, ..SMALL },
            XdpOptions { chunk_bytes: 1000, ..SMALL },
            XdpOptions { chunk_bytes: 8192, ..SMALL },
            XdpOptions { chunks: 0, ..SMALL },
        ] {
            assert_eq!(refused(options).kind(), io::ErrorKind::InvalidInput, "{options:?}");
        }
        let zero_copy = refused(XdpOptions { copy: CopyMode::ZeroCopy, ..SMALL });
        assert_eq!(
            zero_copy.raw_os_error(),
            Some(libc::EOPNOTSUPP),
            "a veth device does not support zero copy"
        );
        XdpSocket::bind(index, 77, &SMALL).unwrap_err();
        let gone = XdpSocket::bind(u32::MAX >> 1, 0, &SMALL).unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(libc::ENODEV));
        Ok(())
    });
}

#[test]
fn a_waiting_socket_is_woken() {
    with_pair(1500, 1, |index, peer| {
        let Some(program) = attach(index, AttachMode::Native)? else { return Ok(()) };
        let mut socket = XdpSocket::bind(index, 0, &SMALL)?;
        program.set_socket(0, &socket)?;
        let waiter = Waiter::new()?;
        waiter.add(&socket, 7, Interest::READ)?;
        let mut ready = Vec::new();
        waiter.wait(&mut ready, Some(Duration::ZERO))?;
        assert!(ready.is_empty());
        peer.send(&marked(1, 1))?;
        waiter.wait(&mut ready, Some(SOON))?;
        assert_eq!(ready.iter().map(|r| r.token).collect::<Vec<_>>(), [7]);
        let mut frames = Vec::new();
        assert_eq!(socket.receive(&mut frames, 9)?, 1);
        Ok(())
    });
}

/// Runs a test with a veth pair that carries no other traffic. The test gets the index of one device and a packet
/// socket on the other.
fn with_pair(
    mtu: u32,
    queues: u32,
    test: impl FnOnce(u32, &PacketSocket) -> io::Result<()> + Send,
) {
    isolated(|_| {
        let [near, far] = ["near", "far"].map(|name| InterfaceName::new(name).unwrap());
        let change = LinkChange::new().mtu(mtu).queues(queues);
        Netlink::new()?.add_veth((&near, change.up(true)), (&far, change))?;
        Control::new()?.set_up(&far, true)?;
        let peer = PacketSocket::builder().ignore_outgoing(true).bind(&far)?;
        test(Control::new()?.index(&near)?, &peer)
    });
}

fn attach(index: u32, mode: AttachMode) -> io::Result<Option<Redirect>> {
    match Redirect::attach(index, mode) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            skip("a BPF program wants root");
            Ok(None)
        }
        program => program.map(Some),
    }
}

fn marked(round: u8, i: u8) -> [u8; 54] {
    let mut frame = FRAME;
    (frame[52], frame[53]) = (round, i);
    frame
}

/// Receives `count` frames. Waits for the softirq, because the kernel may defer it.
fn receive(socket: &mut XdpSocket, frames: &mut Vec<Frame>, count: usize) -> io::Result<()> {
    let waiter = Waiter::new()?;
    waiter.add(&*socket, 0, Interest::READ)?;
    let wanted = frames.len() + count;
    while frames.len() < wanted {
        let mut ready = Vec::new();
        waiter.wait(&mut ready, Some(SOON))?;
        assert!(!ready.is_empty(), "{} of {wanted} frames arrived", frames.len());
        socket.receive(frames, wanted - frames.len())?;
    }
    Ok(())
}

fn next(peer: &PacketSocket) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; 16_384];
    assert!(peer.wait(SOON)?, "no packet arrived");
    let received = peer.receive(&mut buffer)?.expect("a packet was received");
    buffer.truncate(received.length);
    Ok(buffer)
}
