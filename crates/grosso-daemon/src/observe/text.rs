//! Prints counters as text: one name and value per line, as `ethtool -S` does.

use std::fmt::Write;

use super::{
    reading::{DeviceReading, Values},
    table::COUNTERS,
};
use crate::name::harmless;

/// Returns the counters of devices as text, without zero counters unless `all` is set.
pub fn print(devices: &[DeviceReading], all: bool) -> String {
    devices.iter().map(|reading| device(reading, None, all)).collect()
}

/// Returns the state of a device whose path is stuck, with the age of its counters.
pub fn stuck(age_ns: u64) -> String {
    format!("stuck: no answer; the counters are {} s old", age_ns / 1_000_000_000)
}

/// Formats one device, with the change since an earlier reading if there is one.
pub fn device(reading: &DeviceReading, change: Option<&Values>, all: bool) -> String {
    let DeviceReading { path, device, peer, queue, stuck_ns, counters, .. } = reading;
    let queue = queue.map_or_else(String::new, |queue| format!(" queue {queue}"));
    let stuck = stuck_ns.map_or_else(String::new, |age_ns| format!("; {}", stuck(age_ns)));
    let [device, path, peer] = [device, path, peer].map(|name| harmless(name));
    let mut text = format!("{device}{queue} (path {path}, to {peer}{stuck})\n");
    let mut changes = change.map(Values::in_order);
    for (counter, value) in COUNTERS.iter().zip(counters.in_order()) {
        let changed = changes.as_mut().and_then(Iterator::next).flatten();
        let Some(value) = value.filter(|value| *value > 0 || all) else {
            continue;
        };
        let changed = changed.map_or_else(String::new, |changed| format!("  +{changed}"));
        // Writing to a string does not fail.
        let _ = writeln!(text, "    {}: {value}{changed}", counter.name);
    }
    text
}
