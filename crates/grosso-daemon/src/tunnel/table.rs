//! Reads and writes tunnels as TOML tables, in which keywords are the keys.

use core::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, MapAccess, Visitor},
};

use super::{
    Description,
    grammar::no_such_key,
    keywords::Keyword,
    kind::Kind,
    value::{Form, Value},
    words::Words,
};

/// Reads a table with the key `type` and the keywords of that type.
impl<'de> Deserialize<'de> for Description {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Table;

        impl<'de> Visitor<'de> for Table {
            type Value = Description;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a table with a tunnel type and its options as keys")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Description, A::Error> {
                let mut kind: Option<Kind> = None;
                let mut said = Vec::new();
                while let Some(key) = map.next_key_seed(KeySeed)? {
                    match key {
                        TableKey::Type => kind = Some(map.next_value_seed(KindSeed)?),
                        TableKey::Word(word) => {
                            said.push((word, map.next_value_seed(ValueSeed(word))?))
                        }
                    }
                }
                let kind = kind.ok_or_else(|| A::Error::custom("tunnel: type is missing"))?;
                let mut words = Words::new(kind);
                for (word, value) in said {
                    words.take(word, value).map_err(A::Error::custom)?;
                }
                Description::try_from(&words)
                    .map_err(|why| A::Error::custom(format!("tunnel: {why}")))
            }
        }

        deserializer.deserialize_map(Table)
    }
}

enum TableKey {
    Type,
    Word(&'static Keyword),
}

struct KeySeed;

impl<'de> DeserializeSeed<'de> for KeySeed {
    type Value = TableKey;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<TableKey, D::Error> {
        let name = String::deserialize(deserializer)?;
        if name == "type" {
            return Ok(TableKey::Type);
        }
        Keyword::named(&name)
            .map(TableKey::Word)
            .ok_or_else(|| D::Error::custom(no_such_key(&name)))
    }
}

struct KindSeed;

impl<'de> DeserializeSeed<'de> for KindSeed {
    type Value = Kind;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Kind, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

struct ValueSeed(&'static Keyword);

impl<'de> DeserializeSeed<'de> for ValueSeed {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let Keyword { name, form, .. } = self.0;
        let value = toml::Value::deserialize(deserializer)?;
        read(*form, &value).map_err(|why| D::Error::custom(format!("{name}: {why}")))
    }
}

fn read(form: Form, value: &toml::Value) -> Result<Value, String> {
    let as_word = |value: &toml::Value| match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        _ => None,
    };
    let words = match value {
        toml::Value::Boolean(is_on) if form.is_switch() => return Ok(Value::Switch(*is_on)),
        toml::Value::Array(values) => values.iter().map(as_word).collect(),
        value => as_word(value).map(|word| vec![word]),
    };
    let expected = || match form {
        Form::Switch => "expected true or false".to_owned(),
        form => format!("expected {form}"),
    };
    let words: Vec<String> = words.filter(|words| !words.is_empty()).ok_or_else(expected)?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if matches!(form, Form::Switch) { Err(expected()) } else { form.read(&words) }
}

impl Description {
    /// Returns the table as lines of TOML, without its head.
    pub fn to_toml(&self) -> String {
        let words = self.words();
        let mut text = format!("type = \"{}\"\n", words.kind.name());
        for (word, value) in words.iter() {
            text += &match value {
                Value::Switch(is_on) => format!("{} = {is_on}\n", word.name),
                Value::Ports(low, high) => format!("{} = [{low}, {high}]\n", word.name),
                Value::Addresses(addresses) if addresses.len() == 1 => {
                    format!("{} = \"{value}\"\n", word.name)
                }
                Value::Addresses(_) | Value::Entries(_) => {
                    let parts: Vec<String> = value.parts().collect();
                    // A JSON array is also a valid TOML array.
                    format!("{} = {}\n", word.name, serde_json::Value::from(parts))
                }
                Value::Number(_) => format!("{}\n", word.spell(value).replacen(' ', " = ", 1)),
                // A JSON string is also a valid TOML string.
                value => {
                    format!("{} = {}\n", word.name, serde_json::Value::from(value.to_string()))
                }
            };
        }
        text
    }
}
