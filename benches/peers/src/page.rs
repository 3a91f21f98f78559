//! The report as a page: one file without scripts, and a bar for each contender.

use std::fmt::Write;

use crate::{report::Report, row_report::RowReport, text::heading};

/// Formats the whole page.
pub(crate) fn page(report: &Report) -> String {
    let mut out = String::from(HEAD);
    let machine = &report.machine;
    let _ = writeln!(
        out,
        "<p>{}, Linux {}. Rust compiled for {}. Medians of {} rounds in turn, on one core.</p>",
        escaped(&machine.processor),
        escaped(&machine.kernel),
        machine.compiled_for,
        report.rounds
    );
    report.rows.iter().for_each(|row| bars(&mut out, row));
    goals(&mut out, report);
    out.push_str("<h2>What they get wrong</h2>\n<ul>\n");
    for finding in &report.semantics {
        if let Some(wrong) = finding.wrong {
            let (name, wrong) = (escaped(&finding.contender), escaped(wrong));
            let _ = writeln!(out, "<li><b>{name}</b> {wrong}</li>");
        }
    }
    out.push_str("</ul>\n<h2>Not here</h2>\n<ul>\n");
    for absent in &report.absent {
        let (why, hint) = (escaped(&absent.why), escaped(absent.hint));
        let _ = writeln!(out, "<li><b>{}</b> {hint} ({why})</li>", absent.peer);
    }
    out.push_str("</ul>\n");
    out
}

fn goals(out: &mut String, report: &Report) {
    out.push_str("<h2>Goals</h2>\n<table>\n");
    for verdict in &report.goals {
        let _ = writeln!(
            out,
            "<tr><td>{}<td>{} {:.1}<td class=n>{:.2}<td>{}<td>{}</tr>",
            verdict.row,
            escaped(verdict.aim.bound()),
            verdict.wanted,
            verdict.measured,
            if verdict.met { "met" } else { "missed" },
            escaped(&verdict.beside)
        );
    }
    out.push_str("</table>\n");
}

fn bars(out: &mut String, row: &RowReport) {
    let unit = row.work.unit();
    let _ = writeln!(out, "<h2>{}</h2>\n<table>", escaped(&heading(row)));
    let longest = row.contenders.iter().map(|line| line.ns).fold(f64::MIN_POSITIVE, f64::max);
    for line in &row.contenders {
        let (name, inside) = (escaped(&line.name), escaped(line.inside));
        if let Some(why) = &line.failed {
            let _ = writeln!(out, "<tr><td>{name}<td colspan=3>{}</tr>", escaped(why));
            continue;
        }
        let _ = writeln!(
            out,
            "<tr><td>{name}<td>{inside}<td class=n>{:.1} ns/{unit}<td class=n>{:.2}\
             <td><div style=\"width:{:.0}px\"></div></tr>",
            line.ns,
            line.ratio,
            BAR_PIXELS * line.ns / longest
        );
        for wrong in &line.wrong {
            let _ = writeln!(out, "<tr><td><td colspan=4>wrong: {}</tr>", escaped(wrong));
        }
    }
    out.push_str("</table>\n");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

const BAR_PIXELS: f64 = 400.0;

const HEAD: &str = "<!doctype html>
<html lang=en>
<meta charset=utf-8>
<title>Grosso beside its peers</title>
<style>
body { font: 15px/1.4 sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em }
h2 { font-size: 1.1em; margin: 1.5em 0 .3em }
td { padding: 0 .8em 0 0; vertical-align: middle }
td.n { text-align: right; font-variant-numeric: tabular-nums }
td div { background: #47a; height: .8em }
tr:first-child div { background: #c52 }
</style>
<h1>Grosso beside its peers</h1>
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;

    #[test]
    fn the_longest_bar_is_the_slowest_and_text_is_escaped() {
        let page = page(&report());
        assert!(page.contains("width:400px") && page.contains("width:200px"), "{page}");
        assert!(page.contains("parse &amp; join"), "{page}");
        assert!(page.contains("loses a CE mark") && page.contains("missed"), "{page}");
    }
}
