//! Classification of captured frames. A frame is a wire packet, a superframe with segments of N bytes, or undecided.
//!
//! A capture taken on a host shows frames that were never on a wire. All commands use [`Judge`] to classify them.
//! Stronger evidence overrides weaker evidence, in the order of [`Evidence`]. `docs/evidence.md` describes what each
//! kind of evidence decides and where it fails.
//!
//! | module | contents |
//! |---|---|
//! | `sight` | a parsed frame, and the state of its transport checksum |
//! | `judgment` | the verdict on one frame |
//! | `judge` | the strongest evidence about a frame |
//! | `tcp` | the segment size of one TCP frame |
//! | `flows` | properties of every flow and path, learned before or while a capture is classified |
//! | `identifications` | the number of packets in a frame, from the steps between IPv4 IDs |
//! | `counters` | the IPv4 IDs that each source address has used, in all flows and protocols |
//! | `lengths` | segment sizes that divide the lengths of the frames of a flow |
//! | `announced` | the MSS of SYNs, and ICMP messages about packets that were too big |
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
    judgment::{Contradiction, Judgment, Nature, Segments},
    sight::{Seal, Sight},
    tally::Tally,
    vantage::{Side, Vantages, said as side_said},
};
use crate::error::Failure;

/// Reason to consider a frame a wire packet or a superframe, strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema)]
#[schemars(rename_all = "snake_case")]
pub enum Evidence {
    /// The user's configuration.
    Given,
    /// The metadata in the capture.
    Recorded,
    /// The transport checksum is complete. If Linux had created a superframe, the field would contain the pseudo-header
    /// sum (rule G51).
    Checksum,
    /// The checksum is valid for the frame's first packet only, as after fraglist GRO.
    Prefix,
    /// The steps between IPv4 IDs show the number of packets.
    IpId,
    /// Tunnel headers repeat inside the frame, or the length fields are those of one segment (rule S47).
    Stride,
    /// An ICMP message reported the path MTU.
    Icmp,
    /// Other frames in the same direction were wire packets, or superframes whose lengths are multiples of this size.
    PlainSegments,
    /// A SYN announced the size.
    Syn,
    /// An MTU of 1500, or the link's MTU according to SYNs and the user. This is a guess.
    Mtu,
}

impl Evidence {
    /// Returns the name in JSON and in tables.
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

    /// Returns the name in text reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Given => "as configured",
            Self::Recorded => "recorded",
            Self::Checksum => "complete checksum",
            Self::Prefix => "checksum of the first packet",
            Self::IpId => "from IP IDs",
            Self::Stride => "headers repeat",
            Self::Icmp => "from ICMP too-big",
            Self::PlainSegments => "from other segments",
            Self::Syn => "from SYN",
            Self::Mtu => "guessed from the MTU",
        }
    }

    /// Returns the name in a form that can be the subject of a sentence.
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Given => "the command line",
            Self::Recorded => "the capture's metadata",
            Self::Checksum => "a complete checksum",
            Self::Prefix => "the checksum of the first packet",
            Self::IpId => "the IPv4 identification",
            Self::Stride => "repeated headers",
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

/// Segment size, and the evidence for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size {
    /// Number of payload bytes in each packet except the last.
    pub bytes: u16,
    /// The evidence.
    pub by: Evidence,
    /// Whether the evidence also allows a different size. `--strict` does not accept such a guess.
    pub is_guess: bool,
}

/// Facts about the wire that the user configured. They outweigh any evidence in a capture.
#[derive(Clone, Copy, Debug, Default)]
pub struct Given {
    /// Maximum number of payload bytes in a TCP segment.
    pub mss: Option<u16>,
    /// MTU of the link.
    pub mtu: Option<u16>,
    /// Number of payload bytes in each UDP datagram of a superframe.
    pub uso_size: Option<u16>,
    /// UDP ports that identify tunnels.
    pub ports: grosso_wire::Ports,
}

impl Given {
    /// Returns the facts if they are consistent with each other.
    ///
    /// # Errors
    /// Fails if a segment size does not fit into the MTU.
    pub fn checked(self) -> Result<Self, Failure> {
        let payloads =
            [("--mss", self.mss, TCP_BYTES_MIN), ("--uso-size", self.uso_size, UDP_BYTES_MIN)];
        for (option, size, headers) in payloads {
            let (Some(size), Some(mtu)) = (size, self.mtu) else { continue };
            if usize::from(size) + headers > mtu.into() {
                let message = format!(
                    "{option} {size} does not fit into --mtu {mtu}: with headers, the packet is at least {} \
                     bytes long",
                    usize::from(size) + headers
                );
                let hint = format!(
                    "omit --mtu, or pass {option} with at most {}",
                    usize::from(mtu).saturating_sub(headers)
                );
                return Err(Failure::usage("usage.contradiction", message).hint(hint));
            }
        }
        Ok(self)
    }
}

/// Combined length of the shortest IPv4 and TCP headers.
const TCP_BYTES_MIN: usize = 40;
/// Combined length of the shortest IPv4 header and a UDP header.
const UDP_BYTES_MIN: usize = 28;
/// Ethernet MTU.
const MTU_DEFAULT: usize = 1500;
/// Largest MTU in common use.
const MTU_JUMBO: usize = 9216;
/// Smallest MSS that Linux announces (`route/min_adv_mss`, 256) minus 40 bytes of options. A frame of at most this
/// length says nothing about its flow's segment size.
const SEGMENT_BYTES_MIN: usize = 216;
