//! `grosso profiles`.

use clap::{Args, Subcommand};

/// Without a command, lists the built-in profiles
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Profiles {
    #[command(subcommand)]
    pub(crate) command: Option<ProfilesCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProfilesCommand {
    /// Print a profile as a file: every key, and the values that it may have
    Show(ProfilesShow),
}

#[derive(Args, Debug)]
pub(crate) struct ProfilesShow {
    /// The profile: a name, or a file
    #[arg(value_name = "NAME|FILE.toml")]
    pub(crate) profile: String,
}

pub(super) const PROFILES_HELP: &str = "\
A profile is the rules of a receive offload, as data. A file of your own says only
what differs, such as
  base = \"freebsd\"
  limits.flows = 64
docs/profiles.md says what each profile joins and what its original did.

Examples:
  grosso profiles
  grosso profiles show inet-lro > mine.toml
  grosso coalesce -r wire.pcapng -w lro.pcapng --profile mine.toml";
