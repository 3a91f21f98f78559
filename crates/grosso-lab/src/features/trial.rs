//! One measurement: a feature of the device on or off, and a stream between the device and the sink.

use std::{
    fs,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use grosso_sys::{
    ethtool::{set_feature, set_features},
    interface::{Control, InterfaceName},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::sink::{Request, content, give, take};
use crate::{experiment::VERIFIED_BYTES, hosts::STALLED, trial::TrialError};

/// Direction of the stream that shows what a feature does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the sink to the device.
    Receive,
    /// From the device to the sink.
    Transmit,
}

/// One setting to measure.
#[derive(Clone, Debug, PartialEq)]
pub struct FeatureSetting {
    /// The device.
    pub device: InterfaceName,
    /// The address of the sink.
    pub peer: SocketAddr,
    /// The feature.
    pub feature: String,
    /// Whether it is requested to be on without the lab.
    pub was_on: bool,
    /// Whether it is on.
    pub on: bool,
    /// Direction of the stream.
    pub direction: Direction,
    /// Duration of the stream.
    pub measured: Duration,
}

/// Results of one measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FeatureRun {
    /// Duration of the stream.
    pub seconds: f64,
    /// Bytes that arrived.
    pub bytes: u64,
    /// Time of all processors of this machine that were not idle.
    pub cpu_seconds: f64,
}

impl FeatureRun {
    pub(super) fn gigabits_a_second(&self) -> f64 {
        self.bytes as f64 * 8e-9 / self.seconds
    }

    pub(super) fn gigabits_a_cpu_second(&self) -> f64 {
        self.bytes as f64 * 8e-9 / self.cpu_seconds
    }
}

/// Measures a stream. The feature is put back behind it.
///
/// # Errors
/// Fails if the device does not take the feature, if the sink is not there or the stream stops, or if it is
/// interrupted.
pub fn measure(
    setting: &FeatureSetting,
    interrupted: &AtomicBool,
) -> Result<FeatureRun, TrialError> {
    let _switched = Switched::new(setting)?;
    let connection = connect(setting.peer)?;
    let (started, busy) = (Instant::now(), busy_seconds()?);
    let goes_on = || started.elapsed() < setting.measured && !interrupted.load(Ordering::Relaxed);
    let bytes = match setting.direction {
        Direction::Transmit => send(&connection, Request::Take, goes_on)?.1,
        Direction::Receive => receive(&connection, false, |_| goes_on())?,
    };
    let (seconds, cpu_seconds) = (started.elapsed().as_secs_f64(), busy_seconds()? - busy);
    match interrupted.load(Ordering::Relaxed) {
        true => Err(TrialError::Interrupted),
        false => Ok(FeatureRun { seconds, bytes, cpu_seconds }),
    }
}

/// Compares what arrives with what was sent, and checks that it passes the device.
///
/// # Errors
/// As [`measure`]; if a byte differs; if the way to the sink leads elsewhere.
pub(super) fn verify(
    setting: &FeatureSetting,
    interrupted: &AtomicBool,
) -> Result<u64, TrialError> {
    let _switched = Switched::new(setting)?;
    let passed = || passed_bytes(&setting.device, setting.direction);
    let (connection, before) = (connect(setting.peer)?, passed()?);
    let goes_on = || !interrupted.load(Ordering::Relaxed);
    let bytes = match setting.direction {
        Direction::Transmit => {
            let end = Instant::now() + VERIFIED;
            let (sent, received) =
                send(&connection, Request::Compare, || goes_on() && Instant::now() < end)?;
            if sent != received {
                return Err(TrialError::Lost { sent, received });
            }
            sent
        }
        Direction::Receive => {
            receive(&connection, true, |bytes| goes_on() && bytes < VERIFIED_BYTES)?
        }
    };
    if !goes_on() {
        return Err(TrialError::Interrupted);
    }
    let through = passed()?.saturating_sub(before);
    if through < bytes {
        let FeatureSetting { device, peer, .. } = setting;
        let elsewhere = format!(
            "{peer} is not reached through {device}: of {bytes} bytes {through} passed it; \
             see `ip route get {}`",
            peer.ip()
        );
        return Err(io::Error::other(elsewhere).into());
    }
    Ok(bytes)
}

/// Sends a stream. Returns the numbers of bytes that were sent, and that the sink says have arrived.
fn send(
    mut connection: &TcpStream,
    request: Request,
    goes_on: impl FnMut() -> bool,
) -> io::Result<(u64, u64)> {
    connection.write_all(&[request as u8])?;
    let (sent, ended) = give(connection, &content()?, goes_on);
    ended?;
    let mut answer = [0; 8];
    connection.read_exact(&mut answer)?;
    Ok((sent, u64::from_be_bytes(answer)))
}

/// Receives a stream, compared with what it should be if `compare` is set. Returns the number of bytes.
fn receive(
    mut connection: &TcpStream,
    compare: bool,
    goes_on: impl FnMut(u64) -> bool,
) -> io::Result<u64> {
    connection.write_all(&[Request::Give as u8])?;
    let content = content()?;
    let (taken, ended) = take(connection, compare.then_some(&content), goes_on);
    ended.map(|()| taken)
}

/// A feature in the state of a setting, until this is dropped.
struct Switched<'a>(&'a FeatureSetting);

impl<'a> Switched<'a> {
    fn new(setting: &'a FeatureSetting) -> io::Result<Self> {
        // What is refused is requested all the same, and has to be taken back.
        let switched = Self(setting);
        set_feature(&Control::new()?, &setting.device, &setting.feature, setting.on)?;
        Ok(switched)
    }
}

impl Drop for Switched<'_> {
    fn drop(&mut self) {
        let FeatureSetting { device, feature, was_on, .. } = self.0;
        // If this fails, the watchdog does it, and says why.
        let put_back = |control| set_features(&control, device, &[(feature, *was_on)]);
        let _ = Control::new().and_then(put_back);
    }
}

/// A connection to the sink. Some devices lose their link for a while when a feature is changed.
fn connect(peer: SocketAddr) -> io::Result<TcpStream> {
    let started = Instant::now();
    loop {
        match TcpStream::connect_timeout(&peer, STALLED) {
            Ok(connection) => {
                connection.set_read_timeout(Some(STALLED))?;
                connection.set_write_timeout(Some(STALLED))?;
                return Ok(connection);
            }
            Err(error) if is_unreachable(&error) && started.elapsed() < STALLED => {
                thread::sleep(TRY_AGAIN);
            }
            Err(error) => {
                let what = format!("no sink at {peer}: {error}; start `grosso lab sink` there");
                return Err(io::Error::new(error.kind(), what));
            }
        }
    }
}

fn is_unreachable(error: &io::Error) -> bool {
    use io::ErrorKind::{HostUnreachable, NetworkUnreachable};
    matches!(error.kind(), HostUnreachable | NetworkUnreachable)
}

/// Seconds in which processors of this machine had work, since it was started (`/proc/stat`).
fn busy_seconds() -> io::Result<f64> {
    let text = fs::read_to_string("/proc/stat")?;
    let ticks = busy_ticks(&text).ok_or_else(|| no("/proc/stat", "line for all processors"))?;
    Ok(ticks as f64 / TICKS_A_SECOND)
}

/// Ticks of user, nice, system, irq and softirq; idle and iowait are between them.
fn busy_ticks(text: &str) -> Option<u64> {
    let all = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let columns: Vec<u64> = all.split_whitespace().map_while(|word| word.parse().ok()).collect();
    [0, 1, 2, 5, 6].into_iter().map(|column| columns.get(column).copied()).sum()
}

/// Bytes that passed a device of this network (`/proc/net/dev`).
fn passed_bytes(device: &InterfaceName, direction: Direction) -> io::Result<u64> {
    let text = fs::read_to_string("/proc/thread-self/net/dev")?;
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

/// Time for which a stream to the sink is compared.
const VERIFIED: Duration = Duration::from_millis(50);
/// Time between two attempts to reach the sink.
const TRY_AGAIN: Duration = Duration::from_millis(100);
/// `USER_HZ`, which is 100 on every architecture that Rust has a standard library for.
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
