//! Record of the long packets that were sent recently. An ICMP message that quotes one of these packets is genuine; any
//! other message may be forged.

use grosso_wire::{ipv6, udp};

use super::{CARRIED_IPV6, outer::BuiltHeaders};

/// The first bytes of long IPv6 packets, after the outer IP and UDP headers. These bytes contain values that an
/// outsider who does not see the packets cannot guess: inner addresses, ports, sequence numbers and checksums.
#[derive(Debug, Default)]
pub(in crate::live) struct RecentPackets {
    /// First bytes of the recorded packets; empty if recording is off.
    beginnings: Vec<Beginning>,
    next: usize,
}

#[derive(Clone, Copy, Debug)]
struct Beginning {
    len: u8,
    bytes: [u8; BEGINNING_BYTES],
}

impl RecentPackets {
    /// Starts or stops recording packets. Stopping discards the recorded packets. Starting has no effect if recording
    /// is already on.
    pub(super) fn remember(&mut self, on: bool) {
        if !on {
            *self = Self::default();
        } else if self.beginnings.is_empty() {
            self.beginnings = vec![Beginning { len: 0, bytes: [0; BEGINNING_BYTES] }; PACKETS_MAX];
        }
    }

    pub(super) fn is_remembering(&self) -> bool {
        !self.beginnings.is_empty()
    }

    /// Records the packet that these parts make up, if recording is on and the packet is long.
    pub(super) fn sent<'a>(
        &mut self,
        built: BuiltHeaders,
        parts: impl Iterator<Item = &'a [u8]> + Clone,
    ) {
        // A raw socket gets the whole packet. Its IP header is not recorded, because routers change it.
        let (built, skipped) = match built {
            BuiltHeaders::Udp => (ipv6::HEADER_LEN + udp::HEADER_LEN, 0),
            BuiltHeaders::Ip => (0, ipv6::HEADER_LEN),
        };
        let len = built + parts.clone().map(<[u8]>::len).sum::<usize>();
        let next = self.next;
        let Some(beginning) = self.beginnings.get_mut(next).filter(|_| len > CARRIED_IPV6) else {
            return;
        };
        let bytes = parts.flatten().skip(skipped).take(BEGINNING_BYTES);
        beginning.len =
            beginning.bytes.iter_mut().zip(bytes).map(|(to, from)| *to = *from).count() as u8;
        self.next = (next + 1) % PACKETS_MAX;
    }

    /// Returns whether the packet that an ICMP message quotes was recorded. `quoted` starts with the IP header.
    pub(super) fn has(&self, quoted: &[u8]) -> bool {
        let next_header = quoted.get(ipv6::field::NEXT_HEADER).unwrap_or_default();
        let is_udp = *next_header == [grosso_wire::ipv4::PROTOCOL_UDP];
        let headers = ipv6::HEADER_LEN + if is_udp { udp::HEADER_LEN } else { 0 };
        let inside = quoted.get(headers..).unwrap_or_default();
        self.beginnings.iter().any(|beginning| beginning.begins(inside))
    }
}

impl Beginning {
    fn begins(&self, packet: &[u8]) -> bool {
        let len = usize::from(self.len);
        len >= PROOF_BYTES_MIN && packet.starts_with(&self.bytes[..len])
    }
}

/// Maximum number of recorded packets: enough for the packets of four superframes.
const PACKETS_MAX: usize = 256;
/// Number of recorded bytes per packet, enough for a tunnel header and the inner Ethernet, IP and TCP headers.
const BEGINNING_BYTES: usize = 96;
/// Minimum number of quoted bytes that count as proof: the IP and UDP headers of an IPv4 packet.
const PROOF_BYTES_MIN: usize = 28;

#[cfg(test)]
mod tests {
    use super::*;

    fn quote(packet: &[u8], next_header: u8) -> Vec<u8> {
        let mut ip = [0; ipv6::HEADER_LEN];
        ip[6] = next_header;
        let udp = if next_header == 17 { &[9; udp::HEADER_LEN][..] } else { &[] };
        [&ip[..], udp, packet].concat()
    }

    fn packet(seed: u8, len: usize) -> Vec<u8> {
        (0..len).map(|at| (at as u8).wrapping_mul(7).wrapping_add(seed)).collect()
    }

    #[test]
    fn quotes_of_sent_packets_are_distinguished_from_others() {
        let mut recent = RecentPackets::default();
        let sent = &packet(1, 1300)[..];
        recent.sent(BuiltHeaders::Udp, sent.chunks(50));
        assert!(!recent.has(&quote(sent, 17)), "no packets are remembered yet");
        recent.remember(true);
        recent.sent(BuiltHeaders::Udp, sent.chunks(50));
        assert!(recent.has(&quote(sent, 17)) && recent.has(&quote(&sent[..96], 17)));
        // The message quotes fewer bytes than were recorded, or one byte differs.
        assert!(!recent.has(&quote(&sent[..95], 17)));
        for at in 0..96 {
            let mut other = sent.to_vec();
            other[at] ^= 1;
            assert!(!recent.has(&quote(&other, 17)), "{at}");
        }
        // For a packet from a raw socket, the IP header is not compared.
        let raw = &[vec![7; ipv6::HEADER_LEN], packet(2, 1300)].concat()[..];
        recent.sent(BuiltHeaders::Ip, raw.chunks(50));
        assert!(recent.has(&quote(&raw[ipv6::HEADER_LEN..], 47)));
        recent.remember(false);
        assert!(!recent.has(&quote(sent, 17)));
    }

    #[test]
    fn short_packets_and_empty_quotes_prove_nothing() {
        let mut recent = RecentPackets::default();
        recent.remember(true);
        let short = packet(1, CARRIED_IPV6 - ipv6::HEADER_LEN - udp::HEADER_LEN);
        recent.sent(BuiltHeaders::Udp, [&short[..]].into_iter());
        for quoted in [&quote(&short, 17)[..], &[], &[0; ipv6::HEADER_LEN], &quote(&[], 17)] {
            assert!(!recent.has(quoted));
        }
        // The oldest packets are removed first.
        let long = |number: usize| [&(number as u32).to_be_bytes()[..], &packet(3, 1300)].concat();
        for number in 0..=PACKETS_MAX {
            recent.sent(BuiltHeaders::Udp, [&long(number)[..]].into_iter());
        }
        let known = |number: usize| recent.has(&quote(&long(number), 17));
        assert!(!known(0) && known(1) && known(PACKETS_MAX));
    }
}
