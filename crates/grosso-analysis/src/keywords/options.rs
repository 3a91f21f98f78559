//! Options of a call. A command takes the options that it supports. Any option left over is an error.

use core::mem;

use crate::{diagnostic::similar, error::Failure};

/// Options passed to a command.
pub(super) struct Options {
    command: String,
    given: Vec<(String, Option<String>)>,
    /// Options that the command supports.
    known: Vec<&'static str>,
}

impl Options {
    pub(super) fn new(command: &str, given: &[(String, Option<String>)]) -> Self {
        Self { command: command.to_owned(), given: given.to_vec(), known: Vec::new() }
    }

    /// Takes an option that has no value. Returns whether it was passed.
    ///
    /// # Errors
    /// Fails if the option has a value or was passed twice.
    pub(super) fn flag(&mut self, name: &'static str) -> Result<bool, Failure> {
        match &self.take(name)[..] {
            [] => Ok(false),
            [None] => Ok(true),
            [Some(_)] => Err(self.wrong(name, "takes no value")),
            _ => Err(self.wrong(name, "was passed more than once")),
        }
    }

    /// Takes an option with a value.
    ///
    /// # Errors
    /// Fails if the value is missing or cannot be parsed, or if the option was passed twice.
    pub(super) fn one<T>(
        &mut self,
        name: &'static str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Failure> {
        match &self.take(name)[..] {
            [] => Ok(None),
            [Some(text)] => parse(text).map(Some).map_err(|why| invalid(name, text, &why)),
            [None] => Err(self.wrong(name, "needs a value")),
            _ => Err(self.wrong(name, "was passed more than once")),
        }
    }

    /// Takes an option whose value may be omitted. `default` stands in for an omitted value.
    ///
    /// # Errors
    /// Fails if the value cannot be parsed, or if the option was passed twice.
    pub(super) fn one_or<T>(
        &mut self,
        name: &'static str,
        default: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Failure> {
        for (given, value) in &mut self.given {
            if given == name && value.is_none() {
                *value = Some(default.to_owned());
            }
        }
        self.one(name, parse)
    }

    /// Takes an option with a value. `default` is used if the option was not passed.
    ///
    /// # Errors
    /// Fails if the value is missing or cannot be parsed, or if the option was passed twice.
    pub(super) fn one_from<T>(
        &mut self,
        name: &'static str,
        default: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, Failure> {
        match self.one(name, &parse)? {
            Some(value) => Ok(value),
            None => parse(default).map_err(|why| invalid(name, default, &why)),
        }
    }

    /// Takes an option that may be passed several times.
    ///
    /// # Errors
    /// Fails if a value is missing or cannot be parsed.
    pub(super) fn each<T>(
        &mut self,
        name: &'static str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Vec<T>, Failure> {
        let values = self.take(name);
        let parsed = values.iter().map(|value| match value {
            Some(text) => parse(text).map_err(|why| invalid(name, text, &why)),
            None => Err(self.wrong(name, "needs a value")),
        });
        parsed.collect()
    }

    /// Takes an option with comma-separated values. `default` is used if the option was not passed.
    ///
    /// # Errors
    /// Fails if a value is missing or cannot be parsed.
    pub(super) fn list<T>(
        &mut self,
        name: &'static str,
        default: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Vec<T>, Failure> {
        let mut texts = self.each(name, |text| Ok(text.to_owned()))?;
        if texts.is_empty() && !default.is_empty() {
            texts.push(default.to_owned());
        }
        let values = texts.iter().flat_map(|text| text.split(','));
        values.map(|text| parse(text).map_err(|why| invalid(name, text, &why))).collect()
    }

    /// Checks that no option is left over.
    ///
    /// # Errors
    /// Fails if an option is left over, because the command does not support it.
    pub(super) fn finish(&self) -> Result<(), Failure> {
        let Some((name, _)) = self.given.first() else { return Ok(()) };
        let hint = match similar(name, self.known.iter().copied()) {
            Some(meant) => format!("did you mean --{meant}?"),
            None if self.known.is_empty() => format!("{} has no options", self.command),
            None => format!("options of {}: --{}", self.command, self.known.join(", --")),
        };
        let message = format!("{}: no option --{name}", self.command);
        Err(Failure::usage("usage", message).hint(hint))
    }

    /// Creates the failure for an option that was used incorrectly.
    pub(super) fn wrong(&self, name: &str, why: &str) -> Failure {
        Failure::usage("usage", format!("{}: --{name} {why}", self.command))
    }

    /// Removes the values of an option.
    fn take(&mut self, name: &'static str) -> Vec<Option<String>> {
        self.known.push(name);
        let (taken, left) =
            mem::take(&mut self.given).into_iter().partition(|(given, _)| given == name);
        self.given = left;
        let taken: Vec<(String, Option<String>)> = taken;
        taken.into_iter().map(|(_, value)| value).collect()
    }
}

fn invalid(name: &str, text: &str, why: &str) -> Failure {
    Failure::usage("usage", format!("invalid value '{text}' for --{name}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::whole;

    fn options(given: &[(&str, Option<&str>)]) -> Options {
        let given = given.iter().map(|(name, value)| ((*name).into(), value.map(Into::into)));
        Options::new("wire", &given.collect::<Vec<_>>())
    }

    #[test]
    fn options_are_taken_by_their_names() {
        let mut given = options(&[
            ("mtu", Some("9000")),
            ("port", Some("1")),
            ("strict", None),
            ("port", Some("2")),
            ("hold", Some("3,4")),
            ("flows", None),
        ]);
        assert_eq!(given.one("mtu", whole(68u16..)).unwrap(), Some(9000));
        assert_eq!(given.each("port", whole(0u16..)).unwrap(), [1, 2]);
        assert_eq!(given.list("hold", "", whole(0u16..)).unwrap(), [3, 4]);
        assert_eq!(given.list("profile", "5,6", whole(0u16..)).unwrap(), [5, 6]);
        assert_eq!(given.one_or("flows", "20", whole(1usize..)).unwrap(), Some(20));
        assert!(given.flag("strict").unwrap());
        assert!(!given.flag("verbose").unwrap());
        given.finish().unwrap();
    }

    #[test]
    fn an_unknown_option_is_answered_by_the_likely_one_or_by_all() {
        let failure = |given| {
            let mut given = options(&[(given, None)]);
            let _ = (given.flag("strict"), given.one("uso-size", whole(1u16..)));
            let failure = given.finish().unwrap_err();
            (failure.message, failure.hint.unwrap_or_default().into_string())
        };
        let said = |message: &str, hint: &str| (message.to_owned(), hint.to_owned());
        assert_eq!(failure("stric"), said("wire: no option --stric", "did you mean --strict?"));
        let all = "options of wire: --strict, --uso-size";
        assert_eq!(failure("warp"), said("wire: no option --warp", all));
    }

    #[test]
    fn wrong_values_are_answered_by_the_name_of_the_option() {
        let mut given = options(&[
            ("mtu", Some("9")),
            ("strict", Some("1")),
            ("mss", None),
            ("uso-size", Some("1")),
            ("uso-size", Some("2")),
        ]);
        let said = |failure: Failure| failure.message;
        assert_eq!(
            given.one("mtu", whole(68u16..=1500)).map_err(said),
            Err("invalid value '9' for --mtu: expected a number from 68 to 1500".into())
        );
        assert_eq!(given.flag("strict").map_err(said), Err("wire: --strict takes no value".into()));
        let size = |given: &mut Options, name| given.one(name, whole(1u16..)).map_err(said);
        assert_eq!(size(&mut given, "mss"), Err("wire: --mss needs a value".into()));
        let twice = "wire: --uso-size was passed more than once";
        assert_eq!(size(&mut given, "uso-size"), Err(twice.into()));
    }
}
