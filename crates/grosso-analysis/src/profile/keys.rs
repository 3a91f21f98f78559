//! Keys of a profile file: for each one its name, its permitted values, and the field that it sets.

use grosso::{Profile, coalesce::Limits};
use serde_json::Value;
use toml::de::DeValue;

use super::setting::{self, SettingValue};

/// One key of a profile file.
pub struct ProfileKey {
    /// Table that contains the key; empty for the keys that precede all tables.
    pub table: &'static str,
    /// Name of the key in its table.
    pub name: &'static str,
    /// Function that returns the permitted values as a user-visible string.
    pub choices: fn() -> String,
    /// Function that returns the key's value in a profile.
    pub show: fn(&Profile) -> Value,
    /// Function that sets the value, or returns `None` if the value is not permitted.
    pub(super) set: fn(&mut Profile, &DeValue<'_>) -> Option<()>,
}

impl ProfileKey {
    /// Returns the name of the key, preceded by the name of its table.
    pub fn full_name(&self) -> String {
        if self.table.is_empty() {
            self.name.into()
        } else {
            format!("{}.{}", self.table, self.name)
        }
    }

    /// Returns the key with this name in the given table.
    pub(super) fn find(table: &str, name: &str) -> Option<&'static Self> {
        KEYS.iter().find(|key| key.table == table && key.name == name)
    }
}

/// Table names, in order.
pub(super) const TABLES: [&str; 4] = ["rules", "reorder", "table", "limits"];

/// Defines a key whose value is either one of a list of keywords or a number in a range.
macro_rules! key {
    ($table:literal, $name:literal, $($field:ident).+) => {
        ProfileKey {
            table: $table,
            name: $name,
            choices: || choices_of(|profile| &profile.$($field).+),
            show: |profile| profile.$($field).+.show(),
            set: |profile, value| {
                profile.$($field).+ = SettingValue::read(value)?;
                Some(())
            },
        }
    };
    ($table:literal, $name:literal, $($field:ident).+, $range:expr) => {
        ProfileKey {
            table: $table,
            name: $name,
            choices: || format!("{} to {}", $range.start(), $range.end()),
            show: |profile| profile.$($field).+.into(),
            set: |profile, value| {
                profile.$($field).+ = setting::number(value, &$range)?;
                Some(())
            },
        }
    };
}

/// Returns the permitted values of a field.
fn choices_of<T: SettingValue>(_: fn(&Profile) -> &T) -> String {
    T::choices()
}

/// All keys. The keys of a table are contiguous, and the tables are in the order of `TABLES`.
pub const KEYS: &[ProfileKey] = &[
    key!("", "tcp", tcp),
    key!("", "udp", udp),
    key!("", "extension-headers", extension_headers),
    key!("", "tunnels-max", tunnels_max, 0..=TUNNELS_MAX),
    key!("", "batch", batch),
    key!("", "hold", hold),
    key!("", "bypass", bypass),
    key!("rules", "differentiated-services", rules.differentiated_services),
    key!("rules", "flow-label", rules.flow_label),
    key!("rules", "time-to-live", rules.time_to_live),
    key!("rules", "dont-fragment", rules.dont_fragment),
    key!("rules", "identification", rules.identification),
    key!("rules", "fixed-identification", rules.fixed_identification),
    key!("rules", "acknowledgment", rules.acknowledgment),
    key!("rules", "window", rules.window),
    key!("rules", "timestamp-value", rules.timestamp_value),
    key!("rules", "timestamp-echo", rules.timestamp_echo),
    key!("rules", "options", rules.options),
    key!("rules", "sizes", rules.sizes),
    key!("rules", "push", rules.push),
    ProfileKey {
        table: "rules",
        name: "flags-alone",
        choices: setting::flag_choices,
        show: |profile| setting::show_flags(profile.rules.flags_alone),
        set: |profile, value| {
            profile.rules.flags_alone = setting::flags(value)?;
            Some(())
        },
    },
    key!("rules", "congestion-alone", rules.congestion_alone),
    key!("rules", "acknowledgments", rules.acknowledgments),
    key!("rules", "refused", rules.refused),
    key!("rules", "full", rules.full),
    key!("rules", "at-limit", rules.at_limit),
    key!("rules", "padding", rules.padding),
    key!("rules", "zero-echo", rules.zero_echo),
    key!("rules", "checksum", rules.checksum),
    key!("reorder", "level", reorder.level),
    key!("reorder", "hole-ns-max", reorder.hole_ns_max, 0..=HOLD_NS_MAX),
    key!("reorder", "hole-ns-min", reorder.hole_ns_min, 0..=HOLD_NS_MAX),
    key!("reorder", "round-trip-ns", reorder.round_trip_ns, 0..=ROUND_TRIP_NS_MAX),
    key!("reorder", "flows", reorder.flows, 1..=REORDER_FLOWS_MAX),
    key!("reorder", "flow-runs", reorder.flow_runs, 1..=RUNS_MAX),
    key!("reorder", "flow-bytes", reorder.flow_bytes, 0..=REORDER_BYTES_MAX),
    key!("reorder", "queue-bytes", reorder.queue_bytes, 0..=REORDER_BYTES_MAX),
    key!("reorder", "buffer-bytes", reorder.buffer_bytes, 0..=REORDER_BYTES_MAX),
    key!("reorder", "idle-ns", reorder.idle_ns, 0..=ROUND_TRIP_NS_MAX),
    key!("table", "buckets", table.buckets, 1..=BUCKETS_MAX),
    key!("table", "choice", table.choice),
    key!("limits", "flows", limits.flows, 1..=FLOWS_MAX),
    key!("limits", "parts", limits.parts, 1..=PARTS_MAX),
    key!("limits", "size-bytes", limits.size_bytes, 1..=SIZE_BYTES_MAX),
    key!("limits", "payload-bytes", limits.payload_bytes, 1..=SIZE_BYTES_MAX),
    key!("limits", "tcp-segments", limits.tcp_segments, 1..=SEGMENTS_MAX),
    key!("limits", "udp-segments", limits.udp_segments, 1..=SEGMENTS_MAX),
    key!("limits", "hold-ns", limits.hold_ns, 0..=HOLD_NS_MAX),
    key!("limits", "full-poll-ns", limits.full_poll_ns, 0..=HOLD_NS_MAX),
];

/// Maximum number of tunnels around a packet. The dissector does not follow more headers (`grosso_wire::LAYERS_MAX`).
const TUNNELS_MAX: i64 = 15;
/// Maximum number of buckets in a table. A bucket holds eight trains, so a half-full table of this size holds a
/// million.
const BUCKETS_MAX: i64 = 1 << 18;
/// Maximum number of trains held at once. A million trains take several hundred megabytes.
const FLOWS_MAX: i64 = 1 << 20;
/// Maximum number of buffers held at once: 1.5 GB if each is 1500 bytes long.
const PARTS_MAX: i64 = 1 << 20;
/// Maximum length of a superframe in bytes.
const SIZE_BYTES_MAX: i64 = Limits::SIZE_BYTES_CEILING as i64;
/// Maximum number of packets in a train.
const SEGMENTS_MAX: i64 = u16::MAX as i64;
/// Maximum time for which a train is held. This is longer than any sender's retransmission timeout.
const HOLD_NS_MAX: i64 = 1_000_000_000;
/// Maximum round-trip time, and maximum pause in a flow: one minute.
const ROUND_TRIP_NS_MAX: i64 = 60_000_000_000;
/// Maximum number of flows tracked for reordering. Each takes several kilobytes while packets are waiting.
const REORDER_FLOWS_MAX: i64 = 4096;
/// Maximum number of waiting runs per flow. A run consists of contiguous packets.
const RUNS_MAX: i64 = 256;
/// Maximum memory for waiting packets, in bytes.
const REORDER_BYTES_MAX: i64 = 1 << 30;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_field_of_a_profile_has_a_key() {
        let shown = format!("{:#?}", Profile::linux());
        let fields: BTreeSet<&str> = shown
            .lines()
            .filter_map(|line| line.trim().strip_suffix(','))
            .filter_map(|line| line.split_once(": ").map(|(field, _)| field))
            .collect();
        let keys: BTreeSet<_> = KEYS.iter().map(|key| key.name.replace('-', "_")).collect();
        let missing: Vec<_> =
            fields.into_iter().filter(|field| *field != "name" && !keys.contains(*field)).collect();
        assert_eq!(missing, [""; 0], "{shown}");
    }

    #[test]
    fn keys_of_a_table_are_together_and_none_is_there_twice() {
        let mut tables: Vec<_> = KEYS.iter().map(|key| key.table).collect();
        tables.dedup();
        assert_eq!(tables[0], "");
        assert_eq!(tables[1..], TABLES);
        let names: BTreeSet<_> = KEYS.iter().map(ProfileKey::full_name).collect();
        assert_eq!(names.len(), KEYS.len());
    }
}
