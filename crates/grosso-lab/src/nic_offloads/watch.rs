//! A watchdog that restores a device's features, even if the process that changed them is killed.
//!
//! A separate process records the original features and waits until its standard input ends. This happens when the lab
//! has finished with the device and also when the lab is killed, so the features are restored in the same way in both
//! cases.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    os::{fd::OwnedFd, unix::process::CommandExt},
    process::{Child, Command, Stdio},
};

use grosso_sys::{
    claim::{Claim, claim},
    ethtool::{self, Feature},
    interface::{Control, InterfaceName},
};

use super::is_tried;

/// A running watchdog, which restores the features on drop.
#[derive(Debug)]
pub struct Keeper {
    device: InterfaceName,
    before: Vec<Feature>,
    watchdog: Child,
}

impl Keeper {
    /// Starts a watchdog for a device. `program` must call [`watch`] with its standard input and output.
    ///
    /// # Errors
    /// Fails if the program does not start, or if it refuses to watch; the error then contains the program's message.
    pub fn start(device: InterfaceName, program: &mut Command) -> io::Result<Self> {
        let before = ethtool::features(&Control::new()?, &device)?;
        // Ctrl-C interrupts the lab's process group, and the watchdog must outlive the lab.
        program.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut watchdog = program.spawn()?;
        let mut said = String::new();
        if let Some(output) = watchdog.stdout.take() {
            BufReader::new(output).read_line(&mut said)?;
        }
        match said.trim_end() {
            READY => Ok(Self { device, before, watchdog }),
            refusal => {
                watchdog.wait()?;
                Err(io::Error::other(refusal.to_owned()))
            }
        }
    }

    /// Restores the features.
    ///
    /// # Errors
    /// Fails if a feature was not restored.
    pub fn restore(mut self) -> io::Result<()> {
        self.end()
    }

    /// Ends the watchdog, which restores the features. If the watchdog was killed, restores them here.
    fn end(&mut self) -> io::Result<()> {
        drop(self.watchdog.stdin.take());
        match self.watchdog.wait()?.success() {
            true => Ok(()),
            false => restore(&self.device, &self.before),
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // Callers that need the result call `restore`; after that, this call does nothing.
        let _ = self.end();
    }
}

/// Records a device's features, and restores them when `input` ends. Writes one line to `output`, which says that the
/// caller may now change the device, or why it must not.
///
/// # Errors
/// Fails if the device has another watchdog, or if a feature is not restored at the end.
pub fn watch(
    device: &InterfaceName,
    mut input: impl Read,
    mut output: impl Write,
) -> io::Result<()> {
    let prepared = alone(device).and_then(|alone| {
        let before = ethtool::features(&Control::new()?, device)?;
        Ok((alone, before))
    });
    let (_alone, before) = match prepared {
        Ok(prepared) => prepared,
        Err(refusal) => {
            writeln!(output, "{refusal}")?;
            return Err(refusal);
        }
    };
    writeln!(output, "{READY}")?;
    output.flush()?;
    // A read error also counts as the end of the input.
    let _ = io::copy(&mut input, &mut io::sink());
    restore(device, &before)
}

/// Marks the device as watched, because a second watchdog would mistake a changed feature for the original one. The
/// mark is visible in this network namespace and disappears when the process ends. Marks by users who may not change
/// features are ignored.
fn alone(device: &InterfaceName) -> io::Result<Option<OwnedFd>> {
    let index = Control::new()?.index(device)?;
    match claim(&format!("grosso-lab-nic-{index}"))? {
        Claim::Held(mark) => Ok(Some(mark)),
        Claim::Doubtful { .. } => Ok(None),
        Claim::Taken => {
            let busy = format!("another `grosso lab` is measuring {device}; wait until it ends");
            Err(io::Error::new(io::ErrorKind::ResourceBusy, busy))
        }
    }
}

fn restore(device: &InterfaceName, before: &[Feature]) -> io::Result<()> {
    let control = Control::new()?;
    let tried = before.iter().filter(|feature| is_tried(feature));
    let wishes: Vec<(&str, bool)> =
        tried.map(|feature| (feature.name.as_str(), feature.requested)).collect();
    ethtool::set_features(&control, device, &wishes)?;
    let after = ethtool::features(&control, device)?;
    let differs = after.iter().zip(before).find(|(after, before)| after != before);
    differs.map_or(Ok(()), |(_, was)| {
        let state = if was.requested { "on" } else { "off" };
        let left = format!("{device}: cannot restore feature {} to {state}", was.name);
        Err(io::Error::other(left))
    })
}

/// Line that a watchdog prints once it has started.
const READY: &str = "watching";
