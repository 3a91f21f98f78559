//! `grosso merge`: merges the reports from all shards into the report of a single run.
//!
//! The rules are in `docs/export.md`. Fields that describe the run must be equal in all reports. Counts are added. Of
//! the times in a field, the earliest or the latest is kept. Reports that break a rule are rejected.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use grosso_sys::path;
use serde_json::{Map, Value, json};

use crate::{
    error::Failure, form::ReportForm, name::shown, report::Report, reports::export::ExportReport,
    style::Style,
};

/// Merges the reports from all shards, one per file, into the report of a single run.
///
/// # Errors
/// Fails if a file is not a shard report, if a shard is missing, or if the reports come from different runs.
pub fn merge(reports: &[PathBuf]) -> Result<MergedReport, Failure> {
    let mut shares: Vec<Share> = reports.iter().map(|path| read(path)).collect::<Result<_, _>>()?;
    are_all(&shares)?;
    shares.sort_by_key(|share| share.index);
    let mut shares = shares.into_iter();
    let Some(first) = shares.next() else { return Err(Failure::internal("merge: no reports")) };
    let mut merged = first.report.clone();
    for share in shares {
        for (key, value) in &share.report {
            let have = merged.get_mut(key).ok_or_else(|| differs(&first, &share, key))?;
            match RULES.iter().find(|(name, _)| name == key) {
                Some((_, rule)) => {
                    rule.apply(have, value).map_err(|_| differs(&first, &share, key))?
                }
                None => return Err(differs(&first, &share, key)),
            }
        }
    }
    merged.insert("shard".into(), json!({ "index": 1, "of": 1 }));
    Ok(MergedReport(merged))
}

/// Report from one shard.
struct Share {
    name: String,
    report: Map<String, Value>,
    index: u64,
    of: u64,
}

/// Reads the report from one shard.
fn read(path: &Path) -> Result<Share, Failure> {
    let name = shown(path);
    let text = path::read_text(path, REPORT_BYTES_MAX)
        .map_err(|error| Failure::environment("environment.read", format!("{name}: {error}")))?;
    let no_report = |message: String| Failure::input("input.report", format!("{name}: {message}"));
    let report: Map<String, Value> = serde_json::from_str(&text).map_err(|error| {
        no_report(format!("not a report: {error}")).hint("grosso export ... --json writes one")
    })?;
    match report.get("schema").and_then(Value::as_str) {
        Some(SCHEMA) => {}
        Some(other) => {
            let message =
                format!("reports of {other} cannot be merged: their fields are not counts");
            return Err(no_report(message).hint("run the command once over all captures"));
        }
        None => return Err(no_report("not a report: the field \"schema\" is missing".into())),
    }
    if report.get("input").is_some_and(|input| input.get("interrupted").is_some()) {
        return Err(no_report(
            "the run that wrote this report was interrupted, so the shard is incomplete".into(),
        ));
    }
    let number = |key: &str| report.get("shard").and_then(|shard| shard.get(key)?.as_u64());
    let (Some(index), Some(of)) = (number("index"), number("of")) else {
        return Err(no_report("not a shard report: the field \"shard\" is missing".into()));
    };
    Ok(Share { name, report, index, of })
}

/// Checks that every shard is present exactly once.
fn are_all(shares: &[Share]) -> Result<(), Failure> {
    let refuse = |message: String| Err(Failure::usage("usage.shares", format!("merge: {message}")));
    let Some(of) = shares.first().map(|share| share.of) else { return Ok(()) };
    if let Some(other) = shares.iter().find(|share| share.of != of) {
        return refuse(format!(
            "{} is from a run with {} shards, but other reports are from a run with {of}",
            other.name, other.of
        ));
    }
    let mut seen = BTreeSet::new();
    if let Some(twice) = shares.iter().find(|share| !seen.insert(share.index)) {
        return refuse(format!("shard {}/{of} was passed twice: {}", twice.index, twice.name));
    }
    match (1..=of).find(|index| !seen.contains(index)) {
        Some(missing) => refuse(format!("shard {missing}/{of} is missing")),
        None => Ok(()),
    }
}

fn differs(one: &Share, other: &Share, key: &str) -> Failure {
    let message =
        format!("{} and {} are not shards of one run: {key} differs", one.name, other.name);
    Failure::input("input.report", message)
        .hint("use the same captures and options for every shard")
}

/// Rule for merging the values of a field.
#[derive(Clone, Copy, Debug)]
enum Rule {
    /// The values must be equal.
    Same,
    /// Numbers other than times are summed, lists are concatenated, and the members of objects are added by name.
    Added,
    /// The earlier time is kept.
    Earliest,
    /// The later time is kept.
    Latest,
    /// All reports' entries are kept, without duplicates.
    United,
    /// The first value is kept. The others are ignored.
    Whole,
}

/// Error for a value to which its rule cannot be applied.
struct Unfit;

impl Rule {
    fn apply(self, have: &mut Value, more: &Value) -> Result<(), Unfit> {
        match (self, &mut *have, more) {
            (Self::Whole, ..) => {}
            (Self::Same, have, more) if have == more => {}
            (Self::Added, Value::Object(have), Value::Object(more)) => add_by_name(have, more)?,
            (Self::Added, Value::Number(have), Value::Number(more)) => {
                *have = sum(have, more).ok_or(Unfit)?;
            }
            (Self::Added, Value::Array(have), Value::Array(more)) => have.extend_from_slice(more),
            (Self::Added, Value::Null, Value::Null) => {}
            (Self::Earliest | Self::Latest, _, Value::Null) => {}
            (Self::Earliest | Self::Latest, have, _) => {
                let (new, old) = (more.as_u64().ok_or(Unfit)?, have.as_u64());
                let is_earliest = matches!(self, Self::Earliest);
                let kept =
                    old.map_or(new, |old| if is_earliest { old.min(new) } else { old.max(new) });
                *have = kept.into();
            }
            (Self::United, Value::Array(have), Value::Array(more)) => {
                let news: Vec<_> = more.iter().filter(|one| !have.contains(one)).cloned().collect();
                have.extend(news);
            }
            _ => return Err(Unfit),
        }
        Ok(())
    }
}

fn add_by_name(have: &mut Map<String, Value>, more: &Map<String, Value>) -> Result<(), Unfit> {
    for (name, value) in more {
        let rule = match name.as_str() {
            "first_ns" => Rule::Earliest,
            "last_ns" => Rule::Latest,
            _ => Rule::Added,
        };
        match have.get_mut(name) {
            Some(have) => rule.apply(have, value)?,
            None => drop(have.insert(name.clone(), value.clone())),
        }
    }
    Ok(())
}

fn sum(one: &serde_json::Number, other: &serde_json::Number) -> Option<serde_json::Number> {
    match (one.as_u64(), other.as_u64()) {
        (Some(one), Some(other)) => Some(one.checked_add(other)?.into()),
        _ => serde_json::Number::from_f64(one.as_f64()? + other.as_f64()?),
    }
}

/// Merged report.
#[derive(Clone, Debug, serde::Serialize)]
#[serde(transparent)]
pub struct MergedReport(Map<String, Value>);

impl Report for MergedReport {
    fn form(&self) -> ReportForm {
        ExportReport::FORM
    }

    fn text(&self, _style: Style) -> String {
        let rows = |table: &str| self.0.get(table)?.get("counts")?.get("rows")?.as_u64();
        let lines = ["packets", "trains", "flows"].map(|table| (table, rows(table)));
        let lines = lines
            .into_iter()
            .filter_map(|(table, rows)| Some(format!("{table}: {} rows\n", rows?)));
        lines.collect()
    }
}

/// Maximum size of a report in bytes.
const REPORT_BYTES_MAX: u64 = 64 << 20;
/// Schema of the reports that can be merged.
const SCHEMA: &str = ExportReport::FORM.name;
/// Merge rule for each field of a report.
const RULES: [(&str, Rule); 10] = [
    ("schema", Rule::Same),
    ("tool", Rule::Same),
    ("input", Rule::Same),
    ("profile", Rule::Same),
    ("packets", Rule::Added),
    ("trains", Rule::Added),
    ("flows", Rule::Added),
    ("elapsed_s", Rule::Added),
    ("warnings", Rule::United),
    ("shard", Rule::Whole),
];
