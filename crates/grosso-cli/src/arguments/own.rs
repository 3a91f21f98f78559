//! Options that only some commands have.

use clap::Args;
use grosso_wire::LinkType;

use super::{
    Bridge, Capture, Captures, Coalesce, ConfigCommand, Conform, Csum, CsumVerify, Decap, Dev,
    Doctor, Encap, Explain, Extcap, Files, Fragment, Inspect, Lab, Monitor, Profiles, Reassemble,
    Run, Schema, Segment, Stats, Tunnel, TunnelAdd, TunnelUp, Whatif, Wire, values::parse_link,
};
#[cfg(feature = "parquet")]
use super::{Export, Merge};

/// Options for reading a capture.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct Reading {
    /// Override the link type: ethernet, raw, null, sll, sll2, ppp, pppoe, or a number
    #[arg(long, value_name = "TYPE", value_parser = parse_link, hide_short_help = true)]
    pub(crate) linktype: Option<LinkType>,
    /// Exit 0 even if the input ends inside a packet
    #[arg(long, hide_short_help = true)]
    pub(crate) allow_truncated: bool,
}

/// Options for identifying captures by their contents.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct Naming {
    /// Report the SHA-256 of each capture, as sha256sum prints it
    #[arg(short = 'H', long, hide_short_help = true)]
    pub(crate) hash: bool,
}

/// Options for handling uncertain packets.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct Strictness {
    /// Never guess; exit 1 if any packet stays unchanged
    ///
    /// A packet that could be processed only with a guess stays unchanged.
    #[arg(long)]
    pub(crate) strict: bool,
}

/// Options for the level of detail in a report.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct Detail {
    /// Print details
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// Options of a command. Those that the command does not have are unset.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SharedOptions {
    /// Options for reading captures; unset for a command that reads none.
    pub(crate) reading: Option<Reading>,
    pub(crate) naming: Naming,
    pub(crate) strictness: Strictness,
    pub(crate) detail: Detail,
}

/// Arguments of a command that include options shared with other commands.
pub(crate) trait CommandOptions {
    /// Returns the shared options that this command has; by default, none.
    fn shared_options(&self) -> SharedOptions {
        SharedOptions::default()
    }
}

impl CommandOptions for Inspect {
    fn shared_options(&self) -> SharedOptions {
        read(&self.captures, self.naming)
    }
}

impl CommandOptions for Coalesce {
    fn shared_options(&self) -> SharedOptions {
        read(&self.files.captures, self.files.naming)
    }
}

#[cfg(feature = "parquet")]
impl CommandOptions for Export {
    fn shared_options(&self) -> SharedOptions {
        read(&self.captures, self.naming)
    }
}

impl CommandOptions for Explain {
    fn shared_options(&self) -> SharedOptions {
        read(&self.captures, Naming::default())
    }
}

impl CommandOptions for Whatif {
    fn shared_options(&self) -> SharedOptions {
        read(&self.captures, self.naming)
    }
}

impl CommandOptions for Segment {
    fn shared_options(&self) -> SharedOptions {
        strict(&self.files, self.strictness)
    }
}

impl CommandOptions for Wire {
    fn shared_options(&self) -> SharedOptions {
        strict(&self.files, self.strictness)
    }
}

impl CommandOptions for Encap {
    fn shared_options(&self) -> SharedOptions {
        strict(&self.files, self.strictness)
    }
}

impl CommandOptions for Fragment {
    fn shared_options(&self) -> SharedOptions {
        strict(&self.files, self.strictness)
    }
}

impl CommandOptions for Csum {
    fn shared_options(&self) -> SharedOptions {
        match self {
            Self::Fix(options) => strict(&options.files, options.strictness),
            Self::Verify(options) => {
                let CsumVerify { captures, naming, strictness, detail, .. } = options;
                SharedOptions {
                    strictness: *strictness,
                    detail: *detail,
                    ..read(captures, *naming)
                }
            }
        }
    }
}

impl CommandOptions for Reassemble {
    fn shared_options(&self) -> SharedOptions {
        SharedOptions { detail: self.detail, ..strict(&self.files, self.strictness) }
    }
}

impl CommandOptions for Decap {
    fn shared_options(&self) -> SharedOptions {
        SharedOptions { detail: self.detail, ..strict(&self.files, self.strictness) }
    }
}

impl CommandOptions for Conform {
    fn shared_options(&self) -> SharedOptions {
        let strictness = Strictness { strict: self.strict };
        SharedOptions { strictness, detail: self.detail, ..SharedOptions::default() }
    }
}

impl CommandOptions for Bridge {
    fn shared_options(&self) -> SharedOptions {
        SharedOptions { detail: self.detail, ..SharedOptions::default() }
    }
}

impl CommandOptions for Run {
    fn shared_options(&self) -> SharedOptions {
        SharedOptions { detail: self.detail, ..SharedOptions::default() }
    }
}

impl CommandOptions for Stats {
    fn shared_options(&self) -> SharedOptions {
        SharedOptions { detail: self.detail, ..SharedOptions::default() }
    }
}

impl CommandOptions for Tunnel {
    fn shared_options(&self) -> SharedOptions {
        match self {
            Self::Add(TunnelAdd { detail, .. }) | Self::Up(TunnelUp { detail, .. }) => {
                SharedOptions { detail: *detail, ..SharedOptions::default() }
            }
            _ => SharedOptions::default(),
        }
    }
}

/// Implements [`CommandOptions`] for the arguments of commands without shared options.
macro_rules! without_options {
    ($($arguments:ty),* $(,)?) => { $(impl CommandOptions for $arguments {})* };
}

without_options!(Profiles, Schema, ConfigCommand, Lab, Doctor, Capture, Extcap, Dev, Monitor,);
#[cfg(feature = "parquet")]
without_options!(Merge);
#[cfg(not(feature = "parquet"))]
without_options!(super::LeftOut);

fn read(captures: &Captures, naming: Naming) -> SharedOptions {
    SharedOptions { reading: Some(captures.reading), naming, ..SharedOptions::default() }
}

fn strict(files: &Files, strictness: Strictness) -> SharedOptions {
    SharedOptions { strictness, ..read(&files.captures, files.naming) }
}
