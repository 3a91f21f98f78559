//! Counters for people: a name and a value a line, as `ethtool -S` prints them.

use std::fmt::Write;

use super::{
    reading::{DeviceReading, Values},
    table::COUNTERS,
};

/// The counters of devices; those that are zero and say nothing by it are left out, unless all are wanted.
pub(crate) fn print(devices: &[DeviceReading], all: bool) -> String {
    let mut text = String::new();
    for reading in devices {
        device(&mut text, reading, None, all);
    }
    text
}

/// One device, with what was counted since an earlier reading where that is wanted.
pub(crate) fn device(
    text: &mut String,
    reading: &DeviceReading,
    change: Option<&Values>,
    all: bool,
) {
    let DeviceReading { path, device, peer, queue, counters } = reading;
    let queue = queue.map_or_else(String::new, |queue| format!(" queue {queue}"));
    let name = if path.is_empty() { String::new() } else { format!(", path {path}") };
    // Writing to a string does not fail.
    let _ = writeln!(text, "{device}{queue} (to {peer}{name})");
    let mut changes = change.into_iter().flat_map(Values::in_order);
    for (counter, value) in COUNTERS.iter().zip(counters.in_order()) {
        let changed = changes.next().flatten();
        let Some(value) = value else { continue };
        if value == 0 && !all && !counter.is_basic() {
            continue;
        }
        let changed = changed.map_or_else(String::new, |changed| format!("  +{changed}"));
        let _ = writeln!(text, "    {}: {value}{changed}", counter.name);
    }
}
