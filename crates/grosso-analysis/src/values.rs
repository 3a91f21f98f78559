//! Parses option values in command-line syntax, which is also used for keyword arguments in other languages.

use core::{
    fmt::Display,
    ops::{Bound, RangeBounds, RangeInclusive},
    str::FromStr,
};
use std::path::PathBuf;

use grosso::reassemble::Overlap;
use grosso_capture::{Format, TunnelPort};
use grosso_wire::{CookieLen, LinkType, Ports, Pseudowire};

use crate::{
    convert::Which,
    line::Spacing,
    slowdown::{FlowOrder, ROWS_MAX},
};

/// Permitted values of an MTU in bytes, counted from the IP header. IPv4 requires at least 68 bytes (RFC 791).
pub const MTU: RangeInclusive<u16> = 68..=u16::MAX;
/// Permitted values of sizes and counts that must be positive.
pub const POSITIVE: RangeInclusive<u16> = 1..=u16::MAX;
/// Permitted values of the limit on superframe length, in bytes.
pub const MAX_SIZE: RangeInclusive<u32> = 1..=524_280;
/// Permitted numbers of threads.
pub const JOBS: RangeInclusive<u16> = 1..=256;
/// Default number of rows in a flow table.
pub const ROWS: &str = "20";

/// Named value.
#[derive(Clone, Copy, Debug)]
pub struct NamedValue<T> {
    /// Name that users type.
    pub name: &'static str,
    /// Explanation, without a period at the end.
    pub about: &'static str,
    /// The value.
    pub value: T,
}

/// Output capture formats.
pub const FORMATS: &[NamedValue<Format>] = &[
    NamedValue { name: "pcap", about: "Classic pcap, without metadata", value: Format::Pcap },
    NamedValue { name: "pcapng", about: "pcapng, with metadata", value: Format::Pcapng },
];

/// Policies for overlapping fragments.
pub const OVERLAPS: &[NamedValue<Overlap>] = &[
    NamedValue {
        name: "drop",
        about: "Drop the datagram unless the fragments are identical",
        value: Overlap::Drop,
    },
    NamedValue { name: "first", about: "Keep the bytes that arrived first", value: Overlap::First },
    NamedValue { name: "last", about: "Keep the bytes that arrived last", value: Overlap::Last },
    NamedValue { name: "linux", about: "Behave like Linux", value: Overlap::Linux },
];

/// Checksums that `csum fix` sets.
pub const CHECKSUMS: &[NamedValue<Which>] = &[
    NamedValue { name: "partial", about: "Complete partial checksums", value: Which::Partial },
    NamedValue { name: "bad", about: "Correct bad checksums", value: Which::Bad },
    NamedValue {
        name: "all",
        about: "Complete partial checksums and correct bad ones",
        value: Which::All,
    },
];

/// Returns the value with this name.
///
/// # Errors
/// Fails if no value has the name.
pub fn choose<T: Copy>(choices: &[NamedValue<T>], text: &str) -> Result<T, String> {
    let names = || choices.iter().map(|choice| choice.name).collect::<Vec<_>>().join(", ");
    let chosen = choices.iter().find(|choice| choice.name == text);
    chosen.map(|choice| choice.value).ok_or_else(|| format!("expected one of {}", names()))
}

/// Parses the sort key of the flow table.
///
/// # Errors
/// Fails if there is no such sort key.
pub fn parse_order(text: &str) -> Result<FlowOrder, String> {
    let order = FlowOrder::ALL.into_iter().find(|order| order.name() == text);
    order.ok_or_else(|| {
        format!("expected one of {}", FlowOrder::ALL.map(FlowOrder::name).join(", "))
    })
}

/// Returns a parser for whole numbers in `range`.
pub fn whole<T>(range: impl RangeBounds<T> + Clone) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display + Copy,
{
    move |text| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|number| range.contains::<T>(number));
        number.ok_or_else(|| match (is_number, range.start_bound(), range.end_bound()) {
            (true, Bound::Included(least), Bound::Included(most)) => {
                format!("expected a number from {least} to {most}")
            }
            (true, Bound::Included(least), _) => format!("expected at least {least}"),
            (true, _, _) => "expected a smaller number".into(),
            (false, _, _) => "expected a whole number".into(),
        })
    }
}

/// Returns the settings for recognizing tunnels: the assigned UDP ports, overridden by `named`, and the L2TPv3 session
/// format.
///
/// # Errors
/// Fails with the reason if two of the named ports contradict each other.
pub fn tunnel_ports(named: &[TunnelPort], l2tp: Option<Pseudowire>) -> Result<Ports, String> {
    let mut ports = Ports::ASSIGNED.with_l2tp(l2tp);
    for (index, tunnel) in named.iter().enumerate() {
        if let Some(why) = named.iter().take(index).find_map(|other| clash(*other, *tunnel)) {
            return Err(why);
        }
        tunnel.set(&mut ports);
    }
    Ok(ports)
}

/// Returns why two tunnels cannot be recognized at the same time; `None` if they can.
fn clash(one: TunnelPort, other: TunnelPort) -> Option<String> {
    if one == other {
        return None;
    }
    let why = if one.port() == other.port() {
        "a UDP port can belong to only one tunnel; remove one of the options"
    } else if one.is_same_tunnel(other) {
        "only one UDP port per tunnel is supported; run the command once per port"
    } else {
        return None;
    };
    Some(format!("--port {one} and --port {other} conflict: {why}"))
}

/// Parses a tunnel and its UDP port, in the same form in which they are displayed.
///
/// # Errors
/// Fails if the string does not have this form, or if the value is out of range.
pub fn parse_tunnel_port(text: &str) -> Result<TunnelPort, String> {
    let name = |tunnel: TunnelPort| tunnel.name().to_ascii_lowercase();
    let expected = || {
        let tunnels: Vec<_> = TunnelPort::assigned().map(|it| name(it) + "=PORT").collect();
        format!("expected a tunnel and its UDP port: {} or fou=PORT/PROTOCOL", tunnels.join(", "))
    };
    let (tunnel, port) = text.split_once('=').ok_or_else(expected)?;
    let number =
        |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(expected);
    if tunnel == "fou" {
        let (port, protocol) = port.split_once('/').ok_or_else(expected)?;
        let protocol = protocol.parse::<u8>().ok().filter(|protocol| *protocol > 0);
        return Ok(TunnelPort::fou(number(port)?, protocol.ok_or_else(expected)?));
    }
    let known = TunnelPort::assigned().find(|it| name(*it) == tunnel).ok_or_else(expected)?;
    Ok(known.moved_to(number(port)?))
}

/// Parses the format of L2TPv3 sessions: the cookie size in bytes, and the sublayer.
///
/// # Errors
/// Fails if the string does not have this form, or if the value is out of range.
pub fn parse_pseudowire(text: &str) -> Result<Pseudowire, String> {
    let expected = || {
        "expected the cookie size (0, 4 or 8 bytes) and the sublayer, for example \
         4/default or 0/none"
    };
    let (cookie, sublayer) = text.split_once('/').ok_or_else(expected)?;
    let cookie = match cookie {
        "0" => CookieLen::None,
        "4" => CookieLen::Four,
        "8" => CookieLen::Eight,
        _ => return Err(expected().into()),
    };
    let has_sublayer = match sublayer {
        "default" => true,
        "none" => false,
        _ => return Err(expected().into()),
    };
    Ok(Pseudowire { cookie, has_sublayer })
}

/// Parses a link type: a name, or a number from tcpdump's list.
///
/// # Errors
/// Fails if the string does not have this form, or if the value is out of range.
pub fn parse_link(text: &str) -> Result<LinkType, String> {
    let named = match text.to_ascii_lowercase().as_str() {
        "ethernet" | "en10mb" => Some(LinkType::Ethernet),
        "raw" => Some(LinkType::Raw),
        "null" | "loop" => Some(LinkType::Null),
        "sll" | "linux_sll" => Some(LinkType::LinuxSll),
        "sll2" | "linux_sll2" => Some(LinkType::LinuxSll2),
        "ppp" => Some(LinkType::Ppp),
        "ppp_ether" | "pppoe" => Some(LinkType::PppEther),
        number => number.parse().ok().and_then(LinkType::from_pcap),
    };
    named.ok_or_else(|| "expected ethernet, raw, null, sll, sll2, ppp, pppoe or a number".into())
}

/// Parses the maximum number of trains held at once.
///
/// # Errors
/// Fails if the string does not have this form, or if the value is out of range.
pub fn parse_flows(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(flows @ 1..=FLOWS_MAX) => Ok(flows),
        _ => Err(format!("expected a number from 1 to {FLOWS_MAX}")),
    }
}

/// Parses the path of a file for the flow table.
///
/// # Errors
/// Fails if the value is a number. In earlier versions, the option took a number that limited the trains held at once.
pub fn parse_flow_file(text: &str) -> Result<PathBuf, String> {
    match text.parse::<u64>() {
        Ok(number) => {
            Err(format!("expected a file; --max-flows {number} limits the trains held at once"))
        }
        Err(_) => Ok(text.into()),
    }
}

/// Parses the number of rows in the flow table.
///
/// # Errors
/// Fails if the string does not have this form, or if the value is out of range.
pub fn parse_rows(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(rows @ 1..=ROWS_MAX) => Ok(rows),
        _ => Err(format!("expected a number from 1 to {ROWS_MAX}")),
    }
}

/// Parses a size in bytes with an optional binary unit.
///
/// # Errors
/// Fails if the string does not have this form, or if the value is out of range.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
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

/// Parses a memory size in bytes. The memory must be large enough for one maximum-length datagram.
///
/// # Errors
/// Fails if the string does not have this form, or if the value is out of range.
pub fn parse_memory(text: &str) -> Result<usize, String> {
    let bytes = parse_bytes(text)?;
    let size = usize::try_from(bytes).ok().filter(|_| bytes >= MEMORY_BYTES_MIN);
    size.ok_or_else(|| "expected at least 128K, the memory of one large datagram".into())
}

/// Parses the choice of timestamps for split packets: `same`, or `line=` and a rate.
///
/// # Errors
/// Fails if the string does not have this form, or if the value is out of range.
pub fn parse_spacing(text: &str) -> Result<Spacing, String> {
    if text == "same" {
        return Ok(Spacing::Same);
    }
    let expected = || "expected same, or line=RATE, for example line=10G".to_string();
    let rate = text.strip_prefix("line=").ok_or_else(expected)?;
    parse_rate(rate).map(Spacing::Line).map_err(|_| expected())
}

/// Parses a rate in bits per second with an optional decimal unit.
///
/// # Errors
/// Fails if the string does not have this form, or if the value is out of range.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    let expected = || "expected bits per second, such as 900M or 1.5G".to_string();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        _ => return Err(expected()),
    };
    let bits = number.parse::<f64>().map_err(|_| expected())? * factor;
    if (1.0..=RATE_BITS_MAX).contains(&bits) { Ok(bits.round() as u64) } else { Err(expected()) }
}

/// Maximum rate in bits per second. No link is faster, and a double can represent every whole number up to here.
const RATE_BITS_MAX: f64 = 1e15;

/// Maximum number of flows. A table of a million trains takes several hundred megabytes.
const FLOWS_MAX: usize = 1 << 20;

/// Minimum memory in bytes: room for a datagram of 65,535 bytes, its headers, and bookkeeping.
const MEMORY_BYTES_MIN: u64 = 128 << 10;

#[cfg(test)]
mod tests {
    use grosso_wire::Kind;

    use super::*;

    #[test]
    fn ports_of_tunnels_are_named() {
        assert_eq!(parse_tunnel_port("vxlan=8472"), Ok(TunnelPort::new(Kind::Vxlan, 8472)));
        for text in ["vxlan=1", "vxlan-gpe=2", "geneve=3", "gue=4", "fou=5555/4", "esp=6"] {
            assert_eq!(parse_tunnel_port(text).unwrap().to_string(), text);
        }
        for wrong in ["vxlan", "vxlan=0", "vxlan=65536", "fou=5555", "fou=5555/0", "gre=7", ""] {
            assert!(parse_tunnel_port(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rates_and_sizes_have_units() {
        assert_eq!(parse_spacing("line=10G"), Ok(Spacing::Line(10_000_000_000)));
        assert!(parse_spacing("line=0").is_err());
        assert!(parse_spacing("10G").is_err());
        assert_eq!(parse_rate("1.5G"), Ok(1_500_000_000));
        assert_eq!(parse_rate("64"), Ok(64));
        for wrong in ["", "G", "0", "1.5.5G", "-1", "9e9", "9999999999G"] {
            assert!(parse_rate(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_bytes("64M"), Ok(64 << 20));
        assert!(parse_bytes("64MB").is_err() && parse_bytes("99999999999G").is_err());
    }

    #[test]
    fn numbers_outside_a_range_are_answered_by_the_range() {
        let mtu = whole(68..=u16::MAX);
        assert_eq!(mtu("1500"), Ok(1500));
        for wrong in ["67", "65536", "99999999999999999999"] {
            assert_eq!(mtu(wrong), Err("expected a number from 68 to 65535".into()));
        }
        for wrong in ["", "-1", "1.5", "abc", "0x44"] {
            assert_eq!(mtu(wrong), Err("expected a whole number".into()), "{wrong}");
        }
        assert_eq!(whole(1u64..)("0"), Err("expected at least 1".into()));
    }
}
