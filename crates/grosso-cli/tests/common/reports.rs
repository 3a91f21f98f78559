//! JSON reports, validated against their schemas.

use std::{collections::BTreeMap, fs, path::Path, sync::OnceLock};

use jsonschema::Validator;
use serde_json::{Map, Value};

use super::Bench;

/// Parses a JSON report. Asserts that it matches the schema that it names, and has no fields beyond those in the
/// schema.
#[track_caller]
pub(crate) fn report(text: &str) -> Value {
    let report: Value =
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    // `dev` prints lists, as ethtool does; each element names the schema.
    let first = report.get(0).unwrap_or(&report);
    let name = first["schema"].as_str().unwrap_or_else(|| panic!("no form is named: {text}"));
    let form = forms().get(name).unwrap_or_else(|| panic!("{name} is not in schemas"));
    let problems = problems_of(form, &report);
    assert!(problems.is_empty(), "{name}: {problems:#?}\n{report:#}");
    report
}

/// Returns the schemas in the repository's documents, by name. A separate test compares them with the command's output.
fn forms() -> &'static BTreeMap<String, Validator> {
    static FORMS: OnceLock<BTreeMap<String, Validator>> = OnceLock::new();
    FORMS.get_or_init(|| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas");
        let files = fs::read_dir(folder).unwrap().map(|entry| fs::read(entry.unwrap().path()));
        files
            .flat_map(|file| of_document(&serde_json::from_slice(&file.unwrap()).unwrap()))
            .collect()
    })
}

/// Returns the schemas in a document. The document is either a schema itself or contains several.
fn of_document(document: &Value) -> Vec<(String, Validator)> {
    let several = document["anyOf"].as_array();
    let forms = several.map_or_else(|| vec![document.clone()], Clone::clone);
    let form = |mut form: Value| {
        if let Some(shared) = document.get("$defs") {
            form["$defs"] = shared.clone();
        }
        let name = name_of(&form);
        close(&mut form);
        (name, jsonschema::validator_for(&form).unwrap())
    };
    forms.into_iter().map(form).collect()
}

/// Returns the name of a schema, or of the items of its list.
fn name_of(form: &Value) -> String {
    let one = if form["items"].is_null() { form } else { &form["items"] };
    let name = &one["properties"]["schema"]["const"];
    name.as_str().unwrap_or_else(|| panic!("a form without a name: {form:#}")).to_owned()
}

/// Returns the schema of a command's JSON.
pub(crate) fn schema(command: &str) -> Value {
    serde_json::from_slice(&Bench::new().ok(&format!("schema {command}")).bytes).unwrap()
}

/// Returns whether a command's JSON matches its schema, and has no fields beyond those in the schema.
pub(crate) fn obeys(command: &str, report: &Value) -> bool {
    problems(command, report).is_empty()
}

/// Asserts that a command's JSON matches its schema, and has no fields beyond those in the schema.
#[track_caller]
pub(crate) fn assert_obeys(command: &str, report: &Value, shown: &str) {
    let problems = problems(command, report);
    assert!(problems.is_empty(), "{shown}: {problems:#?}\n{report:#}");
}

fn problems(command: &str, report: &Value) -> Vec<String> {
    let mut schema = schema(command);
    close(&mut schema);
    problems_of(&jsonschema::validator_for(&schema).unwrap(), report)
}

fn problems_of(form: &Validator, report: &Value) -> Vec<String> {
    let at = |error: jsonschema::ValidationError<'_>| {
        format!("{}: {}", error.instance_path(), error.masked())
    };
    form.iter_errors(report).map(at).collect()
}

/// Makes a schema forbid fields that it does not name. Other readers must accept such fields, but here they would be
/// undocumented.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            let is_open =
                object.contains_key("properties") && !object.contains_key("additionalProperties");
            for (key, value) in object.iter_mut() {
                match value {
                    // Alternatives for one object, each with some of its fields.
                    Value::Array(parts)
                        if is_open && matches!(&**key, "oneOf" | "anyOf" | "allOf") =>
                    {
                        parts.iter_mut().filter_map(Value::as_object_mut).for_each(close_inside);
                    }
                    value => close(value),
                }
            }
            if is_open {
                object.insert("unevaluatedProperties".into(), false.into());
            }
        }
        Value::Array(list) => list.iter_mut().for_each(close),
        _ => {}
    }
}

fn close_inside(part: &mut Map<String, Value>) {
    part.values_mut().for_each(close);
}
