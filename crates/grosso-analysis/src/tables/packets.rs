//! The rows about packets: frames as a capture has them, or the packets of the wire that these were.

use super::{FileNames, FrameOrigin, Headers};

/// A packet of a capture.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Its place in the capture, counted from 1.
    pub number: u64,
    /// Nanoseconds since the epoch, if the format holds a time.
    pub time_ns: Option<u64>,
    /// The number of its interface within its section.
    pub interface: u32,
    /// Its length on the link.
    pub length: u32,
    /// The bytes captured.
    pub data: &'a [u8],
    /// Its headers.
    pub headers: Headers<'a>,
    /// The segment size of the superframe that it is, as the capture recorded it, or that it was in, as it was judged.
    pub segment_size: Option<u16>,
    /// Packets of the wire in that superframe.
    pub packets: Option<u32>,
    /// The place of its frame in the file that it comes from.
    pub origin: FrameOrigin<'a>,
    /// The findings about its frame; none but for packets of the wire.
    pub finding: FrameFinding,
}

/// The findings about the frame that a packet of the wire was captured in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameFinding {
    /// The place of the packet in its superframe, counted from 1.
    pub segment: Option<u32>,
    /// The verdict on the worst checksum of the frame, if it has any.
    pub checksum: Option<&'static str>,
    /// The evidence that decided that the frame is a packet, or the segment size; none where nothing was to be decided.
    pub evidence: Option<&'static str>,
    /// Whether the evidence leaves room for another answer.
    pub is_guess: bool,
    /// The reason why the frame is no packet of the wire and stays whole all the same.
    pub left: Option<&'static str>,
}

/// The row of a frame that is one packet.
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
