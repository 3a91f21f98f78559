//! Records of acknowledgments without data, 32 bytes each, and the list of records of one flow.

use alloc::vec::Vec;
use core::fmt;

use grosso_wire::tcp;

use crate::{
    bytes::{u16_at, u32_at},
    template::compare::TIMESTAMP_LAYOUT,
};

/// Content and arrival time of one pure acknowledgment.
///
/// FreeBSD's TCP stacks accept similar records in place of packets. Congestion control, RTT measurement, ECN and the
/// receive window need nothing else from the packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Record {
    /// Arrival time in nanoseconds, on the clock that [`Self::stamp`] returns.
    pub arrived_ns: u64,
    /// TCP sequence number.
    pub sequence: u32,
    /// TCP acknowledgment number.
    pub acknowledgment: u32,
    timestamp_value: u32,
    timestamp_echo: u32,
    /// Unscaled window field of the packet's TCP header.
    pub window: u16,
    /// TCP flags (12 bits) and four bits that describe the record.
    marks: u16,
    /// TOS or traffic class (DSCP and ECN) of the innermost IP header.
    pub class: u8,
    /// Scratch byte for the reader of the records; initially zero.
    pub scratch: u8,
}

/// Clock of an arrival time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Stamp {
    /// The caller's clock when the packet was pushed; all packets of a batch have the same time.
    #[default]
    Pushed,
    /// The device's clock for this packet, as in [`Meta::timestamp_ns`](crate::Meta::timestamp_ns).
    Device,
}

/// Reason why a packet cannot be stored as a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ineligible {
    /// The packet ends inside its TCP header.
    Truncated,
    /// ACK is not set, or a flag other than ACK, PSH, ECE and CWR is.
    Flags,
    /// The packet has payload.
    Payload,
    /// The packet has TCP options other than two NOPs and a timestamp.
    Options,
}

impl Record {
    /// Reads the record of a packet whose TCP header starts at `transport`. `packet` must have the length that its IP
    /// header declares, and `class` is the TOS or traffic class of its innermost IP header.
    ///
    /// # Errors
    /// Returns an error that names the first property of the packet that a record cannot store.
    pub fn read(
        packet: &[u8],
        transport: usize,
        class: u8,
        arrived_ns: u64,
        stamp: Stamp,
    ) -> Result<Self, Ineligible> {
        let tcp = packet.get(transport..).unwrap_or_default();
        let header_len = usize::from(tcp.get(12).map_or(0, |byte| byte >> 4)) * 4;
        if tcp.len() < tcp::HEADER_LEN || header_len < tcp::HEADER_LEN || tcp.len() < header_len {
            return Err(Ineligible::Truncated);
        }
        let record = Self::of(tcp, class, arrived_ns, stamp);
        if !record.has(tcp::ACK) || record.flags() & !ELIGIBLE_FLAGS != 0 {
            return Err(Ineligible::Flags);
        }
        if tcp.len() > header_len {
            return Err(Ineligible::Payload);
        }
        match header_len == tcp::HEADER_LEN || record.timestamps().is_some() {
            true => Ok(record),
            false => Err(Ineligible::Options),
        }
    }

    /// Reads the record of a segment whose TCP header is complete, regardless of its flags, options and payload.
    pub(crate) fn of(tcp: &[u8], class: u8, arrived_ns: u64, stamp: Stamp) -> Self {
        let Some(header) = tcp.first_chunk::<{ tcp::HEADER_LEN }>() else {
            debug_assert!(false, "the TCP header is complete");
            return Self::default();
        };
        let offset_flags = u16_at(header, tcp::field::OFFSET_FLAGS.start);
        let is_as_long = usize::from(offset_flags >> 12) * 4 == WITH_TIMESTAMPS_LEN;
        let timestamps = tcp.first_chunk::<WITH_TIMESTAMPS_LEN>().filter(|header| {
            is_as_long && header[tcp::HEADER_LEN..].starts_with(&TIMESTAMP_LAYOUT)
        });
        let timestamp = |at| timestamps.map_or(0, |header| u32_at(header, tcp::HEADER_LEN + at));
        Self {
            arrived_ns,
            sequence: u32_at(header, tcp::field::SEQUENCE.start),
            acknowledgment: u32_at(header, tcp::field::ACKNOWLEDGMENT.start),
            timestamp_value: timestamp(TIMESTAMP_LAYOUT.len()),
            timestamp_echo: timestamp(TIMESTAMP_LAYOUT.len() + 4),
            window: u16_at(header, tcp::field::WINDOW.start),
            marks: offset_flags & FLAGS
                | if timestamps.is_some() { HAS_TIMESTAMP } else { 0 }
                | if stamp == Stamp::Device { STAMPED_BY_DEVICE } else { 0 },
            class,
            scratch: 0,
        }
    }

    /// Returns the TCP flags, including AE and the reserved bits.
    #[must_use]
    pub const fn flags(&self) -> u16 {
        self.marks & FLAGS
    }

    /// Returns whether all of `flags` are set.
    #[must_use]
    pub const fn has(&self, flags: u16) -> bool {
        self.marks & flags == flags
    }

    /// Returns the value and the echo of the timestamp option, if present.
    #[must_use]
    pub const fn timestamps(&self) -> Option<(u32, u32)> {
        if self.marks & HAS_TIMESTAMP == 0 {
            return None;
        }
        Some((self.timestamp_value, self.timestamp_echo))
    }

    /// Returns the clock on which [`Self::arrived_ns`] was measured.
    #[must_use]
    pub const fn stamp(&self) -> Stamp {
        if self.marks & STAMPED_BY_DEVICE == 0 { Stamp::Pushed } else { Stamp::Device }
    }

    /// Returns the arrival time on the device's clock in nanoseconds, if the device supplied one.
    #[must_use]
    pub const fn device_ns(&self) -> Option<u64> {
        match self.stamp() {
            Stamp::Device => Some(self.arrived_ns),
            Stamp::Pushed => None,
        }
    }

    /// Returns the ECN codepoint of the IP header (RFC 3168 section 5).
    #[must_use]
    pub const fn congestion(&self) -> u8 {
        self.class & 3
    }
}

/// Records of one flow in order of arrival, at most [`RECORDS_MAX`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records(Vec<Record>);

/// Error: the maximum number of records has been reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("there is no room for more records")
    }
}

impl core::error::Error for Full {}

impl Records {
    /// Creates an empty list. The first push allocates memory.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Appends a record.
    ///
    /// # Errors
    /// Returns [`Full`] if [`RECORDS_MAX`] records are stored.
    pub fn push(&mut self, record: Record) -> Result<(), Full> {
        if self.0.len() >= RECORDS_MAX {
            return Err(Full);
        }
        if self.0.capacity() == 0 {
            self.0.reserve_exact(RECORDS_MAX);
        }
        self.0.push(record);
        Ok(())
    }

    /// Appends all records of a later vector of the same flow, or none of them. If the vectors are queued, extend only
    /// the last entry of the queue; otherwise records would overtake other entries.
    ///
    /// # Errors
    /// Returns [`Full`] if there would be more than [`RECORDS_MAX`] records.
    pub fn append(&mut self, later: &[Record]) -> Result<(), Full> {
        if self.0.len() + later.len() > RECORDS_MAX {
            return Err(Full);
        }
        self.0.extend_from_slice(later);
        Ok(())
    }

    /// Removes all records and keeps the allocation.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the records in order of arrival.
    #[must_use]
    pub fn as_slice(&self) -> &[Record] {
        &self.0
    }
}

/// Maximum number of records per list. They take 2 KiB, the size of the buffer that FreeBSD passes to its TCP stacks.
/// Further records go into another vector.
pub const RECORDS_MAX: usize = 64;

const _: () = assert!(size_of::<Record>() == 32, "half a cache line");

/// Length of a TCP header with two NOPs and a timestamp.
const WITH_TIMESTAMPS_LEN: usize = tcp::HEADER_LEN + TIMESTAMP_LAYOUT.len() + 8;

/// TCP flags and reserved bits: the low half of the first byte of the header word, and the whole second byte.
const FLAGS: u16 = 0x0fff;

/// Flags that may be set in a recorded acknowledgment. ACK must be set.
const ELIGIBLE_FLAGS: u16 = tcp::ACK | tcp::PSH | tcp::ECE | tcp::CWR;

const HAS_TIMESTAMP: u16 = 0x8000;
const STAMPED_BY_DEVICE: u16 = 0x4000;

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use grosso_testkit::{Packet, headers::Tcp};

    use super::{Full, Ineligible, RECORDS_MAX, Record, Records, Stamp};

    /// Offset of the TCP header in a test packet.
    const TRANSPORT: usize = 34;

    fn packet(edit: impl FnOnce(Tcp) -> Tcp, payload: usize) -> Vec<u8> {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip);
        packet.tcp(|tcp| edit(tcp.flag(Tcp::ACK))).payload_len(payload).build()
    }

    fn read(packet: &[u8]) -> Result<Record, Ineligible> {
        Record::read(packet, TRANSPORT, 2, 77, Stamp::Device)
    }

    #[test]
    fn a_record_has_the_fields_of_its_packet() {
        let options = [1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 1, 0];
        let numbers = |tcp: Tcp| tcp.sequence(5).ack(0xffff_fff0).window(321);
        let bytes = packet(|tcp| numbers(tcp).options(&options).flag(Tcp::ECE), 0);
        let record = read(&bytes).unwrap();
        assert_eq!((record.sequence, record.acknowledgment, record.window), (5, 0xffff_fff0, 321));
        assert_eq!(record.timestamps(), Some((9, 256)));
        assert_eq!(record.flags(), 0x050);
        assert_eq!((record.arrived_ns, record.stamp()), (77, Stamp::Device));
        assert_eq!((record.class, record.congestion(), record.scratch), (2, 2, 0));
        let plain = Record::read(&packet(|tcp| tcp, 0), TRANSPORT, 0, 1, Stamp::Pushed).unwrap();
        assert_eq!((plain.timestamps(), plain.stamp()), (None, Stamp::Pushed));
    }

    #[test]
    fn packets_that_exceed_a_record_are_refused_by_name() {
        let refused = |edit: fn(Tcp) -> Tcp, payload| read(&packet(edit, payload)).unwrap_err();
        for flag in [Tcp::SYN, Tcp::FIN, Tcp::RST, Tcp::URG] {
            let bytes = packet(|tcp| tcp.flag(flag), 0);
            assert_eq!(read(&bytes).unwrap_err(), Ineligible::Flags);
        }
        assert_eq!(refused(|tcp| tcp, 1), Ineligible::Payload);
        let sack = |tcp: Tcp| tcp.options(&[1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
        assert_eq!(refused(sack, 0), Ineligible::Options);
        let unaligned = |tcp: Tcp| tcp.options(&[8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1]);
        assert_eq!(refused(unaligned, 0), Ineligible::Options);
    }

    #[test]
    fn hostile_lengths_are_cut() {
        let whole = packet(|tcp| tcp.options(&[1; 12]), 0);
        for len in 0..whole.len() {
            assert_eq!(read(&whole[..len]).unwrap_err(), Ineligible::Truncated);
        }
        for offset in 0..5 {
            let mut short = whole.clone();
            short[TRANSPORT + 12] = offset << 4;
            assert_eq!(read(&short).unwrap_err(), Ineligible::Truncated);
        }
        assert_eq!(
            Record::read(&whole, usize::MAX, 0, 0, Stamp::Pushed),
            Err(Ineligible::Truncated)
        );
    }

    #[test]
    fn records_are_bounded_and_append_whole_or_not_at_all() {
        let mut records = Records::new();
        for arrived_ns in 0..RECORDS_MAX as u64 {
            records.push(Record { arrived_ns, ..Record::default() }).unwrap();
        }
        assert_eq!(records.push(Record::default()), Err(Full));
        assert_eq!(records.append(&[Record::default()]), Err(Full));
        assert_eq!(records.as_slice().len(), RECORDS_MAX);
        let mut queued = Records::new();
        queued.append(&records.as_slice()[..60]).unwrap();
        assert_eq!(queued.append(&records.as_slice()[59..]), Err(Full));
        queued.append(&records.as_slice()[60..]).unwrap();
        assert_eq!(queued, records);
    }
}
