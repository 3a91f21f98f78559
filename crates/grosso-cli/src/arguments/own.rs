//! Options that several commands share and others lack.

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

/// Options for identifying captures by their bytes.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct Naming {
    /// Report the SHA-256 of each capture, as sha256sum prints it
    #[arg(short = 'H', long, hide_short_help = true)]
    pub(crate) hash: bool,
}

/// Options for the treatment of uncertain packets.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct Strictness {
    /// Never guess; exit 1 if any packet stays unchanged
    ///
    /// A packet that could be processed only with a guess stays unchanged.
    #[arg(long)]
    pub(crate) strict: bool,
}

/// Options for the length of a report.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct Detail {
    /// Print details
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// Options of a command; options that it lacks are unset.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Own {
    /// Options for reading captures; unset for a command that reads none.
    pub(crate) reading: Option<Reading>,
    pub(crate) naming: Naming,
    pub(crate) strictness: Strictness,
    pub(crate) detail: Detail,
}

/// Options that the arguments of a command have in common with other commands.
pub(crate) trait CommandOptions {
    /// Returns the shared options of this command; by default, it has none.
    fn own(&self) -> Own {
        Own::default()
    }
}

impl CommandOptions for Inspect {
    fn own(&self) -> Own {
        read(&self.captures, self.naming)
    }
}

impl CommandOptions for Coalesce {
    fn own(&self) -> Own {
        read(&self.files.captures, self.files.naming)
    }
}

#[cfg(feature = "parquet")]
impl CommandOptions for Export {
    fn own(&self) -> Own {
        read(&self.captures, self.naming)
    }
}

impl CommandOptions for Explain {
    fn own(&self) -> Own {
        read(&self.captures, Naming::default())
    }
}

impl CommandOptions for Whatif {
    fn own(&self) -> Own {
        read(&self.captures, self.naming)
    }
}

impl CommandOptions for Segment {
    fn own(&self) -> Own {
        strict(&self.files, self.strictness)
    }
}

impl CommandOptions for Wire {
    fn own(&self) -> Own {
        strict(&self.files, self.strictness)
    }
}

impl CommandOptions for Encap {
    fn own(&self) -> Own {
        strict(&self.files, self.strictness)
    }
}

impl CommandOptions for Fragment {
    fn own(&self) -> Own {
        strict(&self.files, self.strictness)
    }
}

impl CommandOptions for Csum {
    fn own(&self) -> Own {
        match self {
            Self::Fix(options) => strict(&options.files, options.strictness),
            Self::Verify(options) => {
                let CsumVerify { captures, naming, strictness, detail, .. } = options;
                Own { strictness: *strictness, detail: *detail, ..read(captures, *naming) }
            }
        }
    }
}

impl CommandOptions for Reassemble {
    fn own(&self) -> Own {
        Own { detail: self.detail, ..strict(&self.files, self.strictness) }
    }
}

impl CommandOptions for Decap {
    fn own(&self) -> Own {
        Own { detail: self.detail, ..strict(&self.files, self.strictness) }
    }
}

impl CommandOptions for Conform {
    fn own(&self) -> Own {
        let strictness = Strictness { strict: self.strict };
        Own { strictness, detail: self.detail, ..Own::default() }
    }
}

impl CommandOptions for Bridge {
    fn own(&self) -> Own {
        Own { detail: self.detail, ..Own::default() }
    }
}

impl CommandOptions for Run {
    fn own(&self) -> Own {
        Own { detail: self.detail, ..Own::default() }
    }
}

impl CommandOptions for Stats {
    fn own(&self) -> Own {
        Own { detail: self.detail, ..Own::default() }
    }
}

impl CommandOptions for Tunnel {
    fn own(&self) -> Own {
        match self {
            Self::Add(TunnelAdd { detail, .. }) | Self::Up(TunnelUp { detail, .. }) => {
                Own { detail: *detail, ..Own::default() }
            }
            _ => Own::default(),
        }
    }
}

/// Implements [`CommandOptions`] for the arguments of commands that share no options.
macro_rules! without_options {
    ($($arguments:ty),* $(,)?) => { $(impl CommandOptions for $arguments {})* };
}

without_options!(Profiles, Schema, ConfigCommand, Lab, Doctor, Capture, Extcap, Dev, Monitor,);
#[cfg(feature = "parquet")]
without_options!(Merge);
#[cfg(not(feature = "parquet"))]
without_options!(super::LeftOut);

fn read(captures: &Captures, naming: Naming) -> Own {
    Own { reading: Some(captures.reading), naming, ..Own::default() }
}

fn strict(files: &Files, strictness: Strictness) -> Own {
    Own { strictness, ..read(&files.captures, files.naming) }
}
