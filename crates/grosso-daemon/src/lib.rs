//! Data paths as a service: paths from files, tunnels, confinement, counters with their control socket, and the events
//! that a process handles while its paths run.
//!
//! ```
//! # #[cfg(target_os = "linux")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::path::Path;
//!
//! use grosso_daemon::config::{Config, check};
//!
//! let text = "[[path]]\nleft = \"tap:gso0\"\nright = \"eth0\"\n";
//! let config = Config::parse(text, Path::new("/etc/grosso")).map_err(|wrong| wrong.to_string())?;
//! check(&config.paths[0])?;
//! assert_eq!(config.paths[0].queues, 1);
//! # Ok(())
//! # }
//! # #[cfg(not(target_os = "linux"))]
//! # fn main() {}
//! ```
//!
//! `docs/configuration.md` describes the file. The ports, and the data path between two of them, are in [`grosso_io`].
//! The commands `grosso run`, `grosso bridge` and `grosso tunnel` (`grosso-cli`) use this crate.
//!
//! | module | job |
//! |---|---|
//! | [`config`] | paths from a file |
//! | [`port`] | one endpoint of a path, with its device and options; one module for each kind of port |
//! | [`definition`] | the definition of a tunnel and its device, read from the configuration file of its path |
//! | [`stages`] | the stages of a port: fragments and ESP |
//! | [`keys`] | keys of ESP, from a file or a descriptor |
//! | [`xfrm`] | security associations in the syntax of `ip xfrm state` |
//! | [`tunnel`] | tunnels, described as for `ip link` |
//! | [`tunnel_end`] | a tunnel as an endpoint of a path |
//! | [`path`] | a running path |
//! | [`paths`] | all paths of the process, and their counters |
//! | [`device`] | interfaces named by the user, and failures to open or change them |
//! | [`refusal`] | the reason why a device cannot be opened, and the remedy |
//! | [`recorder`] | the helper process that writes the sequence number files |
//! | [`notices`] | notices from the threads of a path |
//! | [`events`] | the events that a process handles while its paths run |
//! | [`restarts`] | restarts of paths after a panic |
//! | [`confinement`] | the privileges that each thread of running data paths gives up |
//! | [`observe`] | the counters of running data paths, for people and for programs |
//! | [`acceptor`] | accepting clients of listeners, within limits |
//! | [`manager`] | messages to a service manager |
//!
//! Systems other than Linux have only [`tunnel`]. The crate parses no command line and does not exit: failures are
//! values of [`grosso_report`], and notes go to the console that the caller passes.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make their files themselves"))]

// Private modules: `feature` names device features as users see them; `readers` finds the users who can read or write a
// key file; `claim` marks keys and interfaces as used, visible to other programs on the host; `routes` finds tunnel
// routes that lead back into their tunnel.
#[cfg(target_os = "linux")]
pub mod acceptor;
#[cfg(target_os = "linux")]
mod claim;
#[cfg(target_os = "linux")]
pub mod config;
#[cfg(target_os = "linux")]
pub mod confinement;
#[cfg(target_os = "linux")]
pub mod definition;
#[cfg(target_os = "linux")]
pub mod device;
#[cfg(target_os = "linux")]
pub mod events;
#[cfg(target_os = "linux")]
mod feature;
#[cfg(target_os = "linux")]
pub mod keys;
#[cfg(target_os = "linux")]
pub mod manager;
#[cfg(target_os = "linux")]
pub mod notices;
#[cfg(target_os = "linux")]
pub mod observe;
#[cfg(target_os = "linux")]
pub mod path;
#[cfg(target_os = "linux")]
pub mod paths;
#[cfg(target_os = "linux")]
pub mod port;
#[cfg(target_os = "linux")]
mod readers;
#[cfg(target_os = "linux")]
pub mod recorder;
#[cfg(target_os = "linux")]
pub mod refusal;
#[cfg(target_os = "linux")]
pub mod restarts;
#[cfg(target_os = "linux")]
mod routes;
#[cfg(target_os = "linux")]
pub mod stages;
pub mod tunnel;
#[cfg(target_os = "linux")]
pub mod tunnel_end;
#[cfg(target_os = "linux")]
pub mod xfrm;

#[cfg(target_os = "linux")]
use grosso_analysis::profile;
#[cfg(target_os = "linux")]
use grosso_report::{console as talk, name, needs, report, schema as form, style};
use grosso_report::{diagnostic as wrong, error};

/// Example from `README.md`, compiled and run as a test.
#[cfg(all(doctest, target_os = "linux"))]
#[doc = include_str!("../README.md")]
struct Readme;
