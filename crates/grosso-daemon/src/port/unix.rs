//! A Unix socket as an endpoint of a path, as the user describes it.

use core::fmt;
use std::{io, path::Path, str::FromStr};

use grosso::features::Features;
use grosso_io::live::{self, Opening, UnixOptions, UnixRole, usual_features};
use grosso_sys::unix_socket::{UnixAddress, UnixKind};
use grosso_wire::virtio::Form;

use super::{
    kind::{PortDevice, PortKind},
    setting::{header, header_form},
};
use crate::{error::Failure, feature, refusal};

/// The path and options after `unix:`, separated by commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unix {
    /// The path of the socket.
    pub path: String,
    kind: UnixKind,
    /// Whether this side connects because the other program listens.
    connects: bool,
    /// Path of the socket on which this side receives datagrams from the other program.
    local: Option<String>,
    /// Virtio header of the socket's frames.
    pub header: Option<Form>,
    offloads: Option<Offloads>,
    /// Permissions of the socket's file.
    mode: Option<u32>,
}

impl FromStr for Unix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("\"unix:{text}\": {why}");
        let mut words = text.split(',');
        let path = socket("unix", words.next().unwrap_or_default())?;
        let mut unix = Self {
            path,
            kind: UnixKind::Stream,
            connects: false,
            local: None,
            header: None,
            offloads: None,
            mode: None,
        };
        for word in words {
            match word.split_once('=').unwrap_or((word, "")) {
                ("dgram", "") => unix.kind = UnixKind::Datagram,
                ("connect", "") => unix.connects = true,
                ("local", path) => unix.local = Some(socket("unix", path)?),
                ("vnet", "") => unix.header = Some(Form::Buffers),
                ("vnet", bytes) => {
                    let form = Form::ALL.into_iter().find(|form| form.len().to_string() == bytes);
                    unix.header =
                        Some(form.ok_or_else(|| wrong("vnet must be 10, 12, 20 or 24 bytes"))?);
                }
                ("offloads", list) => unix.offloads = Some(list.parse()?),
                ("mode", digits) => unix.mode = Some(mode(digits).map_err(wrong)?),
                _ => return Err(wrong(&format!("no option \"{word}\"; options are {WORDS}"))),
            }
        }
        unix.check_options().map(|()| unix).map_err(wrong)
    }
}

impl Unix {
    fn check_options(&self) -> Result<(), &'static str> {
        let has_own_file = !self.connects || self.kind == UnixKind::Datagram;
        match (&self.local, self.connects && self.kind == UnixKind::Datagram) {
            (None, true) => Err("dgram with connect also needs local=PATH, a path for the replies"),
            (Some(_), false) => Err("`local` requires dgram and connect"),
            _ if self.mode.is_some() && !has_own_file => {
                Err("`mode` is valid only for a socket that Grosso creates; with connect, another \
                     program creates the socket")
            }
            _ => Ok(()),
        }
    }

    fn options(&self, features: Features) -> UnixOptions {
        let mode = self.mode.unwrap_or(live::MODE);
        let mut options = UnixOptions::new(&self.path);
        options.kind = self.kind;
        options.role = if self.connects {
            UnixRole::Connect { local: self.local.as_ref().map(Into::into), mode }
        } else {
            UnixRole::Listen { mode }
        };
        (options.header, options.transmit) = (self.header, features);
        options
    }
}

pub(super) const KIND: PortKind<Unix> = PortKind {
    word: "unix",
    forms: &["unix:PATH[,OPTION...]"],
    examples: "`unix:/run/vm.sock`",
    meaning: "a VM or another program at a [Unix socket](#unix-sockets), with comma-separated options",
    parse: str::parse,
    settings: &[header("none", |unix: &mut Unix, bytes| {
        unix.header = Some(header_form(bytes)?);
        Ok(())
    })],
};

impl PortDevice for Unix {
    fn spelling(&self) -> String {
        self.to_string()
    }

    fn name(&self) -> String {
        format!("unix:{}", self.path)
    }

    fn opening(&self, features: Features) -> Option<Opening> {
        Some(Opening::Unix(self.options(features)))
    }

    fn refusal(&self, command: &str, _: usize, error: &io::Error) -> Option<Failure> {
        Some(refusal::unix(command, &self.name(), error))
    }

    /// Returns the features that the other program accepts in frames with virtio headers.
    fn features(&self) -> Features {
        self.offloads.map_or_else(usual_features, |Offloads(features)| features)
    }

    fn check(&self) -> Result<(), String> {
        if self.offloads.is_some() && self.header.is_none() {
            return Err(format!("{self}: offloads require virtio headers: add vnet"));
        }
        Ok(())
    }

    fn socket_paths(&self) -> Vec<&str> {
        [Some(self.path.as_str()), self.local.as_deref()].into_iter().flatten().collect()
    }

    /// Returns whether the thread connects to a socket by name: in order to reconnect, or to reply to the sender of a
    /// datagram.
    fn makes_sockets(&self) -> bool {
        self.connects || self.kind == UnixKind::Datagram
    }
}

impl fmt::Display for Unix {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "unix:{}", self.path)?;
        if self.kind == UnixKind::Datagram {
            formatter.write_str(",dgram")?;
        }
        if self.connects {
            formatter.write_str(",connect")?;
        }
        if let Some(local) = &self.local {
            write!(formatter, ",local={local}")?;
        }
        match self.header {
            None => {}
            Some(Form::Buffers) => formatter.write_str(",vnet")?,
            Some(form) => write!(formatter, ",vnet={}", form.len())?,
        }
        if let Some(offloads) = self.offloads {
            write!(formatter, ",offloads={offloads}")?;
        }
        self.mode.map_or(Ok(()), |mode| write!(formatter, ",mode={mode:o}"))
    }
}

/// Offloads that the other program accepts. Without any, it accepts only single packets with complete checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offloads(pub(super) Features);

impl FromStr for Offloads {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut features = Features::SCATTER_GATHER;
        for word in text.split('+').filter(|_| text != "none") {
            let known = offload_words().into_iter().find(|(name, _)| *name == word);
            let (_, more) = known.ok_or_else(|| match feature::elsewhere(word) {
                Some(instead) => format!("VMs have no offload \"{word}\": {instead}"),
                None => {
                    format!(
                        "offloads={text}: expected \"none\", or offloads joined by \"+\": csum, tso4, \
                         tso6, uso"
                    )
                }
            })?;
            features |= more | Features::CHECKSUM_GENERIC;
        }
        Ok(Self(features))
    }
}

impl fmt::Display for Offloads {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = offload_words().into_iter().filter(|(_, features)| self.0.contains(*features));
        let said: Vec<_> = said.map(|(name, _)| name).collect();
        formatter.write_str(if said.is_empty() { "none" } else { "" })?;
        formatter.write_str(&said.join("+"))
    }
}

/// Returns the short virtio names of the offloads.
fn offload_words() -> [(&'static str, Features); 4] {
    let tcp =
        Features::TCP_ECN_SEGMENTATION | Features::TCP_MANGLEID_SEGMENTATION | Features::GSO_ROBUST;
    [
        ("csum", Features::CHECKSUM_GENERIC),
        ("tso4", Features::TCP_SEGMENTATION | tcp),
        ("tso6", Features::TCP6_SEGMENTATION | tcp),
        ("uso", Features::UDP_SEGMENTATION | Features::GSO_ROBUST),
    ]
}

/// Parses the path of a socket.
pub(super) fn socket(kind: &str, path: &str) -> Result<String, String> {
    match UnixAddress::new(Path::new(path)) {
        Ok(_) => Ok(path.to_owned()),
        Err(error) => Err(format!("\"{kind}:{path}\": {error}")),
    }
}

/// Parses the permissions of a file.
pub(super) fn mode(digits: &str) -> Result<u32, &'static str> {
    let mode = u32::from_str_radix(digits, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or("expected an octal mode, for example mode=660")
}

/// Options that may follow the path, for a message.
const WORDS: &str =
    "dgram, connect, local=PATH, vnet, vnet=BYTES, offloads=csum+tso4+tso6+uso and mode=OCTAL";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_printed_as_parsed() {
        for word in [
            "/run/vm.sock",
            "vm.sock,connect",
            "/run/vm.sock,dgram,vnet",
            "/run/vm.sock,dgram,connect,local=/run/own.sock,vnet=10,offloads=none,mode=660",
            "/run/vm.sock,vnet,offloads=csum+tso4+uso",
        ] {
            assert_eq!(word.parse::<Unix>().unwrap().to_string(), format!("unix:{word}"));
        }
        let shuffled: Unix = "s,offloads=uso+csum,vnet=12".parse().unwrap();
        assert_eq!(shuffled.to_string(), "unix:s,vnet,offloads=csum+uso");
    }

    #[test]
    fn invalid_options_are_refused_with_the_reason() {
        let long = "x".repeat(108);
        for (word, why) in [
            ("", "1 to 107 bytes"),
            (long.as_str(), "1 to 107 bytes"),
            ("s,dgrm", "options are dgram, connect"),
            ("s,dgram=1", "no option"),
            ("s,dgram,connect", "local=PATH"),
            ("s,connect,local=p", "`local` requires dgram"),
            ("s,connect,mode=600", "with connect, another program creates the socket"),
            ("s,vnet=11", "10, 12, 20 or 24"),
            ("s,vnet,offloads=tso", "csum, tso4"),
            ("s,vnet,offloads=", "csum, tso4"),
            ("s,mode=888", "octal"),
            ("s,mode=1000", "octal"),
        ] {
            let error = word.parse::<Unix>().unwrap_err();
            assert!(error.contains(why), "{word}: {error}");
        }
    }

    #[test]
    fn a_segment_offload_brings_the_checksum_and_the_usual_ones_have_no_udp() {
        let features = |word: &str| word.parse::<Unix>().unwrap().features();
        assert!(features("s,vnet,offloads=tso6").contains(Features::CHECKSUM_GENERIC));
        assert!(!features("s,vnet,offloads=tso6").contains(Features::TCP_SEGMENTATION));
        assert!(features("s,vnet").contains(Features::TCP6_SEGMENTATION));
        assert!(!features("s,vnet").contains(Features::UDP_SEGMENTATION));
        assert_eq!(features("s,vnet,offloads=none"), Features::SCATTER_GATHER);
    }
}
