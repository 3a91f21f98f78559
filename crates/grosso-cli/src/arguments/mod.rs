//! Command-line arguments. This module contains the arguments that all commands share; each submodule contains those of
//! a group of commands.

mod captures;
mod conform;
mod daemon;
mod device;
#[cfg(feature = "parquet")]
mod export;
mod extcap;
mod grammar;
mod known;
mod lab;
mod observe;
mod own;
mod ports;
mod profiles;
mod schema;
mod tunnel;
mod values;
mod whatif;

use clap::{Args, ValueEnum};

#[cfg(feature = "parquet")]
pub(crate) use self::export::*;
#[cfg(all(target_os = "linux", feature = "lab"))]
pub(crate) use self::values::parse_run_ns;
pub(crate) use self::{
    captures::*,
    conform::*,
    daemon::*,
    device::*,
    extcap::*,
    grammar::*,
    lab::*,
    observe::*,
    own::{CommandOptions, Detail, SharedOptions},
    profiles::*,
    schema::*,
    tunnel::*,
    whatif::*,
};
use crate::style::When;

/// Options common to all commands.
#[derive(Args, Clone, Debug)]
pub(crate) struct Common {
    /// Print one JSON object instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print failures only
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Color the output; auto respects NO_COLOR and CLICOLOR_FORCE
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_short_help = true
    )]
    pub(crate) color: Color,
}

/// Values of `--color`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// Color the output on a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Color the output in files and pipes too.
    Always,
    /// Do not color the output.
    Never,
}

impl From<Color> for When {
    fn from(color: Color) -> Self {
        match color {
            Color::Auto => Self::Auto,
            Color::Always => Self::Always,
            Color::Never => Self::Never,
        }
    }
}

/// Arguments of a command that this build does not contain. Any arguments are accepted, so that the command can report
/// that it is missing.
#[cfg(not(feature = "parquet"))]
#[derive(Args, Debug)]
pub(crate) struct LeftOut {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<std::ffi::OsString>,
}

#[cfg(not(feature = "parquet"))]
pub(crate) type Export = LeftOut;
#[cfg(not(feature = "parquet"))]
pub(crate) type Merge = LeftOut;
