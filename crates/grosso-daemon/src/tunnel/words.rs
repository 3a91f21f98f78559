//! The keywords of `ip link add NAME type ...`, the types that have them, and their values.

use core::fmt;
use std::{collections::BTreeMap, net::IpAddr, str::FromStr};

use super::value::{Form, Value};
use crate::wrong::similar;

/// The types of tunnels, as `ip link` has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Vxlan,
    Geneve,
    Gre,
    Gretap,
    Ip6gre,
    Ip6gretap,
    Ipip,
    Sit,
    Ip6tnl,
}

impl Kind {
    pub const ALL: [Self; 9] = [
        Self::Vxlan,
        Self::Geneve,
        Self::Gre,
        Self::Gretap,
        Self::Ip6gre,
        Self::Ip6gretap,
        Self::Ipip,
        Self::Sit,
        Self::Ip6tnl,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Vxlan => "vxlan",
            Self::Geneve => "geneve",
            Self::Gre => "gre",
            Self::Gretap => "gretap",
            Self::Ip6gre => "ip6gre",
            Self::Ip6gretap => "ip6gretap",
            Self::Ipip => "ipip",
            Self::Sit => "sit",
            Self::Ip6tnl => "ip6tnl",
        }
    }

    /// Returns whether the tunnel has a GRE header.
    pub const fn is_gre(self) -> bool {
        matches!(self, Self::Gre | Self::Gretap | Self::Ip6gre | Self::Ip6gretap)
    }

    /// Returns whether the tunnel is always in UDP, with a port of its own.
    pub const fn has_port(self) -> bool {
        matches!(self, Self::Vxlan | Self::Geneve)
    }

    /// Returns whether the tunnel is only over IPv6; `None` if the addresses decide.
    pub const fn is_over_ipv6(self) -> Option<bool> {
        match self {
            Self::Vxlan | Self::Geneve => None,
            Self::Gre | Self::Gretap | Self::Ipip | Self::Sit => Some(false),
            Self::Ip6gre | Self::Ip6gretap | Self::Ip6tnl => Some(true),
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name);
            match similar(text, names.into_iter()) {
                Some(meant) => format!("no type \"{text}\"; did you mean {meant}?"),
                None => format!("no type \"{text}\"; types are {}", names.join(", ")),
            }
        })
    }
}

/// The keywords that describe a tunnel, each at most once. `Description` interprets them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Words {
    pub(super) kind: Kind,
    said: BTreeMap<&'static str, Value>,
}

impl Words {
    /// Creates an empty list for a tunnel of this type.
    pub(super) const fn new(kind: Kind) -> Self {
        Self { kind, said: BTreeMap::new() }
    }

    /// Reads the keywords from the type on.
    ///
    /// # Errors
    /// The message describes the error, and suggests a correction.
    pub fn parse<S: AsRef<str>>(words: &[S]) -> Result<Self, String> {
        let mut rest = words.iter().map(AsRef::as_ref).peekable();
        let kind = rest.next().ok_or("type is missing; expected vxlan, geneve, gre, ipip, ...")?;
        let mut said = Self::new(kind.parse()?);
        while let Some(text) = rest.next() {
            if AS_IT_IS.contains(&text) {
                continue;
            }
            let (word, is_on) = said.find(text)?;
            let mut values: Vec<&str> = rest.by_ref().take(word.form.count()).collect();
            if values.len() < word.form.count() {
                return Err(format!("{text} needs {}", word.form));
            }
            if is_on {
                values.extend(rest.next_if(|next| word.form.wants(next)));
            }
            said.say(word, is_on, &values)?;
        }
        Ok(said)
    }

    /// Returns the keyword that a text names, and whether it turns something on.
    fn find(&self, text: &str) -> Result<(&'static Word, bool), String> {
        if let Some(word) = Word::named(text) {
            return self.fits(word, text).map(|()| (word, true));
        }
        let positive = text.strip_prefix("no").and_then(Word::named);
        match positive {
            Some(word) if word.form.is_switch() => self.fits(word, text).map(|()| (word, false)),
            _ => Err(self.unknown(text)),
        }
    }

    fn fits(&self, word: &Word, text: &str) -> Result<(), String> {
        if word.kinds.contains(&self.kind) {
            return Ok(());
        }
        let kinds: Vec<&str> = word.kinds.iter().map(|kind| kind.name()).collect();
        Err(format!("{text} applies to {}, not to {}", kinds.join(", "), self.kind.name()))
    }

    fn unknown(&self, text: &str) -> String {
        let bare = text.strip_prefix("no").unwrap_or(text);
        if let Some((_, why)) = ELSEWHERE.iter().find(|(word, _)| *word == text || *word == bare) {
            return format!("{text}: {why}");
        }
        let fitting = || WORDS.iter().filter(|word| word.kinds.contains(&self.kind));
        let negative = |word: &Word| word.form.is_switch().then(|| format!("no{}", word.name));
        let names: Vec<String> = fitting()
            .flat_map(|word| word.names().map(str::to_owned).chain(negative(word)))
            .collect();
        match similar(text, names.iter().map(String::as_str)) {
            Some(meant) => format!("no option \"{text}\"; did you mean {meant}?"),
            None => {
                let names: Vec<&str> = fitting().map(|word| word.name).collect();
                let kind = self.kind.name();
                format!("{kind} has no option \"{text}\"; options are {}", names.join(", "))
            }
        }
    }

    /// Adds a keyword with its value.
    ///
    /// # Errors
    /// If the type does not have the keyword.
    pub(super) fn take(&mut self, word: &'static Word, value: Value) -> Result<(), String> {
        self.fits(word, word.name)?;
        self.insert(word, value)
    }

    fn say(&mut self, word: &'static Word, is_on: bool, values: &[&str]) -> Result<(), String> {
        let value = match (word.form.is_switch(), is_on, values) {
            (true, false, []) => Value::Switch(false),
            _ => word.form.read(values).map_err(|why| format!("{}: {why}", word.name))?,
        };
        self.insert(word, value)
    }

    fn insert(&mut self, word: &'static Word, value: Value) -> Result<(), String> {
        let together = self.said.get(word.name).and_then(|said| said.and(&value));
        if let Some(together) = together {
            self.said.insert(word.name, together);
            return Ok(());
        }
        match self.said.insert(word.name, value.clone()) {
            None => Ok(()),
            Some(before) if before == value => Err(format!("{} is set twice", word.name)),
            Some(before) => {
                let [before, value] = [before, value].map(|value| word.spell(&value));
                Err(format!("{before} and {value} cannot be combined"))
            }
        }
    }

    /// Adds a keyword whose value is known to be valid.
    pub(super) fn put(&mut self, name: &'static str, value: Value) {
        debug_assert!(Word::named(name).is_some_and(|word| word.kinds.contains(&self.kind)));
        self.said.insert(name, value);
    }

    /// Returns the keywords with their values, in the order of the table.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static Word, &Value)> {
        WORDS.iter().filter_map(|word| Some((word, self.said.get(word.name)?)))
    }

    pub(super) fn value(&self, name: &str) -> Option<&Value> {
        debug_assert!(Word::named(name).is_some());
        self.said.get(name)
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        match self.value(name) {
            Some(Value::Number(number)) => Some(*number),
            _ => None,
        }
    }

    pub(super) fn switch(&self, name: &str) -> Option<bool> {
        match self.value(name) {
            Some(Value::Switch(is_on)) => Some(*is_on),
            _ => None,
        }
    }

    pub(super) fn choice(&self, name: &str) -> Option<&'static str> {
        match self.value(name) {
            Some(Value::Choice(word)) => Some(word),
            _ => None,
        }
    }

    /// Returns the address after a keyword, or the first of several.
    pub(super) fn address(&self, name: &str) -> Result<IpAddr, String> {
        match self.value(name) {
            Some(Value::Address(address)) => Ok(*address),
            Some(Value::Addresses(addresses)) if !addresses.is_empty() => Ok(addresses[0]),
            _ => Err(format!("{name} is missing: expected an IP address")),
        }
    }
}

/// Prints the keywords after `type`.
impl fmt::Display for Words {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.kind.name())?;
        self.iter().try_for_each(|(word, value)| write!(formatter, " {}", word.spell(value)))
    }
}

/// One keyword of the grammar.
#[derive(Debug)]
pub(super) struct Word {
    /// Spelling on the command line, and name as a key of a file.
    pub(super) name: &'static str,
    /// Other spellings that `ip` accepts.
    synonyms: &'static [&'static str],
    /// Types that have the keyword.
    kinds: &'static [Kind],
    pub(super) form: Form,
}

impl Word {
    /// Returns the keyword with this name or synonym.
    pub(super) fn named(text: &str) -> Option<&'static Self> {
        WORDS.iter().find(|word| word.names().any(|name| name == text))
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        core::iter::once(self.name).chain(self.synonyms.iter().copied())
    }

    /// Returns the keyword with its value, as typed.
    pub(super) fn spell(&self, value: &Value) -> String {
        match value {
            Value::Switch(true) => self.name.to_owned(),
            Value::Switch(false) => format!("no{}", self.name),
            // `ip` prints DSCP and flow labels in hexadecimal.
            Value::Number(number) if matches!(self.name, "tos" | "flowlabel") => {
                format!("{} {number:#x}", self.name)
            }
            value => {
                let spelt = value.parts().map(|part| format!("{} {part}", self.name));
                spelt.collect::<Vec<_>>().join(" ")
            }
        }
    }
}

/// Returns the message that no keyword has this name as a key, with the most similar one.
pub(super) fn no_such_key(name: &str) -> String {
    if let Some(word) = name.strip_prefix("no").and_then(Word::named)
        && word.form.is_switch()
    {
        return format!("no key \"{name}\"; use {} = false", word.name);
    }
    match similar(name, word_names().chain(["type"])) {
        Some(meant) => format!("no key \"{name}\"; did you mean {meant}?"),
        None => format!("no key \"{name}\" of a tunnel; keys are the options of ip link"),
    }
}

const fn word(
    name: &'static str,
    synonyms: &'static [&'static str],
    kinds: &'static [Kind],
    form: Form,
) -> Word {
    Word { name, synonyms, kinds, form }
}

/// Returns the names of all keywords, in output order.
pub fn word_names() -> impl Iterator<Item = &'static str> {
    WORDS.iter().map(|word| word.name)
}

/// All keywords, in output order.
const WORDS: &[Word] = &[
    word("id", &["vni"], &[Kind::Vxlan, Kind::Geneve], Form::Number(0, IDENTIFIER_MAX, &[])),
    word("mode", &[], BARE, Form::Choice(&["any", "ipip", "ip6ip", "ip6ip6", "ipip6"])),
    word("local", &[], &Kind::ALL, Form::Address),
    word("remote", &[], &Kind::ALL, Form::Addresses),
    word("fdb", &[], ETHERNET, Form::Entries),
    word("learning", &[], ETHERNET, Form::Switch),
    word("ageing", &[], ETHERNET, Form::Number(0, u32::MAX as u64, &[])),
    word("maxaddress", &["maxaddr"], ETHERNET, Form::Number(1, ADDRESSES_MAX, &[])),
    word("ttl", &["hoplimit", "hlim"], &Kind::ALL, Form::Number(1, 255, &["inherit", "auto"])),
    word("tos", &["dsfield", "tclass"], &Kind::ALL, Form::Number(0, 255, &["inherit"])),
    word("flowlabel", &["flow"], &Kind::ALL, Form::Number(0, FLOW_LABEL_MAX, &[])),
    word("encaplimit", &["elim"], OVER_IPV6, Form::Number(0, 255, &["none"])),
    word("df", &[], &[Kind::Vxlan, Kind::Geneve], Form::Choice(&["set", "unset", "inherit"])),
    word("pmtudisc", &[], OVER_IPV4, Form::Switch),
    word("ignore-df", &[], &[Kind::Gre, Kind::Gretap], Form::Switch),
    word("probe", &[], &Kind::ALL, Form::Switch),
    word("mtu-min", &[], &Kind::ALL, Form::Number(576, u16::MAX as u64, &[])),
    word("key", &[], GRE, Form::Key),
    word("ikey", &[], GRE, Form::Key),
    word("okey", &[], GRE, Form::Key),
    word("csum", &[], GRE, Form::Switch),
    word("icsum", &[], GRE, Form::Switch),
    word("ocsum", &[], GRE, Form::Switch),
    word("seq", &[], GRE, Form::Switch),
    word("iseq", &[], GRE, Form::Switch),
    word("oseq", &[], GRE, Form::Switch),
    word("srcport", &["port"], &[Kind::Vxlan, Kind::Geneve], Form::Ports),
    word("dstport", &[], &[Kind::Vxlan, Kind::Geneve], Form::Number(1, PORT_MAX, &[])),
    word("udpcsum", &[], &[Kind::Vxlan, Kind::Geneve], Form::Switch),
    word("udp6zerocsumtx", &[], &[Kind::Vxlan, Kind::Geneve], Form::Switch),
    word("udp6zerocsumrx", &[], &[Kind::Vxlan, Kind::Geneve], Form::Switch),
    word("remcsumtx", &[], &[Kind::Vxlan], Form::Switch),
    word("remcsumrx", &[], &[Kind::Vxlan], Form::Switch),
    word("remcsumpartial", &[], &[Kind::Vxlan], Form::Switch),
    word("gbp", &[], &[Kind::Vxlan], Form::SwitchOrNumber(0xffff)),
    word("gpe", &[], &[Kind::Vxlan], Form::Switch),
    word("innerprotoinherit", &[], &[Kind::Geneve], Form::Switch),
    word("geneve_opts", &[], &[Kind::Geneve], Form::Options),
    word("encap", &[], IN_UDP, Form::Choice(&["fou", "gue", "none"])),
    word("encap-variant", &[], IN_UDP, Form::Number(0, 1, &[])),
    word("encap-sport", &[], IN_UDP, Form::Number(1, PORT_MAX, &["auto"])),
    word("encap-dport", &[], IN_UDP, Form::Number(1, PORT_MAX, &[])),
    word("encap-csum", &[], IN_UDP, Form::Switch),
    word("encap-csum6", &["encap-udp6-csum"], IN_UDP, Form::Switch),
    word("encap-remcsum", &[], IN_UDP, Form::Switch),
    word("encap-remcsumpartial", &[], IN_UDP, Form::Switch),
];

const GRE: &[Kind] = &[Kind::Gre, Kind::Gretap, Kind::Ip6gre, Kind::Ip6gretap];
/// Types that carry Ethernet frames by default.
const ETHERNET: &[Kind] = &[Kind::Vxlan, Kind::Geneve, Kind::Gretap, Kind::Ip6gretap];
const BARE: &[Kind] = &[Kind::Ipip, Kind::Sit, Kind::Ip6tnl];
const OVER_IPV4: &[Kind] = &[Kind::Gre, Kind::Gretap, Kind::Ipip, Kind::Sit];
const OVER_IPV6: &[Kind] = &[Kind::Ip6gre, Kind::Ip6gretap, Kind::Ip6tnl];
/// Types that `encap` puts into UDP.
const IN_UDP: &[Kind] =
    &[Kind::Gre, Kind::Gretap, Kind::Ip6gre, Kind::Ip6gretap, Kind::Ipip, Kind::Sit, Kind::Ip6tnl];

/// Keywords of `ip link` that are not supported, with the reason or the alternative.
const ELSEWHERE: &[(&str, &str)] = &[
    (
        "group",
        "multicast is not supported: list each peer with remote; all of them get packets \
               to groups",
    ),
    ("dev", "routes choose the interface for outgoing packets: ip route add REMOTE dev IFACE"),
    ("external", "external is not supported: the tunnel is configured here, not per packet"),
    ("vnifilter", "a tunnel has one id"),
    ("proxy", "address resolution is answered by the peer"),
    ("rsc", "packets are not routed"),
    ("l2miss", "no notifications: packets to unknown addresses go to all peers"),
    ("l3miss", "no notifications: packets to unknown addresses go to all peers"),
    ("fwmark", "packet marks are not set"),
    ("6rd-prefix", "6rd derives peers from addresses; set remote instead"),
    ("isatap", "ISATAP derives peers from addresses; set remote instead"),
];

/// Keywords of `ip link` that describe fixed behaviour; they occur in the output of `ip`.
const AS_IT_IS: &[&str] =
    &["noproxy", "norsc", "nol2miss", "nol3miss", "noexternal", "novnifilter", "noencap"];

/// The largest network identifier of VXLAN and Geneve.
const IDENTIFIER_MAX: u64 = 0xff_ffff;
/// Maximum number of addresses that a tunnel can be configured to learn: about 128 MiB of them.
const ADDRESSES_MAX: u64 = 1 << 20;
const FLOW_LABEL_MAX: u64 = 0xf_ffff;
const PORT_MAX: u64 = 65535;
