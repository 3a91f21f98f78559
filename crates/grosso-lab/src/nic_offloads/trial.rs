//! One measurement: a feature of the device on or off, and a stream between the device and the sink.

use std::{io, net::SocketAddr, sync::atomic::AtomicBool, time::Duration};

use grosso_sys::{
    ethtool::{set_feature, set_features},
    interface::{Control, InterfaceName},
    path::kernel,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    sink::{Call, Called, Direction},
    trial::{TrialError, repeat_stalled},
};

/// One setting to measure.
#[derive(Clone, Debug, PartialEq)]
pub struct NicOffloadSetting {
    /// The device.
    pub device: InterfaceName,
    /// The address of the sink.
    pub peer: SocketAddr,
    /// Name of the feature.
    pub feature: String,
    /// Whether the feature was on before the lab started.
    pub was_on: bool,
    /// Whether the feature is on during the measurement.
    pub on: bool,
    /// Direction of the stream.
    pub direction: Direction,
    /// Duration of the stream.
    pub measured: Duration,
}

/// Results of one measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct NicOffloadRun {
    /// Duration of the stream in seconds.
    pub seconds: f64,
    /// Number of bytes that arrived.
    pub bytes: u64,
    /// Total time that the CPUs of this machine were not idle, in CPU-seconds.
    pub cpu_seconds: f64,
    /// Number of earlier measurements that were repeated because nothing arrived.
    pub repeated: u64,
}

impl NicOffloadRun {
    pub(super) fn gigabits_a_second(&self) -> f64 {
        self.bytes as f64 * 8e-9 / self.seconds
    }

    pub(super) fn gigabits_a_cpu_second(&self) -> f64 {
        self.bytes as f64 * 8e-9 / self.cpu_seconds
    }
}

/// Measures a stream, and repeats the measurement a few times if nothing arrived. The feature is restored afterward.
///
/// # Errors
/// Fails if the device does not accept the feature, if the sink cannot be reached or the stream stops, or if the
/// measurement is interrupted.
pub fn measure(
    setting: &NicOffloadSetting,
    interrupted: &AtomicBool,
) -> Result<NicOffloadRun, TrialError> {
    let _switched = Switched::new(setting)?;
    let once = || {
        let busy = busy_seconds()?;
        let Called { bytes, seconds } = call(setting, Some(setting.measured)).run(interrupted)?;
        Ok(NicOffloadRun { seconds, bytes, cpu_seconds: busy_seconds()? - busy, repeated: 0 })
    };
    let (measured, repeated) = repeat_stalled(once, |measured| measured.bytes == 0)?;
    Ok(NicOffloadRun { repeated, ..measured })
}

/// Compares the received bytes with those that were sent, and checks that they pass through the device.
///
/// # Errors
/// Fails if a byte differs, if the route to the sink does not use the device, or for the same reasons as [`measure`].
pub(super) fn verify(
    setting: &NicOffloadSetting,
    interrupted: &AtomicBool,
) -> Result<u64, TrialError> {
    let _switched = Switched::new(setting)?;
    let passed = || passed_bytes(&setting.device, setting.direction);
    let before = passed()?;
    let Called { bytes, .. } = call(setting, None).run(interrupted)?;
    let through = passed()?.saturating_sub(before);
    if through < bytes {
        let NicOffloadSetting { device, peer, .. } = setting;
        let elsewhere = format!(
            "{peer} is not routed through {device}, which carried {through} of {bytes} bytes; see `ip route get {}`",
            peer.ip()
        );
        return Err(io::Error::other(elsewhere).into());
    }
    Ok(bytes)
}

fn call(setting: &NicOffloadSetting, measured: Option<Duration>) -> Call {
    Call { peer: setting.peer, direction: setting.direction, measured }
}

/// A feature that was turned on or off for a measurement. Dropping this value restores it.
struct Switched<'a>(&'a NicOffloadSetting);

impl<'a> Switched<'a> {
    fn new(setting: &'a NicOffloadSetting) -> io::Result<Self> {
        // The kernel records even a refused request, so it must be undone as well.
        let switched = Self(setting);
        set_feature(&Control::new()?, &setting.device, &setting.feature, setting.on)?;
        Ok(switched)
    }
}

impl Drop for Switched<'_> {
    fn drop(&mut self) {
        let NicOffloadSetting { device, feature, was_on, .. } = self.0;
        // If this fails, the watchdog restores the feature and reports the error.
        let put_back = |control| set_features(&control, device, &[(feature, *was_on)]);
        let _ = Control::new().and_then(put_back);
    }
}

/// Returns the total time that this machine's CPUs have been busy since boot, in seconds (`/proc/stat`).
fn busy_seconds() -> io::Result<f64> {
    let text = kernel::read("/proc/stat")?;
    let ticks = busy_ticks(&text).ok_or_else(|| no("/proc/stat", "line for all CPUs"))?;
    Ok(ticks as f64 / TICKS_A_SECOND)
}

/// Returns the sum of the ticks for user, nice, system, irq and softirq. Idle and iowait, which lie between these
/// fields, are not included.
fn busy_ticks(text: &str) -> Option<u64> {
    let all = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let columns: Vec<u64> = all.split_whitespace().map_while(|word| word.parse().ok()).collect();
    [0, 1, 2, 5, 6].into_iter().map(|column| columns.get(column).copied()).sum()
}

/// Returns the number of bytes that have passed through a device in this network namespace (`/proc/net/dev`).
fn passed_bytes(device: &InterfaceName, direction: Direction) -> io::Result<u64> {
    let text = kernel::read("/proc/thread-self/net/dev")?;
    let column = match direction {
        Direction::Receive => 0,
        Direction::Transmit => 8,
    };
    let line = text.lines().find_map(|line| line.trim().strip_prefix(&format!("{device}:")));
    let word = line.and_then(|line| line.split_whitespace().nth(column)?.parse().ok());
    word.ok_or_else(|| no("/proc/net/dev", device.as_str()))
}

fn no(file: &str, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{file} has no {what}"))
}

/// Value of `USER_HZ`, which is 100 on every architecture for which Rust has a standard library.
const TICKS_A_SECOND: f64 = 100.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_no_work() {
        let text = "cpu  10 2 30 4000 500 6 7 8 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(busy_ticks(text), Some(10 + 2 + 30 + 6 + 7));
        assert_eq!(busy_ticks("cpu  1 2 3\n"), None);
        assert_eq!(busy_ticks(""), None);
    }
}
