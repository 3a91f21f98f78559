//! A vhost-user socket as an endpoint of a path, as the user describes it. Grosso is either the network device of a VM,
//! or the driver of such a device.

use core::fmt;
use std::{io, str::FromStr};

use grosso::features::Features;
use grosso_io::live::{MAPPED_BYTES_MAX, MODE, Opening, UnixRole, VhostOptions, VhostSide};
use rustix::system::sysinfo;

use super::{
    kind::{PortDevice, PortKind},
    unix::{Offloads, mode, socket},
};
use crate::{error::Failure, refusal};

/// The path and options after `vhost-user:`, separated by commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vhost {
    /// The path of the socket.
    pub path: String,
    /// Whether the other program is the device rather than the driver.
    is_driver: bool,
    /// Whether this side connects because the other program listens.
    connects: bool,
    offloads: Option<Offloads>,
    /// Permissions of the socket's file.
    mode: Option<u32>,
    /// Maximum memory that a VM may share, in bytes.
    memory: Option<u64>,
}

impl FromStr for Vhost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("\"vhost-user:{text}\": {why}");
        let mut words = text.split(',');
        let path = socket("vhost-user", words.next().unwrap_or_default())?;
        let mut vhost = Self {
            path,
            is_driver: false,
            connects: false,
            offloads: None,
            mode: None,
            memory: None,
        };
        for word in words {
            match word.split_once('=').unwrap_or((word, "")) {
                ("driver", "") => vhost.is_driver = true,
                ("connect", "") => vhost.connects = true,
                ("offloads", list) => vhost.offloads = Some(list.parse()?),
                ("memory", size) => vhost.memory = Some(memory(size).map_err(|why| wrong(&why))?),
                ("mode", digits) => vhost.mode = Some(mode(digits).map_err(wrong)?),
                _ => return Err(wrong(&format!("no option \"{word}\"; options are {WORDS}"))),
            }
        }
        if vhost.connects && vhost.mode.is_some() {
            return Err(wrong(
                "`mode` is valid only for a socket that Grosso creates; with connect, another \
                 program creates the socket",
            ));
        }
        if vhost.is_driver && vhost.memory.is_some() {
            return Err(wrong(
                "`memory` limits the memory that a VM shares; with driver, no VM shares memory",
            ));
        }
        Ok(vhost)
    }
}

pub(super) const KIND: PortKind<Vhost> = PortKind {
    word: "vhost-user",
    forms: &["vhost-user:PATH[,OPTION...]"],
    examples: "`vhost-user:/run/vm.sock`",
    meaning: "a VM or a switch over [vhost-user](#vhost-user), with comma-separated options",
    parse: str::parse,
    settings: &[],
};

impl PortDevice for Vhost {
    fn spelling(&self) -> String {
        self.to_string()
    }

    fn name(&self) -> String {
        format!("vhost-user:{}", self.path)
    }

    fn opening(&self, features: Features) -> Option<Opening> {
        Some(Opening::Vhost(self.options(features)))
    }

    fn refusal(&self, command: &str, _: usize, error: &io::Error) -> Option<Failure> {
        Some(refusal::unix(command, &self.name(), error))
    }

    /// Returns the features that a back end offers to the guest, or that a front end uses if the device has them.
    fn features(&self) -> Features {
        self.offloads.map_or(Features::ALL, |Offloads(features)| features)
    }

    fn socket_paths(&self) -> Vec<&str> {
        vec![&self.path]
    }

    fn shares_memory(&self) -> bool {
        true
    }
}

impl Vhost {
    fn options(&self, features: Features) -> VhostOptions {
        let mode = self.mode.unwrap_or(MODE);
        let mut options = VhostOptions::new(&self.path);
        options.role = match self.connects {
            true => UnixRole::Connect { local: None, mode },
            false => UnixRole::Listen { mode },
        };
        options.side = if self.is_driver { VhostSide::Driver } else { VhostSide::Device };
        options.features = features;
        options.memory_bytes_max = self.memory.unwrap_or_else(memory_of_host);
        options
    }
}

impl fmt::Display for Vhost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "vhost-user:{}", self.path)?;
        if self.is_driver {
            formatter.write_str(",driver")?;
        }
        if self.connects {
            formatter.write_str(",connect")?;
        }
        if let Some(offloads) = self.offloads {
            write!(formatter, ",offloads={offloads}")?;
        }
        if let Some(bytes) = self.memory {
            let (size, unit) = UNITS
                .iter()
                .rev()
                .find(|(_, unit)| bytes.is_multiple_of(*unit))
                .map_or((bytes, ""), |(name, unit)| (bytes / unit, *name));
            write!(formatter, ",memory={size}{unit}")?;
        }
        self.mode.map_or(Ok(()), |mode| write!(formatter, ",mode={mode:o}"))
    }
}

/// Parses a number of bytes with a binary unit, for example `4G`.
fn memory(text: &str) -> Result<u64, String> {
    let wrong = || format!("memory={text}: expected a size such as 512M or 4G, at most 1T");
    let unit = UNITS.iter().find(|(name, _)| text.ends_with(name));
    let (name, unit) = unit.copied().unwrap_or(("", 1));
    let number = text.strip_suffix(name).and_then(|digits| digits.parse::<u64>().ok());
    let bytes = number.and_then(|number| number.checked_mul(unit));
    bytes.filter(|bytes| (1..=MAPPED_BYTES_MAX).contains(bytes)).ok_or_else(wrong)
}

/// Returns this host's memory in bytes: no VM on it needs more, unless memory is overcommitted.
fn memory_of_host() -> u64 {
    let facts = sysinfo();
    let bytes = (facts.totalram as u64).saturating_mul(facts.mem_unit.into());
    bytes.clamp(1, MAPPED_BYTES_MAX)
}

/// Units of a memory size, in bytes.
const UNITS: [(&str, u64); 4] = [("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30), ("T", 1 << 40)];
/// Options that may follow the path, for a message.
const WORDS: &str = "driver, connect, offloads=csum+tso4+tso6+uso, memory=SIZE and mode=OCTAL";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_printed_as_parsed() {
        for word in [
            "/run/vm.sock",
            "vm.sock,connect",
            "ovs.sock,driver",
            "/s,driver,connect,offloads=csum+tso6",
            "/s,offloads=csum+tso4",
            "/s,offloads=none,mode=660",
            "/s,connect,memory=1500M",
            "/s,memory=1T",
            "/s,memory=123",
        ] {
            assert_eq!(word.parse::<Vhost>().unwrap().to_string(), format!("vhost-user:{word}"));
        }
        let side = |word: &str| word.parse::<Vhost>().unwrap().options(Features::ALL).side;
        assert_eq!(side("/s,connect"), VhostSide::Device);
        assert_eq!(side("/s,connect,driver"), VhostSide::Driver);
        let memory =
            |word: &str| word.parse::<Vhost>().unwrap().options(Features::ALL).memory_bytes_max;
        assert_eq!((memory("/s,memory=2048M"), memory("/s,memory=4K")), (2 << 30, 4096));
        assert!((1 << 20..=MAPPED_BYTES_MAX).contains(&memory("/s")), "{}", memory("/s"));
        let features = |word: &str| word.parse::<Vhost>().unwrap().features();
        assert_eq!(features("/s"), Features::ALL);
        assert_eq!(features("/s,offloads=none"), Features::SCATTER_GATHER);
    }

    #[test]
    fn invalid_options_are_refused_with_the_reason() {
        for (word, why) in [
            ("", "1 to 107 bytes"),
            ("s,dgram", "options are driver, connect"),
            ("s,vnet", "options are driver, connect"),
            ("s,connect,mode=600", "with connect, another program creates the socket"),
            ("s,mode=9", "octal"),
            ("s,memory=", "a size such as 512M"),
            ("s,memory=0", "a size such as 512M"),
            ("s,memory=2T", "at most 1T"),
            ("s,memory=4GB", "a size such as 512M"),
            ("s,memory=99999999999G", "at most 1T"),
            ("s,driver,memory=1G", "with driver, no VM shares memory"),
            ("s,offloads=tso", "csum, tso4"),
        ] {
            let error = word.parse::<Vhost>().unwrap_err();
            assert!(error.contains(why), "{word}: {error}");
        }
    }
}
