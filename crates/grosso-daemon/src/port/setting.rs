//! Table of the options that ports have. The table determines how configuration files are parsed, and
//! `docs/configuration.md` is generated from it.

use grosso_wire::virtio::Form;
use serde::{Deserialize, Deserializer};

/// One option that a kind of port has.
pub(super) struct PortSetting<D> {
    /// The key in a file.
    name: &'static str,
    /// Meaning of the option, in Markdown.
    meaning: &'static str,
    /// Default of the option, in Markdown.
    default: &'static str,
    set: Set<D>,
}

/// The type of an option's value, and the function that sets it.
pub(super) enum Set<D> {
    Switch(fn(&mut D, bool)),
    Bytes(fn(&mut D, u16)),
    Count(fn(&mut D, usize) -> Result<(), String>),
}

/// The type of an option's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SettingForm {
    Switch,
    Bytes,
    Count,
}

/// The value of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingValue {
    /// A switch that is on or off.
    Switch(bool),
    /// A number of bytes, as for an MTU.
    Bytes(u16),
    /// Another number.
    Count(usize),
}

/// Description of an option, without the function that sets it.
#[derive(Clone, Copy, Debug)]
pub(super) struct SettingFacts {
    pub(super) name: &'static str,
    pub(super) meaning: &'static str,
    pub(super) default: &'static str,
    form: SettingForm,
}

/// The name of an option, and the type of its value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortKey {
    /// The key in a file.
    pub(crate) name: &'static str,
    form: SettingForm,
}

impl SettingFacts {
    /// Returns the key that sets the option.
    pub(super) fn key(&self) -> PortKey {
        PortKey { name: self.name, form: self.form }
    }
}

impl PortKey {
    /// Reads the value of the option.
    pub(crate) fn read<'de, D: Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> Result<SettingValue, D::Error> {
        match self.form {
            SettingForm::Switch => bool::deserialize(deserializer).map(SettingValue::Switch),
            SettingForm::Bytes => u16::deserialize(deserializer).map(SettingValue::Bytes),
            SettingForm::Count => usize::deserialize(deserializer).map(SettingValue::Count),
        }
    }
}

impl<D> PortSetting<D> {
    pub(super) const fn new(
        name: &'static str,
        meaning: &'static str,
        default: &'static str,
        set: Set<D>,
    ) -> Self {
        Self { name, meaning, default, set }
    }

    pub(super) fn facts(&self) -> SettingFacts {
        let form = match self.set {
            Set::Switch(_) => SettingForm::Switch,
            Set::Bytes(_) => SettingForm::Bytes,
            Set::Count(_) => SettingForm::Count,
        };
        let Self { name, meaning, default, .. } = *self;
        SettingFacts { name, meaning, default, form }
    }

    /// Sets the option called `name`; returns `None` if `settings` has no such option.
    pub(super) fn set(
        settings: &[Self],
        device: &mut D,
        name: &str,
        value: SettingValue,
    ) -> Option<Result<(), String>> {
        let setting = settings.iter().find(|setting| setting.name == name)?;
        match (&setting.set, value) {
            (Set::Switch(set), SettingValue::Switch(is_on)) => set(device, is_on),
            (Set::Bytes(set), SettingValue::Bytes(bytes)) => set(device, bytes),
            (Set::Count(set), SettingValue::Count(count)) => return Some(set(device, count)),
            (Set::Switch(_), _) => return Some(Err(format!("{name}: expected true or false"))),
            _ => return Some(Err(format!("{name}: expected a number"))),
        }
        Some(Ok(()))
    }
}

/// Returns the option that chooses the virtio header of frames.
pub(super) const fn header<D>(
    default: &'static str,
    set: fn(&mut D, usize) -> Result<(), String>,
) -> PortSetting<D> {
    let meaning = "bytes of the virtio header: 10, 12, 20, 24";
    PortSetting::new("vnet_hdr", meaning, default, Set::Count(set))
}

/// Returns the virtio header of this length.
pub(super) fn header_form(bytes: usize) -> Result<Form, String> {
    let known = Form::ALL.into_iter().find(|form| form.len() == bytes);
    known.ok_or_else(|| format!("a virtio header has 10, 12, 20 or 24 bytes, not {bytes}"))
}
