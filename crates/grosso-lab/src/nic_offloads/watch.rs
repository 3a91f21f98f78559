//! Putting a device's features back, whatever becomes of who changed them.
//!
//! A process of its own keeps the features as they were, and waits until its standard input ends: which it does when
//! the lab is done with the device, and also when the lab is killed. So there is one way back for every end.

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

/// A watchdog that runs, and puts the features back when this is dropped.
#[derive(Debug)]
pub struct Keeper {
    device: InterfaceName,
    before: Vec<Feature>,
    watchdog: Child,
}

impl Keeper {
    /// Starts the watchdog of a device: a program that calls [`watch`] with its standard input and output.
    ///
    /// # Errors
    /// Fails if the program does not start, with what it says if it refuses to watch.
    pub fn start(device: InterfaceName, program: &mut Command) -> io::Result<Self> {
        let before = ethtool::features(&Control::new()?, &device)?;
        // Ctrl-C is for the group of the lab, and the watchdog has to outlive it.
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

    /// Puts the features back.
    ///
    /// # Errors
    /// Fails if one of them is not as it was.
    pub fn restore(mut self) -> io::Result<()> {
        self.end()
    }

    /// Lets the watchdog do its work, or does it if that was killed.
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
        // Whoever wants to know calls `restore`, behind which this does nothing more.
        let _ = self.end();
    }
}

/// Keeps the features of a device until `input` ends, and puts them back. Writes one line to `output`: that the
/// device may be changed from now on, or why not.
///
/// # Errors
/// Fails if the device has another watchdog, and if a feature is not as it was in the end.
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
    // An input that cannot be read has ended too.
    let _ = io::copy(&mut input, &mut io::sink());
    restore(device, &before)
}

/// A mark, visible in this network and gone with the process, that the device is watched: a second watchdog would
/// take a changed feature for how it was. A user who may not change features can make the mark too, and is ignored.
fn alone(device: &InterfaceName) -> io::Result<Option<OwnedFd>> {
    let index = Control::new()?.index(device)?;
    match claim(&format!("grosso-lab-nic-{index}"))? {
        Claim::Held(mark) => Ok(Some(mark)),
        Claim::Doubtful { .. } => Ok(None),
        Claim::Taken => {
            let busy = format!("another lab measures {device}: wait for its end");
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
        let left = format!("{device}: {} was {state} and is not so again", was.name);
        Err(io::Error::other(left))
    })
}

/// The line of a watchdog that has begun.
const READY: &str = "watching";
