//! Conditions of a measurement, needed to compare figures with others.

use std::{fs, io, time::Duration};

use grosso_sys::scheduling::allowed_processors;
use serde::Serialize;

use crate::hosts::Device;

/// Machine and parameters of a measurement, as every experiment reports them.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Conditions {
    /// The kernel's release.
    pub kernel: String,
    /// The processor's name, as it reports it.
    pub processor: String,
    /// The processors that the lab may use.
    pub processors: usize,
    /// Measurements of each setting.
    pub runs: usize,
    /// Duration of each.
    pub seconds: f64,
    /// Device through which the data paths handed packets to a host.
    pub device: Device,
}

impl Conditions {
    /// The conditions on this machine.
    pub(crate) fn of(runs: usize, measured: Duration, device: Device) -> io::Result<Self> {
        Ok(Self {
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            processor: processor_name(),
            processors: allowed_processors()?.len(),
            runs,
            seconds: measured.as_secs_f64(),
            device,
        })
    }

    /// The last lines of a table's heading, without the final line end; `what` names the statistic that the table
    /// shows.
    pub(crate) fn lines(&self, what: &str) -> String {
        let Self { kernel, runs, seconds, .. } = self;
        format!("Linux {kernel}\n{what} of {runs} runs of {seconds} s")
    }

    /// The same for a table of medians with minimum and maximum.
    pub(crate) fn spread_lines(&self) -> String {
        self.lines("median (least-most)")
    }
}

/// The processors for the sender and for everything else: the same one if there is only one.
pub(crate) fn two_processors() -> io::Result<[usize; 2]> {
    Ok(match allowed_processors()?[..] {
        [.., one, other] => [one, other],
        [one] => [one, one],
        [] => [0, 0],
    })
}

fn processor_name() -> String {
    let about = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let named = about.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    named.map_or_else(|| std::env::consts::ARCH.into(), |(_, name)| name.into())
}
