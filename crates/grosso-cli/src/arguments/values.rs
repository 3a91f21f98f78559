//! Values that are more than a number or a name.

use grosso_wire::LinkType;

/// When a poll ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Batch {
    /// After so many packets.
    Packets(u64),
    /// Before a packet with another timestamp.
    Stamp,
}

/// The times of packets that were split from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spacing {
    /// All have the time of the superframe.
    Same,
    /// As far apart as they take on a line of so many bits a second.
    Line(u64),
}

pub(super) fn parse_link(text: &str) -> Result<LinkType, String> {
    let named = match text.to_ascii_lowercase().as_str() {
        "ethernet" | "en10mb" => Some(LinkType::Ethernet),
        "raw" => Some(LinkType::Raw),
        "null" | "loop" => Some(LinkType::Null),
        "sll" | "linux_sll" => Some(LinkType::LinuxSll),
        "sll2" | "linux_sll2" => Some(LinkType::LinuxSll2),
        number => number.parse().ok().and_then(LinkType::from_pcap),
    };
    named.ok_or_else(|| "expected ethernet, raw, null, sll or sll2".into())
}

pub(super) fn parse_batch(text: &str) -> Result<Batch, String> {
    if text == "stamp" {
        return Ok(Batch::Stamp);
    }
    match text.parse() {
        Ok(packets @ 1..) => Ok(Batch::Packets(packets)),
        _ => Err("expected a number of packets, or stamp".into()),
    }
}

pub(super) fn parse_flows(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(flows @ 1..=FLOWS_MAX) => Ok(flows),
        _ => Err(format!("expected a number from 1 to {FLOWS_MAX}")),
    }
}

/// A time with its unit, in nanoseconds.
pub(super) fn parse_time_ns(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "" if number == "0" => 1,
        _ => return Err("expected a time with its unit: ns, us, ms or s".into()),
    };
    let nanoseconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    nanoseconds.ok_or_else(|| "expected a number before the unit".into())
}

/// A size in bytes, with a binary unit or none.
pub(super) fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "" => 1,
        "k" | "K" => 1 << 10,
        "m" | "M" => 1 << 20,
        "g" | "G" => 1 << 30,
        _ => return Err("expected a size such as 65536, 64K, 8M or 1G".into()),
    };
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    bytes.ok_or_else(|| "expected a number before the unit".into())
}

/// A size of memory in bytes, in which at least one datagram of full length fits.
pub(super) fn parse_memory(text: &str) -> Result<usize, String> {
    let bytes = parse_bytes(text)?;
    let size = usize::try_from(bytes).ok().filter(|_| bytes >= MEMORY_BYTES_MIN);
    size.ok_or_else(|| "expected at least 128K, which one datagram may need".into())
}

/// The length of a measurement, in nanoseconds.
pub(super) fn parse_run_ns(text: &str) -> Result<u64, String> {
    match parse_time_ns(text)? {
        nanoseconds @ RUN_NS_MIN..=RUN_NS_MAX => Ok(nanoseconds),
        _ => Err("expected a time from 10ms to 1000s".into()),
    }
}

pub(super) fn parse_spacing(text: &str) -> Result<Spacing, String> {
    if text == "same" {
        return Ok(Spacing::Same);
    }
    let expected = || "expected same, or line=RATE such as line=10G".to_string();
    let rate = text.strip_prefix("line=").ok_or_else(expected)?;
    let digits = rate.find(|c: char| !c.is_ascii_digit()).unwrap_or(rate.len());
    let (number, unit) = rate.split_at(digits);
    let factor = match unit {
        "" => 1,
        "k" | "K" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        _ => return Err(expected()),
    };
    let bits = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    bits.filter(|&bits| bits > 0).map(Spacing::Line).ok_or_else(expected)
}

/// A table of a million trains takes some hundred megabytes.
const FLOWS_MAX: usize = 1 << 20;

/// A datagram of 65535 bytes, its headers, and what is kept beside it.
const MEMORY_BYTES_MIN: u64 = 128 << 10;

/// A measurement that is shorter sees a few ticks of the scheduler's clock; one that is longer is meant otherwise.
const RUN_NS_MIN: u64 = 10_000_000;

const RUN_NS_MAX: u64 = 1_000_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_rates_have_units() {
        assert_eq!(parse_time_ns("20us"), Ok(20_000));
        assert_eq!(parse_time_ns("1ms"), Ok(1_000_000));
        assert_eq!(parse_time_ns("0"), Ok(0));
        assert!(parse_time_ns("20").is_err());
        assert!(parse_time_ns("us").is_err());
        assert!(parse_time_ns("99999999999999999999s").is_err());
        assert_eq!(parse_spacing("line=10G"), Ok(Spacing::Line(10_000_000_000)));
        assert!(parse_spacing("line=0").is_err());
        assert!(parse_spacing("10G").is_err());
        assert_eq!(parse_bytes("64M"), Ok(64 << 20));
        assert!(parse_bytes("64MB").is_err() && parse_bytes("99999999999G").is_err());
    }
}
