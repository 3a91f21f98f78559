//! TCP segments over IPv4 over Ethernet, and trains of such segments.

use super::Delivered;
use crate::{
    headers::Tcp,
    oracle::{checksum, pseudo_header, sum},
};

/// Offset of the IPv4 header.
const IP: usize = 14;
/// Offset of the TCP header after an IPv4 header without options.
const TCP: usize = IP + 20;

/// A segment and its frame, without padding.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) frame: Vec<u8>,
}

/// Returns whether a frame contains an unfragmented TCP packet over IPv4, without IP options and with correct
/// checksums. A driver passes only such frames to an original.
pub(super) fn is_eligible(frame: &[u8]) -> bool {
    if frame.len() < TCP + 20 || frame[12..14] != [8, 0] || frame[IP] != 0x45 || frame[IP + 9] != 6
    {
        return false;
    }
    let end = IP + word(frame, IP + 2) as usize;
    if frame.len() < end || end < TCP + 20 || is_fragment(frame) {
        return false;
    }
    let header_len = usize::from(frame[TCP + 12] >> 4) * 4;
    if header_len < 20 || TCP + header_len > end || sum(&frame[IP..TCP]) != 0xffff {
        return false;
    }
    let (source, destination) = (&frame[IP + 12..IP + 16], &frame[IP + 16..IP + 20]);
    let pseudo = pseudo_header(source, destination, 6, end - TCP);
    sum(&[&pseudo, &frame[TCP..end]].concat()) == 0xffff
}

/// Returns whether the packet is a fragment: the fragment offset is not zero, or the MF flag is set.
fn is_fragment(frame: &[u8]) -> bool {
    word(frame, IP + 6) & 0x3fff != 0
}

/// Returns the frame without any padding after the IPv4 packet.
pub(super) fn without_padding(frame: &[u8]) -> Vec<u8> {
    let end = IP + word(frame, IP + 2) as usize;
    frame[..end.min(frame.len())].to_vec()
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn long(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The options in a TCP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carries {
    /// No options.
    Nothing,
    /// Two NOPs and a timestamp: value and echo.
    Timestamp(u32, u32),
    /// Anything else.
    Other,
}

impl Segment {
    /// Reads a segment from an eligible frame.
    pub(super) fn of(frame: &[u8]) -> Self {
        Self { frame: without_padding(frame) }
    }

    /// Returns the addresses and ports.
    pub(super) fn connection(&self) -> [u8; 12] {
        connection_at(&self.frame, TCP)
    }

    pub(super) fn sequence(&self) -> u32 {
        long(&self.frame, TCP + 4)
    }

    pub(super) fn ack(&self) -> u32 {
        long(&self.frame, TCP + 8)
    }

    pub(super) fn window(&self) -> u16 {
        word(&self.frame, TCP + 14)
    }

    /// Returns the low byte of the flags.
    pub(super) fn flags(&self) -> u16 {
        u16::from(self.frame[TCP + 13])
    }

    pub(super) fn carries(&self) -> Carries {
        let options = &self.frame[TCP + 20..self.payload_at()];
        match options {
            [] => Carries::Nothing,
            [1, 1, 8, 10, ..] if options.len() == 12 => {
                Carries::Timestamp(long(options, 4), long(options, 8))
            }
            _ => Carries::Other,
        }
    }

    fn payload_at(&self) -> usize {
        TCP + usize::from(self.frame[TCP + 12] >> 4) * 4
    }

    pub(super) fn payload(&self) -> &[u8] {
        &self.frame[self.payload_at()..]
    }

    pub(super) fn ecn(&self) -> u8 {
        self.frame[IP + 1] & 3
    }

    fn macs(&self) -> &[u8] {
        &self.frame[..12]
    }
}

fn connection_at(frame: &[u8], tcp: usize) -> [u8; 12] {
    let mut connection = [0; 12];
    connection[..8].copy_from_slice(&frame[IP + 12..IP + 20]);
    connection[8..].copy_from_slice(&frame[tcp..tcp + 4]);
    connection
}

/// A train: its first segment, the payload of all segments, and the fields that later segments update.
#[derive(Clone, Debug)]
pub(super) struct HeldTrain {
    pub(super) first: Segment,
    pub(super) payload: Vec<u8>,
    pub(super) packets: u32,
    /// Number of packets in the train, not counting pure acknowledgments after the first packet.
    pub(super) counted: u32,
    pub(super) next_sequence: u32,
    pub(super) ack: u32,
    pub(super) window: u16,
    pub(super) timestamp: Option<(u32, u32)>,
    push: u16,
}

impl HeldTrain {
    pub(super) fn start(first: Segment) -> Self {
        let payload = first.payload().to_vec();
        let timestamp = match first.carries() {
            Carries::Timestamp(value, echo) => Some((value, echo)),
            _ => None,
        };
        Self {
            packets: 1,
            counted: 1,
            next_sequence: first.sequence().wrapping_add(payload.len() as u32),
            ack: first.ack(),
            window: first.window(),
            timestamp,
            push: 0,
            payload,
            first,
        }
    }

    /// Appends a segment's payload and counts the segment. The caller updates the other fields.
    pub(super) fn append(&mut self, segment: &Segment) {
        self.payload.extend(segment.payload());
        self.next_sequence = self.next_sequence.wrapping_add(segment.payload().len() as u32);
        self.packets += 1;
        self.counted += u32::from(!segment.payload().is_empty());
        self.push |= segment.flags() & Tcp::PSH;
    }

    /// Returns the length of the IPv4 packet.
    pub(super) fn ip_len(&self) -> usize {
        self.first.payload_at() - IP + self.payload.len()
    }

    /// Returns whether a segment has the same ECN bits and MAC addresses as the first segment.
    pub(super) fn has_headers_of(&self, segment: &Segment) -> bool {
        self.first.ecn() == segment.ecn() && self.first.macs() == segment.macs()
    }

    /// Returns whether a segment has the same kind of options as the first segment.
    pub(super) fn has_options_of(&self, segment: &Segment) -> bool {
        let is_stamped = |carries| matches!(carries, Carries::Timestamp(..));
        is_stamped(self.first.carries()) == is_stamped(segment.carries())
    }

    /// Returns whether an IPv4 packet may belong to this train: the addresses are equal and, unless the packet is a
    /// fragment, so are the ports.
    pub(super) fn may_have(&self, frame: &[u8]) -> bool {
        let tcp = IP + usize::from(frame[IP] & 15) * 4;
        let own = self.first.connection();
        let its = connection_at(frame, tcp);
        own[..8] == its[..8] && (is_fragment(frame) || own == its)
    }

    /// Returns the superframe with correct checksums, or the original packet if the train has only one.
    pub(super) fn deliver(self, keeps_push: bool) -> Delivered {
        let Self { first, payload, packets, ack, window, timestamp, push, .. } = self;
        let mut bytes = first.frame.clone();
        if packets == 1 {
            return Delivered { bytes, packets };
        }
        bytes.truncate(first.payload_at());
        let header_len = bytes.len();
        bytes[TCP + 8..TCP + 12].copy_from_slice(&ack.to_be_bytes());
        bytes[TCP + 14..TCP + 16].copy_from_slice(&window.to_be_bytes());
        if keeps_push {
            bytes[TCP + 13] |= push as u8;
        }
        if let (Some((value, echo)), Carries::Timestamp(..)) = (timestamp, first.carries()) {
            bytes[TCP + 24..TCP + 28].copy_from_slice(&value.to_be_bytes());
            bytes[TCP + 28..TCP + 32].copy_from_slice(&echo.to_be_bytes());
        }
        bytes.extend(payload);
        let ip_len = (bytes.len() - IP) as u16;
        bytes[IP + 2..IP + 4].copy_from_slice(&ip_len.to_be_bytes());
        bytes[IP + 10..IP + 12].fill(0);
        let ip_sum = checksum(&bytes[IP..TCP]);
        bytes[IP + 10..IP + 12].copy_from_slice(&ip_sum.to_be_bytes());
        bytes[TCP + 16..TCP + 18].fill(0);
        let ends = (&bytes[IP + 12..IP + 16], &bytes[IP + 16..IP + 20]);
        let pseudo = pseudo_header(ends.0, ends.1, 6, bytes.len() - TCP);
        let tcp_sum = checksum(&[&pseudo, &bytes[TCP..]].concat());
        bytes[TCP + 16..TCP + 18].copy_from_slice(&tcp_sum.to_be_bytes());
        debug_assert!(header_len >= TCP + 20);
        Delivered { bytes, packets }
    }
}

/// Returns whether a number is less than another in serial arithmetic.
pub(super) fn precedes(number: u32, other: u32) -> bool {
    (number.wrapping_sub(other) as i32) < 0
}
