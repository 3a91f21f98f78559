//! Properties of a whole capture: format, timestamp unit and interfaces.

/// Maximum length of a record in bytes: 16 MiB.
///
/// The largest known packets are BIG TCP superframes of 512 KiB; secrets and name blocks stay far below 16 MiB. A
/// greater length counts as damage, so that a wrong length cannot exhaust memory.
pub const RECORD_BYTES_MAX: usize = 16 << 20;

/// Maximum number of interfaces per section. Each interface costs a few dozen bytes of memory.
pub const INTERFACES_MAX: usize = 1 << 16;

/// Snapshot length in bytes, large enough for superframes. This is also tcpdump's default.
pub const SNAPLEN_DEFAULT: u32 = 262_144;

/// Link type of Ethernet in the tcpdump.org registry.
pub const LINK_TYPE_ETHERNET: u32 = 1;

/// A capture file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Classic pcap, with one link type and no metadata.
    Pcap,
    /// pcapng, with blocks, options and any number of interfaces.
    Pcapng,
}

impl core::fmt::Display for Format {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Pcap => "pcap",
            Self::Pcapng => "pcapng",
        })
    }
}

/// Unit of a capture's timestamps, as stored in `if_tsresol`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolution(u8);

impl Resolution {
    /// Microseconds, the default of both formats.
    pub const MICROSECONDS: Self = Self(6);
    /// Nanoseconds.
    pub const NANOSECONDS: Self = Self(9);

    /// Returns the unit for an `if_tsresol` byte: 10^-n seconds, or 2^-n seconds if the top bit is set.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Self {
        Self(byte)
    }

    /// Returns the `if_tsresol` byte.
    #[must_use]
    pub const fn to_byte(self) -> u8 {
        self.0
    }

    /// Returns whether the unit is smaller than a microsecond.
    #[must_use]
    pub fn is_finer_than_microseconds(self) -> bool {
        let exponent = self.0 & 0x7f;
        exponent > if self.is_power_of_two() { 19 } else { 6 }
    }

    /// Converts ticks since the epoch to nanoseconds, rounding down and saturating in the year 2554.
    #[inline]
    #[must_use]
    pub fn nanoseconds(self, ticks: u64) -> u64 {
        let exponent = u32::from(self.0 & 0x7f);
        if self.is_power_of_two() {
            return saturate((u128::from(ticks) * NANOSECONDS_PER_SECOND) >> exponent);
        }
        match exponent {
            0..=9 => ticks.saturating_mul(10_u64.pow(9 - exponent)),
            10..=28 => ticks / 10_u64.pow(exponent - 9),
            _ => 0,
        }
    }

    /// Converts nanoseconds since the epoch to ticks. The result saturates.
    ///
    /// Decimal units round down, as in other capture tools. Binary units round to the nearest tick, so that
    /// `ticks(nanoseconds(t)) == t` for every unit no finer than 2^-28 or 10^-9 seconds.
    #[must_use]
    pub fn ticks(self, nanoseconds: u64) -> u64 {
        let exponent = u32::from(self.0 & 0x7f);
        if self.is_power_of_two() {
            let nanoseconds = u128::from(nanoseconds);
            if exponent > nanoseconds.leading_zeros() {
                return u64::MAX;
            }
            let half = NANOSECONDS_PER_SECOND / 2;
            return saturate(
                (nanoseconds << exponent).saturating_add(half) / NANOSECONDS_PER_SECOND,
            );
        }
        match exponent {
            0..=9 => nanoseconds / 10_u64.pow(9 - exponent),
            10..=28 => nanoseconds.saturating_mul(10_u64.pow(exponent - 9)),
            _ => u64::MAX,
        }
    }

    const fn is_power_of_two(self) -> bool {
        self.0 & 0x80 != 0
    }
}

/// Properties of one capture interface, shared by all of its packets.
///
/// A classic pcap file has exactly one interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Link-layer type from the tcpdump.org registry; both formats store 16 bits.
    pub link_type: u32,
    /// Maximum number of captured bytes per packet; 0 means no limit.
    pub snaplen: u32,
    /// Unit of timestamps.
    pub resolution: Resolution,
    /// Number of seconds to add to every timestamp (`if_tsoffset`).
    pub offset_seconds: i64,
    /// Length in bytes of the frame check sequence at the end of every packet, if it is recorded. Packets are read and
    /// written without the sequence.
    pub fcs_bytes: Option<u8>,
    /// Whether packets have NFLOG headers (`LINKTYPE_NFLOG`). Packets are read and written without these headers, as
    /// raw IP (`LINKTYPE_RAW`).
    pub has_nflog: bool,
}

impl Interface {
    /// Creates an interface with this link type, nanosecond timestamps, and a snapshot length that is large enough for
    /// superframes.
    #[must_use]
    pub const fn new(link_type: u32) -> Self {
        Self {
            link_type,
            snaplen: SNAPLEN_DEFAULT,
            resolution: Resolution::NANOSECONDS,
            offset_seconds: 0,
            fcs_bytes: None,
            has_nflog: false,
        }
    }

    /// Converts a timestamp of this interface to nanoseconds since the epoch; earlier times become 0.
    #[inline]
    #[must_use]
    pub fn nanoseconds(&self, ticks: u64) -> u64 {
        let nanoseconds = self.resolution.nanoseconds(ticks);
        if self.offset_seconds == 0 {
            return nanoseconds;
        }
        let offset = i128::from(self.offset_seconds) * NANOSECONDS_PER_SECOND as i128;
        u64::try_from((i128::from(nanoseconds) + offset).max(0)).unwrap_or(u64::MAX)
    }

    /// Converts nanoseconds since the epoch to a timestamp of this interface. The result saturates.
    #[must_use]
    pub fn ticks(&self, nanoseconds: u64) -> u64 {
        let offset = i128::from(self.offset_seconds) * NANOSECONDS_PER_SECOND as i128;
        let since_offset = (i128::from(nanoseconds) - offset).max(0);
        self.resolution.ticks(u64::try_from(since_offset).unwrap_or(u64::MAX))
    }
}

fn saturate(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

const NANOSECONDS_PER_SECOND: u128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ticks_of_known_units_are_nanoseconds() {
        // Each tick count is 1.5 seconds in the unit that the byte encodes.
        for (byte, ticks) in
            [(0, 1), (3, 1500), (6, 1_500_000), (9, 1_500_000_000), (12, 1_500_000_000_000)]
        {
            let expected = if byte == 0 { 1_000_000_000 } else { 1_500_000_000 };
            assert_eq!(Resolution::from_byte(byte).nanoseconds(ticks), expected, "10^-{byte}");
        }
        assert_eq!(Resolution::from_byte(0x80 | 1).nanoseconds(3), 1_500_000_000);
        assert_eq!(Resolution::from_byte(0x80 | 20).nanoseconds(3 << 19), 1_500_000_000);
    }

    #[test]
    fn units_finer_than_microseconds_are_distinguished() {
        for (byte, is_finer) in [(6, false), (7, true), (0x80 | 19, false), (0x80 | 20, true)] {
            let unit = Resolution::from_byte(byte);
            assert_eq!(unit.is_finer_than_microseconds(), is_finer, "{byte:#x}");
        }
    }

    #[test]
    fn times_that_a_unit_cannot_hold_saturate() {
        assert_eq!(Resolution::from_byte(0xff).ticks(0), 0);
        assert_eq!(Resolution::from_byte(0xff).ticks(1), u64::MAX);
        assert_eq!(Resolution::from_byte(0xff).ticks(1 << 40), u64::MAX);
        assert_eq!(Resolution::from_byte(0x80 | 65).ticks(1), 36_893_488_147);
        assert_eq!(Resolution::from_byte(0x7f).ticks(1), u64::MAX);
        assert_eq!(Resolution::from_byte(0x80).nanoseconds(u64::MAX), u64::MAX);
    }

    #[test]
    fn offset_moves_time_and_never_below_the_epoch() {
        let mut interface = Interface::new(LINK_TYPE_ETHERNET);
        interface.offset_seconds = 10;
        assert_eq!(interface.nanoseconds(5), 10_000_000_005);
        assert_eq!(interface.ticks(10_000_000_005), 5);
        interface.offset_seconds = i64::MIN;
        assert_eq!(interface.nanoseconds(5), 0);
        interface.offset_seconds = i64::MAX;
        assert_eq!(interface.nanoseconds(5), u64::MAX);
    }

    proptest! {
        #[test]
        fn units_no_finer_than_nanoseconds_round_trip(
            decimal in 0_u8..=9,
            binary in 0_u8..=28,
            seconds in 0_u64..1 << 32,
            fraction in 0_u64..1 << 28,
        ) {
            let unit = Resolution::from_byte(decimal);
            let ticks = seconds * 10_u64.pow(u32::from(decimal));
            prop_assert_eq!(unit.ticks(unit.nanoseconds(ticks)), ticks);
            let unit = Resolution::from_byte(0x80 | binary);
            let ticks = (seconds << binary) | (fraction & ((1 << binary) - 1));
            prop_assert_eq!(unit.ticks(unit.nanoseconds(ticks)), ticks);
        }

        #[test]
        fn no_unit_and_no_time_overflows(byte: u8, value: u64, offset: i64) {
            let resolution = Resolution::from_byte(byte);
            let mut interface = Interface::new(LINK_TYPE_ETHERNET);
            interface.resolution = resolution;
            interface.offset_seconds = offset;
            let _ = (interface.nanoseconds(value), interface.ticks(value));
        }
    }
}
