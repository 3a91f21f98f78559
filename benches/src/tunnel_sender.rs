//! Benchmark step that encapsulates the superframes of a workload and segments them.

use core::hint::black_box;

use grosso::{
    segment::{HEADER_BYTES_MAX, Outgoing, Segments},
    tunnel::{Carrier, Endpoint, Header, RemoteChecksumUse, Udp, encapsulate::Encapsulator},
};
use grosso_testkit::workloads::Workload;
use grosso_wire::{LinkType, Ports};

use crate::{SEED, sender::Superframes, step::Step};

/// A tunnel with a UDP checksum, which a device computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentTunnel {
    /// IPIP in GUE; the sender computes the inner checksum.
    Gue,
    /// IPIP in GUE with remote checksum offload, which leaves the inner checksum to the receiver.
    GueRemote,
    /// VXLAN; the sender computes the inner checksum.
    Vxlan,
}

impl SentTunnel {
    /// All tunnels.
    pub const ALL: [Self; 3] = [Self::Gue, Self::GueRemote, Self::Vxlan];

    /// Returns the name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gue => "gue",
            Self::GueRemote => "gue_rco",
            Self::Vxlan => "vxlan",
        }
    }

    fn endpoint(self) -> Endpoint {
        let [local, remote] = [[192, 0, 2, 1].into(), [192, 0, 2, 2].into()];
        let transmit = self == Self::GueRemote;
        let udp = |destination| Udp {
            source: 49152..=65535,
            destination,
            checksum: true,
            ipv6_without_checksum: false,
            remote_checksum: RemoteChecksumUse { transmit, receive: transmit, complete: false },
        };
        let vxlan = Header::Vxlan { identifier: 42, policy: None, generic_protocol: false };
        match self {
            Self::Gue | Self::GueRemote => {
                Endpoint::new(local, remote, Header::Ip, Carrier::Gue(udp(6080)))
            }
            Self::Vxlan => Endpoint::new(local, remote, vxlan, Carrier::Udp(udp(4789))),
        }
    }
}

/// Encapsulates superframes repeatedly, and writes the headers of their packets. The payload stays in place. The outer
/// UDP checksum is left to a device, so only the inner checksum needs the payload.
#[derive(Debug)]
pub struct TunnelSender<'a> {
    superframes: Superframes<'a>,
    encapsulator: Encapsulator,
    /// Headers of the encapsulated superframe, and the first bytes of its payload.
    head: Vec<u8>,
    /// Headers of the packet that is being written.
    packet: Vec<u8>,
    payload_bytes: usize,
}

impl<'a> TunnelSender<'a> {
    /// Creates a sender at the first superframe of the workload.
    ///
    /// # Panics
    /// Panics if the workload has no superframes.
    #[must_use]
    pub fn new(workload: &'a Workload, tunnel: SentTunnel) -> Self {
        Self {
            superframes: Superframes::new(workload),
            encapsulator: Encapsulator::new(tunnel.endpoint(), SEED).expect("a valid endpoint"),
            head: Vec::new(),
            packet: vec![0; HEADER_BYTES_MAX],
            payload_bytes: 0,
        }
    }

    /// Encapsulates and segments every superframe of the workload once.
    pub fn trace(&mut self) -> usize {
        (0..self.superframes.frames.len()).map(|_| self.step()).sum()
    }

    /// Encapsulates and segments one superframe, and calls `each` with the headers and the payload of each packet.
    /// Returns the number of packets.
    #[inline]
    fn send(&mut self, mut each: impl FnMut(&[u8], &[&[u8]])) -> usize {
        let superframe = self.superframes.take();
        let slices = [superframe];
        let sent =
            self.encapsulator.encapsulate(&slices, &self.superframes.meta, LinkType::Ethernet);
        let sent = sent.expect("a superframe that the tunnel carries");
        let inside = &superframe[sent.replaced..];
        let (headers, payload) = inside.split_at(HEADER_BYTES_MAX.min(inside.len()));
        self.head.clear();
        self.head.extend_from_slice(sent.header);
        self.head.extend_from_slice(headers);
        self.head[OUTER_CHECKSUM].fill(0);
        let slices = [&self.head[..], payload];
        let (link, ports) = (LinkType::Raw, Ports::ASSIGNED);
        let mut segments = Segments::new(&slices, &sent.meta, link, &ports, Outgoing::COMPLETE)
            .expect("a superframe that can be segmented");
        let (mut packets, mut parts) = (0, Vec::with_capacity(slices.len()));
        while let Ok(Some(segment)) =
            segments.scatter_next(black_box(&mut self.packet), |slice| parts.push(slice))
        {
            each(&self.packet[..segment.header_len], &parts);
            parts.clear();
            packets += 1;
        }
        packets
    }
}

impl Step for TunnelSender<'_> {
    fn upcoming(&self) -> impl Iterator<Item = &[u8]> {
        core::iter::once(self.superframes.upcoming())
    }

    /// Encapsulates and segments one superframe. Returns the number of packets.
    #[inline]
    fn step(&mut self) -> usize {
        let mut payload_bytes = 0;
        let packets = self.send(|_, payload| {
            payload_bytes += payload.iter().map(|slice| slice.len()).sum::<usize>();
        });
        self.payload_bytes += payload_bytes;
        packets
    }
}

/// Position of the UDP checksum behind an IPv4 header without options.
const OUTER_CHECKSUM: core::ops::Range<usize> = 26..28;

#[cfg(test)]
mod tests {
    use grosso_checksum::Sum;
    use grosso_testkit::workloads::workload;

    use super::*;
    use crate::Sender;

    /// Lengths of an Ethernet header, and of an IPv4 header without options.
    const ETHERNET: usize = 14;
    const IPV4: usize = 20;

    #[test]
    fn packets_in_a_tunnel_are_those_without_it_except_for_a_checksum_left_to_the_receiver() {
        let workload = workload("gso_tcp4", SEED);
        let plain = Sender::new(&workload).packets();
        for tunnel in SentTunnel::ALL {
            let mut sender = TunnelSender::new(&workload, tunnel);
            let mut packets = Vec::new();
            for _ in 0..workload.frames.len() {
                sender.send(|headers, payload| packets.push([headers, &payload.concat()].concat()));
            }
            assert_eq!(packets.len(), plain.len());
            for (mut packet, plain) in packets.into_iter().zip(&plain) {
                let inside =
                    if tunnel == SentTunnel::Vxlan { &plain[..] } else { &plain[ETHERNET..] };
                let start = packet.len() - inside.len();
                let inside_packet = &mut packet[start..];
                if tunnel == SentTunnel::GueRemote {
                    // The field holds the sum of the pseudo-header, so the receiver's sum is the checksum.
                    let checksum = Sum::of(&inside_packet[IPV4..]).checksum().to_be_bytes();
                    let field = &mut inside_packet[IPV4 + 16..IPV4 + 18];
                    assert_ne!(field, checksum);
                    field.copy_from_slice(&checksum);
                }
                assert!(inside_packet == inside, "{tunnel:?}");
            }
        }
    }
}
