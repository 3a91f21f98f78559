//! Arguments of `grosso profiles`.

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
    /// Print a profile as a TOML file with every key and its allowed values
    Show(ProfilesShow),
}

#[derive(Args, Debug)]
pub(crate) struct ProfilesShow {
    /// Profile name, or a file
    #[arg(value_name = "NAME|FILE.toml")]
    pub(crate) profile: String,
}

pub(crate) const PROFILES_HELP: &str = "\
A profile holds the rules of a receive offload. Your own file lists only the
differences from a base profile:
  base = \"freebsd\"
  limits.flows = 64
docs/profiles.md describes what each profile merges and the original it models.

Examples:
  grosso profiles
  grosso profiles show inet-lro > mine.toml
  grosso coalesce -r wire.pcapng -w lro.pcapng --profile mine.toml";
