//! Data paths on live devices, as `bridge` and `run` have them.
//!
//! | module | job |
//! |---|---|
//! | `port` | one end of a path: the words that name it, and how it works |
//! | `config` | paths from a file |
//! | `stages` | what a port does to its own packets: fragments and ESP |
//! | `keys` | keys of ESP, from a file or a descriptor |
//! | `tunnel` | the end of a path that is a tunnel |
//! | `path` | a path that runs |
//! | `refusal` | why a device cannot be opened, and what to do about it |
//! | `paths` | all paths of the process, and what they did |
//! | `events` | what a process is told while its paths run |
//! | `manager` | what a service manager is told |

pub(crate) mod config;
pub(crate) mod events;
mod keys;
pub(crate) mod manager;
pub(crate) mod path;
pub(crate) mod paths;
pub(crate) mod port;
mod refusal;
pub(crate) mod stages;
pub(crate) mod tunnel;
