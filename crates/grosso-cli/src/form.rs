//! Forms of JSON: the names that reports bear in their field `schema`, and the JSON Schema of each.

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

/// A form of JSON.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReportForm {
    /// Its name and its version, as in `grosso.wire/2`.
    pub(crate) name: &'static str,
    schema: fn(&mut SchemaGenerator) -> Schema,
}

impl ReportForm {
    /// The form of this name that values of a type have.
    pub(crate) const fn of<T: JsonSchema>(name: &'static str) -> Self {
        Self { name, schema: T::json_schema }
    }

    /// Its schema, in which the field `schema` has one value.
    fn schema(self, generator: &mut SchemaGenerator) -> Map<String, Value> {
        let mut schema = (self.schema)(generator).to_value();
        for place in ["/properties/schema", "/items/properties/schema"] {
            if let Some(named) = schema.pointer_mut(place) {
                *named = json!({
                    "description": "The name of this form, and its version behind the slash.",
                    "const": self.name,
                });
            }
        }
        // A schema that is no object allows everything, and says nothing.
        schema.as_object().cloned().unwrap_or_default()
    }
}

/// Commands whose reports have the same forms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FormPage {
    pub(crate) commands: &'static [&'static str],
    pub(crate) forms: &'static [ReportForm],
}

/// The schema of all that has one of these forms.
pub(crate) fn document(title: &str, forms: &[ReportForm]) -> Value {
    let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut schemas: Vec<_> = forms.iter().map(|form| form.schema(&mut generator)).collect();
    let mut document = match &mut schemas[..] {
        [only] => core::mem::take(only),
        _ => Map::from_iter([("anyOf".to_owned(), schemas.into())]),
    };
    document.insert("$schema".into(), "https://json-schema.org/draft/2020-12/schema".into());
    document.insert("title".into(), title.into());
    let definitions = generator.take_definitions(true);
    if !definitions.is_empty() {
        document.insert("$defs".into(), definitions.into());
    }
    document.into()
}
