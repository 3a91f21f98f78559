//! Encoder and decoder for the frames of a connection whose sender is in userspace.

use std::net::Ipv4Addr;

use grosso_checksum::{Sum, pseudo_v4};
use grosso_wire::{
    Malformed,
    ethernet::{ETHERTYPE_IPV4, EthernetHeader},
    ipv4::{self, Ipv4Header},
    tcp::{self, TcpHeader, TcpOption},
};

/// The two endpoints of the connection; the sender comes first.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionEnds {
    /// Ethernet addresses.
    pub hardware: [[u8; 6]; 2],
    /// IPv4 addresses.
    pub addresses: [Ipv4Addr; 2],
    /// TCP ports.
    pub ports: [u16; 2],
}

/// The fields of a segment that is sent to the receiver.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentFields {
    pub(super) flags: u16,
    pub(super) sequence: u32,
    pub(super) acknowledgment: u32,
    /// The sender's timestamp, and the timestamp from the receiver that it echoes.
    pub(super) timestamps: [u32; 2],
    pub(super) identification: u16,
}

/// The fields that the sender reads from a segment of the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentReply {
    pub(super) flags: u16,
    pub(super) sequence: u32,
    pub(super) acknowledgment: u32,
    /// The window, unscaled.
    pub(super) window: u16,
    /// Window scale for later segments, which only the answer to SYN contains.
    pub(super) scale: Option<u8>,
    /// The receiver's timestamp.
    pub(super) clock: Option<u32>,
}

impl ConnectionEnds {
    /// Writes the headers of a frame. The TCP checksum remains to be completed with the payload.
    ///
    /// # Errors
    ///
    /// Fails if the buffer is too short for the headers.
    pub(super) fn write_headers(
        &self,
        fields: &SegmentFields,
        payload_bytes: usize,
        frame: &mut [u8],
    ) -> Result<(), Malformed> {
        let mut options = [0; SYN_OPTIONS_BYTES];
        let options = write_options(fields, &mut options);
        let tcp_bytes = tcp::HEADER_LEN + options.len() + payload_bytes;
        let [source, destination] = self.addresses.map(|address| address.octets());
        let mut ip = Ipv4Header {
            total_length: ((ipv4::HEADER_LEN + tcp_bytes) as u16).into(),
            identification: fields.identification.into(),
            protocol: ipv4::PROTOCOL_TCP,
            source,
            destination,
            ..Ipv4Header::default()
        };
        ip.set_dont_fragment(true);
        let pseudo = pseudo_v4(source, destination, ipv4::PROTOCOL_TCP, tcp_bytes as u32);
        let mut tcp = TcpHeader {
            source_port: self.ports[0].into(),
            destination_port: self.ports[1].into(),
            sequence: fields.sequence.into(),
            acknowledgment: fields.acknowledgment.into(),
            window: WINDOW.into(),
            checksum: pseudo.fold().into(),
            ..TcpHeader::default()
        };
        tcp.set_flags(fields.flags);
        let [source, destination] = self.hardware;
        let ethernet = EthernetHeader { destination, source, ethertype: ETHERTYPE_IPV4.into() };
        let at = ethernet.emit(frame)?;
        let mut header = [0; ipv4::HEADER_LEN];
        ip.emit(&[], &mut header)?;
        ip.checksum = (!Sum::of(&header).fold()).into();
        tcp.emit(options, ip.emit(&[], at)?).map(|_| ())
    }

    /// Parses a frame; returns `None` if it is not a segment that the peer sent on this connection.
    pub(super) fn read(&self, frame: &[u8]) -> Option<SegmentReply> {
        let (ethernet, packet) = EthernetHeader::parse(frame).ok()?;
        if ethernet.ethertype.get() != ETHERTYPE_IPV4 {
            return None;
        }
        let (ip, _, segment) = Ipv4Header::parse(packet).ok()?;
        let (tcp, options, _) = TcpHeader::parse(segment).ok()?;
        let ports = [tcp.destination_port.get(), tcp.source_port.get()];
        if ip.protocol != ipv4::PROTOCOL_TCP || ports != self.ports {
            return None;
        }
        let mut reply = SegmentReply {
            flags: tcp.flags(),
            sequence: tcp.sequence.get(),
            acknowledgment: tcp.acknowledgment.get(),
            window: tcp.window.get(),
            scale: None,
            clock: None,
        };
        for option in options.flatten() {
            match option {
                TcpOption::WindowScale(bits) => reply.scale = Some(bits),
                TcpOption::Timestamps { value, .. } => reply.clock = Some(value),
                _ => {}
            }
        }
        Some(reply)
    }
}

/// Returns the total size of the headers of a segment with these flags.
pub(super) const fn headers_bytes(flags: u16) -> usize {
    let options = if flags & tcp::SYN == 0 { OPTIONS_BYTES } else { SYN_OPTIONS_BYTES };
    TCP_START + tcp::HEADER_LEN + options
}

/// Writes the timestamp option. In a segment of the handshake, the handshake options come first.
fn write_options<'a>(fields: &SegmentFields, options: &'a mut [u8; SYN_OPTIONS_BYTES]) -> &'a [u8] {
    let [value, echo] = fields.timestamps.map(u32::to_be_bytes);
    let timestamps = |to: &mut [u8]| {
        to[..4].copy_from_slice(&[tcp::OPTION_NOP, tcp::OPTION_NOP, tcp::OPTION_TIMESTAMPS, 10]);
        to[4..8].copy_from_slice(&value);
        to[8..].copy_from_slice(&echo);
    };
    if fields.flags & tcp::SYN == 0 {
        timestamps(&mut options[..OPTIONS_BYTES]);
        return &options[..OPTIONS_BYTES];
    }
    let [high, low] = SEGMENT_SIZE_MAX.to_be_bytes();
    // The sender does not scale its own window, but only with this option may the peer scale its window (RFC 7323
    // section 2.2).
    options[..8].copy_from_slice(&[
        tcp::OPTION_MSS,
        4,
        high,
        low,
        tcp::OPTION_NOP,
        tcp::OPTION_WINDOW_SCALE,
        3,
        0,
    ]);
    timestamps(&mut options[8..]);
    options
}

/// Number of payload bytes in a full segment: an MTU of 1500 minus the IP and TCP headers.
pub(super) const PAYLOAD_BYTES: u32 = 1500 - 20 - 20 - OPTIONS_BYTES as u32;
/// Offset of the TCP header in a frame.
pub(super) const TCP_START: usize = 14 + ipv4::HEADER_LEN;
/// Offset of the checksum field in the TCP header.
pub(super) const CHECKSUM_OFFSET: u16 = 16;
/// Length of the options in every segment except the SYN.
const OPTIONS_BYTES: usize = 12;
/// Length of the options in SYN.
const SYN_OPTIONS_BYTES: usize = 20;
/// Maximum segment size that the sender announces, although no data arrives.
const SEGMENT_SIZE_MAX: u16 = 1460;
/// Window that the sender announces, although no data arrives.
const WINDOW: u16 = u16::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    const ENDS: ConnectionEnds = ConnectionEnds {
        hardware: [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]],
        addresses: [Ipv4Addr::new(10, 93, 0, 1), Ipv4Addr::new(10, 93, 0, 2)],
        ports: [40_000, 5001],
    };

    #[test]
    fn frames_are_read_from_the_other_end_alone() {
        let fields = SegmentFields {
            flags: tcp::SYN,
            sequence: 7,
            acknowledgment: 9,
            timestamps: [3, 4],
            identification: 1,
        };
        let mut frame = vec![0; headers_bytes(tcp::SYN)];
        ENDS.write_headers(&fields, 0, &mut frame).unwrap();
        assert_eq!(ENDS.read(&frame), None, "its own");
        let [near, far] = ENDS.ports;
        let other = ConnectionEnds { ports: [far, near], ..ENDS };
        let (scale, clock) = (Some(0), Some(3));
        let expected = SegmentReply {
            flags: tcp::SYN,
            sequence: 7,
            acknowledgment: 9,
            window: WINDOW,
            scale,
            clock,
        };
        assert_eq!(other.read(&frame), Some(expected));
        frame[12] = 0x86;
        assert_eq!(other.read(&frame), None, "no IPv4");
    }
}
