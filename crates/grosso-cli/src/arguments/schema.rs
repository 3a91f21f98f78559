//! `grosso schema`.

use clap::Args;

/// Without a command, lists the commands and the forms of their JSON
#[derive(Args, Debug)]
pub(crate) struct Schema {
    /// A command, such as csum verify; error is what all of them print if they fail
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

pub(super) const SCHEMA_HELP: &str = "\
The field `schema` of every report has the name of its form and its version, as in
grosso.wire/2. Fields may be added to a version; a new version comes when a field
goes or means something else (docs/json.md).

Examples:
  grosso schema
  grosso schema csum verify
  grosso schema wire | check-jsonschema --schemafile - report.json";
