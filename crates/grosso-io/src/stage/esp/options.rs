//! Options of the ESP stage.

use core::fmt;
use std::{fs::File, sync::Arc};

use grosso::tunnel::esp::SecurityAssociation;
use grosso_wire::Ports;

use super::super::SequenceRecorder;
use crate::notice::Notice;

/// Treatment of frames that are not encrypted. The variants are named as in `ip xfrm policy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// Unencrypted frames are not received, and frames that cannot be encrypted are not sent.
    #[default]
    Required,
    /// Unencrypted frames are received too, and frames without an IP packet pass in both directions. An IP packet that
    /// cannot be encrypted is still dropped.
    Use,
}

/// Options of an ESP stage.
#[derive(Debug)]
#[non_exhaustive]
pub struct EspOptions {
    /// Association for transmitted packets.
    pub outbound: SecurityAssociation,
    /// Association for received packets.
    pub inbound: SecurityAssociation,
    /// Recorder of the sequence numbers. With `None`, the numbers start from the beginning, so use this only for keys
    /// that no other stage has used or will use.
    pub sequences: Option<SequenceRecorder>,
    /// Treatment of unencrypted frames.
    pub level: Level,
    /// UDP ports that identify tunnels inside encrypted packets.
    pub ports: Ports,
    /// Random number, chosen anew at each start, which is combined with the sequence numbers to form initialization
    /// vectors; see [`Encryptor::new`](grosso::tunnel::esp::Encryptor::new).
    pub vector_salt: u64,
    /// Lock files that stay open as long as the keys are used.
    pub claims: Vec<File>,
    /// Callback that is called for the first packet that this stage encrypted and that comes back to be encrypted
    /// again.
    pub loop_notice: Option<Notice>,
    /// Callback that is called when few sequence numbers are left, and when none are left.
    pub scarcity: Option<ScarcityNotice>,
}

/// Degree to which an association has used up its sequence numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scarcity {
    /// At least 90 % of the numbers are used.
    Scarce,
    /// All sequence numbers have been used, so nothing more can be sent with these keys.
    Exhausted,
}

/// Callback for scarce sequence numbers, called at most once per state. It must not block.
#[derive(Clone)]
pub struct ScarcityNotice(pub Arc<dyn Fn(Scarcity) + Send + Sync>);

impl fmt::Debug for ScarcityNotice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ScarcityNotice")
    }
}

impl EspOptions {
    /// Creates options for associations with new keys. Unencrypted frames are not received.
    #[must_use]
    pub const fn new(
        outbound: SecurityAssociation,
        inbound: SecurityAssociation,
        vector_salt: u64,
    ) -> Self {
        Self {
            outbound,
            inbound,
            sequences: None,
            level: Level::Required,
            ports: Ports::ASSIGNED,
            vector_salt,
            claims: Vec::new(),
            scarcity: None,
            loop_notice: None,
        }
    }
}
