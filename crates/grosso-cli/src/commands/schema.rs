//! `grosso schema`: prints the JSON Schema for the reports of each command.

use std::fmt::Write;

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    arguments::Schema,
    error::{Exit, Failure},
    form::{FormPage, ReportForm},
    report::{self, Envelope, Place, Report},
    session::Session,
    style::Style,
    wrong::similar,
};

/// Runs the command.
pub(crate) fn run(options: &Schema, session: &mut Session) -> Result<Exit, Failure> {
    if options.command.is_empty() {
        let list = SchemaList { commands: pages().flat_map(CommandForms::of).collect() };
        report::print(&list, &session.talk, Place::Standard)?;
        return Ok(Exit::Yes);
    }
    let asked = options.command.join(" ");
    let page = pages().find(|page| page.commands.contains(&asked.as_str()));
    let page = page.ok_or_else(|| unknown(&asked))?;
    let document = page.document(PACKED).map_err(|error| Failure::internal(error.to_string()))?;
    let text = serde_json::to_string_pretty(&document);
    let text = text.map_err(|error| Failure::internal(error.to_string()))?;
    report::put(&(text + "\n"), Place::Standard)?;
    Ok(Exit::Yes)
}

fn unknown(asked: &str) -> Failure {
    let commands = pages().flat_map(|page| page.commands.iter().copied());
    let hint = match similar(asked, commands) {
        Some(meant) => format!("did you mean {meant}? grosso schema lists all commands"),
        None => "grosso schema lists the commands".into(),
    };
    let message = format!("schema: the command \"{asked}\" has no report, or does not exist");
    Failure::usage("usage.command", message).hint(hint)
}

/// All documents in `schemas` by name, as packed by `build.rs`.
static PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/schemas.deflate"));

/// Returns the schema pages of all commands in this build.
fn pages() -> impl Iterator<Item = &'static FormPage> {
    super::PAGES.iter().copied().flatten()
}

/// Schema pages for the list of schemas and for failures.
pub(super) const PAGES: &[FormPage] = &[
    FormPage { commands: &["schema"], forms: &[SchemaList::FORM] },
    FormPage { commands: &["error"], forms: &[Failure::FORM] },
];

/// Commands whose reports have schemas.
#[derive(Debug, Serialize, JsonSchema)]
struct SchemaList {
    commands: Vec<CommandForms>,
}

/// JSON forms that one command prints.
#[derive(Debug, Serialize, JsonSchema)]
struct CommandForms {
    command: &'static str,
    forms: Vec<&'static str>,
}

impl SchemaList {
    const FORM: ReportForm = ReportForm::of::<Envelope<Self>>("grosso.schemas/1");
}

impl CommandForms {
    fn of(page: &'static FormPage) -> impl Iterator<Item = Self> {
        let forms = || page.forms.iter().map(|form| form.name).collect();
        page.commands.iter().map(move |command| Self { command, forms: forms() })
    }
}

impl Report for SchemaList {
    fn form(&self) -> ReportForm {
        Self::FORM
    }

    fn text(&self, _style: Style) -> String {
        let mut text = String::new();
        for CommandForms { command, forms } in &self.commands {
            // Writing to a string never fails.
            let _ = writeln!(text, "{command:<16} {}", forms.join(", "));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use clap::CommandFactory;

    use super::*;
    use crate::{commands::Arguments, form::document};

    /// Commands that print no report.
    const SILENT: [&str; 3] = ["extcap", "lab sink", "tunnel export"];

    #[test]
    fn every_command_that_reports_has_a_schema() {
        let mut runnable = BTreeSet::new();
        for command in Arguments::command().get_subcommands() {
            walk("", command, &mut runnable);
        }
        let silent = SILENT.map(str::to_owned);
        assert!(silent.iter().all(|name| runnable.remove(name)), "{runnable:?}");
        let mut described: Vec<String> =
            pages().flat_map(|page| page.commands).map(|name| (*name).to_owned()).collect();
        described.retain(|name| name != "error");
        let count = described.len();
        assert_eq!(BTreeSet::from_iter(described), runnable);
        assert_eq!(count, runnable.len(), "each once");
    }

    #[test]
    fn a_name_with_its_version_is_that_of_one_form() {
        let mut documents = std::collections::BTreeMap::new();
        for form in pages().flat_map(|page| page.forms) {
            let (name, version) = form.name.split_once('/').unwrap();
            assert!(name.starts_with("grosso.") && version.parse::<u32>().is_ok(), "{}", form.name);
            let document = document("", &[*form]);
            assert!(document.to_string().contains(&format!("\"const\":\"{}\"", form.name)));
            let first = documents.entry(form.name).or_insert_with(|| document.clone());
            assert_eq!(*first, document, "{}", form.name);
        }
    }

    #[test]
    fn the_documents_are_those_of_the_types() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas");
        let mut named = BTreeSet::new();
        for page in pages() {
            let title = match page.commands {
                ["error", ..] => "Output of a failed command with --json".to_owned(),
                [command, ..] => format!("Output of grosso {command} --json"),
                [] => unreachable!("a page is of a command"),
            };
            let right = document(&title, page.forms);
            let name = page.document_name() + ".json";
            if std::env::var_os("GROSSO_WRITE_DOCUMENTS").is_some() {
                let text = serde_json::to_string_pretty(&right).unwrap() + "\n";
                fs::write(folder.join(&name), text).unwrap();
            } else {
                assert!(page.document(PACKED).unwrap() == right, "{name}: {WRITE}");
            }
            named.insert(name);
        }
        let there = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let there: BTreeSet<_> = there.map(|name| name.into_string().unwrap()).collect();
        assert_eq!(there, named, "{WRITE}");
    }

    /// Command that regenerates the documents.
    const WRITE: &str = "GROSSO_WRITE_DOCUMENTS=1 cargo test -p grosso-cli --lib schema::";

    fn walk(above: &str, command: &clap::Command, runnable: &mut BTreeSet<String>) {
        let name = format!("{above} {}", command.get_name()).trim().to_owned();
        if !command.is_subcommand_required_set() {
            runnable.insert(name.clone());
        }
        command.get_subcommands().for_each(|inner| walk(&name, inner, runnable));
    }
}
