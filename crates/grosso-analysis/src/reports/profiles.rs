//! Reports on the built-in profiles and on one profile.

use std::fmt::Write;

use grosso::Profile;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{
    form::ReportForm,
    profile::{self, KEYS},
    report::{Envelope, Report},
    style::Style,
};

/// Creates the list of all built-in profiles.
pub fn list() -> List {
    let profiles = Profile::all().iter().map(ProfileFacts::of).collect();
    List { profiles }
}

/// Creates the report on one profile.
pub fn one(profile: &Profile) -> One {
    One {
        facts: ProfileFacts::of(profile),
        profile: nested(profile),
        file: profile::write(profile),
    }
}

/// The facts about a profile that precede its keys.
#[derive(Debug, Serialize, JsonSchema)]
struct ProfileFacts {
    name: String,
    /// Whether `segment` restores the original packets.
    invertible: bool,
    /// Description of a built-in profile; `None` for a profile from a file.
    about: Option<&'static str>,
}

impl ProfileFacts {
    fn of(profile: &Profile) -> Self {
        Self {
            name: profile.name.to_string(),
            invertible: profile.rules.is_invertible(),
            about: ABOUT.iter().find(|(name, _)| *name == profile.name).map(|(_, about)| *about),
        }
    }
}

/// All built-in profiles, as `profiles` lists them.
#[derive(Debug, Serialize, JsonSchema)]
pub struct List {
    profiles: Vec<ProfileFacts>,
}

impl Report for List {
    fn form(&self) -> ReportForm {
        LIST
    }

    fn text(&self, style: Style) -> String {
        let head = format!("{:<14} {:<10} {}", "profile", "invertible", "description");
        let mut text = format!("{}\n", style.strong(&head));
        for ProfileFacts { name, invertible, about } in &self.profiles {
            let invertible = if *invertible { "yes" } else { "no" };
            let _ = writeln!(text, "{name:<14} {invertible:<10} {}", about.unwrap_or_default());
        }
        text
    }
}

/// One profile.
#[derive(Debug, Serialize, JsonSchema)]
pub struct One {
    #[serde(flatten)]
    facts: ProfileFacts,
    /// Keys of the profile, as in a profile file.
    profile: Map<String, Value>,
    #[serde(skip)]
    file: String,
}

impl Report for One {
    fn form(&self) -> ReportForm {
        ONE
    }

    fn text(&self, style: Style) -> String {
        let mut text = String::new();
        if let Some(about) = self.facts.about {
            let _ = writeln!(text, "{}", style.faint(&format!("# {about}")));
        }
        let family = if self.facts.invertible {
            "# Invertible: `segment` restores the original packets exactly."
        } else {
            "# Lossy: the original packets cannot be restored. Use it only on a host that \
             terminates TCP."
        };
        let _ = writeln!(text, "{}", style.faint(family));
        text + &self.file
    }
}

/// Returns the keys of a profile, grouped by table.
fn nested(profile: &Profile) -> Map<String, Value> {
    let mut object = Map::new();
    for key in KEYS {
        let value = (key.show)(profile);
        if key.table.is_empty() {
            object.insert(key.name.into(), value);
        } else {
            let table = object.entry(key.table).or_insert_with(|| Map::new().into());
            if let Some(table) = table.as_object_mut() {
                table.insert(key.name.into(), value);
            }
        }
    }
    object
}

/// Report that lists all profiles.
pub const LIST: ReportForm = ReportForm::of::<Envelope<List>>("grosso.profiles/1");
/// Report on one profile.
pub const ONE: ReportForm = ReportForm::of::<Envelope<One>>("grosso.profile/1");

/// A description of each built-in profile, in at most 53 columns.
const ABOUT: &[(&str, &str)] = &[
    ("linux", "GRO of Linux 7.2, with a larger flow table (default)"),
    ("linux-8x8", "GRO of Linux 7.2, with the kernel's table of 8 x 8 flows"),
    ("linux-6.12", "GRO of Linux 6.12: linux-8x8 with an older IP ID rule"),
    ("inet-lro", "generic LRO of Linux 2.6.24 to 4.4"),
    ("inet-lro-2007", "inet-lro as submitted for review in 2007"),
    ("myri10ge", "LRO of the driver for Myricom's 10 Gbit/s NICs"),
    ("freebsd-2011", "tcp_lro of FreeBSD from 2008 to 2012"),
    ("freebsd", "tcp_lro of FreeBSD today, with sorted batches"),
    ("rsc-82599", "receive side coalescing of Intel's 82599 NICs"),
    ("ndis-rsc", "receive segment coalescing as specified for Windows"),
    ("ndis-uro", "UDP receive offload as specified for Windows"),
    ("dpdk", "TCP in DPDK's GRO library"),
    ("wireguard", "coalescing in wireguard-go for its TUN device"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_profile_is_described_and_nothing_else() {
        let described: Vec<_> = ABOUT.iter().map(|(name, _)| *name).collect();
        let profiles = Profile::all();
        let named: Vec<_> = profiles.iter().map(|profile| &*profile.name).collect();
        assert_eq!(described, named);
        assert!(ABOUT.iter().all(|(_, about)| about.len() <= 53));
    }
}
