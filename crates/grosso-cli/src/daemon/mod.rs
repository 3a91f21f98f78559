//! Data paths on live devices, as used by `bridge` and `run`.
//!
//! | module | job |
//! |---|---|
//! | `port` | one end of a path: its name and its options |
//! | `config` | paths from a file |
//! | `feature` | features by the names that users know |
//! | `definition` | a tunnel with its device, from the file of its path |
//! | `stages` | the stages of a port: fragments and ESP |
//! | `keys` | keys of ESP, from a file or a descriptor |
//! | `readers` | the users who can read or write a file of keys |
//! | `claim` | a host's programs see that another one uses a key |
//! | `tunnel` | the end of a path that is a tunnel |
//! | `notices` | notices from the threads of a path |
//! | `routes` | routes of tunnels that lead back into them |
//! | `unix` | the end of a path that is a Unix socket |
//! | `vhost` | the end of a path that is the device of a virtual machine |
//! | `path` | a path that runs |
//! | `recorder` | the helper process that writes the files of sequence numbers |
//! | `refusal` | the reason why a device cannot be opened, and the remedy |
//! | `paths` | all paths of the process, and their counters |
//! | `restarts` | paths that met a defect, and whether they are started again |
//! | `events` | the events of a process while its paths run |
//! | `xfrm` | security associations in the words of `ip xfrm state` |
//! | `manager` | messages to a service manager |

mod claim;
pub(crate) mod config;
pub(crate) mod definition;
pub(crate) mod events;
mod feature;
pub(crate) mod keys;
pub(crate) mod manager;
pub(crate) mod notices;
pub(crate) mod path;
pub(crate) mod paths;
pub(crate) mod port;
mod readers;
pub(crate) mod recorder;
pub(crate) mod refusal;
pub(crate) mod restarts;
mod routes;
pub(crate) mod stages;
pub(crate) mod tunnel;
pub(crate) mod unix;
pub(crate) mod vhost;
pub(crate) mod xfrm;
