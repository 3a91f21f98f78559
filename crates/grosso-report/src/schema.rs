//! JSON schemas of reports: the name and version in a report's `schema` field, and the JSON Schema itself.

use std::io::{self, Read};

use flate2::read::DeflateDecoder;
use schemars::JsonSchema;
use serde_json::Value;

#[cfg(feature = "derive-schemas")]
pub use derived::document;

/// Name and JSON Schema of a report type.
#[derive(Clone, Copy, Debug)]
pub struct ReportForm {
    /// Name and version, for example `grosso.wire/2`.
    pub name: &'static str,
    /// Function that derives the JSON Schema. Only tests call it, because the code would make up about 6 % of the
    /// program.
    #[cfg(feature = "derive-schemas")]
    schema: fn(&mut schemars::SchemaGenerator) -> schemars::Schema,
}

impl ReportForm {
    /// Creates the description of values of type `T`, with this name.
    pub const fn of<T: JsonSchema>(name: &'static str) -> Self {
        Self {
            name,
            #[cfg(feature = "derive-schemas")]
            schema: T::json_schema,
        }
    }
}

/// Page that documents the reports of one or more commands.
#[derive(Clone, Copy, Debug)]
pub struct FormPage {
    /// Commands that the page documents. A subcommand is written after its command, separated by a space.
    pub commands: &'static [&'static str],
    /// Forms of the reports.
    pub forms: &'static [ReportForm],
}

impl FormPage {
    /// Returns the name of the page's document: the name of its first command, with hyphens in place of spaces.
    pub fn document_name(&self) -> String {
        self.commands.first().copied().unwrap_or_default().replace(' ', "-")
    }

    /// Returns the schema that covers all reports on the page. `packed` is a JSON object, compressed with Deflate, that
    /// contains all documents by name.
    ///
    /// # Errors
    ///
    /// Returns an error if `packed` is damaged or lacks the document.
    pub fn document(&self, packed: &[u8]) -> io::Result<Value> {
        let mut text = String::new();
        DeflateDecoder::new(packed).read_to_string(&mut text)?;
        let mut all: Value = serde_json::from_str(&text)?;
        let document = all.get_mut(self.document_name()).map(Value::take);
        document.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// Derivation of schemas from report types.
#[cfg(feature = "derive-schemas")]
mod derived {
    use schemars::{SchemaGenerator, generate::SchemaSettings};
    use serde_json::{Map, Value, json};

    use super::ReportForm;

    impl ReportForm {
        /// Derives the JSON Schema of this report type, in which the field `schema` is a constant.
        fn schema(self, generator: &mut SchemaGenerator) -> Map<String, Value> {
            let mut schema = (self.schema)(generator).to_value();
            for place in ["/properties/schema", "/items/properties/schema"] {
                if let Some(named) = schema.pointer_mut(place) {
                    *named = json!({
                        "description": "Name and version of the JSON schema, separated by a slash.",
                        "const": self.name,
                    });
                }
            }
            // A schema that is not an object accepts every value, so it carries no information.
            schema.as_object().cloned().unwrap_or_default()
        }
    }

    /// Returns one schema that covers all of `forms`.
    pub fn document(title: &str, forms: &[ReportForm]) -> Value {
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
}
