//! Reads the string sets of a device, which hold the names of features and counters, and reads the values of the
//! counters.
//!
//! The kernel returns as many names or counters as exist at the time of the call, even if their number has changed
//! since it was queried. The result therefore goes into guarded memory.

use std::io;

use crate::abi;
use crate::interface::{Control, Guarded, InterfaceName};

/// Maximum number of names or counters accepted. Linux 6.18 has 64 features, and large devices have a few thousand
/// counters.
const NAMES_MAX: usize = 1 << 16;

/// Returns the name and value of each driver counter, as `ethtool -S` shows them. The list is empty if the driver has
/// no counters.
///
/// # Errors
///
/// Returns `ENODEV` if there is no such device, or [`io::ErrorKind::Interrupted`] if the number of counters changed
/// during the call. In the latter case, repeat the call.
pub fn statistics(control: &Control, name: &InterfaceName) -> io::Result<Vec<(String, u64)>> {
    let names = names(control, name, abi::ETH_SS_STATS)?;
    if names.is_empty() {
        return Ok(Vec::new());
    }
    // Command and count, then the counters.
    let words = [abi::ETHTOOL_GSTATS, names.len() as u32];
    let answer = Guarded::new(&words, 8 * names.len())?;
    control.ethtool_guarded(name, &answer)?;
    unchanged(&answer, 4, names.len())?;
    let bytes = answer.bytes(8..8 + 8 * names.len());
    let (counters, _) = bytes.as_chunks();
    Ok(names.into_iter().zip(counters.iter().map(|bytes| u64::from_ne_bytes(*bytes))).collect())
}

/// Returns the names in a string set, in order; an unused position has an empty name.
pub(super) fn names(control: &Control, name: &InterfaceName, set: u32) -> io::Result<Vec<String>> {
    let count = count(control, name, set)?;
    if count == 0 {
        return Ok(Vec::new());
    }
    // Command, set and count, then the names.
    let words = [abi::ETHTOOL_GSTRINGS, set, count as u32];
    let answer = Guarded::new(&words, abi::ETH_GSTRING_LEN * count)?;
    control.ethtool_guarded(name, &answer)?;
    unchanged(&answer, 8, count)?;
    let bytes = answer.bytes(12..12 + abi::ETH_GSTRING_LEN * count);
    Ok(bytes.chunks_exact(abi::ETH_GSTRING_LEN).map(text).collect())
}

/// Returns the number of names in a string set.
fn count(control: &Control, name: &InterfaceName, set: u32) -> io::Result<usize> {
    // Command, reserved, a 64-bit mask of string sets, then the length of each set in the mask.
    let mut info = [abi::ETHTOOL_GSSET_INFO, 0, 0, 0, 0];
    let mask = (1_u64 << set).to_ne_bytes();
    info[2] = u32::from_ne_bytes([mask[0], mask[1], mask[2], mask[3]]);
    info[3] = u32::from_ne_bytes([mask[4], mask[5], mask[6], mask[7]]);
    // SAFETY: one bit is set in the mask, so the kernel writes one length after it.
    unsafe { control.ethtool(name, &mut info) }?;
    // The kernel clears the bit of a set that the device lacks.
    let count = if info[2] == 0 && info[3] == 0 { 0 } else { info[4] as usize };
    if count > NAMES_MAX {
        return Err(io::Error::other(format!(
            "implausible number of names from the driver: {count}"
        )));
    }
    Ok(count)
}

/// Checks that the kernel still reports the same count as in an earlier call.
fn unchanged(answer: &Guarded, at: usize, count: usize) -> io::Result<()> {
    if answer.bytes(at..at + 4) == (count as u32).to_ne_bytes() {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::Interrupted,
        "the device changed while its names were being read",
    ))
}

/// Returns the text of a fixed-length field, up to its first zero byte.
pub(super) fn text(bytes: &[u8]) -> String {
    let length = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}
