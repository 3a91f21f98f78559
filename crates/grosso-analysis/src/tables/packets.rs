//! Rows of the packet table. A row is either a captured frame, or one of the wire packets that the frame stands for.

use super::{FileNames, FrameOrigin, Headers};

/// Packet in a capture.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Packet number in the capture, starting at 1.
    pub number: u64,
    /// Timestamp in nanoseconds since the Unix epoch; `None` if the format records none.
    pub time_ns: Option<u64>,
    /// Interface number within the section.
    pub interface: u32,
    /// Length on the link in bytes.
    pub length: u32,
    /// Captured bytes.
    pub data: &'a [u8],
    /// Headers of the packet.
    pub headers: Headers<'a>,
    /// Segment size in bytes. For a captured superframe, this is the recorded size. For a packet split from a
    /// superframe, it is the size that the classifier determined.
    pub segment_size: Option<u16>,
    /// Number of packets in the superframe.
    pub packets: Option<u32>,
    /// Position of the frame in its file.
    pub origin: FrameOrigin<'a>,
    /// Findings about the frame. Empty unless the row is a wire packet.
    pub finding: FrameFinding,
}

/// Findings about the frame in which a packet was captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameFinding {
    /// Position of the packet in its superframe, starting at 1.
    pub segment: Option<u32>,
    /// Worst verdict on any checksum in the frame; `None` if the frame has no checksum.
    pub checksum: Option<&'static str>,
    /// Evidence that the frame is a single packet, or for its segment size; `None` if there was nothing to decide.
    pub evidence: Option<&'static str>,
    /// Whether the evidence also allows a different answer.
    pub is_guess: bool,
    /// Reason why the frame was not split into wire packets; `None` if it was split or is a single packet.
    pub left: Option<&'static str>,
    /// Name of the [`SequenceEvent`](crate::slowdown::SequenceEvent) of a frame with TCP data; `None` if its data is
    /// the next of its direction.
    pub event: Option<&'static str>,
}

/// Returns the row for a frame that is a single packet.
pub(crate) fn row<'a>(
    packet: &grosso_capture::Packet<'a>,
    headers: Headers<'a>,
    finding: FrameFinding,
    files: &'a FileNames,
) -> Packet<'a> {
    Packet {
        number: packet.number,
        time_ns: packet.timestamp_ns,
        interface: packet.interface,
        length: packet.original_len,
        data: packet.data,
        headers,
        segment_size: None,
        packets: None,
        origin: files.origin(packet.origin),
        finding,
    }
}
