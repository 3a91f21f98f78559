//! Tests packet sockets: rings, batches, fanout, and packet metadata.
//!
//! Longer than 600 lines: each property of packet sockets has its own test, and the tests share their helpers.

use std::io::{self, IoSlice};
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, SystemTime};

use grosso_sys::interface::{Control, InterfaceName};
use grosso_sys::netlink::{LinkChange, Netlink};
use grosso_sys::packet::{
    Fanout, FanoutRule, IpFilter, PacketKind, PacketSocket, ReceiveRing, RingLayout, Statistics,
    Status, VlanTag,
};
use grosso_sys::tun::Offloads;
use grosso_sys::wait::{Interest, Waiter};

use super::{FRAME, SOON, assert_invalid, isolated, superframe, tap, with_header};

/// Ring layout with room for four superframes.
const FOUR: RingLayout = RingLayout { slot_bytes: 128 << 10, slots: 4 };
/// Ring layout with the smallest slots.
const SMALL: RingLayout = RingLayout { slot_bytes: 256, slots: 16 };

#[test]
fn ring_frames_have_the_kernel_s_metadata() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        let socket = PacketSocket::builder().virtio_header(true).ignore_outgoing(true);
        let mut ring = socket.bind_receive_ring(tap.name(), FOUR)?;
        assert!(ring.receive().is_none());

        let tagged = [&FRAME[..12], &[0x88, 0xa8, 0x20, 0x07], &FRAME[12..]].concat();
        tap.write(&with_header(&tagged))?;
        let (header, merged) = superframe(300);
        tap.write(&[&header[..], &merged].concat())?;
        assert!(ring.wait(SOON)?);

        let first = ring.receive().expect("the tagged frame");
        assert_eq!(first.as_ref(), FRAME);
        assert_eq!(first.vlan(), Some(VlanTag { protocol: 0x88a8, control: 0x2007 }));
        assert_eq!(first.virtio_header(), [0; 10]);
        assert!(!first.status().checksum_not_ready() && !first.status().losing());
        assert_eq!((first.original_bytes(), first.truncated()), (FRAME.len(), false));
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        assert!(now.abs_diff(first.timestamp()) < Duration::from_secs(60));

        let second = ring.receive().expect("the superframe");
        assert_eq!(second.as_ref(), merged);
        assert_eq!(second.virtio_header()[..2], [1, 1]);
        assert_eq!(second.virtio_header()[4..], header[4..]);
        assert!(second.status().checksum_not_ready());
        assert_eq!(second.vlan(), None);
        assert!(ring.receive().is_none());
        assert_eq!(ring.take_statistics()?, Statistics { packets: 2, drops: 0 });
        assert_eq!(ring.malformed(), 0);
        Ok(())
    });
}

#[test]
fn a_ring_may_have_one_slot() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        let layout = RingLayout { slot_bytes: 1 << 20, slots: 1 };
        let socket = PacketSocket::builder().virtio_header(true).ignore_outgoing(true);
        let mut ring = socket.bind_receive_ring(tap.name(), layout)?;
        for _ in 0..3 {
            tap.write(&with_header(&FRAME))?;
            assert!(ring.wait(SOON)?);
            let frame = ring.receive().expect("a frame");
            assert_eq!(frame.as_ref(), FRAME);
            assert!(ring.receive().is_none(), "the slot is held");
        }
        Ok(())
    });
}

#[test]
fn ring_frames_have_their_direction() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        let address = [0x02, 0, 0, 0, 0, 0x42];
        control.set_hardware_address(tap.name(), address)?;
        let is_promiscuous = || {
            let text = std::fs::read_to_string("/sys/class/net/tap0/flags")?;
            let flags =
                text.trim().strip_prefix("0x").and_then(|t| u32::from_str_radix(t, 16).ok());
            io::Result::Ok(flags.unwrap() & 0x100 != 0)
        };
        assert!(!is_promiscuous()?);
        let socket = PacketSocket::builder().virtio_header(true).promiscuous(true);
        let mut ring = socket.bind_receive_ring(tap.name(), SMALL)?;
        assert!(is_promiscuous()?);
        let to = |address: [u8; 6]| [&address[..], &FRAME[6..]].concat();
        let group = [0x01, 0x00, 0x5e, 0, 0, 1];
        for target in [address, [0xff; 6], group, [0x02, 0, 0, 0, 0, 0x43]] {
            tap.write(&with_header(&to(target)))?;
        }
        PacketSocket::builder().virtio_header(true).bind(tap.name())?.send(&with_header(&FRAME))?;
        let kinds: Vec<_> = std::iter::from_fn(|| ring.receive().map(|f| f.kind())).collect();
        let (host, broadcast) = (PacketKind::Host, PacketKind::Broadcast);
        let (multicast, other) = (PacketKind::Multicast, PacketKind::OtherHost);
        assert_eq!(kinds, [host, broadcast, multicast, other, PacketKind::Outgoing]);
        drop(ring);
        assert!(!is_promiscuous()?, "promiscuous only while the socket is open");
        Ok(())
    });
}

/// Returns an Ethernet frame with an empty IPv6 packet. `next` is its next header; `source` and `destination` are the
/// last bytes of its addresses.
fn ipv6(next: u8, source: u8, destination: u8) -> Vec<u8> {
    let mut frame = [&FRAME[..12], &[0x86, 0xdd, 0x60], &[0; 39]].concat();
    (frame[20], frame[21], frame[37], frame[53]) = (next, 8, source, destination);
    frame
}

#[test]
fn packets_of_a_protocol_between_two_hosts_come_of_any_interface() {
    isolated(|control| {
        let address = [0x02, 0, 0, 0, 0, 0x42];
        let taps = ["tap0", "tap1"].map(|name| tap(control, name).unwrap());
        for tap in &taps {
            control.set_hardware_address(tap.name(), address)?;
        }
        let four = IpFilter::new(&[253, 254], "10.0.0.1".parse().unwrap());
        let six = IpFilter::new(&[253, 254], "::1".parse().unwrap());
        let open = |filter: &IpFilter| {
            let socket = PacketSocket::builder().virtio_header(true).ignore_outgoing(true);
            socket.bind_receive_ring_of_ip(filter, SMALL)
        };
        let from_all = open(&four)?;
        let from_one = open(&four.from("10.0.0.2".parse().unwrap()))?;
        let from_all_six = open(&six)?;
        let from_one_six = open(&six.from("::2".parse().unwrap()))?;
        let to = |address: [u8; 6], frame: &[u8]| [&address[..], &frame[6..]].concat();
        let ipv4 = |protocol: u8, source: u8, destination: u8| {
            let mut frame = FRAME.to_vec();
            frame[23] = protocol;
            frame[26..34].copy_from_slice(&[10, 0, 0, source, 10, 0, 0, destination]);
            frame
        };
        let cases = [
            (ipv4(253, 2, 1), 1, 1),
            (ipv4(254, 2, 1), 1, 1),
            (ipv4(253, 3, 1), 1, 0),
            (ipv4(253, 2, 3), 0, 0),
            (ipv4(252, 2, 1), 0, 0),
            (ipv6(254, 2, 1), 1, 1),
            (ipv6(44, 2, 1), 1, 1),
            (ipv6(60, 2, 1), 1, 1),
            (ipv6(253, 3, 1), 1, 0),
            (ipv6(253, 2, 2), 0, 0),
            (ipv6(0, 2, 1), 0, 0),
        ];
        let mut rings = [[from_all, from_one], [from_all_six, from_one_six]];
        for (i, (frame, all, one)) in cases.iter().enumerate() {
            let tap = &taps[i % 2];
            tap.write(&with_header(&to([0x02, 0, 0, 0, 0, 0x43], frame)))?;
            tap.write(&with_header(&to(address, frame)))?;
            let family = usize::from(frame[12] == 0x86);
            for (ring, expected) in rings[family].iter_mut().zip([*all, *one]) {
                let received: Vec<_> = std::iter::from_fn(|| ring.receive()).collect();
                assert_eq!(received.len(), expected, "case {i}");
                for packet in received {
                    assert_eq!(packet.network_offset(), 14);
                    assert_eq!(&packet.as_ref()[14..], &frame[14..], "case {i}");
                }
            }
            for ring in &mut rings[1 - family] {
                assert!(ring.receive().is_none(), "case {i}");
            }
        }
        Ok(())
    });
}

#[test]
fn a_held_slot_is_neither_handed_out_again_nor_overwritten() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        let builder = PacketSocket::builder().ignore_outgoing(true);
        let mut ring = builder.bind_receive_ring(tap.name(), FOUR)?;
        let write = |mark: u8| -> io::Result<()> {
            let mut frame = FRAME;
            frame[53] = mark;
            tap.write(&with_header(&frame)).map(|_| ())
        };
        let mark = |ring: &mut ReceiveRing| ring.receive().map(|frame| frame.as_ref()[53]);
        (1..=4).try_for_each(write)?;
        let held = ring.receive().expect("the first frame");
        // The next three frames go back to the kernel while the first is still held.
        assert_eq!(
            [mark(&mut ring), mark(&mut ring), mark(&mut ring)],
            [Some(2), Some(3), Some(4)]
        );
        assert!(ring.receive().is_none(), "the next slot is held");
        write(5)?;
        assert_eq!(held.as_ref()[53], 1);
        assert!(ring.receive().is_none());
        assert_eq!(ring.take_statistics()?, Statistics { packets: 5, drops: 1 });

        drop(held);
        (6..=9).try_for_each(write)?;
        let mut frame = ring.receive().expect("the ring continues");
        assert_eq!(frame.as_ref()[53], 6);
        assert!(frame.status().losing() || ring.take_statistics()?.drops == 0);
        frame.as_mut()[53] = 0xee;
        assert_eq!(frame.as_ref()[53], 0xee);
        // A frame stays valid after its ring is dropped.
        drop(ring);
        assert_eq!(frame.as_ref()[53], 0xee);
        Ok(())
    });
}

/// Returns the name under which a ring's socket appears in the list of mapped memory.
fn name_of(ring: &ReceiveRing) -> String {
    let link = format!("/proc/self/fd/{}", ring.as_fd().as_raw_fd());
    std::fs::read_link(link).unwrap().to_string_lossy().into_owned()
}

/// Returns whether the ring of this socket is still mapped.
fn is_mapped(socket: &str) -> bool {
    std::fs::read_to_string("/proc/self/maps").unwrap().lines().any(|line| line.ends_with(socket))
}

#[test]
fn a_ring_s_memory_stays_until_its_last_frame_is_gone_and_no_longer_than_the_next_ring() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        let open = || PacketSocket::builder().bind_receive_ring(tap.name(), FOUR);
        let mut ring = open()?;
        let socket = name_of(&ring);
        (0..2).try_for_each(|_| tap.write(&with_header(&FRAME)).map(drop))?;
        let frames = [(); 2].map(|()| ring.receive().expect("a frame"));
        drop(ring);
        for frame in frames {
            drop(open()?);
            assert!(is_mapped(&socket), "a frame keeps the mapping");
            std::thread::spawn(move || assert_eq!(frame.as_ref(), FRAME)).join().unwrap();
        }
        drop(open()?);
        assert!(!is_mapped(&socket));
        let ring = open()?;
        let socket = name_of(&ring);
        drop(ring);
        assert!(!is_mapped(&socket), "a ring without frames is unmapped immediately");
        Ok(())
    });
}

#[test]
fn a_waiter_of_edges_sleeps_while_frames_are_held_and_wakes_for_new_ones() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        let builder = PacketSocket::builder().ignore_outgoing(true);
        let mut ring = builder.bind_receive_ring(tap.name(), FOUR)?;
        let waiter = Waiter::new()?;
        waiter.add(&ring, 1, Interest::READ.edge_triggered())?;
        let mut ready = Vec::new();
        let mut held = Vec::new();
        for _ in 0..3 {
            tap.write(&with_header(&FRAME))?;
            waiter.wait(&mut ready, Some(SOON))?;
            assert_eq!(ready.len(), 1, "a new frame wakes the waiter");
            held.push(ring.receive().expect("the frame"));
            waiter.wait(&mut ready, Some(Duration::ZERO))?;
            assert_eq!(ready.len(), 0, "a held frame does not wake the waiter");
            assert!(ring.wait(Duration::ZERO)?, "poll reports the ring as readable");
        }
        held.clear();
        assert!(!ring.wait(Duration::ZERO)?);
        Ok(())
    });
}

#[test]
fn a_frame_longer_than_its_slot_is_called_truncated() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        let mut ring =
            PacketSocket::builder().ignore_outgoing(true).bind_receive_ring(tap.name(), SMALL)?;
        let mut long = FRAME.to_vec();
        long.resize(1000, 7);
        tap.write(&with_header(&long))?;
        let frame = ring.receive().expect("a truncated frame");
        assert!(frame.truncated());
        assert_eq!(frame.original_bytes(), 1000);
        assert_eq!(frame.as_ref(), &long[..frame.as_ref().len()]);
        assert!((54..256).contains(&frame.as_ref().len()));
        Ok(())
    });
}

#[test]
fn what_is_longer_than_its_slot_is_kept_whole_in_its_place() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        let socket = PacketSocket::builder().virtio_header(true).ignore_outgoing(true);
        let mut ring = socket.keep_long(true).bind_receive_ring(tap.name(), SMALL)?;
        let superframes = [1000, 3000].map(superframe);
        tap.write(&with_header(&FRAME))?;
        for (header, frame) in &superframes {
            tap.write(&[&header[..], frame].concat())?;
            tap.write(&with_header(&FRAME))?;
        }
        let mut buffer = vec![0; 10 + 4000];
        for (header, frame) in &superframes {
            let short = ring.receive().expect("the frame before the superframe");
            assert!(!short.truncated() && !short.status().kept());
            let long = ring.receive().expect("the superframe");
            assert!(long.truncated() && long.status().kept());
            assert_eq!(long.virtio_header()[4..], header[4..]);
            let whole = ring.receive_long(&mut buffer)?.expect("the complete superframe");
            assert_eq!(buffer[4..10], header[4..]);
            assert_eq!(buffer[10..whole.length], frame[..]);
        }
        assert!(!ring.receive().expect("the last frame").truncated());
        assert_eq!(ring.receive_long(&mut buffer)?, None);
        Ok(())
    });
}

#[test]
fn a_long_packet_is_there_though_its_interface_went_down_meanwhile() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        let socket = PacketSocket::builder().virtio_header(true).ignore_outgoing(true);
        let mut ring = socket.keep_long(true).bind_receive_ring(tap.name(), SMALL)?;
        let (header, frame) = superframe(3000);
        tap.write(&[&header[..], &frame].concat())?;
        control.set_up(tap.name(), false)?;
        assert!(ring.receive().expect("the superframe").status().kept());
        let mut buffer = vec![0; 10 + 4000];
        let whole = ring.receive_long(&mut buffer)?.expect("the complete superframe");
        assert_eq!(buffer[10..whole.length], frame[..]);
        Ok(())
    });
}

#[test]
fn a_ring_sends_batch_after_batch_in_order() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        let mut ring = PacketSocket::builder()
            .virtio_header(true)
            .qdisc_bypass(true)
            .bind_transmit_ring(tap.name(), SMALL)?;
        let mut buffer = [0; 512];
        // Send more than one round, so that slots are reused.
        for round in 0..5_u8 {
            let marks: Vec<[u8; 1]> = (0..10).map(|i| [round * 10 + i]).collect();
            let packets: Vec<_> = marks.iter().map(|mark| parts(&[0; 10], mark)).collect();
            let packets: Vec<&[IoSlice<'_>]> = packets.iter().map(|parts| &parts[..]).collect();
            assert_eq!(ring.send_batch(&packets)?, 10);
            for [mark] in marks {
                let length = tap.read(&mut buffer)?;
                assert_eq!((length, buffer[length - 1]), (10 + 54, mark));
            }
        }
        assert_eq!(ring.send_batch(&[])?, 0);
        // A batch sends at most one packet per slot.
        let mark = [7];
        let packet = parts(&[0; 10], &mark);
        assert_eq!(ring.send_batch(&[&packet[..]; 20])?, 16);
        assert_eq!(std::iter::from_fn(|| tap.read(&mut buffer).ok()).count(), 16);
        Ok(())
    });
}

#[test]
fn a_ring_sends_up_to_the_refused_packet_and_goes_on_with_the_next() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        let mut ring =
            PacketSocket::builder().virtio_header(true).bind_transmit_ring(tap.name(), SMALL)?;
        let marks: Vec<[u8; 1]> = (0..8).map(|mark| [mark]).collect();
        let packets: Vec<_> = marks
            .iter()
            .map(|mark| match mark {
                // The GSO type is invalid: rule V2.
                [0 | 3 | 4 | 7] => parts(&[0, 99, 0, 0, 1, 0, 0, 0, 0, 0], mark),
                _ => parts(&[0; 10], mark),
            })
            .collect();
        let packets: Vec<&[IoSlice<'_>]> = packets.iter().map(|parts| &parts[..]).collect();
        assert_invalid(ring.send_batch(&packets));
        assert_eq!(ring.send_batch(&packets[1..])?, 2);
        assert_invalid(ring.send_batch(&packets[3..]));
        assert_invalid(ring.send_batch(&packets[4..]));
        assert_eq!(ring.send_batch(&packets[5..])?, 2);
        assert_invalid(ring.send_batch(&packets[7..]));
        let mut buffer = [0; 512];
        let sent: Vec<u8> =
            std::iter::from_fn(|| tap.read(&mut buffer).ok().map(|n| buffer[n - 1])).collect();
        assert_eq!(sent, [1, 2, 5, 6]);
        // The ring is still usable.
        assert_eq!(ring.send_batch(&[packets[1]; 16])?, 16);
        assert_eq!(std::iter::from_fn(|| tap.read(&mut buffer).ok()).count(), 16);
        Ok(())
    });
}

#[test]
fn a_ring_refuses_what_is_beyond_a_slot_and_everything_while_the_interface_is_down() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        let mut ring = PacketSocket::builder().bind_transmit_ring(tap.name(), SMALL)?;
        assert_eq!(ring.packet_bytes_max(), 224);
        let (long, frame) = ([IoSlice::new(&[0; 225])], [IoSlice::new(&FRAME)]);
        let refusal = ring.send_batch(&[&long]).unwrap_err();
        assert_eq!(refusal.raw_os_error(), Some(libc::EMSGSIZE));
        let mut buffer = [0; 512];
        let mut arrived = || std::iter::from_fn(|| tap.read(&mut buffer).ok()).collect::<Vec<_>>();
        assert_eq!(ring.send_batch(&[&frame, &long, &frame])?, 1);
        assert_eq!(arrived(), [10 + FRAME.len()]);
        control.set_up(tap.name(), false)?;
        let refusal = ring.send_batch(&[&frame]).unwrap_err();
        assert_eq!(refusal.raw_os_error(), Some(libc::ENETDOWN));
        control.set_up(tap.name(), true)?;
        assert_eq!(ring.send_batch(&[&frame])?, 1);
        assert_eq!(arrived(), [10 + FRAME.len()]);
        Ok(())
    });
}

/// Calls a function and counts the send and receive system calls that it makes.
fn calls_of<T>(call: impl FnOnce() -> T) -> (T, u32) {
    thread_local! {
        static CALLS: core::cell::Cell<u32> = const { core::cell::Cell::new(0) };
    }
    CALLS.set(0);
    grosso_sys::calls::observe(Some(|call| {
        CALLS.set(CALLS.get() + 1);
        call();
    }));
    let result = call();
    grosso_sys::calls::observe(None);
    (result, CALLS.get())
}

#[test]
fn a_full_kernel_is_waited_for_and_no_packet_is_copied_twice() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        // A traffic shaper holds packets back, so they stay charged to the send buffer.
        let shaper = |action, rate| {
            let of = format!("qdisc {action} dev {} root tbf burst 100 limit 100000", tap.name());
            let words = of.split(' ').chain(["rate", rate]);
            std::process::Command::new("tc").args(words).status().is_ok_and(|tc| tc.success())
        };
        if !shaper("add", "400bit") {
            super::skip("tc is not installed, or this machine has no sch_tbf");
            return Ok(());
        }
        let builder = PacketSocket::builder().virtio_header(true);
        let mut ring = builder.bind_transmit_ring(tap.name(), SMALL)?;
        rustix::net::sockopt::set_socket_send_buffer_size(ring.as_fd(), 1)?;
        let mut marks: Vec<[u8; 1]> = (0..16).map(|mark| [mark]).collect();
        let sent = {
            let packets: Vec<_> = marks.iter().map(|mark| parts(&[0; 10], mark)).collect();
            let packets: Vec<&[IoSlice<'_>]> = packets.iter().map(|parts| &parts[..]).collect();
            ring.send_batch(&packets)?
        };
        assert!((1..16).contains(&sent), "{sent} of 16 packets sent");
        assert!(!ring.wait(Duration::ZERO)?, "the ring is writable, but the next send would block");
        let left: Vec<_> = marks[sent..].iter().map(|mark| parts(&[0; 10], mark)).collect();
        let left: Vec<&[IoSlice<'_>]> = left.iter().map(|parts| &parts[..]).collect();
        let (again, calls) = calls_of(|| ring.send_batch(&left));
        assert_eq!(again.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(calls, 0, "no system call before the kernel has room");
        // Change the marks, so that the test notices if a later call writes the slots again.
        marks.iter_mut().for_each(|mark| mark[0] += 100);
        assert!(shaper("change", "1gbit"));
        let mut buffer = [0; 512];
        let mut arrived = Vec::new();
        let (mut left, mut refused) = (&marks[sent..], 0);
        while !left.is_empty() {
            arrived
                .extend(std::iter::from_fn(|| tap.read(&mut buffer).ok().map(|n| buffer[n - 1])));
            assert!(ring.wait(SOON)?, "the ring has no room, but the TAP is empty");
            let packets: Vec<_> = left.iter().map(|mark| parts(&[0; 10], mark)).collect();
            let packets: Vec<&[IoSlice<'_>]> = packets.iter().map(|parts| &parts[..]).collect();
            match ring.send_batch(&packets) {
                Ok(sent) => left = &left[sent..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => refused += 1,
                Err(error) => return Err(error),
            }
        }
        arrived.extend(std::iter::from_fn(|| tap.read(&mut buffer).ok().map(|n| buffer[n - 1])));
        assert_eq!(refused, 0, "send attempts without room");
        assert_eq!(arrived, (0..16).collect::<Vec<u8>>());
        Ok(())
    });
}

#[test]
fn the_send_buffer_ends_before_the_slots() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        for slots in [16, 256, 8192] {
            let layout = RingLayout { slot_bytes: 256, slots };
            let ring = PacketSocket::builder().bind_transmit_ring(tap.name(), layout)?;
            let granted = rustix::net::sockopt::socket_send_buffer_size(ring.as_fd())?;
            // `poll` stops reporting the socket as writable when half of the buffer is in use.
            assert!(
                granted / 2 <= ring.layout().slots * 768,
                "{granted} bytes granted for {slots} slots"
            );
        }
        Ok(())
    });
}

#[test]
fn a_superframe_leaves_through_the_ring() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        tap.set_offloads(Offloads::CHECKSUM | Offloads::TCP_IPV4)?;
        let mut ring =
            PacketSocket::builder().virtio_header(true).bind_transmit_ring(tap.name(), FOUR)?;
        let (header, frame) = superframe(30_000);
        assert_eq!(ring.send_batch(&[&[IoSlice::new(&header), IoSlice::new(&frame)]])?, 1);
        let mut buffer = vec![0; 65_536];
        let length = tap.read(&mut buffer)?;
        assert_eq!(buffer[10..length], frame);
        Ok(())
    });
}

/// Returns a frame as a virtio header followed by three parts, with the mark as the last one.
fn parts<'a>(header: &'a [u8], mark: &'a [u8; 1]) -> [IoSlice<'a>; 4] {
    [header, &FRAME[..20], &FRAME[20..53], mark].map(IoSlice::new)
}

#[test]
fn a_batch_is_sent_up_to_the_refused_packet() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        let socket = PacketSocket::builder().virtio_header(true).bind(tap.name())?;
        let good = [IoSlice::new(&[0; 10]), IoSlice::new(&FRAME)];
        let bad = [IoSlice::new(&[0, 99, 0, 0, 1, 0, 0, 0, 0, 0]), IoSlice::new(&FRAME)];
        assert_eq!(socket.send_batch(&[&good, &good, &bad, &good])?, 2);
        assert_invalid(socket.send_batch(&[&bad, &good]));
        assert_eq!(socket.send_batch(&[])?, 0);
        assert_eq!(socket.send_vectored(&good)?, 10 + FRAME.len());
        let mut buffer = [0; 512];
        assert_eq!(std::iter::from_fn(|| tap.read(&mut buffer).ok()).count(), 3);
        Ok(())
    });
}

#[test]
fn v21_the_virtio_header_has_10_or_12_bytes() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        let builder = PacketSocket::builder().ignore_outgoing(true);
        for bytes in [10, 12] {
            let socket = match builder.virtio_header_bytes(bytes).bind(tap.name()) {
                Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
                    println!("skipped: PACKET_VNET_HDR_SZ wants Linux 6.6");
                    continue;
                }
                socket => socket?,
            };
            tap.write(&with_header(&FRAME))?;
            let mut buffer = [0xff; 256];
            let received = socket.receive(&mut buffer)?.expect("a packet was received");
            let header = usize::from(bytes);
            assert_eq!(buffer[header..received.length], FRAME, "{bytes}");
            let mut ring =
                builder.virtio_header_bytes(bytes).bind_receive_ring(tap.name(), FOUR)?;
            tap.write(&with_header(&FRAME))?;
            let frame = ring.receive().expect("a packet was received");
            assert_eq!((frame.virtio_header().len(), frame.as_ref()), (header, &FRAME[..]));
        }
        for bytes in [9, 20, 24] {
            builder.virtio_header_bytes(bytes).bind(tap.name()).unwrap_err();
        }
        Ok(())
    });
}

#[test]
fn a_group_shares_the_packets_of_an_interface() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        let builder = PacketSocket::builder().ignore_outgoing(true);
        for rule in [FanoutRule::FlowHash, FanoutRule::Processor, FanoutRule::Queue] {
            let first = builder.fanout(Fanout::new(rule)).bind(tap.name())?;
            let group = first.fanout_group()?.expect("the kernel chose a group");
            let second = builder.fanout(Fanout::new(rule).join(group)).bind(tap.name())?;
            assert_eq!(second.fanout_group()?, Some(group));
            let alone = builder.bind(tap.name())?;
            assert_eq!(alone.fanout_group()?, None);
            let mut frame = FRAME;
            for source in 0..64 {
                frame[29] = source;
                tap.write(&with_header(&frame))?;
            }
            let mut buffer = [0; 256];
            let mut count = |socket: &PacketSocket| {
                std::iter::from_fn(|| socket.receive(&mut buffer).unwrap()).count()
            };
            let shares = [count(&first), count(&second)];
            assert_eq!((shares[0] + shares[1], count(&alone)), (64, 64), "{rule:?}");
            if rule == FanoutRule::FlowHash {
                assert!(
                    shares[0] > 0 && shares[1] > 0,
                    "all 64 flows reached one socket: {shares:?}"
                );
            }
        }
        Ok(())
    });
}

#[test]
fn a_fanout_group_receives_outgoing_packets_only_if_its_sockets_do() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        let sender = PacketSocket::builder().transmit_only(true).bind(tap.name())?;
        for rule in [FanoutRule::FlowHash, FanoutRule::Processor, FanoutRule::Queue] {
            for (ignores, expected) in [(true, 1), (false, 5)] {
                let builder = PacketSocket::builder().ignore_outgoing(ignores);
                let first = builder.fanout(Fanout::new(rule)).bind(tap.name())?;
                let group = first.fanout_group()?.expect("the kernel chose a group");
                let second = builder.fanout(Fanout::new(rule).join(group)).bind(tap.name())?;
                for _ in 0..4 {
                    sender.send_vectored(&[IoSlice::new(&FRAME)])?;
                }
                tap.write(&with_header(&FRAME))?;
                let mut buffer = [0; 256];
                let mut count = |socket: &PacketSocket| {
                    std::iter::from_fn(|| socket.receive(&mut buffer).unwrap()).count()
                };
                assert_eq!(count(&first) + count(&second), expected, "{rule:?}, {ignores}");
            }
        }
        Ok(())
    });
}

#[test]
fn a_send_only_socket_receives_nothing_and_detects_interface_removal() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        let socket = PacketSocket::builder().transmit_only(true).bind(tap.name())?;
        tap.write(&with_header(&FRAME))?;
        assert_eq!(socket.receive(&mut [0; 256])?, None);
        let hears = PacketSocket::builder().bind(tap.name())?;
        assert!(hears.take_error()?.is_none());
        control.set_up(tap.name(), false)?;
        let error = hears.take_error()?.expect("an error");
        assert_eq!(error.raw_os_error(), Some(libc::ENETDOWN));
        assert!(hears.take_error()?.is_none(), "an error is reported once");
        Ok(())
    });
}

#[test]
fn a_sender_with_checksum_offload_leaves_its_checksums_unfinished() {
    isolated(|_| {
        let control = Control::new()?;
        let [here, there] = ["here", "there"].map(|name| InterfaceName::new(name).unwrap());
        let netlink = Netlink::new()?;
        netlink.add_veth((&here, LinkChange::new().up(true)), (&there, LinkChange::new()))?;
        control.set_up(&there, true)?;
        let index = control.index(&here)?;
        netlink.add_address(index, "10.9.0.1".parse().unwrap(), 24)?;
        netlink.set_neighbour(index, "10.9.0.2".parse().unwrap(), [2, 0, 0, 0, 0, 9])?;
        let mut ring = PacketSocket::builder().bind_receive_ring(&there, FOUR)?;
        let socket = UdpSocket::bind("10.9.0.1:0")?;
        assert!(status_of_datagram(&socket, &mut ring, 1)?.checksum_not_ready());
        grosso_sys::ethtool::set_feature(&control, &here, "tx-checksum-ip-generic", false)?;
        assert!(!status_of_datagram(&socket, &mut ring, 2)?.checksum_not_ready());
        Ok(())
    });
}

/// Returns the checksum status with which a datagram filled with `mark` arrives. Sends the datagram repeatedly, because
/// the kernel drops packets while a CPU's receive queue is full, and all network namespaces share that queue.
fn status_of_datagram(socket: &UdpSocket, ring: &mut ReceiveRing, mark: u8) -> io::Result<Status> {
    for _ in 0..100 {
        socket.send_to(&[mark; 100], "10.9.0.2:9")?;
        while ring.wait(SOON / 100)? {
            while let Some(frame) = ring.receive() {
                if frame.as_ref().ends_with(&[mark; 100]) {
                    return Ok(frame.status());
                }
            }
        }
    }
    panic!("no datagram arrived");
}
