//! The judgment whether a frame of a capture is a packet of the wire, a superframe with segments of N bytes, or
//! undecided, and by what evidence.
//!
//! A capture of a host shows packets that no wire ever carried. [`Judge`] is the one place that tells them apart, for
//! every command. Evidence has an order of strength, and strong evidence vetoes weak: [`Evidence`] is that order, and
//! `docs/evidence.md` says what each kind decides and what it cannot see.
//!
//! | module | what it knows |
//! |---|---|
//! | `sight` | a frame, parsed, and the state of its transport checksum |
//! | `judgment` | the verdict on one frame |
//! | `judge` | the strongest evidence about a frame |
//! | `tcp` | the segment size of one TCP frame |
//! | `flows` | the facts of every flow and path, learned from a capture before or while it is judged |
//! | `identifications` | the number of packets that a frame stood for, by the steps of the IPv4 identification |
//! | `counters` | the identifications that each source address has used, over all flows and protocols |
//! | `lengths` | segment sizes that divide the lengths of the frames of a flow |
//! | `announced` | the MSS of SYNs, and ICMP messages that say a packet was too big |
//! | `strides` | tunnel headers that repeat inside one UDP frame |
//! | `tally` | the counts of guesses and of contradictions |
//! | `vantage` | the host on which a capture was taken |

mod announced;
mod counters;
mod flows;
mod identifications;
mod judge;
mod judgment;
mod lengths;
mod sight;
mod strides;
mod tally;
mod tcp;
mod vantage;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

pub(crate) use self::announced::{Path, too_big};
pub use self::{
    flows::Flows,
    judge::{CAPTURED_SHORT, Finish, Judge, UDP_SIZE_UNKNOWN, around},
    judgment::{Contradiction, Judgment, Nature},
    sight::{Seal, Sight},
    tally::Tally,
    vantage::{Side, Vantages, said as side_said},
};

/// A reason to take a frame for a packet of the wire or for a superframe, strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema)]
#[schemars(rename_all = "snake_case")]
pub enum Evidence {
    /// The user says it.
    Given,
    /// The capture recorded it.
    Recorded,
    /// The transport checksum is complete: superframes of Linux hold the sum of the pseudo-header (rule G51).
    Checksum,
    /// The checksum is that of the first packet: fraglist GRO keeps it.
    Prefix,
    /// The steps of the IPv4 identification count the packets.
    IpId,
    /// Headers repeat: those of a tunnel inside the frame, or lengths that are those of one segment (rule S47).
    Stride,
    /// An ICMP message says the MTU of the path.
    Icmp,
    /// Other packets of the same direction were packets of the wire, or superframes are multiples of this size.
    PlainSegments,
    /// The SYNs announced it.
    Syn,
    /// An MTU of 1500, or what SYNs and the user say of the link: a guess.
    Mtu,
}

impl Evidence {
    /// The name in JSON and in tables.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Given => "given",
            Self::Recorded => "recorded",
            Self::Checksum => "checksum",
            Self::Prefix => "prefix",
            Self::IpId => "ip_id",
            Self::Stride => "stride",
            Self::Icmp => "icmp",
            Self::PlainSegments => "plain_segments",
            Self::Syn => "syn",
            Self::Mtu => "mtu",
        }
    }

    /// The words that people read.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Given => "as configured",
            Self::Recorded => "recorded",
            Self::Checksum => "complete checksum",
            Self::Prefix => "checksum of the first packet",
            Self::IpId => "from IP-ID steps",
            Self::Stride => "headers repeat",
            Self::Icmp => "from ICMP too-big",
            Self::PlainSegments => "from other segments",
            Self::Syn => "from SYN",
            Self::Mtu => "guessed from the MTU",
        }
    }

    /// The same words as the subject of a sentence.
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Given => "the command line",
            Self::Recorded => "what the capture recorded",
            Self::Checksum => "a complete checksum",
            Self::Prefix => "the checksum of the first packet",
            Self::IpId => "the steps of the IPv4 identification",
            Self::Stride => "headers that repeat",
            Self::Icmp => "an ICMP message with the path MTU",
            Self::PlainSegments => "the other packets of the flow",
            Self::Syn => "the MSS of the SYNs",
            Self::Mtu => "the MTU",
        }
    }
}

impl Serialize for Evidence {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.code())
    }
}

/// A segment size, and the evidence for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size {
    /// Payload bytes of each packet except the last.
    pub bytes: u16,
    /// The evidence.
    pub by: Evidence,
    /// Whether the evidence leaves room for another size, which `--strict` does not accept.
    pub is_guess: bool,
}

/// Knowledge that the user has about the wire, which counts more than what a capture shows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Given {
    /// Payload bytes of TCP segments.
    pub mss: Option<u16>,
    /// The MTU of the link.
    pub mtu: Option<u16>,
    /// Payload bytes of UDP datagrams.
    pub uso_size: Option<u16>,
    /// The UDP ports that mean a tunnel.
    pub ports: grosso_wire::Ports,
}

/// The MTU of Ethernet.
const MTU_DEFAULT: usize = 1500;
/// The largest MTU in common use.
const MTU_JUMBO: usize = 9216;
/// The smallest MSS that Linux announces (`route/min_adv_mss`, 256) less 40 bytes of options: a frame of at most this
/// length does not show the segment size of its flow.
const SEGMENT_BYTES_MIN: usize = 216;
