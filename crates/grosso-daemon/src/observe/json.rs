//! JSON output of counters: `grosso.stats/1`.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{Map, json};

use super::{
    reading::{DeviceReading, Values},
    table::COUNTERS,
};
use crate::form::ReportForm;

/// A device as a JSON object: one key per counter; counters by reason are grouped in an object.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct DeviceLine<'a> {
    pub schema: &'static str,
    /// Time of the reading, in nanoseconds since 1970.
    pub ts_ns: u64,
    /// Process ID of the program that runs the path.
    pub pid: u32,
    pub path: &'a str,
    pub device: &'a str,
    pub peer: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<u32>,
    /// Whether the path is stuck: one of its threads did not reply in time, because it waits in a system call or was
    /// stopped. The counters are then the last known ones.
    pub stuck: bool,
    /// Age of the counters in nanoseconds if the path is stuck.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stuck_ns: Option<u64>,
    #[serde(flatten)]
    pub counters: Grouped<'a>,
    /// Change since the previous reading.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delta: Option<Grouped<'a>>,
}

impl DeviceLine<'_> {
    /// The schema of this report.
    pub const FORM: ReportForm = ReportForm::of::<DeviceLine<'static>>("grosso.stats/1");
}

impl<'a> DeviceLine<'a> {
    /// Creates the line of one device.
    pub fn new(
        ts_ns: u64,
        pid: u32,
        reading: &'a DeviceReading,
        delta: Option<&'a Values>,
    ) -> Self {
        Self {
            schema: DeviceLine::FORM.name,
            ts_ns,
            pid,
            path: &reading.path,
            device: &reading.device,
            peer: &reading.peer,
            queue: reading.queue,
            stuck: reading.stuck_ns.is_some(),
            stuck_ns: reading.stuck_ns,
            counters: Grouped(&reading.counters),
            delta: delta.map(Grouped),
        }
    }
}

/// The available counters in table order, without the counters by reason that are zero.
#[derive(Clone, Copy, Debug)]
pub struct Grouped<'a>(pub &'a Values);

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

impl JsonSchema for Grouped<'_> {
    fn schema_name() -> Cow<'static, str> {
        "Counters".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut properties = Map::new();
        for counter in COUNTERS.iter() {
            let number = json!({ "description": counter.help, "type": "integer", "minimum": 0 });
            let Some((group, key)) = &counter.group else {
                properties.insert(counter.name.clone(), number);
                continue;
            };
            let none = || json!({ "type": "object", "properties": {} });
            let group = properties.entry(*group).or_insert_with(none);
            group["properties"][key] = number;
        }
        json_schema!({ "type": "object", "properties": properties })
    }
}

/// Counters of one group, each with the name of its reason.
struct ReasonCounts<'a>(Vec<(&'a str, u64)>);

impl Serialize for ReasonCounts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}
