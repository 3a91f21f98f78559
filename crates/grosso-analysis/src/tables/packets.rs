//! Rows of the packet table. A row is a captured frame, or one of the wire packets that the frame stands for.

use super::{FileNames, FrameOrigin, Headers};

/// A packet of a capture.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Packet number in the capture, from 1.
    pub number: u64,
    /// Nanoseconds since the Unix epoch; `None` if the format records no time.
    pub time_ns: Option<u64>,
    /// Interface number within the section.
    pub interface: u32,
    /// Length on the link in bytes.
    pub length: u32,
    /// Captured bytes.
    pub data: &'a [u8],
    /// Headers of the packet.
    pub headers: Headers<'a>,
    /// Segment size in bytes. For a captured superframe, the recorded size; for a packet that was split from a
    /// superframe, the size that the classifier determined.
    pub segment_size: Option<u16>,
    /// Number of packets in the superframe.
    pub packets: Option<u32>,
    /// Position of the frame in its file.
    pub origin: FrameOrigin<'a>,
    /// Findings about the frame; empty except for packets on the wire.
    pub finding: FrameFinding,
}

/// Findings about the frame in which a packet was captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameFinding {
    /// Position of the packet in its superframe, from 1.
    pub segment: Option<u32>,
    /// Verdict on the frame's worst checksum; `None` if the frame has no checksum.
    pub checksum: Option<&'static str>,
    /// Evidence for the classification as a packet or for the segment size; `None` if there was nothing to decide.
    pub evidence: Option<&'static str>,
    /// Whether the evidence also allows another answer.
    pub is_guess: bool,
    /// Reason why a frame that is not one packet on the wire was not split.
    pub left: Option<&'static str>,
    /// Name of the [`SequenceEvent`](crate::slowdown::SequenceEvent) of a frame with TCP data; `None` if its data is
    /// the next of its direction.
    pub event: Option<&'static str>,
}

/// Returns the row for a frame that is one packet.
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
