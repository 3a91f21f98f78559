//! Merged packets with complete checksums, for devices without offloads.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    io,
};

use grosso::{
    CoalesceOptions, Coalescer, Delivery, Frame, LinkType, Meta, Ports, Profile,
    checksum::Checksum, coalesce::Part,
};
use grosso_checksum::Sum;

/// Merges the packets of a batch into IP packets of up to 64 KiB, each with a complete checksum. Suits WinTUN on
/// Windows, utun on macOS, and every TUN device without a virtio header.
///
/// Only TCP is merged, and only outside tunnels: a receiver cannot tell a long TCP segment from its packets, whereas
/// merged datagrams would be one different datagram. Packets of a flow keep their order. Packets that cannot be merged
/// are written unchanged.
///
/// The device must accept packets longer than its MTU, as WinTUN and utun do. The packets read from such a device are
/// plain packets and need no special handling.
///
/// ```
/// use grosso_tun::Joiner;
///
/// let mut joiner = Joiner::new(false);
/// let mut packets = vec![vec![0x45; 40]]; // decrypted packets of one batch
/// joiner.join(&mut packets, |packet| {
///     assert_eq!(packet.len(), 40); // write packet.slices() to the device
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Joiner<B = Vec<u8>> {
    coalescer: Coalescer<B>,
    meta: Meta,
    /// Vectors kept for their capacity.
    header: Vec<u8>,
    done: Vec<B>,
}

impl<B: AsRef<[u8]>> Joiner<B> {
    /// Creates a joiner. `trusted` skips checksum verification because an AEAD has authenticated the packets; see
    /// "Trust" in the crate documentation.
    #[must_use]
    pub fn new(trusted: bool) -> Self {
        let mut profile = Profile::linux();
        profile.udp = false;
        profile.tunnels_max = 0;
        let seed = RandomState::new().build_hasher().finish();
        let options = CoalesceOptions::new(LinkType::Raw, seed).profile(profile).ports(Ports::NONE);
        Self {
            coalescer: Coalescer::new(options),
            meta: unjoined(trusted),
            header: Vec::new(),
            done: Vec::new(),
        }
    }

    /// Merges IP packets and calls `write` for each result, in the order of each flow's first packet. Afterwards
    /// `packets` holds the same buffers for reuse, in any order and with unspecified content. No packet is held for the
    /// next batch.
    ///
    /// # Errors
    /// The first error of `write`. The remaining packets are still passed to `write`.
    ///
    /// ```
    /// # let mut joiner = grosso_tun::Joiner::new(true);
    /// # let mut packets: Vec<Vec<u8>> = Vec::new();
    /// let mut buffer = vec![0; 65_535];
    /// joiner.join(&mut packets, |packet| {
    ///     let length = packet.copy_to(&mut buffer);
    ///     println!("write {length} bytes");
    ///     Ok(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn join(
        &mut self,
        packets: &mut Vec<B>,
        mut write: impl FnMut(&Joined<'_, B>) -> io::Result<()>,
    ) -> io::Result<()> {
        let Self { coalescer, meta, header, done } = self;
        let mut result = Ok(());
        let mut sink = |delivery: Delivery<'_, B>| {
            let written = write(&Joined::complete(&delivery, header));
            if result.is_ok() {
                result = written;
            }
            done.extend(delivery.into_parts().map(|part| part.buffer));
        };
        for buffer in packets.drain(..) {
            coalescer.push(Frame { buffer, meta: *meta }, 0, &mut sink);
        }
        coalescer.finish(&mut sink);
        packets.append(done);
        result
    }
}

/// An IP packet for the device as a list of slices: the headers, then the payload of each merged packet in place.
#[derive(Debug)]
pub struct Joined<'a, B> {
    /// Headers with a complete checksum; empty if the packet is unchanged.
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
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let header = Some(self.header).filter(|header| !header.is_empty());
        header.into_iter().chain(self.delivery.parts().map(Part::bytes))
    }

    /// Returns the length in bytes: at most 65,535, unless a single input packet was longer.
    #[must_use]
    pub fn len(&self) -> usize {
        self.delivery.len
    }

    /// Returns true if the packet has no bytes, which only an empty input buffer causes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of packets that were merged into this one.
    #[must_use]
    pub fn packets(&self) -> u32 {
        self.delivery.packets
    }

    /// Copies the packet into memory of the device, for example a WinTUN packet buffer, and returns its length in
    /// bytes.
    ///
    /// # Panics
    /// Panics if `out` is shorter than the packet.
    pub fn copy_to(&self, out: &mut [u8]) -> usize {
        self.slices().fold(0, |at, slice| {
            out[at..at + slice.len()].copy_from_slice(slice);
            at + slice.len()
        })
    }
}

/// Returns the metadata of a single packet; `trusted` means that an AEAD has authenticated it.
pub(crate) fn unjoined(trusted: bool) -> Meta {
    let checksum = if trusted { Checksum::Unnecessary { levels: 0 } } else { Checksum::None };
    Meta { checksum, ..Meta::default() }
}

#[cfg(test)]
mod tests {
    use std::io;

    use grosso_checksum::Sum;
    use grosso_testkit::Packet;

    use super::Joiner;

    /// Returns a packet of the flow with source port `port`, over IPv4 or IPv6.
    fn packet(family: u8, port: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
        let packet = Packet::new();
        let packet = match family {
            4 => packet.ipv4(|ip| ip.id((sequence / 1001) as u16)),
            _ => packet.ipv6(|ip| ip),
        };
        packet.tcp(|tcp| tcp.source_port(port).sequence(sequence)).payload(payload).build()
    }

    /// Merges packets; the results are copies.
    fn joined(joiner: &mut Joiner, packets: &mut Vec<Vec<u8>>) -> Vec<(Vec<u8>, u32)> {
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

    /// Checks lengths and checksums of a TCP packet; returns the length of the IP header.
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
        for (family, trusted) in [(4, false), (4, true), (6, false), (6, true)] {
            let mut joiner = Joiner::new(trusted);
            // Odd lengths, so that the payloads are summed at odd offsets too.
            let stream: Vec<u8> = (0..200 * 1001_usize).map(|i| (i * 7 / 3) as u8).collect();
            let chunks = stream.chunks(1001).enumerate();
            let mut packets: Vec<_> =
                chunks.map(|(i, part)| packet(family, 1, 1001 * i as u32, part)).collect();
            let written = joined(&mut joiner, &mut packets);
            assert_eq!(packets.len(), 200, "the buffers are back");
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
        let written = joined(&mut Joiner::new(false), &mut came.clone());
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
    fn an_error_of_the_device_is_told_and_takes_no_packet_with_it() {
        let mut joiner = Joiner::new(false);
        let mut packets: Vec<_> = (1..4).map(|port| packet(4, port, 0, b"data")).collect();
        let mut calls = 0;
        let result = joiner.join(&mut packets, |_| {
            calls += 1;
            match calls {
                1 => Err(io::ErrorKind::StorageFull.into()),
                2 => Err(io::ErrorKind::NotFound.into()),
                _ => Ok(()),
            }
        });
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!((calls, packets.len()), (3, 3));
        assert_eq!(joined(&mut joiner, &mut packets).len(), 3, "it goes on");
    }
}
