//! Tests a device without offloads that accepts a chosen number of packets and then fails.

use std::{collections::VecDeque, sync::Mutex};

use grosso_checksum::Sum;
use grosso_testkit::Packet;

use super::*;
use crate::{Batch, Trust, tun::merger::Merger};

#[derive(Debug, Default)]
struct Utun {
    arriving: Mutex<VecDeque<Vec<u8>>>,
    sent: Mutex<Vec<Vec<u8>>>,
    /// Number of packets to accept, and the error that follows.
    room: Option<(usize, io::ErrorKind)>,
}

impl PacketDevice for Utun {
    fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let result = self.try_recv(buffer);
        assert!(result.is_ok(), "the test would wait forever");
        result
    }

    fn try_recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let packet = self.arriving.lock().unwrap().pop_front().ok_or(io::ErrorKind::WouldBlock)?;
        buffer[..packet.len()].copy_from_slice(&packet);
        Ok(packet.len())
    }

    fn try_send(&self, packet: &[u8]) -> io::Result<()> {
        let mut sent = self.sent.lock().unwrap();
        match self.room {
            Some((room, kind)) if sent.len() >= room => Err(kind.into()),
            _ => {
                sent.push(packet.to_vec());
                Ok(())
            }
        }
    }
}

fn writer(device: &Arc<Utun>, wanted: Features) -> Merger<Vec<u8>, PlainWriter<Utun>> {
    let writer = PlainWriter::new(Arc::clone(device), "utun0".to_owned(), wanted);
    Merger::new(LinkType::Raw, writer, Trust::Verify)
}

/// Returns 20 TCP packets of one flow, with 100 bytes each, interleaved with UDP datagrams.
fn traffic() -> Vec<Vec<u8>> {
    let tcp = |i: u32| {
        let packet = Packet::new().ipv4(|ip| ip.id(i as u16));
        packet.tcp(|tcp| tcp.sequence(i * 100)).payload(&[i as u8; 100]).build()
    };
    let udp = || Packet::new().ipv4(|ip| ip).udp(|udp| udp).payload(&[9; 100]).build();
    (0..20).flat_map(|i| [tcp(i), udp()]).collect()
}

#[test]
fn tcp_is_sent_as_one_long_packet_with_a_right_checksum_and_datagrams_as_they_came() {
    let device = Arc::new(Utun::default());
    let mut batch: Batch = traffic().into_iter().collect();
    assert_eq!(writer(&device, Features::ALL).try_send(&mut batch).unwrap(), 40);
    let sent = device.sent.lock().unwrap();
    let (tcp, udp): (Vec<_>, Vec<_>) = sent.iter().partition(|packet| packet[9] == 6);
    assert_eq!((tcp.len(), udp.len()), (1, 20));
    assert!(udp.iter().all(|packet| **packet == traffic()[1]));
    let long = tcp[0];
    assert_eq!(long.len(), 40 + 2000);
    assert!(Sum::of(&long[..20]).is_valid(), "sum of the IPv4 header");
    let pseudo = Sum::of(&long[12..20]).add(Sum::from_u32(2020)).add(Sum::from_word(6));
    assert!(Sum::of(&long[20..]).add(pseudo).is_valid(), "sum of TCP");
    let payload: Vec<u8> = (0..20).flat_map(|i| [i; 100]).collect();
    assert_eq!(long[40..], payload);
}

#[test]
fn without_offloads_every_packet_is_sent_as_it_came() {
    let device = Arc::new(Utun::default());
    let mut batch: Batch = traffic().into_iter().collect();
    writer(&device, Features::NONE).try_send(&mut batch).unwrap();
    let mut sent = device.sent.lock().unwrap().clone();
    sent.sort();
    let mut expected = traffic();
    expected.sort();
    assert_eq!(sent, expected);
}

#[test]
fn a_full_or_removed_device_leaves_exactly_the_packets_that_were_not_sent() {
    for kind in [io::ErrorKind::WouldBlock, io::ErrorKind::UnexpectedEof] {
        for room in 0..10 {
            let device = Arc::new(Utun { room: Some((room, kind)), ..Utun::default() });
            let mut batch: Batch = traffic().into_iter().collect();
            let result = writer(&device, Features::ALL).try_send(&mut batch);
            match kind {
                io::ErrorKind::WouldBlock => assert_eq!(result.unwrap() + batch.len(), 40),
                _ => assert!(
                    matches!(result.unwrap_err(), PortError::Gone { name } if name == "utun0")
                ),
            }
            let sent = device.sent.lock().unwrap();
            let tcp = sent.iter().filter(|packet| packet[9] == 6);
            let in_tcp: usize = tcp.clone().map(|packet| (packet.len() - 40) / 100).sum();
            assert_eq!(sent.len() - tcp.count() + in_tcp + batch.len(), 40, "{room} {kind}");
        }
    }
}

#[test]
fn packets_are_received_once_and_in_order_also_after_a_wait() {
    let device = Arc::new(Utun::default());
    device.arriving.lock().unwrap().extend(traffic());
    let mut reader = PlainReader::new(Arc::clone(&device), "utun0".to_owned());
    let (mut received, mut buffers) = (Vec::new(), Vec::new());
    for max in [1, 7, 64] {
        reader.wait().unwrap();
        // Waiting a second time returns immediately.
        reader.wait().unwrap();
        let before = received.len();
        let count = reader.receive(max, &mut |frame| {
            received.push(frame.buffer.as_ref().to_vec());
            buffers.push(frame.buffer);
        });
        assert_eq!(count.unwrap(), received.len() - before);
        reader.recycle_all(&mut buffers);
    }
    assert_eq!(received, traffic());
    assert_eq!(reader.receive(64, &mut |_| ()).unwrap(), 0);
    assert_eq!(reader.link(), LinkType::Raw);
}
