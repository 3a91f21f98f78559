//! Tunnels, described with the keywords of `ip link`.
//!
//! | module | job |
//! |---|---|
//! | `kind` | the types of tunnels |
//! | `keywords` | a row for each keyword: the types that have it, its values, and the conversion to settings and back |
//! | `words` | the keywords that describe a tunnel, with their values |
//! | `grammar` | conversion of arguments to keywords and of keywords to a tunnel, and back |
//! | `value` | parsing and printing of keyword values |
//! | `table` | the same keywords as keys of a TOML table (Linux) |
//! | `definition`, `store` | a tunnel with its device, as a file; the location of these files (Linux) |
//! | `export` | a tunnel in the syntax of other programs (Linux) |
//! | `report` | the report on tunnels (Linux) |
//! | `description` | a tunnel: its endpoint for the engine, and other settings |

#[cfg(target_os = "linux")]
mod definition;
mod description;
#[cfg(target_os = "linux")]
pub mod export;
mod grammar;
mod keywords;
mod kind;
#[cfg(target_os = "linux")]
pub mod report;
#[cfg(target_os = "linux")]
mod store;
#[cfg(target_os = "linux")]
mod table;
mod value;
mod words;

use self::words::Words;
#[cfg(target_os = "linux")]
pub use self::{definition::Definition, store::TunnelFiles};
pub use self::{
    description::Description,
    keywords::{keyword_help, keyword_names},
};
use crate::error::Failure;

/// Returns the tunnel that `words` describes: the tunnel's type, followed by keywords of `ip link`. Error messages
/// start with `command`.
pub fn describe(command: &str, words: &[String]) -> Result<Description, Failure> {
    let described = Words::parse(words).and_then(|words| Description::try_from(&words));
    described.map_err(|why| {
        let hint = "grosso help tunnel add lists the options of each type; they are the options of ip link";
        Failure::usage("usage.tunnel", format!("{command}: {why}")).hint(hint)
    })
}
