//! The report as colored text in 80 columns; the caller strips unwanted colors.

use std::fmt::Write;

use anstyle::{AnsiColor, Color, Style};

use crate::{
    goals::Verdict,
    report::Report,
    row_report::{Line, RowReport},
    work::Work,
};

/// Formats the whole report.
pub(crate) fn text(report: &Report) -> String {
    let mut out = String::new();
    let machine = &report.machine;
    let core = machine.core.map_or_else(|| "not pinned".to_owned(), |core| format!("core {core}"));
    let _ = writeln!(out, "{}, Linux {}, {core}", machine.processor, machine.kernel);
    let _ = writeln!(
        out,
        "Rust compiled for {}; {} rounds in turn; medians, and the",
        machine.compiled_for, report.rounds
    );
    out.push_str("median distance from them; ratio: time relative to the first of a row\n");
    for row in &report.rows {
        out.push('\n');
        table(&mut out, row);
    }
    if !report.goals.is_empty() {
        let _ = writeln!(out, "\n{STRONG}Goals{STRONG:#}");
        report.goals.iter().for_each(|verdict| goal(&mut out, verdict));
    }
    if !report.semantics.is_empty() {
        let _ = writeln!(out, "\n{STRONG}What they get wrong{STRONG:#}");
        wrongs(&mut out, report);
    }
    if !report.absent.is_empty() {
        out.push('\n');
    }
    for absent in &report.absent {
        for said in absent.to_string().lines() {
            wrapped(said, 80).iter().for_each(|piece| _ = writeln!(out, "{piece}"));
        }
    }
    out
}

/// Returns the subject of a row as text.
pub(crate) fn heading(row: &RowReport) -> String {
    let what = match row.work {
        Work::CoalesceTrusted => "coalesce, sums trusted",
        Work::CoalesceVerified => "coalesce, sums verified",
        Work::SegmentCopy => "segment, copied, with sums",
        Work::SegmentScatter => "segment, payload left where it is",
        Work::Reassemble => "reassemble",
        Work::Checksum => "checksum, bytes",
    };
    let which = match row.workload {
        "each" => "each workload beside the first",
        one => one,
    };
    format!("{what}: {which} ({})", row.cache)
}

fn table(out: &mut String, row: &RowReport) {
    let inside = if row.work == Work::Checksum { "GB/s" } else { "inside the timing" };
    let unit = format!("ns/{}", row.work.unit());
    let _ = writeln!(out, "{STRONG}{}{STRONG:#}", heading(row));
    let _ = writeln!(
        out,
        "  {:<NAME$} {:<INSIDE$} {:>11} {:>5} {:>6}",
        "", inside, unit, "+-", "ratio"
    );
    for line in &row.contenders {
        let inside = match line.gigabytes_a_second {
            Some(gigabytes) => format!("{gigabytes:.0}"),
            None => line.inside.to_owned(),
        };
        for (index, piece) in wrapped(&inside, INSIDE).iter().enumerate() {
            let _ = match (index, &line.failed) {
                (0, None) => writeln!(
                    out,
                    "  {:<NAME$} {piece:<INSIDE$} {:>11.1} {:>5.1} {:>6.2}",
                    line.name, line.ns, line.spread_ns, line.ratio
                ),
                (0, Some(why)) => writeln!(out, "  {:<NAME$} failed: {why}", line.name),
                (_, None) => writeln!(out, "  {:<NAME$} {piece}", ""),
                (_, Some(_)) => Ok(()),
            };
        }
    }
    complaints(out, &row.contenders);
}

fn complaints(out: &mut String, lines: &[Line]) {
    for line in lines {
        for wrong in &line.wrong {
            let said = wrapped(&format!("wrong: {}: {wrong}", line.name), 74);
            said.iter().for_each(|piece| _ = writeln!(out, "    {BAD}{piece}{BAD:#}"));
        }
    }
}

/// Writes one goal with its measured figure and the contender that Grosso was compared with.
fn goal(out: &mut String, verdict: &Verdict) {
    let (paint, met) = if verdict.met { (GOOD, "met") } else { (BAD, "missed") };
    let _ = writeln!(
        out,
        "  {:<33} {} {:.1} {paint}{:>5.2} {met:<6}{paint:#} {}",
        verdict.row,
        verdict.aim.bound(),
        verdict.wanted,
        verdict.measured,
        verdict.beside
    );
}

/// Writes the faults of each contender, if any.
fn wrongs(out: &mut String, report: &Report) {
    let mut names: Vec<&str> = Vec::new();
    for finding in &report.semantics {
        if !names.contains(&finding.contender.as_str()) {
            names.push(&finding.contender);
        }
    }
    for name in names {
        let of_name = || report.semantics.iter().filter(|finding| finding.contender == name);
        let wrong: Vec<&str> = of_name().filter_map(|finding| finding.wrong).collect();
        let _ = writeln!(out, "  {name}: {} of {} cases", wrong.len(), of_name().count());
        wrong.iter().for_each(|wrong| _ = writeln!(out, "    {wrong}"));
    }
}

/// Wraps text into lines of at most `columns` characters. A longer word gets its own line.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("a line");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= columns {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

const STRONG: Style = Style::new().bold();
const GOOD: Style = Style::new().fg_color(Some(Color::Ansi(AnsiColor::Green)));
const BAD: Style = Style::new().fg_color(Some(Color::Ansi(AnsiColor::Red)));

/// Width of the column for a contender's name.
const NAME: usize = 25;
/// Width of the column for the timed work.
const INSIDE: usize = 27;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;

    #[test]
    fn the_table_fits_80_columns_and_says_everything() {
        let text = anstream::adapter::strip_str(&text(&report())).to_string();
        let long: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(long.is_empty(), "{long:?}");
        for expected in [
            "26.5",
            "2.00",
            ">= 2.5  2.00 missed dpdk, burst",
            "a CE mark",
            "1 of 2 cases",
            "gvisor: get it",
        ] {
            assert!(text.contains(expected), "{expected} is missing in\n{text}");
        }
    }

    #[test]
    fn words_are_wrapped_and_none_is_lost() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("", 7), [""]);
    }
}
