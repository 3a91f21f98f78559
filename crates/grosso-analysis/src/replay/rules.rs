//! Rules for a replay: profile, end of polls, hold time, resequencing and limits.

use core::fmt;

use grosso::{
    Profile,
    coalesce::{Hold, Level, Reorder},
};

use crate::{
    profile::AUTO_HOLD_NS,
    units::{exact_time, parse_time},
};

/// Rules for merging and for flushing trains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Name of a built-in profile, or path of a profile file.
    pub profile: String,
    /// Condition that ends a poll.
    pub batch: Batch,
    /// Maximum time for which trains are held across polls; `None` to use the profile's setting.
    pub hold: Option<HoldTime>,
    /// TCP resequencing; `None` to use the profile's setting.
    pub reorder: Option<Repair>,
    /// Limits that override the profile's limits.
    pub bounds: Bounds,
}

impl Rules {
    /// Default profile, in command-line syntax.
    pub const PROFILE: &str = "linux";
    /// Default rule for ending a poll, in command-line syntax.
    pub const BATCH: &str = "64";
}

impl Default for Rules {
    /// Returns the rules of the default profile, with polls of 64 packets.
    fn default() -> Self {
        let (batch, bounds) = (Batch::Packets(64), Bounds::default());
        Self { profile: Self::PROFILE.into(), batch, hold: None, reorder: None, bounds }
    }
}

/// Limits that override a profile's limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Exclusive upper limit on a superframe's length in bytes, counted from the IP header.
    pub max_size: Option<u32>,
    /// Maximum number of packets in a superframe.
    pub max_segs: Option<u16>,
    /// Maximum number of trains held at once.
    pub flows: Option<usize>,
    /// Maximum number of tunnels around merged packets.
    pub tunnels: Option<u8>,
    /// Whether only TCP is merged.
    pub no_udp: bool,
    /// Round-trip time in nanoseconds for connections for which none was measured.
    pub round_trip: Option<u64>,
}

impl Bounds {
    /// Returns the limits as command-line options.
    pub fn words(&self) -> Vec<String> {
        let Self { max_size, max_segs, flows, tunnels, no_udp, round_trip } = self;
        let options = [
            max_size.map(|size| format!("--max-size={size}")),
            max_segs.map(|segments| format!("--max-segs={segments}")),
            flows.map(|flows| format!("--max-flows={flows}")),
            tunnels.map(|tunnels| format!("--tunnels={tunnels}")),
            no_udp.then(|| "--no-udp".into()),
            round_trip.map(|time_ns| format!("--round-trip={}", exact_time(time_ns))),
        ];
        options.into_iter().flatten().collect()
    }
}

/// Maximum time for which trains are held across polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldTime {
    hold: Hold,
    /// Maximum hold time in nanoseconds.
    most_ns: u64,
}

impl HoldTime {
    /// Returns a fixed hold time of `most_ns` nanoseconds for every train.
    pub fn fixed(most_ns: u64) -> Self {
        Self { hold: Hold::Fixed, most_ns }
    }

    /// Returns the hold time that a profile specifies.
    pub fn of(profile: &Profile) -> Self {
        Self { hold: profile.hold, most_ns: profile.limits.hold_ns }
    }

    /// Parses a time or `auto`, optionally followed by `:` and a maximum time.
    ///
    /// # Errors
    /// Fails if the string does not have this form.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some(most) = text.strip_prefix("auto") else {
            let why = |why| format!("{why}, or auto, or auto:100us");
            return parse_time(text).map(Self::fixed).map_err(why);
        };
        let most_ns = match most.strip_prefix(':') {
            Some(time) => parse_time(time)?,
            None if most.is_empty() => AUTO_HOLD_NS,
            None => return Err("expected auto, or auto:100us".into()),
        };
        Ok(Self { hold: Hold::Controlled, most_ns })
    }

    /// Applies the hold time to a profile.
    pub fn apply(self, profile: &mut Profile) {
        profile.hold = self.hold;
        profile.limits.hold_ns = self.most_ns;
    }
}

impl fmt::Display for HoldTime {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = exact_time(self.most_ns);
        match self.hold {
            Hold::Fixed => formatter.write_str(&most),
            Hold::Controlled if self.most_ns == AUTO_HOLD_NS => formatter.write_str("auto"),
            Hold::Controlled => write!(formatter, "auto:{most}"),
        }
    }
}

/// TCP resequencing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repair {
    level: Level,
    /// Maximum wait for a hole to be filled, in nanoseconds; `None` to use the profile's setting.
    hole_ns: Option<u64>,
}

impl Repair {
    /// Resequencing within a poll. No packet waits for the next poll.
    pub const BATCH: Self = Self { level: Level::Batch, hole_ns: None };

    /// Returns the resequencing that a profile specifies.
    pub fn of(profile: &Profile) -> Self {
        let Reorder { level, hole_ns_max, hole_ns_min, .. } = profile.reorder;
        let is_fixed = level == Level::Holes && hole_ns_max == hole_ns_min;
        Self { level, hole_ns: is_fixed.then_some(hole_ns_max) }
    }

    /// Parses `off`, `batch` or `holes`. A colon and a time may follow `holes`.
    ///
    /// # Errors
    /// Fails if the string does not have this form.
    pub fn parse(text: &str) -> Result<Self, String> {
        let level = match text {
            "off" => Some(Level::Off),
            "batch" => Some(Level::Batch),
            "holes" => Some(Level::Holes),
            _ => None,
        };
        if let Some(level) = level {
            return Ok(Self { level, hole_ns: None });
        }
        let expected = || "expected off, batch, holes, or holes:TIME up to 1s".to_string();
        let time = text.strip_prefix("holes:").ok_or_else(expected)?;
        let hole_ns = parse_time(time).ok().filter(|&hole_ns| hole_ns <= HOLE_NS_MAX);
        Ok(Self { level: Level::Holes, hole_ns: Some(hole_ns.ok_or_else(expected)?) })
    }

    /// Applies the resequencing to a profile.
    pub fn apply(self, profile: &mut Profile) {
        profile.reorder.level = self.level;
        if let Some(hole_ns) = self.hole_ns {
            (profile.reorder.hole_ns_max, profile.reorder.hole_ns_min) = (hole_ns, hole_ns);
        }
    }
}

impl fmt::Display for Repair {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self.level {
            Level::Off => "off",
            Level::Batch => "batch",
            Level::Holes => "holes",
        })?;
        match self.hole_ns {
            Some(hole_ns) if hole_ns != Reorder::OFF.hole_ns_max => {
                write!(formatter, ":{}", exact_time(hole_ns))
            }
            _ => Ok(()),
        }
    }
}

/// Rule that ends a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batch {
    /// The poll ends after this many packets.
    Packets(u64),
    /// The poll ends before a packet with a different timestamp.
    Stamp,
    /// The poll ends before a packet that arrives more than this many nanoseconds after the previous one, and also when
    /// the packet budget is used up.
    Gap(u64),
}

impl Batch {
    /// Parses a number of packets, a gap, or `stamp`.
    ///
    /// # Errors
    /// Fails if the string does not have this form.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "stamp" {
            return Ok(Self::Stamp);
        }
        match text.parse() {
            Ok(packets @ 1..) => return Ok(Self::Packets(packets)),
            Ok(0) => {}
            Err(_) => {
                if let Ok(gap_ns) = parse_time(text) {
                    return Ok(Self::Gap(gap_ns));
                }
            }
        }
        Err("expected a number of packets, a gap such as 5us, or stamp".into())
    }
}

impl fmt::Display for Batch {
    /// Writes the value in the form that `--batch` accepts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packets(packets) => write!(f, "{packets}"),
            Self::Stamp => f.write_str("stamp"),
            Self::Gap(gap_ns) if gap_ns.is_multiple_of(1000) => write!(f, "{}us", gap_ns / 1000),
            Self::Gap(gap_ns) => write!(f, "{gap_ns}ns"),
        }
    }
}

/// Maximum time to wait for a missing segment, in nanoseconds. By then, the sender has retransmitted it.
const HOLE_NS_MAX: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_is_a_time_or_is_found() {
        let auto = |most_ns| Ok(HoldTime { hold: Hold::Controlled, most_ns });
        assert_eq!(HoldTime::parse("20us"), Ok(HoldTime::fixed(20_000)));
        assert_eq!(HoldTime::parse("0"), Ok(HoldTime::fixed(0)));
        assert_eq!(HoldTime::parse("auto"), auto(100_000));
        assert_eq!(HoldTime::parse("auto:1ms"), auto(1_000_000));
        for text in ["0", "20us", "1500ns", "auto", "auto:1ms"] {
            assert_eq!(HoldTime::parse(text).unwrap().to_string(), text);
        }
        for wrong in ["", "auto:", "auto:5", "autos", "20", "Auto"] {
            assert!(HoldTime::parse(wrong).is_err(), "{wrong}");
        }
        let mut profile = Profile::linux();
        HoldTime::parse("auto:50us").unwrap().apply(&mut profile);
        assert_eq!((profile.hold, profile.limits.hold_ns), (Hold::Controlled, 50_000));
    }

    #[test]
    fn the_reorder_key_of_a_profile_selects_the_repair() {
        let key = crate::profile::KEYS.iter().find(|key| key.full_name() == "reorder.level");
        let choices = (key.expect("a key").choices)();
        let words: Vec<_> = choices.split(", ").flat_map(|words| words.split(" or ")).collect();
        assert_eq!(words, ["off", "batch", "holes"]);
        for text in words.into_iter().chain(["holes:40us", "holes:0", "holes:1s"]) {
            let mut profile = Profile::linux();
            Repair::parse(text).unwrap().apply(&mut profile);
            assert_eq!(Repair::of(&profile).to_string(), text);
        }
        for wrong in ["", "on", "holes:", "holes:5", "holes:2s", "batch:40us", "Off"] {
            assert!(Repair::parse(wrong).is_err(), "{wrong}");
        }
        // Without a value, `holes` keeps the profile's hole time, which may be a range.
        let mut profile = Profile::linux();
        profile.reorder = Reorder::adaptive(1_000, 90_000);
        Repair::parse("holes").unwrap().apply(&mut profile);
        assert_eq!(profile.reorder, Reorder::adaptive(1_000, 90_000));
        assert_eq!(Repair::of(&profile).to_string(), "holes");
    }

    #[test]
    fn a_poll_ends_by_number_gap_or_timestamp() {
        assert_eq!(Batch::parse("64"), Ok(Batch::Packets(64)));
        assert_eq!(Batch::parse("5us"), Ok(Batch::Gap(5000)));
        assert_eq!(Batch::parse("stamp"), Ok(Batch::Stamp));
        assert!(["0", "-1", "5 us", "gap"].iter().all(|text| Batch::parse(text).is_err()));
    }
}
