//! Parsers for values other than plain numbers and names.

use std::net::{IpAddr, SocketAddr};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
pub(super) use grosso_analysis::values::*;

use crate::slowdown::FlowOrder;
pub(super) use crate::units::parse_time as parse_time_ns;

/// Returns a parser for named values.
pub(super) fn one_of<T: Copy + Send + Sync + 'static>(
    choices: &'static [NamedValue<T>],
) -> impl TypedValueParser<Value = T> {
    let names = choices.iter().map(|one| PossibleValue::new(one.name).help(one.about));
    PossibleValuesParser::new(names).try_map(|name| choose(choices, &name))
}

/// Parses the sort key of the flow table.
pub(super) fn flow_order() -> impl TypedValueParser<Value = FlowOrder> {
    PossibleValuesParser::new(FlowOrder::ALL.map(FlowOrder::name))
        .try_map(|name| parse_order(&name))
}

/// Parses a file size: a number of millions of bytes, or a size with a unit (tcpdump's `-C`).
pub(super) fn parse_file_bytes(text: &str) -> Result<u64, String> {
    let bytes = match text.parse::<u64>() {
        Ok(millions) => millions.checked_mul(1_000_000),
        Err(_) => Some(parse_bytes(text)?),
    };
    bytes.filter(|bytes| *bytes > 0).ok_or_else(|| "expected 1 or more".into())
}

/// Parses the duration of a measurement, and returns it in nanoseconds.
pub(crate) fn parse_run_ns(text: &str) -> Result<u64, String> {
    match parse_time_ns(text)? {
        nanoseconds @ RUN_NS_MIN..=RUN_NS_MAX => Ok(nanoseconds),
        _ => Err("expected a time from 10ms to 1000s".into()),
    }
}

/// Parses the offered load for the lab in bits per second. The limits ensure that every measurement contains at least
/// some datagrams, but no more than a machine can generate.
pub(super) fn parse_offer(text: &str) -> Result<u64, String> {
    let expected = || "expected bits per second from 10M to 100G, such as 1.5G".to_string();
    let bits = parse_rate(text).map_err(|_| expected())?;
    if (OFFER_BITS_MIN..=OFFER_BITS_MAX).contains(&bits) { Ok(bits) } else { Err(expected()) }
}

/// Parses the CPUs for the sender, the data path and the receiver of an experiment.
pub(super) fn parse_cpus(text: &str) -> Result<[usize; 3], String> {
    let cpus: Result<Vec<usize>, _> = text.split(',').map(str::parse).collect();
    let cpus = cpus.ok().and_then(|cpus| cpus.try_into().ok());
    cpus.ok_or_else(|| "expected the CPUs of sender, data path and receiver, such as 0,1,0".into())
}

/// Parses the address of a `grosso lab sink`; the port is optional.
pub(super) fn parse_peer(text: &str) -> Result<SocketAddr, String> {
    let alone = text.parse::<IpAddr>().map(|address| SocketAddr::new(address, SINK_PORT));
    let peer = alone.or_else(|_| text.parse());
    peer.map_err(|_| {
        "expected an address such as 192.0.2.7, 192.0.2.7:5297 or [fd00::7]:5297".into()
    })
}

/// Parses a fraction between 0 and 1.
pub(super) fn parse_share(text: &str) -> Result<f64, String> {
    let percent = match text {
        "0" => Some(0.0),
        _ => text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok()),
    };
    let share = percent.map(|percent| percent / 100.0).filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "expected a percentage from 0% to 100%, such as 0.1%".into())
}

/// Default port of `grosso lab sink`.
const SINK_PORT: u16 = 5297;
const OFFER_BITS_MIN: u64 = 10_000_000;

const OFFER_BITS_MAX: u64 = 100_000_000_000;

/// Minimum and maximum duration of a measurement in nanoseconds. A shorter one would span only a few ticks of the
/// scheduler's clock, and a longer one is probably a mistake.
const RUN_NS_MIN: u64 = 10_000_000;

const RUN_NS_MAX: u64 = 1_000_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_lab_have_units() {
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
    }
}
