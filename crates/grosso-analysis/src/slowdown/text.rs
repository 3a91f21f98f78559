//! The causes as text.

use grosso_report::{style::Style, units};

use super::{
    cause::{Cause, Finding},
    summary::{Slow, Slowdowns},
};

impl Slowdowns {
    /// One paragraph: each cause with its evidence, its direction and its cures; empty without TCP data.
    pub fn text(&self, style: Style) -> String {
        if self.directions == 0 {
            return String::new();
        }
        let directions = units::count(self.directions, "TCP direction");
        let mut text = if self.causes.is_empty() {
            format!("Nothing that slows TCP was found in {directions}.\n")
        } else {
            let slow = self.slow_directions;
            format!("{} ({slow} of {directions}):\n", style.strong("What slows TCP"))
        };
        for slow in &self.causes {
            text.push_str(&lines(slow, style));
        }
        if self.uncaptured_packets > 0 {
            let packets = units::count(self.uncaptured_packets, "packet");
            let line = format!("  The capture misses {packets} that the receiver acknowledged.\n");
            text.push_str(&line);
        }
        text
    }
}

fn lines(slow: &Slow, style: Style) -> String {
    let Slow { finding, flow, directions, linux, grosso } = slow;
    let more = match directions {
        0 | 1 => String::new(),
        _ => format!(" and {} more", directions - 1),
    };
    let guess = if finding.guess { ", a guess" } else { "" };
    let evidence = format!("(by {}{guess})", finding.basis.name());
    let mut text = format!(
        "  {}{}\n    {flow}{more} {}\n    Linux: {linux}\n",
        style.notice(finding.cause.name()),
        measure(finding),
        style.faint(&evidence),
    );
    if let Some(grosso) = grosso {
        text.push_str(&format!("    Grosso: {grosso}\n"));
    }
    text
}

/// The size of a cause: packets, bytes and times.
fn measure(finding: &Finding) -> String {
    let Finding { cause, packets, of_packets, bytes, time_ns, .. } = finding;
    let bytes = bytes.unwrap_or(0);
    let time = time_ns.map(units::duration).unwrap_or_default();
    let share = format!("{packets} of {of_packets} ({})", units::percent(*packets, *of_packets));
    match cause {
        Cause::BlackHole => {
            format!(": segments of {bytes} B, sent {} without success", times(*packets))
        }
        Cause::MergedByRouter | Cause::PathMtu => format!(": MTU {bytes}"),
        Cause::PathMtuIgnored => {
            format!(": MTU {bytes}, {} larger", units::count(*packets, "packet"))
        }
        Cause::ZeroWindow => format!(": {}, {time}", times(*packets)),
        Cause::ReceiveWindow => format!(": at most {bytes} B"),
        Cause::Application => format!(": {}, {time}", times(*packets)),
        Cause::TinySegments => format!(": {bytes} B on average"),
        Cause::ReorderedBefore => format!(": {share}, at most {time} late"),
        _ => format!(": {share}"),
    }
}

fn times(count: u64) -> String {
    units::count(count, "time")
}
