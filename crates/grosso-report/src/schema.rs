//! Forms of JSON: the names that reports bear in their field `schema`, and the JSON Schema of each.

use std::io::{self, Read};

use flate2::read::DeflateDecoder;
use schemars::JsonSchema;
use serde_json::Value;

#[cfg(feature = "derive-schemas")]
pub use derived::document;

/// A form of JSON.
#[derive(Clone, Copy, Debug)]
pub struct ReportForm {
    /// Its name and its version, as in `grosso.wire/2`.
    pub name: &'static str,
    /// Only tests derive schemas: they would be a sixteenth of the program.
    #[cfg(feature = "derive-schemas")]
    schema: fn(&mut schemars::SchemaGenerator) -> schemars::Schema,
}

impl ReportForm {
    /// The form of this name that values of a type have.
    pub const fn of<T: JsonSchema>(name: &'static str) -> Self {
        Self {
            name,
            #[cfg(feature = "derive-schemas")]
            schema: T::json_schema,
        }
    }
}

/// Commands whose reports have the same forms.
#[derive(Clone, Copy, Debug)]
pub struct FormPage {
    /// The commands, with spaces between the words of one.
    pub commands: &'static [&'static str],
    /// The forms of their reports.
    pub forms: &'static [ReportForm],
}

impl FormPage {
    /// The name of its document: that of its first command, with hyphens.
    pub fn document_name(&self) -> String {
        self.commands.first().copied().unwrap_or_default().replace(' ', "-")
    }

    /// The schema of all that has one of its forms, from `packed`: a compressed JSON object (Deflate) that has every
    /// document by name.
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

/// Schemas from the types of reports.
#[cfg(feature = "derive-schemas")]
mod derived {
    use schemars::{SchemaGenerator, generate::SchemaSettings};
    use serde_json::{Map, Value, json};

    use super::ReportForm;

    impl ReportForm {
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

    /// The schema of all that has one of these forms.
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
