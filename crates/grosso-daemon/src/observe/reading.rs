//! The counters of devices, either for each queue or added up.

use std::{collections::BTreeMap, time::Duration};

use grosso_io::runner::Snapshot;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    PathReading,
    table::{COUNTERS, PathSide, place},
};

/// The counters of one device of a data path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct DeviceReading {
    /// Name of the path.
    pub path: String,
    /// Name of the device.
    pub device: String,
    /// Name of the device on the other side of the path.
    pub peer: String,
    /// Queue of the device; `None` for the sum of all queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<u32>,
    /// Time since the last frame from the device, in nanoseconds; `None` before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_ns: Option<u64>,
    /// Age of the counters in nanoseconds if the path is stuck: one of its threads did not reply in time, because it
    /// waits in a system call or was stopped. `None` for a path that works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stuck_ns: Option<u64>,
    /// Counters of the device.
    pub counters: Values,
}

/// The values of the available counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
#[serde(from = "BTreeMap<String, u64>", into = "BTreeMap<String, u64>")]
pub struct Values(Vec<Option<u64>>);

impl Values {
    /// Returns the values of one side of a queue.
    fn of(side: &PathSide<'_>) -> Self {
        Self(COUNTERS.iter().map(|counter| counter.value(side)).collect())
    }

    /// Returns the value of the counter with this name; zero if no counter has this name.
    pub fn value(&self, name: &str) -> u64 {
        place(name).and_then(|place| self.0[place]).unwrap_or(0)
    }

    /// Returns the values in the order of [`COUNTERS`], with `None` for counters that do not exist.
    pub fn in_order(&self) -> impl Iterator<Item = Option<u64>> + '_ {
        self.0.iter().copied()
    }

    /// Returns the dropped frames by reason, without zero counts.
    pub fn drops(&self) -> BTreeMap<String, u64> {
        let counters = COUNTERS.iter().zip(&self.0);
        let dropped = counters.filter_map(|(counter, value)| {
            let (group, key) = counter.group.as_ref()?;
            let value = value.filter(|value| *group == "drops" && *value > 0)?;
            Some((key.clone(), value))
        });
        dropped.collect()
    }

    /// Adds the counters of another queue or device.
    pub fn add(&mut self, other: &Self) {
        for (value, more) in self.0.iter_mut().zip(&other.0) {
            if let Some(more) = more {
                *value = Some(value.unwrap_or(0).saturating_add(*more));
            }
        }
    }

    /// Returns the change since an earlier reading. A counter that has decreased was reset. The change of a gauge is
    /// not computed.
    pub fn since(&self, before: &Self) -> Self {
        let pairs = COUNTERS.iter().zip(self.0.iter().zip(&before.0));
        let changes = pairs.map(|(counter, (now, before))| {
            let now = now.filter(|_| !counter.is_gauge)?;
            let before = before.unwrap_or(0);
            Some(now.checked_sub(before).unwrap_or(now))
        });
        Self(changes.collect())
    }
}

/// Counters that only a newer version of Grosso knows are ignored.
impl From<BTreeMap<String, u64>> for Values {
    fn from(named: BTreeMap<String, u64>) -> Self {
        Self(COUNTERS.iter().map(|counter| named.get(&counter.name).copied()).collect())
    }
}

impl From<Values> for BTreeMap<String, u64> {
    fn from(values: Values) -> Self {
        let counters = COUNTERS.iter().zip(values.0);
        counters.filter_map(|(counter, value)| Some((counter.name.clone(), value?))).collect()
    }
}

/// Returns the devices of data paths, the left one of each path first; one entry per queue, or the sum of all queues.
pub fn devices(paths: &[PathReading], per_queue: bool) -> Vec<DeviceReading> {
    let mut devices = Vec::new();
    for path in paths {
        for (device, peer, side) in [
            (&path.left, &path.right, left as fn(&Snapshot) -> PathSide<'_>),
            (&path.right, &path.left, right),
        ] {
            let (path_name, device, peer) = (path.name.clone(), device.clone(), peer.clone());
            let whole = DeviceReading {
                path: path_name,
                device,
                peer,
                queue: None,
                idle_ns: None,
                stuck_ns: path.stuck.map(nanoseconds),
                counters: Values(vec![None; COUNTERS.len()]),
            };
            let sides = path.queues.iter().map(side);
            if per_queue {
                devices.extend(sides.zip(0..).map(|(side, queue)| DeviceReading {
                    queue: Some(queue),
                    idle_ns: side.idle_ns,
                    counters: Values::of(&side),
                    ..whole.clone()
                }));
            } else {
                let mut whole = whole;
                for side in sides {
                    whole.counters.add(&Values::of(&side));
                    whole.idle_ns = whole.idle_ns.into_iter().chain(side.idle_ns).min();
                }
                devices.push(whole);
            }
        }
    }
    devices
}

fn nanoseconds(age: Duration) -> u64 {
    u64::try_from(age.as_nanos()).unwrap_or(u64::MAX)
}

fn left(queue: &Snapshot) -> PathSide<'_> {
    PathSide {
        rx: &queue.left_to_right,
        tx: &queue.right_to_left,
        gro: queue.coalesced_to_right.as_ref(),
        trains_held: queue.trains_held[0],
        port: &queue.left,
        idle_ns: queue.left_idle_ns,
    }
}

fn right(queue: &Snapshot) -> PathSide<'_> {
    PathSide {
        rx: &queue.right_to_left,
        tx: &queue.left_to_right,
        gro: queue.coalesced_to_left.as_ref(),
        trains_held: queue.trains_held[1],
        port: &queue.right,
        idle_ns: queue.right_idle_ns,
    }
}

/// Returns one device for each name and path; the counters of equal devices in several programs are added up.
pub fn merged<'a>(
    devices: impl IntoIterator<Item = &'a DeviceReading>,
) -> BTreeMap<(&'a str, &'a str, Option<u32>), Values> {
    let mut merged: BTreeMap<_, Values> = BTreeMap::new();
    for reading in devices {
        let key = (reading.device.as_str(), reading.path.as_str(), reading.queue);
        match merged.get_mut(&key) {
            Some(values) => values.add(&reading.counters),
            None => {
                merged.insert(key, reading.counters.clone());
            }
        }
    }
    merged
}
