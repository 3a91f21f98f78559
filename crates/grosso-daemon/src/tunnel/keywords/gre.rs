//! Keywords for the GRE header. Both directions share every setting, so keywords that set one direction must agree.

use grosso::tunnel::Header;

use super::{Description, Form, Keyword, Value, Words};
use crate::tunnel::kind::GRE;

pub(super) const ROWS: &[Keyword] = &[
    Keyword::new("key", "[[i|o]key N]", GRE, Form::Key, set_key, |tunnel| {
        match &tunnel.endpoint.header {
            Header::Gre { key, .. } => Some(Value::Number((*key)?.into())),
            _ => None,
        }
    }),
    Keyword::new("ikey", "", GRE, Form::Key, set_key, |_| None).check(check_key),
    Keyword::new("okey", "", GRE, Form::Key, set_key, |_| None).check(check_key),
    Keyword::new("csum", "[[i|o]csum]", GRE, Form::Switch, set_checksum, |tunnel| {
        match &tunnel.endpoint.header {
            Header::Gre { checksum, .. } => Some(Value::Switch(*checksum)),
            _ => None,
        }
    }),
    Keyword::new("icsum", "", GRE, Form::Switch, set_checksum, |_| None).check(check_checksum),
    Keyword::new("ocsum", "", GRE, Form::Switch, set_checksum, |_| None).check(check_checksum),
    Keyword::new("seq", "[[i|o]seq]", GRE, Form::Switch, set_sequence, |tunnel| {
        match &tunnel.endpoint.header {
            Header::Gre { sequence, .. } => Some(Value::Switch(*sequence)),
            _ => None,
        }
    }),
    Keyword::new("iseq", "", GRE, Form::Switch, set_sequence, |_| None).check(check_sequence),
    Keyword::new("oseq", "", GRE, Form::Switch, set_sequence, |_| None).check(check_sequence),
];

fn set_key(tunnel: &mut Description, value: &Value) {
    if let Header::Gre { key, .. } = &mut tunnel.endpoint.header {
        *key = value.number();
    }
}

fn set_checksum(tunnel: &mut Description, value: &Value) {
    if let Header::Gre { checksum, .. } = &mut tunnel.endpoint.header {
        *checksum = value.is_on();
    }
}

fn set_sequence(tunnel: &mut Description, value: &Value) {
    if let Header::Gre { sequence, .. } = &mut tunnel.endpoint.header {
        *sequence = value.is_on();
    }
}

fn check_key(_: &Description, _: &Value, words: &Words) -> Result<(), String> {
    let [inward, outward] =
        ["ikey", "okey"].map(|name| words.value(name).or_else(|| words.value("key")));
    if inward == outward {
        return Ok(());
    }
    let shown =
        |key: Option<&Value>| key.map_or_else(|| "no key".to_owned(), |key| format!("key {key}"));
    let (inward, outward) = (shown(inward), shown(outward));
    Err(format!(
        "{inward} for receiving and {outward} for sending, but both directions must use the same \
         key"
    ))
}

fn check_checksum(_: &Description, _: &Value, words: &Words) -> Result<(), String> {
    check_both_ways(words, ["csum", "icsum", "ocsum"])
}

fn check_sequence(_: &Description, _: &Value, words: &Words) -> Result<(), String> {
    check_both_ways(words, ["seq", "iseq", "oseq"])
}

/// Checks that a switch for both directions agrees with the switches that `ip` has for each direction.
fn check_both_ways(words: &Words, [both, inward, outward]: [&str; 3]) -> Result<(), String> {
    let is_on = |name| words.switch(name).or_else(|| words.switch(both)).unwrap_or(false);
    if is_on(inward) == is_on(outward) {
        return Ok(());
    }
    Err(format!(
        "{inward} and {outward} differ, but both directions must use the same setting: use {both}"
    ))
}
