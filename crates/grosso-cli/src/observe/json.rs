//! Counters for programs: `grosso.stats/1`.

use serde::{Serialize, Serializer, ser::SerializeMap};

use super::{
    reading::{DeviceReading, Values},
    table::COUNTERS,
};

/// A device as an object: one key per counter; counters by reason are grouped in an object.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct DeviceLine<'a> {
    pub(crate) schema: &'static str,
    /// The time of the reading, in nanoseconds since 1970.
    pub(crate) ts_ns: u64,
    /// The process number of the program that runs the path.
    pub(crate) pid: u32,
    pub(crate) path: &'a str,
    pub(crate) device: &'a str,
    pub(crate) peer: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) queue: Option<u32>,
    #[serde(flatten)]
    pub(crate) counters: Grouped<'a>,
    /// The change since the reading before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) delta: Option<Grouped<'a>>,
}

impl<'a> DeviceLine<'a> {
    /// The line of one device.
    pub(crate) fn new(
        ts_ns: u64,
        pid: u32,
        reading: &'a DeviceReading,
        delta: Option<&'a Values>,
    ) -> Self {
        Self {
            schema: SCHEMA,
            ts_ns,
            pid,
            path: &reading.path,
            device: &reading.device,
            peer: &reading.peer,
            queue: reading.queue,
            counters: Grouped(&reading.counters),
            delta: delta.map(Grouped),
        }
    }
}

/// The counters that exist, in order. Of those by reason only the ones that are not zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grouped<'a>(pub(crate) &'a Values);

impl Serialize for Grouped<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let mut groups: Vec<(&str, ReasonCounts<'_>)> = Vec::new();
        for (counter, value) in COUNTERS.iter().zip(self.0.in_order()) {
            let Some((group, key)) = &counter.group else {
                if let Some(value) = value {
                    map.serialize_entry(&counter.name, &value)?;
                }
                continue;
            };
            if groups.last().is_none_or(|(last, _)| last != group) {
                groups.push((group, ReasonCounts(Vec::new())));
            }
            if let (Some((_, ReasonCounts(entries))), Some(value)) = (groups.last_mut(), value)
                && (value > 0 || counter.is_basic())
            {
                entries.push((key, value));
            }
        }
        for (name, group) in &groups {
            map.serialize_entry(name, group)?;
        }
        map.end()
    }
}

/// Counters of one kind by reason.
struct ReasonCounts<'a>(Vec<(&'a str, u64)>);

impl Serialize for ReasonCounts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

/// The schema of counters.
pub(crate) const SCHEMA: &str = "grosso.stats/1";
