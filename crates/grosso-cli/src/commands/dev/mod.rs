//! `grosso dev`: shows and sets device properties. The options are those of `ethtool`.

mod coalesce;
mod features;
mod groups;
mod statistics;

use std::borrow::Cow;

use grosso_sys::interface::{Control, InterfaceName};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer, ser::SerializeMap};

use crate::{
    arguments::Dev,
    device,
    error::{Exit, Failure},
    form::ReportForm,
    session::Session,
};

/// Runs the command.
pub(super) fn run(options: &Dev, session: &mut Session) -> Result<Exit, Failure> {
    let control = Control::new().map_err(|error| {
        Failure::environment("environment.socket", format!("dev: cannot open a socket: {error}"))
    })?;
    let name = device::find("dev", &control, &options.device)?;
    let device = NamedDevice { control, name };
    if options.features {
        return features::set(&device, &pairs("-K", &options.changes)?, session);
    }
    if options.coalesce {
        return coalesce::set(&device, &pairs("-C", &options.changes)?);
    }
    if let Some(word) = options.changes.first() {
        let message = format!("dev: unexpected argument \"{word}\"");
        let hint = "to change features: grosso dev -K DEV NAME on|off";
        return Err(Failure::usage("usage.words", message).hint(hint));
    }
    if options.statistics {
        statistics::show(&device, session)
    } else if options.show_coalesce {
        coalesce::show(&device, session)
    } else {
        features::show(&device, session)
    }
}

/// Device that exists.
struct NamedDevice {
    control: Control,
    name: InterfaceName,
}

/// One device in ethtool's JSON, which is a list of devices. The keys are the names of device properties.
struct Object<'a, T> {
    schema: &'static str,
    device: &'a str,
    entries: Vec<(&'a str, T)>,
}

impl<T: Serialize> Object<'_, T> {
    fn serialize_alone<S: Serializer>(self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq([self])
    }
}

impl<T: Serialize> Serialize for Object<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("ifname", self.device)?;
        for (name, value) in &self.entries {
            map.serialize_entry(name, value)?;
        }
        map.serialize_entry("schema", self.schema)?;
        map.end()
    }
}

impl<T: JsonSchema> JsonSchema for Object<'_, T> {
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let property = generator.subschema_for::<T>();
        json_schema!({
            "type": "object",
            "properties": { "ifname": { "type": "string" }, "schema": {} },
            "required": ["ifname", "schema"],
            "additionalProperties": property,
        })
    }
}

/// Schemas of the reports printed by `-k`, `-K`, `-c` and `-S`.
pub(super) const FORMS: [ReportForm; 4] =
    [features::LISTING, features::CHANGES, coalesce::FORM, statistics::FORM];

/// Returns the name-value pairs that follow `-K` or `-C`.
fn pairs<'a>(option: &str, words: &'a [String]) -> Result<Vec<(&'a str, &'a str)>, Failure> {
    let (pairs, rest) = words.as_chunks::<2>();
    if let [name] = rest {
        let message = format!("dev {option}: {name} needs a value");
        return Err(Failure::usage("usage.pairs", message));
    }
    if pairs.is_empty() {
        let message = format!("dev {option}: missing NAME VALUE");
        let hint = format!("grosso dev {option} DEV NAME VALUE ...");
        return Err(Failure::usage("usage.pairs", message).hint(hint));
    }
    Ok(pairs.iter().map(|[name, value]| (name.as_str(), value.as_str())).collect())
}
