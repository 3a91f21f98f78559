//! Options that several commands share and others lack.

use clap::Args;
use grosso_wire::LinkType;

use super::{Captures, Command, Csum, CsumVerify, Files, Tunnel, values::parse_link};

/// Options for reading a capture.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct Reading {
    /// Override the link type: ethernet, raw, null, sll, sll2, or a number
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
    /// Do not guess; exit 1 if a packet stays unchanged
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

impl Command {
    /// Returns the options of this command.
    pub(crate) fn own(&self) -> Own {
        let none = Own::default();
        match self {
            Self::Inspect(options) => read(&options.captures, options.naming),
            Self::Coalesce(options) => read(&options.files.captures, options.files.naming),
            #[cfg(feature = "parquet")]
            Self::Export(options) => read(&options.captures, options.naming),
            Self::Explain(options) => read(&options.captures, Naming::default()),
            Self::Whatif(options) => read(&options.captures, options.naming),
            Self::Segment(options) => strict(&options.files, options.strictness),
            Self::Wire(options) => strict(&options.files, options.strictness),
            Self::Encap(options) => strict(&options.files, options.strictness),
            Self::Fragment(options) => strict(&options.files, options.strictness),
            Self::Csum(Csum::Fix(options)) => strict(&options.files, options.strictness),
            Self::Csum(Csum::Verify(options)) => {
                let CsumVerify { captures, naming, strictness, detail, .. } = options;
                Own { strictness: *strictness, detail: *detail, ..read(captures, *naming) }
            }
            Self::Reassemble(options) => {
                Own { detail: options.detail, ..strict(&options.files, options.strictness) }
            }
            Self::Decap(options) => {
                Own { detail: options.detail, ..strict(&options.files, options.strictness) }
            }
            Self::Conform(options) => {
                let strictness = Strictness { strict: options.strict };
                Own { strictness, detail: options.detail, ..none }
            }
            Self::Bridge(options) => Own { detail: options.detail, ..none },
            Self::Run(options) => Own { detail: options.detail, ..none },
            Self::Stats(options) => Own { detail: options.detail, ..none },
            Self::Tunnel(Tunnel::Add(options)) => Own { detail: options.detail, ..none },
            Self::Tunnel(Tunnel::Up(options)) => Own { detail: options.detail, ..none },
            Self::Tunnel(_)
            | Self::Profiles(_)
            | Self::Schema(_)
            | Self::Config(_)
            | Self::Lab(_)
            | Self::Doctor(_)
            | Self::Capture(_)
            | Self::Extcap(_)
            | Self::Dev(_)
            | Self::Monitor(_) => none,
            #[cfg(feature = "parquet")]
            Self::Merge(_) => none,
            #[cfg(not(feature = "parquet"))]
            Self::Export(_) | Self::Merge(_) => none,
        }
    }
}

fn read(captures: &Captures, naming: Naming) -> Own {
    Own { reading: Some(captures.reading), naming, ..Own::default() }
}

fn strict(files: &Files, strictness: Strictness) -> Own {
    Own { strictness, ..read(&files.captures, files.naming) }
}
