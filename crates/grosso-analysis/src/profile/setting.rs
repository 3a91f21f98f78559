//! Parses and formats the values in a profile file.

use core::ops::RangeInclusive;

use grosso::coalesce::{
    Acknowledgments, AtLimit, Batch, BucketChoice, Bypass, FixedIdentification, FullTable, Hold,
    Level, Options, Padding, Push, Refused, Sizes, TrainChecksum, Vary, ZeroEcho,
};
use grosso_wire::tcp;
use serde_json::{Value, json};
use toml::de::DeValue;

/// Value written as a keyword or a number.
pub(super) trait SettingValue: Sized {
    /// Returns the permitted values.
    fn choices() -> String;

    /// Parses a value from a file; `None` if it is not permitted.
    fn read(value: &DeValue<'_>) -> Option<Self>;

    /// Returns the value in the form that [`Self::read`] parses.
    fn show(&self) -> Value;
}

impl SettingValue for bool {
    fn choices() -> String {
        "true or false".into()
    }

    fn read(value: &DeValue<'_>) -> Option<Self> {
        value.as_bool()
    }

    fn show(&self) -> Value {
        (*self).into()
    }
}

/// Implements [`SettingValue`] for an enumeration with these keywords.
macro_rules! words {
    ($type:ty { $($variant:ident: $word:literal),+ }) => {
        impl SettingValue for $type {
            fn choices() -> String {
                choices(&[$($word),+])
            }

            fn read(value: &DeValue<'_>) -> Option<Self> {
                match value.as_str()? {
                    $($word => Some(Self::$variant),)+
                    _ => None,
                }
            }

            fn show(&self) -> Value {
                match self {
                    $(Self::$variant => $word.into(),)+
                }
            }
        }
    };
}

words!(Vary { Equal: "equal", First: "first", Latest: "latest" });
words!(FixedIdentification { Any: "any", DontFragment: "dont-fragment" });
words!(Options { Any: "any", TimestampOnly: "timestamp-only" });
words!(Sizes { EqualButLast: "equal-but-last", Any: "any" });
words!(Push { Ends: "ends", Joins: "joins" });
words!(Acknowledgments {
    Alone: "alone",
    WindowUpdates: "window-updates",
    Join: "join",
    Newer: "newer",
    Vector: "vector",
    Filter: "filter",
    FilterAggressive: "filter-aggressive"
});
words!(Refused { Starts: "starts", Leaves: "leaves" });
words!(FullTable { Evicts: "evicts", Leaves: "leaves" });
words!(AtLimit { Next: "next", Ends: "ends" });
words!(Padding { Alone: "alone", Trim: "trim" });
words!(ZeroEcho { Joins: "joins", Starts: "starts", Alone: "alone" });
words!(TrainChecksum { Partial: "partial", Complete: "complete" });
words!(Level { Off: "off", Batch: "batch", Holes: "holes" });
words!(BucketChoice { Seeded: "seeded", Device: "device" });
words!(Hold { Fixed: "fixed", Controlled: "controlled" });

impl SettingValue for Option<Bypass> {
    fn choices() -> String {
        "false or [probe bytes, joined minimum, skip bytes]".into()
    }

    fn read(value: &DeValue<'_>) -> Option<Self> {
        let Some(numbers) = value.as_array() else {
            return value.as_bool().filter(|is_on| !is_on).map(|_| None);
        };
        let numbers: Option<Vec<u32>> =
            numbers.iter().map(|value| number(value.get_ref(), &(0..=BYPASS_MAX))).collect();
        let &[probe_bytes, joined_min, skip_bytes] = numbers?.as_slice() else { return None };
        Some(Some(Bypass { probe_bytes, joined_min, skip_bytes }))
    }

    fn show(&self) -> Value {
        match self {
            None => false.into(),
            Some(bypass) => {
                [bypass.probe_bytes, bypass.joined_min, bypass.skip_bytes].as_slice().into()
            }
        }
    }
}

impl SettingValue for Batch {
    fn choices() -> String {
        format!("as-it-came or {{ by-flow = {} to {} }}", BATCH.start(), BATCH.end())
    }

    fn read(value: &DeValue<'_>) -> Option<Self> {
        match only(value) {
            Some(("by-flow", packets)) => Some(Self::ByFlow { packets: number(packets, &BATCH)? }),
            _ => (value.as_str()? == "as-it-came").then_some(Self::AsItCame),
        }
    }

    fn show(&self) -> Value {
        match self {
            Self::AsItCame => "as-it-came".into(),
            Self::ByFlow { packets } => json!({ "by-flow": packets }),
        }
    }
}

/// Permitted number of packets in a batch.
const BATCH: RangeInclusive<i64> = 1..=Batch::PACKETS_CEILING as i64;

/// Returns the key and value of a table that has exactly one entry. A profile may contain such a table in place of a
/// keyword.
fn only<'a>(value: &'a DeValue<'_>) -> Option<(&'a str, &'a DeValue<'a>)> {
    let table = value.as_table().filter(|table| table.len() == 1)?;
    table.iter().next().map(|(key, value)| (key.get_ref().as_ref(), value.get_ref()))
}

/// Formats a list of keywords for users.
fn choices(words: &[&str]) -> String {
    match words {
        [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => words.concat(),
    }
}

/// Parses a number in a range.
pub(super) fn number<T: TryFrom<i64>>(
    value: &DeValue<'_>,
    range: &RangeInclusive<i64>,
) -> Option<T> {
    let DeValue::Integer(digits) = value else { return None };
    let number = i64::from_str_radix(digits.as_str(), digits.radix()).ok()?;
    range.contains(&number).then(|| T::try_from(number).ok())?
}

/// Returns the values that [`flags`] parses.
pub(super) fn flag_choices() -> String {
    format!("a list of {}", choices(&FLAGS.map(|(name, _)| name)))
}

/// Parses TCP flag names. Returns the low byte of the flags.
pub(super) fn flags(value: &DeValue<'_>) -> Option<u8> {
    let flags = value.as_array()?.iter().map(|name| {
        let name = name.get_ref().as_str()?;
        FLAGS.iter().find(|(known, _)| *known == name).map(|(_, flag)| *flag as u8)
    });
    // Naming a flag twice sets it once.
    flags.reduce(|all, flag| Some(all? | flag?)).unwrap_or(Some(0))
}

/// Returns flags in the form that [`flags`] parses.
pub(super) fn show_flags(flags: u8) -> Value {
    let names = FLAGS.iter().filter(|(_, flag)| u16::from(flags) & flag != 0);
    names.map(|(name, _)| *name).collect()
}

/// Formats a value as TOML.
pub(super) fn toml(value: &Value) -> String {
    match value {
        Value::Object(table) => {
            let pairs: Vec<_> =
                table.iter().map(|(key, value)| format!("{key} = {}", toml(value))).collect();
            format!("{{ {} }}", pairs.join(", "))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(toml).collect::<Vec<_>>().join(", "))
        }
        // All other values are written the same way in JSON and TOML.
        _ => value.to_string(),
    }
}

/// Maximum number of bytes or packets that bypass merging.
const BYPASS_MAX: i64 = u32::MAX as i64;

/// Flags that a profile can configure. Packets with SYN, RST or URG are never merged, and all other packets have ACK.
const FLAGS: [(&str, u16); 4] =
    [("fin", tcp::FIN), ("psh", tcp::PSH), ("ece", tcp::ECE), ("cwr", tcp::CWR)];
