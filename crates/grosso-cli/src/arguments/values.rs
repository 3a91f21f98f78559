//! Values that are neither a plain number nor a name.

use std::net::{IpAddr, SocketAddr};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use grosso_capture::TunnelPort;
use grosso_wire::{CookieLen, LinkType, Pseudowire};

pub(super) use crate::units::parse_time as parse_time_ns;
use crate::{
    line::Spacing,
    slowdown::{FlowOrder, ROWS_MAX},
};

/// Parses a tunnel and its UDP port, in the form in which they are displayed.
pub(super) fn parse_tunnel_port(text: &str) -> Result<TunnelPort, String> {
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

/// Parses the format of L2TPv3 sessions: size of the cookie in bytes, and the sublayer.
pub(super) fn parse_pseudowire(text: &str) -> Result<Pseudowire, String> {
    let expected = || {
        "expected the cookie size (0, 4 or 8 bytes) and the sublayer: 4/default, \
                       0/none"
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

pub(super) fn parse_link(text: &str) -> Result<LinkType, String> {
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

pub(super) fn parse_flows(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(flows @ 1..=FLOWS_MAX) => Ok(flows),
        _ => Err(format!("expected a number from 1 to {FLOWS_MAX}")),
    }
}

/// Parses a number of rows of the flow table.
pub(super) fn parse_rows(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(rows @ 1..=ROWS_MAX) => Ok(rows),
        _ => Err(format!("expected a number from 1 to {ROWS_MAX}")),
    }
}

/// Parses the sort key of the flow table.
pub(super) fn flow_order() -> impl TypedValueParser<Value = FlowOrder> {
    PossibleValuesParser::new(FlowOrder::ALL.map(FlowOrder::name)).map(|name| {
        let order = FlowOrder::ALL.into_iter().find(|order| order.name() == name);
        order.unwrap_or_default()
    })
}

/// Parses a size in bytes with an optional binary unit.
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

/// Parses the size of a file: millions of bytes, or a size with a unit (tcpdump's `-C`).
pub(super) fn parse_file_bytes(text: &str) -> Result<u64, String> {
    let bytes = match text.parse::<u64>() {
        Ok(millions) => millions.checked_mul(1_000_000),
        Err(_) => Some(parse_bytes(text)?),
    };
    bytes.filter(|bytes| *bytes > 0).ok_or_else(|| "expected 1 or more".into())
}

/// Parses a memory size in bytes, which must suffice for one datagram of full length.
pub(super) fn parse_memory(text: &str) -> Result<usize, String> {
    let bytes = parse_bytes(text)?;
    let size = usize::try_from(bytes).ok().filter(|_| bytes >= MEMORY_BYTES_MIN);
    size.ok_or_else(|| "expected at least 128K, the memory of one large datagram".into())
}

/// Parses the length of a measurement; returns nanoseconds.
pub(crate) fn parse_run_ns(text: &str) -> Result<u64, String> {
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
    parse_rate(rate).map(Spacing::Line).map_err(|_| expected())
}

/// Parses a rate in bits per second with an optional decimal unit.
fn parse_rate(text: &str) -> Result<u64, String> {
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

/// Parses the load that the lab offers, in bits per second: enough for some datagrams in every measurement, and no more
/// than a machine can generate.
pub(super) fn parse_offer(text: &str) -> Result<u64, String> {
    let expected = || "expected bits per second from 10M to 100G, such as 1.5G".to_string();
    let bits = parse_rate(text).map_err(|_| expected())?;
    if (OFFER_BITS_MIN..=OFFER_BITS_MAX).contains(&bits) { Ok(bits) } else { Err(expected()) }
}

/// Parses the CPUs of the sender, the data path and the receiver of an experiment.
pub(super) fn parse_cpus(text: &str) -> Result<[usize; 3], String> {
    let cpus: Result<Vec<usize>, _> = text.split(',').map(str::parse).collect();
    let cpus = cpus.ok().and_then(|cpus| cpus.try_into().ok());
    cpus.ok_or_else(|| "expected the CPUs of sender, data path and receiver, such as 0,1,0".into())
}

/// Parses the address of a sink of the lab; the port is optional.
pub(super) fn parse_peer(text: &str) -> Result<SocketAddr, String> {
    let alone = text.parse::<IpAddr>().map(|address| SocketAddr::new(address, SINK_PORT));
    let peer = alone.or_else(|_| text.parse());
    peer.map_err(|_| {
        "expected an address such as 192.0.2.7, 192.0.2.7:5297 or [fd00::7]:5297".into()
    })
}

/// Parses a fraction from 0 to 1.
pub(super) fn parse_share(text: &str) -> Result<f64, String> {
    let percent = match text {
        "0" => Some(0.0),
        _ => text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok()),
    };
    let share = percent.map(|percent| percent / 100.0).filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "expected a percentage from 0% to 100%, such as 0.1%".into())
}

/// Default port of a sink of the lab.
const SINK_PORT: u16 = 5297;
/// Maximum rate in bits per second: faster than any link, and small enough for a double to represent whole bits.
const RATE_BITS_MAX: f64 = 1e15;

const OFFER_BITS_MIN: u64 = 10_000_000;

const OFFER_BITS_MAX: u64 = 100_000_000_000;

/// Maximum number of flows: a table of a million trains takes several hundred megabytes.
const FLOWS_MAX: usize = 1 << 20;

/// Minimum memory in bytes: a datagram of 65535 bytes, its headers, and its bookkeeping.
const MEMORY_BYTES_MIN: u64 = 128 << 10;

/// Minimum length of a measurement in nanoseconds: a shorter one spans only a few ticks of the scheduler's clock. A
/// longer one than the maximum is a mistake.
const RUN_NS_MIN: u64 = 10_000_000;

const RUN_NS_MAX: u64 = 1_000_000_000_000;

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
        assert!(
            ["", "G", "0", "1.5.5G", "-1", "9e9", "9999999999G"]
                .iter()
                .all(|text| parse_rate(text).is_err())
        );
        assert_eq!(parse_cpus("0,12,0"), Ok([0, 12, 0]));
        assert!(
            ["", "1", "0,1", "0,1,2,3", "0,-1,0", "a,b,c"]
                .iter()
                .all(|text| parse_cpus(text).is_err())
        );
        assert_eq!(parse_offer("10M"), Ok(10_000_000));
        assert!(["1.5", "9.9M", "101G", "fast"].iter().all(|text| parse_offer(text).is_err()));
        assert_eq!(parse_peer("fd00::7"), Ok("[fd00::7]:5297".parse().unwrap()));
        assert_eq!(parse_peer("192.0.2.7:1"), Ok("192.0.2.7:1".parse().unwrap()));
        assert!(
            ["", "eth0", "192.0.2.7:", "fd00::7:x"].iter().all(|text| parse_peer(text).is_err())
        );
        assert_eq!(parse_share("0.1%"), Ok(0.001));
        assert_eq!(parse_share("0"), Ok(0.0));
        assert!(["0.1", "%", "101%", "-1%", "NaN%"].iter().all(|text| parse_share(text).is_err()));
        assert_eq!(parse_bytes("64M"), Ok(64 << 20));
        assert!(parse_bytes("64MB").is_err() && parse_bytes("99999999999G").is_err());
    }
}
