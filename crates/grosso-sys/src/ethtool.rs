//! Device features by the names that `ethtool -k` prints in its long form, such as `rx-gro-list`.

use std::io;

use crate::abi;
use crate::interface::{Control, InterfaceName};

/// Words of one block of 32 features in the answer to `ETHTOOL_GFEATURES`: available, requested,
/// active, fixed.
const WORDS_PER_BLOCK: usize = 4;
/// Most features believed in an answer; Linux 6.18 has 64.
const FEATURES_MAX: usize = 1024;

/// Turns a feature of a device on or off, and makes sure that the device followed.
///
/// # Errors
///
/// [`io::ErrorKind::NotFound`] if the kernel has no feature of that name,
/// [`io::ErrorKind::Unsupported`] if the device did not follow, `EPERM` without `CAP_NET_ADMIN` in
/// the namespace.
pub fn set_feature(
    control: &Control,
    name: &InterfaceName,
    feature: &str,
    on: bool,
) -> io::Result<()> {
    let names = feature_names(control, name)?;
    let position = position(&names, feature)?;
    let blocks = names.len().div_ceil(32);
    let mut command = vec![0; 2 + 2 * blocks];
    command[0] = abi::ETHTOOL_SFEATURES;
    command[1] = blocks as u32;
    let bit = 1 << (position % 32);
    command[2 + 2 * (position / 32)] = bit;
    command[3 + 2 * (position / 32)] = if on { bit } else { 0 };
    // SAFETY: the kernel reads two words for each of the announced blocks and writes no more than
    // that.
    unsafe { control.ethtool(name, &mut command) }?;
    if active(control, name, names.len(), position)? == on {
        Ok(())
    } else {
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("{name} does not let {feature} be turned {}", if on { "on" } else { "off" }),
        ))
    }
}

/// Whether a feature of a device is on.
///
/// # Errors
///
/// [`io::ErrorKind::NotFound`] if the kernel has no feature of that name, `ENODEV` if there is no
/// such device.
pub fn feature_is_on(control: &Control, name: &InterfaceName, feature: &str) -> io::Result<bool> {
    let names = feature_names(control, name)?;
    active(control, name, names.len(), position(&names, feature)?)
}

/// The names of all features the kernel knows, in the order of their bits; unused bits have empty
/// names.
///
/// # Errors
///
/// `ENODEV` if there is no such device.
pub fn feature_names(control: &Control, name: &InterfaceName) -> io::Result<Vec<String>> {
    // Command, reserved, a 64-bit mask of string sets, then the length of each set asked for.
    let mut info = [abi::ETHTOOL_GSSET_INFO, 0, 0, 0, 0];
    let mask = (1_u64 << abi::ETH_SS_FEATURES).to_ne_bytes();
    info[2] = u32::from_ne_bytes([mask[0], mask[1], mask[2], mask[3]]);
    info[3] = u32::from_ne_bytes([mask[4], mask[5], mask[6], mask[7]]);
    // SAFETY: one bit is set in the mask, so the kernel writes one length after it.
    unsafe { control.ethtool(name, &mut info) }?;
    let count = (info[4] as usize).min(FEATURES_MAX);

    // Command, string set, count, then the strings. The kernel writes its own count of them, which
    // is the one it just told, a constant of the running kernel; the bound above could make the
    // buffer too short for it.
    if count < info[4] as usize {
        return Err(io::Error::other(format!("{} features are more than believed", info[4])));
    }
    let mut strings = vec![0; 3 + count * abi::ETH_GSTRING_LEN / 4];
    strings[0] = abi::ETHTOOL_GSTRINGS;
    strings[1] = abi::ETH_SS_FEATURES;
    strings[2] = count as u32;
    // SAFETY: the buffer holds as many strings as the kernel has features.
    unsafe { control.ethtool(name, &mut strings) }?;
    let bytes: Vec<u8> = strings[3..].iter().flat_map(|word| word.to_ne_bytes()).collect();
    Ok(bytes.chunks_exact(abi::ETH_GSTRING_LEN).map(text).collect())
}

fn active(
    control: &Control,
    name: &InterfaceName,
    features: usize,
    position: usize,
) -> io::Result<bool> {
    let blocks = features.div_ceil(32);
    let mut answer = vec![0; 2 + WORDS_PER_BLOCK * blocks];
    answer[0] = abi::ETHTOOL_GFEATURES;
    answer[1] = blocks as u32;
    // SAFETY: the kernel writes at most four words for each of the announced blocks.
    unsafe { control.ethtool(name, &mut answer) }?;
    let word = answer[2 + WORDS_PER_BLOCK * (position / 32) + 2];
    Ok(word & (1 << (position % 32)) != 0)
}

fn position(names: &[String], feature: &str) -> io::Result<usize> {
    names.iter().position(|name| name == feature).ok_or_else(|| {
        io::Error::new(io::ErrorKind::NotFound, format!("no device feature {feature:?}"))
    })
}

fn text(bytes: &[u8]) -> String {
    let length = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..length]).into_owned()
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
    }
}
