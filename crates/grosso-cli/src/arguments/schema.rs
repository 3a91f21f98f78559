//! Arguments of `grosso schema`.

use clap::Args;

/// Without a command, lists the commands and their JSON schemas
#[derive(Args, Debug)]
pub(crate) struct Schema {
    /// Command name, for example csum verify; or "error" for the report of a failure
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

pub(crate) const SCHEMA_HELP: &str = "\
The field `schema` of every report names its schema and version, for example
grosso.wire/2. New fields do not change the version; removing a field or changing
its meaning does (docs/json.md).

Examples:
  grosso schema
  grosso schema csum verify
  grosso schema wire | check-jsonschema --schemafile - report.json";
