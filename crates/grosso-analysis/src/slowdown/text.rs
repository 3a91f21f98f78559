//! Formats causes as text.

use grosso_report::{report::wrap_at, style::Style, units};

use super::{
    cause::{Cause, Finding},
    summary::{Slow, Slowdowns},
};

impl Slowdowns {
    /// Returns the rows of a report: each cause with its evidence, direction and remedies. Empty if there is no TCP
    /// data.
    pub fn text(&self, style: Style) -> String {
        if self.directions == 0 {
            return String::new();
        }
        let mut text = String::new();
        if self.causes.is_empty() {
            let directions = units::count(self.directions, "TCP direction");
            text.push_str(&row(LABEL, &format!("no cause found in {directions}"), str::to_owned));
        }
        for (place, slow) in self.causes.iter().enumerate() {
            text.push_str(&rows(if place == 0 { LABEL } else { "" }, slow, style));
        }
        if self.uncaptured_packets > 0 {
            let packets = units::count(self.uncaptured_packets, "acknowledged packet");
            text.push_str(&row("", &format!("{packets} missing from the capture"), str::to_owned));
        }
        if let Some(flows) = &self.flows {
            text.push_str(&flows.text(style));
        }
        text
    }
}

fn rows(label: &str, slow: &Slow, style: Style) -> String {
    let Slow { finding, flow, directions, linux, grosso } = slow;
    let guess = if finding.guess { ", a guess" } else { "" };
    let name = finding.cause.name();
    let cause = format!("{name}{} (by {}{guess})", measure(finding), finding.basis.name());
    let more = match directions {
        0 | 1 => String::new(),
        _ => format!(" and {} more", directions - 1),
    };
    let mut text = row(label, &cause, |line| style.notice(line));
    text.push_str(&row("", &format!("{flow}{more}"), str::to_owned));
    text.push_str(&row("", &format!("Linux: {linux}"), str::to_owned));
    if let Some(grosso) = grosso {
        text.push_str(&row("", &format!("Grosso: {grosso}"), str::to_owned));
    }
    text
}

/// Returns a row with a label and wrapped text.
fn row(label: &str, text: &str, paint: impl Fn(&str) -> String) -> String {
    let wrapped = wrap_at(text, TEXT_COLUMNS);
    let lines = wrapped.lines().enumerate().map(|(place, line)| {
        format!("  {:<14}{}\n", if place == 0 { label } else { "" }, paint(line))
    });
    lines.collect()
}

/// Formats the extent of a cause: packets, bytes and times.
fn measure(finding: &Finding) -> String {
    let Finding { cause, packets, of_packets, bytes, time_ns, .. } = finding;
    let bytes = bytes.unwrap_or(0);
    let time = time_ns.map(units::duration).unwrap_or_default();
    let share = format!("{packets} of {of_packets}, {}", units::percent(*packets, *of_packets));
    match cause {
        Cause::BlackHole => format!(": segments of {bytes} B, lost {}", times(*packets)),
        Cause::MergedByRouter | Cause::PathMtu => format!(": MTU {bytes}"),
        Cause::PathMtuIgnored => {
            format!(": MTU {bytes}, {} larger", units::count(*packets, "packet"))
        }
        Cause::AcksStretched => {
            format!(": one per {} packets", of_packets / (*packets).max(1))
        }
        Cause::SmallMss => format!(": {bytes} B"),
        Cause::ZeroWindow | Cause::Application => format!(": {}, {time}", times(*packets)),
        Cause::CongestionWindow => {
            format!(": {bytes} B per round trip, {time} waiting for ACKs")
        }
        Cause::ReceiveWindow | Cause::TinySegments => format!(": {bytes} B on average"),
        Cause::ReorderedBefore => format!(": {share}, at most {time} late"),
        Cause::AlternatingFlows => format!(": {share}, {time} apart on average"),
        _ => format!(": {share}"),
    }
}

fn times(count: u64) -> String {
    units::count(count, "time")
}

/// Label of the first row.
const LABEL: &str = "slowed by";
/// Width of the text after the label, in columns.
const TEXT_COLUMNS: usize = 64;
