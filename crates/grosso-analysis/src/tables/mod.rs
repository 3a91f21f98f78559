//! Capture contents as table rows: captured frames, wire packets, and trains.
//!
//! | module | contents |
//! |---|---|
//! | `packets` | rows for captured frames, or for packets on the wire |
//! | `wire` | conversion of frames to packets on the wire (feature `tables`) |
//! | `trains` | rows for the trains that a coalescer delivers |
//! | `reading` | reading of captures as rows of frames or of trains |
//! | `columns`, `flow_columns`, `batches` | conversion of rows to Arrow record batches (feature `tables`) |

#[cfg(feature = "tables")]
mod batches;
#[cfg(feature = "tables")]
mod columns;
#[cfg(feature = "tables")]
mod flow_columns;
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
    flow_columns::FlowColumns,
};
pub use self::{
    packets::{FrameFinding, Packet},
    reading::{Visit, visit_packets, visit_trains},
    trains::TrainRow,
};
#[cfg(feature = "tables")]
use crate::shard::Shard;
use crate::{capture::Input, evidence::Nature, replay::Seen};

/// Packet headers as shown in tables: innermost addresses, ports and payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headers<'a> {
    /// Header stack as it appears in reports, for example `tcp4` or `udp4/vxlan/tcp4`; `None` if the link type is not
    /// supported.
    pub protocol: Option<&'a str>,
    /// Source and destination addresses.
    pub addresses: Option<(IpAddr, IpAddr)>,
    /// TCP or UDP source and destination ports.
    pub ports: Option<(u16, u16)>,
    /// Length of the TCP or UDP payload in bytes, as declared by the headers.
    pub payload: Option<u32>,
}

#[cfg(feature = "tables")]
impl Headers<'_> {
    /// Returns whether rows with these headers belong to `shard`.
    pub(crate) fn are_in(&self, shard: Shard) -> bool {
        shard.has(self.addresses, self.ports)
    }
}

/// Position of a frame in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameOrigin<'a> {
    /// File name as the user typed it.
    pub file: &'a str,
    /// Frame number in the file, starting at 1. Packets excluded by a filter are counted too.
    pub frame: u64,
    /// Offset of the frame's record or block in the uncompressed file, in bytes.
    pub offset: u64,
}

/// Returns the number of wire packets that a frame stands for, and the segment size if it is a superframe. An unknown
/// number of packets counts as 1.
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

/// Names of the input files.
pub(crate) struct FileNames(Vec<String>);

impl FileNames {
    pub(crate) fn of(input: &Input) -> Self {
        Self(input.paths().map(|path| path.display().to_string()).collect())
    }

    /// Returns the origin of a frame in the form needed by rows.
    pub(crate) fn origin(&self, place: Place) -> FrameOrigin<'_> {
        let file = self.0.get(place.file as usize).map_or("", String::as_str);
        FrameOrigin { file, frame: place.number, offset: place.offset }
    }
}
