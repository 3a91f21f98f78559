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

/// Returns the list of all built-in profiles.
pub fn list() -> List {
    let profiles = Profile::all().iter().map(ProfileFacts::of).collect();
    List { profiles }
}

/// Returns the report on one profile.
pub fn one(profile: &Profile) -> One {
    One {
        facts: ProfileFacts::of(profile),
        profile: nested(profile),
        file: profile::write(profile),
    }
}

/// Facts about a profile that are listed before its keys.
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
            about: Profile::description(&profile.name),
        }
    }
}

/// All built-in profiles, as listed by `profiles`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_profile_has_a_description_that_fits_the_list() {
        for profile in Profile::all() {
            let description = Profile::description(&profile.name).unwrap();
            assert!((1..=53).contains(&description.len()), "{description}");
        }
        assert_eq!(Profile::description("mine"), None);
    }
}
