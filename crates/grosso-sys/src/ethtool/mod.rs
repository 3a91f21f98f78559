//! Device settings that `ethtool` shows and changes: interrupt coalescing, rings, channels, the driver, and features.
//! Features have their long names, for example `rx-gro-list`.

use std::io;

use crate::abi;
use crate::interface::{Control, InterfaceName};

mod device;
mod strings;

pub use device::{
    Channels, Coalesce, Driver, Rings, channels, coalesce, coalesce_parameters, driver, rings,
    set_channels, set_coalesce, set_rings,
};
pub use strings::statistics;

/// Words of one block of 32 features in the answer to `ETHTOOL_GFEATURES`: available, requested, active and
/// unchangeable features.
const WORDS_PER_BLOCK: usize = 4;

/// A feature of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// Feature name.
    pub name: String,
    /// Whether the feature is on.
    pub active: bool,
    /// Whether the feature was requested. If a feature is requested but not active, another feature that it requires is
    /// off.
    pub requested: bool,
    /// Whether the feature cannot be changed: `[fixed]`.
    pub fixed: bool,
}

/// Result of a request to change features.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureChanges {
    /// Features that changed, including dependent ones.
    pub changed: Vec<Feature>,
    /// Features that do not have the requested state after the request.
    pub refused: Vec<Feature>,
}

/// Returns all features of a device, in the order of the long format of `ethtool -k`.
///
/// # Errors
///
/// Returns `ENODEV` if there is no such device.
pub fn features(control: &Control, name: &InterfaceName) -> io::Result<Vec<Feature>> {
    let names = feature_names(control, name)?;
    let words = feature_words(control, name, names.len())?;
    let features = names.into_iter().enumerate().map(|(i, name)| {
        let [available, requested, active, never_changed] =
            words[i / 32].map(|word| word & (1 << (i % 32)) != 0);
        Feature { name, active, requested, fixed: !available || never_changed }
    });
    Ok(features.filter(|feature| !feature.name.is_empty()).collect())
}

/// Turns features on and off in one request, and returns the changes.
///
/// # Errors
///
/// Returns [`io::ErrorKind::NotFound`] if the kernel lacks one of the features; no feature is changed in this case.
/// Returns `EPERM` without `CAP_NET_ADMIN` in the namespace.
pub fn set_features(
    control: &Control,
    name: &InterfaceName,
    wishes: &[(&str, bool)],
) -> io::Result<FeatureChanges> {
    let names = feature_names(control, name)?;
    let blocks = names.len().div_ceil(32);
    let mut command = vec![0; 2 + 2 * blocks];
    command[0] = abi::ETHTOOL_SFEATURES;
    command[1] = blocks as u32;
    for (feature, on) in wishes {
        let position = position(&names, feature)?;
        let (bit, word) = (1 << (position % 32), 2 + 2 * (position / 32));
        command[word] |= bit;
        command[word + 1] = command[word + 1] & !bit | if *on { bit } else { 0 };
    }
    let before = features(control, name)?;
    // SAFETY: the kernel reads two words for each of the stated blocks and writes no more than
    // that.
    unsafe { control.ethtool(name, &mut command) }?;
    let after = features(control, name)?;
    let missed = |feature: &Feature| {
        let wish = wishes.iter().rfind(|(name, _)| *name == feature.name);
        wish.is_some_and(|(_, on)| *on != feature.active)
    };
    Ok(FeatureChanges {
        refused: after.iter().filter(|feature| missed(feature)).cloned().collect(),
        changed: after
            .iter()
            .zip(&before)
            .filter(|(after, before)| after.active != before.active)
            .map(|(after, _)| after.clone())
            .collect(),
    })
}

/// Turns a feature of a device on or off, and checks the result.
///
/// # Errors
///
/// Returns [`io::ErrorKind::NotFound`] if the kernel lacks the feature, [`io::ErrorKind::Unsupported`] if the device
/// did not apply it, or `EPERM` without `CAP_NET_ADMIN` in the namespace.
pub fn set_feature(
    control: &Control,
    name: &InterfaceName,
    feature: &str,
    on: bool,
) -> io::Result<()> {
    if set_features(control, name, &[(feature, on)])?.refused.is_empty() {
        return Ok(());
    }
    let state = if on { "on" } else { "off" };
    let why = format!("{name}: cannot turn {feature} {state}");
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}

/// Returns whether a feature of a device is on.
///
/// # Errors
///
/// Returns [`io::ErrorKind::NotFound`] if the kernel lacks the feature, or `ENODEV` if there is no such device.
pub fn feature_is_on(control: &Control, name: &InterfaceName, feature: &str) -> io::Result<bool> {
    let names = feature_names(control, name)?;
    let position = position(&names, feature)?;
    let [_, _, active, _] = feature_words(control, name, names.len())?[position / 32];
    Ok(active & (1 << (position % 32)) != 0)
}

/// Returns the names of all kernel features, in bit order; unused bits have empty names.
///
/// # Errors
///
/// Returns `ENODEV` if there is no such device.
pub fn feature_names(control: &Control, name: &InterfaceName) -> io::Result<Vec<String>> {
    strings::names(control, name, abi::ETH_SS_FEATURES)
}

/// Returns the bits that are available, requested, active and unchangeable, for each block of 32 features.
fn feature_words(
    control: &Control,
    name: &InterfaceName,
    features: usize,
) -> io::Result<Vec<[u32; WORDS_PER_BLOCK]>> {
    let blocks = features.div_ceil(32);
    let mut answer = vec![0; 2 + WORDS_PER_BLOCK * blocks];
    answer[0] = abi::ETHTOOL_GFEATURES;
    answer[1] = blocks as u32;
    // SAFETY: the kernel writes at most four words for each of the stated blocks.
    unsafe { control.ethtool(name, &mut answer) }?;
    Ok(answer[2..].as_chunks().0.to_vec())
}

fn position(names: &[String], feature: &str) -> io::Result<usize> {
    names.iter().position(|name| name == feature).ok_or_else(|| {
        io::Error::new(io::ErrorKind::NotFound, format!("unknown device feature {feature:?}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_device_has_gro_on_and_refuses_nonsense() {
        let control = Control::new().unwrap();
        let loopback = InterfaceName::new("lo").unwrap();
        assert!(feature_is_on(&control, &loopback, "rx-gro").unwrap());
        assert!(!feature_is_on(&control, &loopback, "rx-gro-list").unwrap());
        let unknown = feature_is_on(&control, &loopback, "no-such-feature").unwrap_err();
        assert_eq!(unknown.kind(), io::ErrorKind::NotFound);
        let all = features(&control, &loopback).unwrap();
        let named = |name: &str| all.iter().find(|feature| feature.name == name).unwrap();
        assert!(named("rx-gro").active && !named("rx-gro").fixed);
        assert!(named("loopback").active && named("loopback").fixed);
        assert!(!named("rx-all").active && named("rx-all").fixed);
    }
}
