//! Merging of packets into longer packets with complete checksums, for devices without offloads.

use core::cell::Cell;
use std::{
    hash::{BuildHasher, Hasher, RandomState},
    io,
};

use grosso::{
    CoalesceOptions, Coalescer, Delivery, Frame, LinkType, Meta, Ports, Profile,
    checksum::Checksum, coalesce::Part,
};
use grosso_checksum::Sum;

use crate::batch::Batch;

/// Whether to verify the checksums of packets before merging them for sending; see "Trust" in the crate documentation.
///
/// ```
/// use grosso_tun::{Joiner, Trust};
///
/// let joiner = Joiner::<Vec<u8>>::new(Trust::Authenticated);
/// # let _ = joiner;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Every checksum is verified. A packet with a wrong checksum is sent unchanged.
    #[default]
    Verify,
    /// Checksums are not verified, because an AEAD has authenticated every packet and the peer is trusted.
    Authenticated,
}

/// Merger that combines the packets of a batch into IP packets of up to 64 KiB, each with a complete checksum. Use it
/// for WinTUN on Windows, utun on macOS, and any other TUN device without a virtio header.
///
/// Only TCP is merged, and only outside tunnels. To a receiver, a long TCP segment is equivalent to the packets from
/// which it was merged. Merged UDP datagrams, in contrast, would become a single, different datagram. Packets of a flow
/// keep their order. Packets that cannot be merged are written unchanged.
///
/// The device must accept packets longer than its MTU, as WinTUN and utun do. Packets read from these devices are plain
/// packets and need no special handling.
///
/// ```
/// use grosso_tun::{Batch, Joiner, Trust};
///
/// let mut joiner = Joiner::new(Trust::Verify);
/// let mut batch = Batch::from_iter([vec![0x45; 40]]); // decrypted packets
/// // Write `packet.slices()` to the device.
/// joiner.join(&mut batch, |packet| Ok(assert_eq!(packet.len(), 40)))?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Joiner<B = Vec<u8>> {
    coalescer: Coalescer<B>,
    meta: Meta,
    /// Vectors kept for their capacity: headers of a packet, buffers of written packets, and unwritten packets.
    header: Vec<u8>,
    spent: Vec<B>,
    unsent: Vec<B>,
}

impl<B: AsRef<[u8]>> Joiner<B> {
    /// Creates a joiner.
    ///
    /// ```
    /// use grosso_tun::{Joiner, Trust};
    ///
    /// let joiner = Joiner::<Vec<u8>>::new(Trust::Verify);
    /// # let _ = joiner;
    /// ```
    #[must_use]
    pub fn new(trust: Trust) -> Self {
        let mut profile = Profile::linux();
        profile.udp = false;
        profile.tunnels_max = 0;
        let seed = RandomState::new().build_hasher().finish();
        let options = CoalesceOptions::new(LinkType::Raw, seed).profile(profile).ports(Ports::NONE);
        Self {
            coalescer: Coalescer::new(options),
            meta: unjoined(trust),
            header: Vec::new(),
            spent: Vec::new(),
            unsent: Vec::new(),
        }
    }

    /// Merges IP packets and calls `write` for each resulting packet. A packet into which nothing more can be merged,
    /// for example because PSH is set, is written at once; the others are written at the end of the batch, the oldest
    /// first. Packets of a flow keep their order. Afterwards the batch is empty and keeps the buffers for reuse. No
    /// packet is held for the next batch.
    ///
    /// # Errors
    /// Returns the first error of `write`, which is not called again after that. The batch then contains exactly the
    /// packets that were not written; packets of a flow keep their order.
    ///
    /// ```
    /// # use grosso_tun::{Batch, Joiner, Trust};
    /// # let (mut joiner, mut batch) = (Joiner::new(Trust::Verify), Batch::<Vec<u8>>::new());
    /// let mut buffer = vec![0; 65_535];
    /// joiner.join(&mut batch, |packet| {
    ///     println!("write {} bytes", packet.copy_to(&mut buffer));
    ///     Ok(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn join(
        &mut self,
        batch: &mut Batch<B>,
        mut write: impl FnMut(&Joined<'_, B>) -> io::Result<()>,
    ) -> io::Result<()> {
        let Self { coalescer, meta, header, spent, unsent } = self;
        let has_failed = Cell::new(false);
        let mut result = Ok(());
        let mut sink = |delivery: Delivery<'_, B>| {
            if !has_failed.get() {
                result = write(&Joined::complete(&delivery, header));
                has_failed.set(result.is_err());
            }
            let to = if has_failed.get() { &mut *unsent } else { &mut *spent };
            to.extend(delivery.into_parts().map(|part| part.buffer));
        };
        while !has_failed.get()
            && let Some(buffer) = batch.pop()
        {
            coalescer.push(Frame { buffer, meta: *meta }, 0, &mut sink);
        }
        coalescer.finish(&mut sink);
        batch.put_back(unsent);
        spent.drain(..).for_each(|buffer| batch.recycle(buffer));
        result
    }
}

/// IP packet for the device as a list of slices: the headers, followed by the payloads of the merged packets, which are
/// not copied.
///
/// ```
/// # use grosso_tun::Joined;
/// fn write(packet: &Joined<'_, Vec<u8>>) {
///     println!("{} packets in {} bytes", packet.packets(), packet.len());
/// }
/// ```
#[derive(Debug)]
pub struct Joined<'a, B> {
    /// Headers with a complete checksum. Empty if the packet is unchanged.
    header: &'a [u8],
    delivery: &'a Delivery<'a, B>,
}

impl<'a, B: AsRef<[u8]>> Joined<'a, B> {
    /// Completes the checksum of a superframe (rule C3) in a copy of its headers.
    fn complete(delivery: &'a Delivery<'_, B>, header: &'a mut Vec<u8>) -> Self {
        header.clear();
        header.extend_from_slice(delivery.header());
        if let Checksum::Partial { start, offset } = delivery.meta.checksum
            && delivery.is_joined()
        {
            let start = usize::from(start);
            let field = start + usize::from(offset);
            debug_assert!(field + 2 <= header.len(), "a train is summed from a header of its own");
            let transport = header.get(start..).unwrap_or_default();
            let parts = delivery.parts().map(Part::bytes);
            let sum = Sum::of_parts(core::iter::once(transport).chain(parts));
            if let Some(field) = header.get_mut(field..field + 2) {
                field.copy_from_slice(&sum.checksum().to_be_bytes());
            }
        }
        Self { header, delivery }
    }

    /// Returns the slices of the packet, headers first.
    ///
    /// ```
    /// # fn example(packet: &grosso_tun::Joined<'_, Vec<u8>>) {
    /// packet.slices().for_each(|slice| println!("write {} bytes", slice.len()));
    /// # }
    /// ```
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let header = Some(self.header).filter(|header| !header.is_empty());
        header.into_iter().chain(self.delivery.parts().map(Part::bytes))
    }

    /// Returns the length in bytes, which is at most 65,535 unless a single input packet was longer.
    ///
    /// ```
    /// # fn example(packet: &grosso_tun::Joined<'_, Vec<u8>>) {
    /// println!("{} bytes", packet.len());
    /// # }
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.delivery.len
    }

    /// Returns whether the packet has no bytes, which happens only for an empty input buffer.
    ///
    /// ```
    /// # fn example(packet: &grosso_tun::Joined<'_, Vec<u8>>) {
    /// assert!(!packet.is_empty());
    /// # }
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of packets that were merged into this one.
    ///
    /// ```
    /// # fn example(packet: &grosso_tun::Joined<'_, Vec<u8>>) {
    /// println!("{} packets", packet.packets());
    /// # }
    /// ```
    #[must_use]
    pub fn packets(&self) -> u32 {
        self.delivery.packets
    }

    /// Copies the packet into device memory, for example a WinTUN packet buffer, and returns its length in bytes.
    ///
    /// # Panics
    /// Panics if `out` is shorter than the packet.
    ///
    /// ```
    /// # fn example(packet: &grosso_tun::Joined<'_, Vec<u8>>) {
    /// let mut buffer = vec![0; 65_535];
    /// let len = packet.copy_to(&mut buffer);
    /// # }
    /// ```
    pub fn copy_to(&self, out: &mut [u8]) -> usize {
        self.slices().fold(0, |at, slice| {
            out[at..at + slice.len()].copy_from_slice(slice);
            at + slice.len()
        })
    }
}

/// Returns the metadata of an unmerged packet.
pub(crate) fn unjoined(trust: Trust) -> Meta {
    let checksum = match trust {
        Trust::Verify => Checksum::None,
        Trust::Authenticated => Checksum::Unnecessary { levels: 0 },
    };
    Meta { checksum, ..Meta::default() }
}

#[cfg(test)]
mod tests {
    use std::io;

    use grosso_checksum::Sum;
    use grosso_testkit::Packet;

    use super::{Batch, Joiner, Trust};

    /// Returns an IPv4 or IPv6 packet of the flow with source port `port`.
    fn packet(family: u8, port: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
        let packet = Packet::new();
        let packet = match family {
            4 => packet.ipv4(|ip| ip.id((sequence / 1001) as u16)),
            _ => packet.ipv6(|ip| ip),
        };
        packet.tcp(|tcp| tcp.source_port(port).sequence(sequence)).payload(payload).build()
    }

    /// Merges packets and returns copies of the packets that are written.
    fn joined(joiner: &mut Joiner, packets: &mut Batch) -> Vec<(Vec<u8>, u32)> {
        let mut written = Vec::new();
        let result = joiner.join(packets, |joined| {
            let mut copy = vec![0; joined.len()];
            assert_eq!(joined.copy_to(&mut copy), copy.len());
            assert_eq!(joined.slices().collect::<Vec<_>>().concat(), copy);
            written.push((copy, joined.packets()));
            Ok(())
        });
        result.unwrap();
        written
    }

    /// Checks the lengths and checksums of a TCP packet and returns the length of its IP header.
    fn judged(packet: &[u8]) -> usize {
        let word = |at: usize| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
        let (header, addresses) = match packet[0] >> 4 {
            4 => {
                assert!(Sum::of(&packet[..20]).is_valid(), "sum of the IPv4 header");
                assert_eq!(word(2), packet.len());
                (20, 12..20)
            }
            _ => {
                assert_eq!(word(4) + 40, packet.len());
                (40, 8..40)
            }
        };
        let length = (packet.len() - header) as u32;
        let pseudo = Sum::of(&packet[addresses]).add(Sum::from_u32(length)).add(Sum::from_word(6));
        assert!(Sum::of(&packet[header..]).add(pseudo).is_valid(), "sum of TCP");
        header
    }

    #[test]
    fn a_flow_becomes_few_packets_whose_lengths_and_sums_are_right() {
        let (verify, trusted) = (Trust::Verify, Trust::Authenticated);
        for (family, trust) in [(4, verify), (4, trusted), (6, verify), (6, trusted)] {
            let mut joiner = Joiner::new(trust);
            // Odd lengths make sure that some payloads are summed at odd offsets.
            let stream: Vec<u8> = (0..200 * 1001_usize).map(|i| (i * 7 / 3) as u8).collect();
            let chunks = stream.chunks(1001).enumerate();
            let mut packets: Batch =
                chunks.map(|(i, part)| packet(family, 1, 1001 * i as u32, part)).collect();
            let written = joined(&mut joiner, &mut packets);
            assert!(packets.is_empty());
            assert_eq!(core::iter::from_fn(|| packets.spare()).count(), 200, "buffers are kept");
            assert_eq!(written.len(), 4, "65 or 64 packets are 64 KiB");
            assert_eq!(written.iter().map(|(_, packets)| packets).sum::<u32>(), 200);
            let parts = written.iter().map(|(packet, _)| &packet[judged(packet) + 20..]);
            assert!(parts.collect::<Vec<_>>().concat() == stream);
        }
    }

    #[test]
    fn what_cannot_be_joined_passes_as_it_came_and_in_order() {
        let mut damaged = packet(4, 1, 0, b"damaged");
        *damaged.last_mut().unwrap() ^= 1;
        let datagram = |payload| {
            Packet::new().ipv4(|ip| ip).udp(|udp| udp.source_port(2)).payload(payload).build()
        };
        let tunnelled = |sequence: u32| {
            let packet = Packet::new().ipv4(|ip| ip).ipv4(|ip| ip.id(sequence as u16));
            packet.tcp(|tcp| tcp.sequence(sequence)).payload(&[1; 100]).build()
        };
        let came = vec![
            damaged,
            packet(4, 1, 7, b"and one behind it"),
            datagram(b"one"),
            datagram(b"two"),
            tunnelled(0),
            tunnelled(100),
            Vec::new(),
            b"no packet".to_vec(),
        ];
        let written = joined(&mut Joiner::new(Trust::Verify), &mut came.iter().cloned().collect());
        let mut passed: Vec<_> = written.into_iter().map(|(packet, _)| packet).collect();
        let place = |packets: &[Vec<u8>], packet: &Vec<u8>| {
            packets.iter().position(|other| other == packet).unwrap()
        };
        assert!(place(&passed, &came[0]) < place(&passed, &came[1]));
        assert!(place(&passed, &came[2]) < place(&passed, &came[3]));
        assert!(place(&passed, &came[4]) < place(&passed, &came[5]));
        let mut came = came;
        came.sort();
        passed.sort();
        assert_eq!(passed, came);
    }

    #[test]
    fn after_an_error_the_batch_holds_the_packets_that_were_not_written() {
        for fails_at in 0..3 {
            let mut joiner = Joiner::new(Trust::Verify);
            let packets: Vec<_> = (0..3).map(|port| packet(4, port + 1, 0, b"data")).collect();
            let mut batch: Batch = packets.iter().cloned().collect();
            let mut written = Vec::new();
            let result = joiner.join(&mut batch, |packet| {
                if written.len() == fails_at {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                written.push(packet.slices().collect::<Vec<_>>().concat());
                Ok(())
            });
            assert_eq!(result.unwrap_err().kind(), io::ErrorKind::StorageFull);
            assert_eq!(written.len(), fails_at);
            written.extend(batch.packets().cloned());
            assert_eq!(written, packets, "failed at {fails_at}");
            assert_eq!(joined(&mut joiner, &mut batch).len(), 3 - fails_at, "works again");
        }
    }
}
