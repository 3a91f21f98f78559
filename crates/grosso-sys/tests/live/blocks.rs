//! Tests packet sockets that receive packets in blocks.

use std::io;
use std::time::Duration;

use grosso_sys::interface::InterfaceName;
use grosso_sys::netlink::{LinkChange, Netlink};
use grosso_sys::packet::{BlockCounts, BlockLayout, BlockPacket, BlockRing, PacketSocket};

use super::{SOON, isolated};

/// Returns an Ethernet frame that carries mark `number`, padded to full length at MTU 1500.
fn packet(number: u8) -> [u8; 1514] {
    let mut packet = [number; 1514];
    // EtherType for local experiments (IEEE 802).
    packet[12..14].copy_from_slice(&[0x88, 0xb5]);
    packet
}

/// Returns the next `count` packets. If too few arrive to fill a block, the kernel hands it over after a timeout.
fn receive(ring: &mut BlockRing, count: usize) -> io::Result<Vec<BlockPacket>> {
    let mut packets = Vec::new();
    while packets.len() < count {
        match ring.receive() {
            Some(packet) => packets.push(packet),
            None => assert!(ring.wait(SOON)?, "{} packets", packets.len()),
        }
    }
    Ok(packets)
}

#[test]
fn a_block_holds_several_packets_and_returns_with_the_last() {
    isolated(|control| {
        let [here, there] = ["here", "there"].map(|name| InterfaceName::new(name).unwrap());
        Netlink::new()?.add_veth((&here, LinkChange::new()), (&there, LinkChange::new()))?;
        for name in [&here, &there] {
            control.set_up(name, true)?;
        }
        let sender = PacketSocket::builder().virtio_header(true).bind(&here)?;
        let layout = |block_bytes, retire| BlockLayout { block_bytes, blocks: 2, retire };
        let socket = PacketSocket::builder().virtio_header(true).ignore_outgoing(true);
        for (block_bytes, each) in [(4 << 10, 2), (8 << 10, 5), (16 << 10, 10), (32 << 10, 20)] {
            // The timeout is longer than the test, so only full blocks arrive. A block is full when the next packet
            // does not fit.
            let retire = Duration::from_secs(60);
            let mut ring = socket.bind_block_ring(&there, layout(block_bytes, retire))?;
            assert_eq!(BlockLayout::packets_per_block(block_bytes, 1514), each);
            let mut sent = 0;
            let mut send = |count: usize| {
                for _ in 0..count {
                    sender.send(&[&[0; 10][..], &packet(sent)].concat()).unwrap();
                    sent += 1;
                }
            };
            send(2 * each + 1);
            let packets = receive(&mut ring, 2 * each)?;
            for (number, held) in packets.iter().enumerate() {
                assert_eq!(held.as_ref(), packet(number as u8));
                assert_eq!((held.virtio_header(), held.truncated()), (&[0; 10][..], false));
            }
            assert!(ring.receive().is_none());
            let counts = BlockCounts { blocks: 2, packets: 2 * each as u64, malformed: 0 };
            assert_eq!(ring.counts(), counts);
            // The test holds both blocks, so there is no room for the last packet.
            let mut drops = 0;
            while drops == 0 {
                drops += ring.take_statistics()?.drops;
                std::thread::yield_now();
            }
            assert_eq!(drops, 1);
            drop(packets);
            send(each + 1);
            let packets = receive(&mut ring, each)?;
            assert_eq!(packets[0].as_ref(), packet(2 * each as u8 + 1));
        }
        // A partly filled block arrives after the timeout, and a packet longer than a block is truncated.
        let mut ring = socket.bind_block_ring(&there, layout(4 << 10, Duration::ZERO))?;
        sender.send(&[&[0; 10][..], &packet(7)].concat())?;
        assert_eq!(receive(&mut ring, 1)?[0].as_ref(), packet(7));
        for name in [&here, &there] {
            control.set_mtu(name, 9000)?;
        }
        sender.send(&[[0; 5000].as_slice(), &[7; 14]].concat())?;
        assert!(receive(&mut ring, 1)?[0].truncated());
        Ok(())
    });
}
