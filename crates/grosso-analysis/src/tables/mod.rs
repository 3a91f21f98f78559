//! Tables of what is in captures, row by row: frames as they were captured, packets of the wire, and trains.
//!
//! | module | what it has |
//! |---|---|
//! | `packets` | a row for a frame as it was captured, or for a packet of the wire |
//! | `wire` | the packets of the wire that a frame was (feature `tables`) |
//! | `trains` | a row for what leaves a coalescer at once |
//! | `reading` | the reading of captures into rows of frames or of trains |
//! | `columns`, `batches` | rows in, Arrow record batches out (feature `tables`) |

#[cfg(feature = "tables")]
mod batches;
#[cfg(feature = "tables")]
mod columns;
mod packets;
mod reading;
mod stack_names;
mod trains;
#[cfg(feature = "tables")]
mod wire;

use core::net::IpAddr;

use grosso_capture::Origin as Place;
use grosso_wire::dissect;

pub(crate) use self::stack_names::StackNames;
#[cfg(feature = "tables")]
pub(crate) use self::trains::TrainWatcher;
#[cfg(feature = "tables")]
pub(crate) use self::wire::WireRows;
#[cfg(feature = "tables")]
pub use self::{
    batches::Batches,
    columns::{Columns, PacketColumns, PacketTable, Take, TrainColumns},
};
pub use self::{
    packets::{FrameFinding, Packet},
    reading::{Visit, visit_packets, visit_trains},
    trains::TrainRow,
};
#[cfg(feature = "tables")]
use crate::shard::Shard;
use crate::{capture::Input, evidence::Nature, replay::Seen};

/// The headers of a packet, as far as tables show them: innermost addresses, ports and payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headers<'a> {
    /// The stack in the words of reports, such as `tcp4` or `udp4/vxlan/tcp4`; `None` if the link type has no view.
    pub protocol: Option<&'a str>,
    /// Source and destination.
    pub addresses: Option<(IpAddr, IpAddr)>,
    /// Source and destination port of TCP or UDP.
    pub ports: Option<(u16, u16)>,
    /// Bytes behind the TCP or UDP header, as the headers declare them.
    pub payload: Option<u32>,
}

#[cfg(feature = "tables")]
impl Headers<'_> {
    /// Whether rows with these headers are in a share.
    pub(crate) fn are_in(&self, shard: Shard) -> bool {
        shard.has(self.addresses, self.ports)
    }
}

/// The place of a frame in the file that it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameOrigin<'a> {
    /// The file as the user typed it.
    pub file: &'a str,
    /// Its place there, counted from 1; packets that a filter left out count.
    pub frame: u64,
    /// Offset of its record or block, in bytes of the uncompressed file.
    pub offset: u64,
}

/// The number of packets of the wire that a frame was, as far as that is known, and the size of those of a superframe.
fn packets_of(seen: &Seen<'_>) -> (u32, Option<u16>) {
    let (Some(link), Some(judgment)) = (seen.link, seen.judgment) else { return (1, None) };
    let Nature::Superframe { ports, size, .. } = judgment.nature else { return (1, None) };
    let parts = seen.packet.meta().offload.map_or(0, |offload| offload.parts.len());
    if parts > 0 {
        return (parts as u32, Some(size.bytes));
    }
    let headers = dissect(&seen.data, link, &ports).header_len();
    let payload = seen.data.len().saturating_sub(headers);
    (judgment.packets(payload).max(1) as u32, Some(size.bytes))
}

/// The names of the files that are read.
pub(crate) struct FileNames(Vec<String>);

impl FileNames {
    pub(crate) fn of(input: &Input) -> Self {
        Self(input.paths().map(|path| path.display().to_string()).collect())
    }

    /// The origin of a frame in the form that rows have.
    pub(crate) fn origin(&self, place: Place) -> FrameOrigin<'_> {
        let file = self.0.get(place.file as usize).map_or("", String::as_str);
        FrameOrigin { file, frame: place.number, offset: place.offset }
    }
}
