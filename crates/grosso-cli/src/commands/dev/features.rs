//! Offload features: `dev -k` and `dev -K`.

use std::fmt::Write;

use grosso_sys::ethtool::{self, Feature, FeatureChanges};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use super::{
    NamedDevice, Object, device,
    groups::{GROUPS, REMOVED, UDP_FRAGMENTATION},
};
use crate::{
    error::{Exit, Failure},
    form::ReportForm,
    report::{self, Place, Report},
    session::Session,
    style::Style,
    wrong::similar,
};

/// Shows the features: `dev -k`.
pub(super) fn show(device: &NamedDevice, session: &mut Session) -> Result<Exit, Failure> {
    let report = FeatureListing {
        name: device.name.to_string(),
        rows: rows(&all(device)?),
        own: own_features(device),
    };
    report::print_bare(&report, &session.talk, Place::Standard)?;
    Ok(Exit::Yes)
}

/// Sets features: `dev -K`. Returns [`Exit::No`] if none of the requested changes was made.
pub(super) fn set(
    device: &NamedDevice,
    pairs: &[(&str, &str)],
    session: &mut Session,
) -> Result<Exit, Failure> {
    let before = all(device)?;
    let mut wishes = Vec::new();
    let mut removed = None;
    for (name, value) in pairs {
        let on = switch(name, value)?;
        if REMOVED.contains(name) {
            removed = Some(on);
        } else {
            wishes.extend(meant(name, &before)?.map(|feature| (feature, on)));
        }
    }
    let changes = ethtool::set_features(&device.control, &device.name, &wishes);
    let what = format!("changing {}", device.name);
    let changes = changes.map_err(|error| device::refused("dev -K", &what, "net_admin", &error))?;
    let report = Changes {
        name: device.name.to_string(),
        rows: changed_rows(&all(device)?, &wishes, &changes, removed == Some(true)),
    };
    let asked = wishes.len() + usize::from(removed.is_some());
    let missed = changes.refused.len() + usize::from(removed == Some(true));
    report::print_bare(&report, &session.talk, Place::Standard)?;
    if missed < asked {
        return Ok(Exit::Yes);
    }
    session.talk.note(format!("{}: none of these features could be changed", device.name));
    Ok(Exit::No)
}

fn all(device: &NamedDevice) -> Result<Vec<Feature>, Failure> {
    let features = ethtool::features(&device.control, &device.name);
    let what = format!("reading the features of {}", device.name);
    features.map_err(|error| device::refused("dev", &what, "net_admin", &error))
}

fn switch(name: &str, value: &str) -> Result<bool, Failure> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => {
            let message = format!("dev -K: {name} must be on or off, not \"{value}\"");
            Err(Failure::usage("usage.switch", message))
        }
    }
}

/// Returns the features that a name refers to: all features in a group, or a single feature.
fn meant<'a>(
    name: &'a str,
    features: &'a [Feature],
) -> Result<impl Iterator<Item = &'a str>, Failure> {
    let group = GROUPS.iter().find(|group| group.short == name || group.long == name);
    let is_meant = move |feature: &str| match group {
        Some(group) => group.has(feature),
        None => feature == name,
    };
    if features.iter().any(|feature| is_meant(&feature.name)) {
        return Ok(features.iter().map(|f| f.name.as_str()).filter(move |f| is_meant(f)));
    }
    let groups = GROUPS.iter().flat_map(|group| [group.short, group.long]);
    let known = features.iter().map(|feature| feature.name.as_str()).chain(groups);
    let mut message = format!("dev -K: no feature \"{name}\"");
    if let Some(similar) = similar(name, known) {
        message += &format!("; did you mean {similar}?");
    }
    Err(Failure::usage("usage.feature", message).hint("grosso dev -k DEV lists them"))
}

/// Returns the lines that `-k` prints: first the groups with their members, then the features that belong to no group.
fn rows(features: &[Feature]) -> Vec<FeatureRow> {
    let mut rows = Vec::new();
    for group in &GROUPS {
        let members: Vec<_> = features.iter().filter(|f| group.has(&f.name)).collect();
        match members[..] {
            [] => {}
            [only] => rows.push(FeatureRow { name: group.long.into(), ..FeatureRow::of(only) }),
            _ => {
                rows.push(FeatureRow {
                    name: group.long.into(),
                    active: members.iter().any(|feature| feature.active),
                    settings: None,
                    is_member: false,
                });
                rows.extend(
                    members.iter().map(|m| FeatureRow { is_member: true, ..FeatureRow::of(m) }),
                );
            }
        }
    }
    let others = features.iter().filter(|f| !GROUPS.iter().any(|group| group.has(&f.name)));
    rows.extend(others.map(FeatureRow::of));
    rows
}

/// Line printed by `-k`.
#[derive(Clone, Debug)]
struct FeatureRow {
    name: String,
    active: bool,
    /// Whether the feature is fixed, and whether it is requested; `None` for a group.
    settings: Option<(bool, bool)>,
    is_member: bool,
}

impl FeatureRow {
    fn of(feature: &Feature) -> Self {
        let settings = Some((feature.fixed, feature.requested));
        Self { name: feature.name.clone(), active: feature.active, settings, is_member: false }
    }

    fn line(&self) -> String {
        let indent = if self.is_member { "\t" } else { "" };
        let note = match self.settings {
            Some((true, _)) => " [fixed]".into(),
            Some((false, requested)) if requested != self.active => {
                format!(" [requested {}]", on_off(requested))
            }
            _ => String::new(),
        };
        format!("{indent}{}: {}{note}\n", self.name, on_off(self.active))
    }
}

/// State of a feature in ethtool's JSON.
#[derive(Serialize, JsonSchema)]
struct FeatureState {
    active: bool,
    fixed: Option<bool>,
    requested: Option<bool>,
}

/// Schema of the output of `dev -k`.
pub(super) const LISTING: ReportForm =
    ReportForm::of::<Vec<Object<'static, FeatureState>>>("grosso.dev.features/1");
/// Schema of the output of `dev -K`.
pub(super) const CHANGES: ReportForm =
    ReportForm::of::<Vec<ChangesOf<'static>>>("grosso.dev.changes/1");

/// Output of `-k`.
struct FeatureListing {
    name: String,
    rows: Vec<FeatureRow>,
    /// Device properties for which ethtool has no name.
    own: Vec<FeatureRow>,
}

impl Report for FeatureListing {
    fn form(&self) -> ReportForm {
        LISTING
    }

    fn text(&self, style: Style) -> String {
        let mut text = format!("Features for {}:\n", self.name);
        text.extend(self.rows.iter().map(FeatureRow::line));
        if !self.own.is_empty() {
            let _ = writeln!(text, "\n{}", style.strong("Grosso features:"));
            text.extend(self.own.iter().map(FeatureRow::line));
        }
        text
    }
}

impl Serialize for FeatureListing {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let state = |row: &FeatureRow| FeatureState {
            active: row.active,
            fixed: row.settings.map(|(fixed, _)| fixed),
            requested: row.settings.map(|(_, requested)| requested),
        };
        let rows = self.rows.iter().chain(&self.own);
        let entries = rows.map(|row| (row.name.as_str(), state(row))).collect();
        let schema = LISTING.name;
        Object { schema, device: &self.name, entries }.serialize_alone(serializer)
    }
}

/// Returns the properties that determine whether superframes can cross a TUN or TAP device. sysfs shows them in the
/// flags with which the device was opened (linux/if_tun.h). Other devices have no such properties.
fn own_features(device: &NamedDevice) -> Vec<FeatureRow> {
    let index = device.control.index(&device.name).ok();
    let flags = index.and_then(|index| device::attribute(&device.name, index, "tun_flags"));
    let flags = flags.and_then(|text| u32::from_str_radix(text.strip_prefix("0x")?, 16).ok());
    let Some(flags) = flags else { return Vec::new() };
    let row = |(name, flag): (&str, u32)| {
        let active = flags & flag != 0;
        FeatureRow { name: name.into(), active, settings: Some((true, active)), is_member: false }
    };
    [("x-virtio-net-hdr", 0x4000), ("x-multi-queue", 0x0100), ("x-napi", 0x0010)].map(row).into()
}

/// Returns the changes that `-K` made, in ethtool's wording and order; empty if exactly the requested changes were
/// made.
fn changed_rows(
    after: &[Feature],
    wishes: &[(&str, bool)],
    changes: &FeatureChanges,
    removed_is_wanted: bool,
) -> Vec<Change> {
    let is_in = |list: &[Feature], name: &str| list.iter().any(|feature| feature.name == name);
    let mut rows: Vec<Change> = after
        .iter()
        .filter(|f| is_in(&changes.changed, &f.name) || is_in(&changes.refused, &f.name))
        .map(|feature| Change {
            name: feature.name.clone(),
            active: feature.active,
            note: if is_in(&changes.refused, &feature.name) {
                Note::Requested
            } else if wishes.iter().any(|(name, _)| *name == feature.name) {
                Note::AsRequested
            } else {
                Note::NotRequested
            },
        })
        .collect();
    if removed_is_wanted {
        let name = UDP_FRAGMENTATION.into();
        rows.push(Change { name, active: false, note: Note::Fixed });
    }
    let is_expected = |row: &Change| row.note == Note::AsRequested;
    if rows.iter().all(is_expected) { Vec::new() } else { rows }
}

/// Feature that changed, or that should have changed but did not.
#[derive(Serialize, JsonSchema)]
struct Change {
    name: String,
    active: bool,
    note: Note,
}

/// Relation between a change and the request.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Note {
    /// The change was requested.
    AsRequested,
    /// The change was a side effect of another change.
    NotRequested,
    /// The change was requested but not made.
    Requested,
    /// The change was requested but is impossible.
    Fixed,
}

/// Changes made by `-K`.
#[derive(Serialize, JsonSchema)]
// Inlined, so that the schema's name is in the document itself and not in a referenced definition.
#[schemars(inline)]
struct ChangesOf<'a> {
    ifname: &'a str,
    schema: &'static str,
    changes: &'a [Change],
}

struct Changes {
    name: String,
    rows: Vec<Change>,
}

impl Serialize for Changes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let schema = CHANGES.name;
        serializer.collect_seq([ChangesOf { ifname: &self.name, schema, changes: &self.rows }])
    }
}

impl Report for Changes {
    fn form(&self) -> ReportForm {
        CHANGES
    }

    fn text(&self, _: Style) -> String {
        let mut text = String::new();
        for (index, row) in self.rows.iter().enumerate() {
            text.push_str(if index == 0 { "Actual changes:\n" } else { "" });
            let note = match row.note {
                Note::AsRequested => String::new(),
                Note::NotRequested => " [not requested]".into(),
                Note::Requested => format!(" [requested {}]", on_off(!row.active)),
                Note::Fixed => " [fixed]".into(),
            };
            let _ = writeln!(text, "{}: {}{note}", row.name, on_off(row.active));
        }
        text
    }
}

fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}
