//! Parses and prints the values of keywords.

use core::fmt;
use std::net::{IpAddr, Ipv4Addr};

/// The values that may follow a keyword.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    /// No value: the keyword turns a setting on, and the same keyword with the prefix `no` turns it off.
    Switch,
    /// No value, or a number.
    SwitchOrNumber(u64),
    /// A number between these bounds, decimal or with `0x`, or one word from this list.
    Number(u64, u64, &'static [&'static str]),
    /// A 32-bit number, or four 8-bit numbers separated by dots, as in `ip`.
    Key,
    /// An IP address.
    Address,
    /// IP addresses; the keyword is repeated for each.
    Addresses,
    /// Ethernet addresses, each with the IP address of the endpoint through which it can be reached; the keyword is
    /// repeated for each pair.
    Entries,
    /// Two port numbers.
    Ports,
    /// One word from this list.
    Choice(&'static [&'static str]),
    /// Geneve options as in `ip route`: `CLASS:TYPE:DATA,...`, hexadecimal.
    Options,
}

/// The value after a keyword.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Switch(bool),
    Number(u64),
    Address(IpAddr),
    Addresses(Vec<IpAddr>),
    Entries(Vec<([u8; 6], IpAddr)>),
    Ports(u16, u16),
    Choice(&'static str),
    Options(Vec<u8>),
}

impl Form {
    /// Returns the minimum number of values after a keyword.
    pub(super) const fn count(self) -> usize {
        match self {
            Self::Switch | Self::SwitchOrNumber(_) => 0,
            Self::Ports | Self::Entries => 2,
            _ => 1,
        }
    }

    /// Returns whether a keyword of this form can be turned off.
    pub(super) const fn is_switch(self) -> bool {
        matches!(self, Self::Switch | Self::SwitchOrNumber(_))
    }

    /// Returns whether `next` is a value of the current keyword. Otherwise, it may be the next keyword.
    pub(super) fn wants(self, next: &str) -> bool {
        matches!(self, Self::SwitchOrNumber(_)) && number(next).is_some()
    }

    /// Reads the values of a keyword.
    pub(super) fn read(self, values: &[&str]) -> Result<Value, String> {
        let value = match (self, values) {
            (Self::Switch | Self::SwitchOrNumber(_), []) => Some(Value::Switch(true)),
            (Self::SwitchOrNumber(max), [text]) => in_range(text, 0, max),
            (Self::Number(min, max, words), [text]) => {
                chosen(text, words).or_else(|| in_range(text, min, max))
            }
            (Self::Key, [text]) => {
                let quad = || text.parse::<Ipv4Addr>().ok().map(|quad| u64::from(u32::from(quad)));
                in_range(text, 0, u32::MAX.into()).or_else(|| quad().map(Value::Number))
            }
            (Self::Address, [text]) => text.parse().ok().map(Value::Address),
            (Self::Addresses, texts) => {
                let addresses = texts.iter().map(|text| text.parse().ok());
                addresses.collect::<Option<_>>().map(Value::Addresses)
            }
            (Self::Entries, texts) => entries(texts).map(Value::Entries),
            (Self::Ports, [low, high]) => ports(low, high),
            (Self::Choice(words), [text]) => chosen(text, words),
            (Self::Options, [text]) => options(text).map(Value::Options),
            _ => None,
        };
        value.ok_or_else(|| format!("\"{}\" is not {self}", values.join(" ")))
    }
}

/// Prints the expected value after a keyword.
impl fmt::Display for Form {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch => formatter.write_str("on or off"),
            Self::SwitchOrNumber(max) => write!(formatter, "a number from 0 to {max}"),
            Self::Number(min, max, words) => {
                write!(formatter, "a number from {min} to {max}")?;
                words.iter().try_for_each(|word| write!(formatter, " or {word}"))
            }
            Self::Key => formatter.write_str("a 32-bit number or a dotted quad"),
            Self::Address | Self::Addresses => formatter.write_str("an IP address"),
            Self::Entries => formatter.write_str("an Ethernet address and an IP address"),
            Self::Ports => formatter.write_str("two ports, the lower first"),
            Self::Choice(words) => write!(formatter, "one of {}", words.join(", ")),
            Self::Options => formatter.write_str("CLASS:TYPE:DATA,... in hexadecimal digits"),
        }
    }
}

/// Prints the values as they are typed.
impl fmt::Display for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch(_) => Ok(()),
            Self::Number(number) => write!(formatter, "{number}"),
            Self::Address(address) => write!(formatter, "{address}"),
            Self::Addresses(_) | Self::Entries(_) => {
                formatter.write_str(&self.parts().collect::<Vec<_>>().join(", "))
            }
            Self::Ports(low, high) => write!(formatter, "{low} {high}"),
            Self::Choice(word) => formatter.write_str(word),
            Self::Options(bytes) => write_options(formatter, bytes),
        }
    }
}

impl Value {
    /// Returns the values of all repetitions of the keyword, each as typed.
    pub(super) fn parts(&self) -> Box<dyn Iterator<Item = String> + '_> {
        match self {
            Self::Addresses(addresses) => Box::new(addresses.iter().map(IpAddr::to_string)),
            Self::Entries(entries) => Box::new(
                entries.iter().map(|(link, remote)| format!("{} {remote}", link_address(link))),
            ),
            value => Box::new(core::iter::once(value.to_string())),
        }
    }

    /// Returns whether a switch is on.
    pub(super) const fn is_on(&self) -> bool {
        matches!(self, Self::Switch(true))
    }

    /// Returns the number, if the value is a number and fits into `T`.
    pub(super) fn number<T: TryFrom<u64>>(&self) -> Option<T> {
        match self {
            Self::Number(number) => T::try_from(*number).ok(),
            _ => None,
        }
    }

    /// Adds the value of a repeated keyword; returns `None` if the keyword must not be repeated.
    pub(super) fn and(&self, more: &Self) -> Option<Self> {
        match (self, more) {
            (Self::Addresses(said), Self::Addresses(more)) => {
                Some(Self::Addresses([&said[..], more].concat()))
            }
            (Self::Entries(said), Self::Entries(more)) => {
                Some(Self::Entries([&said[..], more].concat()))
            }
            _ => None,
        }
    }
}

/// Formats an Ethernet address, for example `02:00:00:00:00:01`.
pub(super) fn link_address(address: &[u8; 6]) -> String {
    address.map(|byte| format!("{byte:02x}")).join(":")
}

/// Parses pairs of addresses, each pair given as one string or two.
fn entries(texts: &[&str]) -> Option<Vec<([u8; 6], IpAddr)>> {
    let mut words = texts.iter().flat_map(|text| text.split_whitespace());
    let mut entries = Vec::new();
    while let Some(link) = words.next() {
        let mut bytes = [0; 6];
        let mut digits = link.split(':');
        for byte in &mut bytes {
            let pair = digits.next().filter(|pair| !pair.starts_with('+'))?;
            *byte = u8::from_str_radix(pair, 16).ok()?;
        }
        let remote = words.next()?.parse().ok()?;
        entries.push(digits.next().is_none().then_some((bytes, remote))?);
    }
    Some(entries)
}

/// Parses a decimal or hexadecimal number.
fn number(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    match digits {
        Some(digits) if digits.starts_with('+') => None,
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None if text.starts_with('+') => None,
        None => text.parse().ok(),
    }
}

fn in_range(text: &str, min: u64, max: u64) -> Option<Value> {
    number(text).filter(|number| (min..=max).contains(number)).map(Value::Number)
}

fn chosen(text: &str, words: &[&'static str]) -> Option<Value> {
    words.iter().find(|word| **word == text).map(|word| Value::Choice(word))
}

fn ports(low: &str, high: &str) -> Option<Value> {
    let (low, high) = (low.parse().ok()?, high.parse().ok()?);
    (0 < low && low <= high).then_some(Value::Ports(low, high))
}

/// Parses the options of a Geneve header (rule W40).
fn options(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for option in text.split(',') {
        let mut parts = option.split(':');
        let (class, kind, data) = (parts.next()?, parts.next()?, hexadecimal(parts.next()?)?);
        let words = data.len() / 4;
        if parts.next().is_some() || !data.len().is_multiple_of(4) || words > OPTION_WORDS_MAX {
            return None;
        }
        let (class, kind) = (u16::from_str_radix(class, 16).ok()?, u8::from_str_radix(kind, 16));
        bytes.extend(class.to_be_bytes());
        bytes.extend([kind.ok()?, u8::try_from(words).ok()?]);
        bytes.extend(data);
    }
    Some(bytes)
}

fn hexadecimal(digits: &str) -> Option<Vec<u8>> {
    if !digits.len().is_multiple_of(2) || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let pairs = (0..digits.len()).step_by(2).map(|at| digits.get(at..at + 2));
    pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
}

/// Writes all complete Geneve options. Bytes after the last complete option are left out.
fn write_options(formatter: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    let mut rest = bytes;
    let mut separator = "";
    while let [class, low, kind, words, data @ ..] = rest {
        let len = usize::from(words & 0x1f) * 4;
        let Some((data, after)) = data.split_at_checked(len) else { break };
        write!(formatter, "{separator}{class:02x}{low:02x}:{kind:02x}:")?;
        data.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))?;
        (rest, separator) = (after, ",");
    }
    Ok(())
}

/// Maximum number of 32-bit words of data in a Geneve option, because the length field is 5 bits long.
const OPTION_WORDS_MAX: usize = 31;
