//! Tests that make system calls on the running kernel, each in a separate network namespace. They need root or a user
//! namespace (`unshare -Urm`); otherwise they print `skipped:` and the reason.

#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_methods, reason = "tests make their files themselves")]

mod blocks;
mod datagrams;
mod ethtool;
mod namespaces;
mod netlink;
mod packets;
mod tun;
mod xdp;

use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, UdpSocket};
use std::thread;
use std::time::Duration;

use grosso_sys::ethtool::{feature_is_on, feature_names, set_feature};
use grosso_sys::interface::{Control, InterfaceName, write_attribute};
use grosso_sys::namespace::isolate_thread_network;
use grosso_sys::packet::{PacketSocket, VlanTag};
use grosso_sys::tun::{Offloads, Tun, TunBuilder};

/// Timeout for operations that the kernel completes immediately.
const SOON: Duration = Duration::from_secs(10);
/// An Ethernet frame with a 40-byte IPv4 packet from 10.0.0.2 to 10.0.0.1, with protocol number 253 (RFC 3692).
const FRAME: [u8; 54] = {
    let mut frame = [0; 54];
    frame[0] = 0xaa;
    frame[6] = 0xaa;
    frame[11] = 2;
    frame[12] = 0x08;
    frame[14] = 0x45;
    frame[17] = 40;
    frame[22] = 8;
    frame[23] = 253;
    frame
};

#[test]
fn a_frame_that_is_sent_is_read_from_the_tap() {
    isolated(|control| {
        let tap = tap(control, "tap%d")?;
        assert_eq!(tap.name().as_str(), "tap0");
        let socket = PacketSocket::builder().virtio_header(true).bind(tap.name())?;
        let packet = with_header(&FRAME);
        assert_eq!(socket.send(&packet)?, packet.len());
        let mut buffer = [0; 256];
        let length = tap.read(&mut buffer)?;
        assert_eq!(buffer[..length], packet);
        assert_eq!(tap.read(&mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        Ok(())
    });
}

#[test]
fn a_frame_that_is_written_is_received_with_its_tag_aside() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        let socket = PacketSocket::builder().ignore_outgoing(true).bind(tap.name())?;
        let tag = [0x88, 0xa8, 0x20, 0x07];
        let parts = [&[0; 10], &FRAME[..12], &tag, &FRAME[12..]].map(IoSlice::new);
        assert_eq!(tap.write_vectored(&parts)?, 10 + 4 + FRAME.len());
        assert!(socket.wait(SOON)?);
        let mut buffer = [0; 256];
        let received = socket.receive(&mut buffer)?.expect("a packet was received");
        assert_eq!(buffer[..received.length], FRAME);
        assert_eq!(received.vlan, Some(VlanTag { protocol: 0x88a8, control: 0x2007 }));
        assert!(!received.truncated);
        assert_eq!(socket.receive(&mut buffer)?, None);
        assert!(!socket.wait(Duration::ZERO)?);
        Ok(())
    });
}

#[test]
fn a_packet_longer_than_the_buffer_is_called_truncated() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        let socket = PacketSocket::builder().bind(tap.name())?;
        tap.write(&with_header(&FRAME))?;
        let mut buffer = [0; 20];
        let received = socket.receive(&mut buffer)?.expect("a packet was received");
        assert_eq!((received.length, received.truncated, received.vlan), (20, true, None));
        Ok(())
    });
}

#[test]
fn packets_that_found_no_room_are_counted_once() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        let socket = PacketSocket::builder().receive_buffer_bytes(1).bind(tap.name())?;
        let packet = with_header(&FRAME);
        for _ in 0..1000 {
            tap.write(&packet)?;
        }
        let mut buffer = [0; 256];
        let mut received = 0;
        while socket.receive(&mut buffer)?.is_some() {
            received += 1;
        }
        assert!(received > 0);
        assert_eq!(socket.take_drops()?, 1000 - received);
        assert_eq!(socket.take_drops()?, 0);
        Ok(())
    });
}

#[test]
fn a_superframe_is_read_whole_only_with_offloads() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        let socket = PacketSocket::builder().virtio_header(true).bind(tap.name())?;
        let (header, frame) = superframe(300);
        let packet = [&header[..], &frame].concat();
        let lengths = |tap: &Tun| {
            let mut buffer = [0; 512];
            std::iter::from_fn(|| tap.read(&mut buffer).ok()).collect::<Vec<_>>()
        };

        socket.send(&packet)?;
        assert_eq!(lengths(&tap), [164, 164, 164]);
        tap.set_offloads(Offloads::CHECKSUM | Offloads::TCP_IPV4)?;
        socket.send(&packet)?;
        assert_eq!(lengths(&tap), [10 + frame.len()]);
        tap.set_offloads(Offloads::NONE)?;
        socket.send(&packet)?;
        assert_eq!(lengths(&tap), [164, 164, 164]);
        Ok(())
    });
}

#[test]
fn v30_an_offload_without_what_it_needs_is_refused() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        let tcp = Offloads::CHECKSUM | Offloads::TCP_IPV4 | Offloads::TCP_IPV6;
        assert_invalid(tap.set_offloads(Offloads::TCP_IPV4));
        assert_invalid(tap.set_offloads(Offloads::CHECKSUM | Offloads::TCP_ECN));
        tap.set_offloads(tcp | Offloads::TCP_ECN)?;
        assert_invalid(tap.set_header_bytes(9));
        tap.set_header_bytes(24)?;
        tap.write(&[&[0; 24][..], &FRAME].concat())?;
        assert_invalid(tap.write(&[0; 24 + 13]));
        Ok(())
    });
}

#[test]
fn an_address_makes_the_kernel_resolve_its_neighbor() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        let hardware = [0x02, 0, 0, 0, 0, 0x42];
        control.set_hardware_address(tap.name(), hardware)?;
        control.set_ipv4_address(tap.name(), Ipv4Addr::new(10, 1, 2, 3), 29)?;
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        let outside = socket.send_to(b"x", "10.1.2.8:9").unwrap_err();
        assert_eq!(outside.kind(), io::ErrorKind::NetworkUnreachable);
        socket.send_to(b"x", "10.1.2.7:9").unwrap_err();
        socket.send_to(b"x", "10.1.2.6:9")?;

        let mut buffer = [0; 256];
        let length = tap.read(&mut buffer)?;
        let request = &buffer[10..length];
        assert_eq!(request[6..14], [0x02, 0, 0, 0, 0, 0x42, 0x08, 0x06]);
        assert_eq!(request[28..32], [10, 1, 2, 3]);
        assert_eq!(request[38..42], [10, 1, 2, 6]);
        Ok(())
    });
}

#[test]
fn a_device_has_as_many_queues_as_it_was_made_for() {
    isolated(|_| {
        let name = InterfaceName::new("tun0")?;
        let many = TunBuilder::tun(name).multi_queue(true);
        let queues = [many.clone().open()?, many.clone().open()?];
        assert_eq!(queues[1].name(), &name);
        let other_flags = TunBuilder::tun(name).open().unwrap_err();
        assert_eq!(other_flags.kind(), io::ErrorKind::InvalidInput);
        drop(queues);

        let single = TunBuilder::tun(name);
        let _queue = single.clone().open()?;
        assert_eq!(single.open().unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        Ok(())
    });
}

#[test]
fn a_feature_changes_and_a_fixed_one_is_refused() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        let names = feature_names(control, tap.name())?;
        assert!(names.iter().any(|name| name == "tx-checksum-ip-generic"));
        for on in [true, false] {
            set_feature(control, tap.name(), "rx-gro-list", on)?;
            assert_eq!(feature_is_on(control, tap.name(), "rx-gro-list")?, on);
        }
        let fixed = set_feature(control, tap.name(), "rx-all", true).unwrap_err();
        assert_eq!(fixed.kind(), io::ErrorKind::Unsupported);
        let unknown = set_feature(control, tap.name(), "warp-drive", true).unwrap_err();
        assert_eq!(unknown.kind(), io::ErrorKind::NotFound);
        Ok(())
    });
}

#[test]
fn sysfs_shows_the_network_of_the_thread() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        write_attribute(tap.name(), "ifalias", "seen")?;
        let alias = std::fs::read_to_string("/sys/class/net/tap0/ifalias")?;
        assert_eq!(alias, "seen\n");
        thread::spawn(|| assert!(std::fs::exists("/sys/class/net/tap0").unwrap())).join().unwrap();
        Ok(())
    });
    assert!(!std::fs::exists("/sys/class/net/tap0").unwrap());
}

/// Runs a test on a thread in a new network namespace whose interfaces send no packets for IPv6 neighbor discovery.
fn isolated(test: impl FnOnce(&Control) -> io::Result<()> + Send) {
    thread::scope(|scope| {
        let run = || {
            if let Err(error) = isolate_thread_network() {
                return skip(&format!("cannot create a private network namespace: {error}"));
            }
            // Fails on a kernel without IPv6, which performs no neighbor discovery anyway.
            let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
            let control = Control::new().unwrap();
            test(&control).unwrap();
        };
        scope.spawn(run).join().unwrap();
    });
}

/// Reports that a test is skipped and why, or fails if the environment does not allow skipping.
fn skip(why: &str) {
    println!("skipped: {why}");
    assert!(std::env::var_os("GROSSO_SKIP_NOTHING").is_none(), "skipped: {why}");
}

/// Returns a TCP superframe over IPv4, with `payload_bytes` bytes of payload in segments of 100 bytes, and its virtio
/// header.
fn superframe(payload_bytes: u16) -> (Vec<u8>, Vec<u8>) {
    // Protocol 6, data offset 5, partial checksum.
    let mut frame = FRAME.to_vec();
    frame.resize(54 + usize::from(payload_bytes), 0);
    frame[16..18].copy_from_slice(&(40 + payload_bytes).to_be_bytes());
    frame[23] = 6;
    frame[46] = 0x50;
    let mut header = vec![1, 1];
    for word in [54_u16, 100, 34, 16] {
        header.extend_from_slice(&word.to_ne_bytes());
    }
    (header, frame)
}

fn tap(control: &Control, name: &str) -> io::Result<Tun> {
    let name = InterfaceName::new(name)?;
    let tap = TunBuilder::tap(name).virtio_header(true).nonblocking(true).open()?;
    control.set_mtu(tap.name(), 1400)?;
    control.set_up(tap.name(), true)?;
    Ok(tap)
}

fn with_header(frame: &[u8]) -> Vec<u8> {
    [&[0; 10], frame].concat()
}

#[track_caller]
fn assert_invalid<T: std::fmt::Debug>(result: io::Result<T>) {
    assert_eq!(result.unwrap_err().kind(), io::ErrorKind::InvalidInput);
}
