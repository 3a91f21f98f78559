//! IP fragments for tests, and a wrapper that runs the reassembler on them.

mod oracle;
mod rig;

pub use oracle::{Fate, Oracle};
pub use rig::{Rig, Whole};

use grosso_testkit::{Packet, random::Random};

/// The part of a datagram's data that one fragment carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Offset of the first byte in the data; a multiple of 8.
    pub offset: u32,
    /// Whether more fragments follow.
    pub more: bool,
    /// The bytes of the piece.
    pub data: Vec<u8>,
}

impl Piece {
    /// Returns the part of a datagram's data between two offsets.
    pub fn of(data: &[u8], start: usize, end: usize) -> Self {
        Self { offset: start as u32, more: end < data.len(), data: data[start..end].to_vec() }
    }

    /// Returns the offset of the end of the piece in the data.
    pub fn end(&self) -> u32 {
        self.offset + self.data.len() as u32
    }
}

/// Splits data into pieces of `size` bytes, which must be a multiple of 8.
pub fn cut(data: &[u8], size: usize) -> Vec<Piece> {
    let starts = (0..data.len()).step_by(size);
    starts.map(|start| Piece::of(data, start, data.len().min(start + size))).collect()
}

/// An IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Version {
    /// Both versions.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// Returns a frame that carries a piece of a UDP datagram.
    pub fn frame(self, id: u32, piece: &Piece) -> Vec<u8> {
        self.behind(Packet::new().ethernet(|e| e), id, piece)
    }

    /// Returns a frame that carries a piece of a UDP datagram after the given headers.
    pub fn behind(self, packet: Packet, id: u32, piece: &Piece) -> Vec<u8> {
        let Piece { offset, more, ref data } = *piece;
        let units = (offset / 8) as u16;
        let packet = match self {
            Self::V4 => packet.ipv4(|ip| {
                let ip = ip.id(id as u16).df(false).protocol(17);
                ip.fragment_offset(units).more_fragments(more)
            }),
            Self::V6 => {
                packet.ipv6(|ip| ip).fragment(|f| f.id(id).offset(units).more(more).next_header(17))
            }
        };
        packet.payload(data).build()
    }

    /// Returns a frame that carries a whole datagram.
    pub fn whole(self, id: u32, data: &[u8]) -> Vec<u8> {
        self.whole_behind(Packet::new().ethernet(|e| e), id, data)
    }

    /// Returns a frame that carries a whole datagram after the given headers.
    pub fn whole_behind(self, packet: Packet, id: u32, data: &[u8]) -> Vec<u8> {
        let packet = match self {
            Self::V4 => packet.ipv4(|ip| ip.id(id as u16).df(false).protocol(17)),
            Self::V6 => packet.ipv6(|ip| ip.next_header(17)),
        };
        packet.payload(data).build()
    }

    /// Returns a UDP datagram with this payload and a correct checksum, starting with the UDP header.
    pub fn udp(self, payload: &[u8]) -> Vec<u8> {
        let packet = Packet::new();
        let packet = match self {
            Self::V4 => packet.ipv4(|ip| ip),
            Self::V6 => packet.ipv6(|ip| ip),
        };
        let header_len = if self == Self::V4 { 20 } else { 40 };
        packet.udp(|udp| udp).payload(payload).build().split_off(header_len)
    }
}

/// Returns the fragments of a datagram in order, reversed or shuffled. In two of three cases, up to three fragments are
/// added: repeated ones, and ones with other offsets, changed bytes, no data or the opposite MF flag.
pub fn random_pieces(random: &mut Random, version: Version, data: &[u8]) -> Vec<Piece> {
    let len = data.len();
    let size = random.within(1, len.div_ceil(8) - 1).max(len / 160) * 8;
    let mut pieces = cut(data, size);
    match random.below(3) {
        0 => random.shuffle(&mut pieces),
        1 => pieces.reverse(),
        _ => {}
    }
    if random.one_in(3) {
        return pieces;
    }
    for _ in 0..random.within(1, 3) {
        let start = random.below(len / 8) * 8;
        let end = random.within(start + 1, len);
        let end = if random.one_in(8) { end } else { end.next_multiple_of(8).min(len) };
        let mut odd = match random.one_in(2) {
            true => Piece::of(data, start, end),
            false => random.choose(&pieces).clone(),
        };
        match random.below(8) {
            0 => odd.more = !odd.more,
            1 => odd.data.iter_mut().for_each(|byte| *byte ^= 0x55),
            2 if odd.offset > 0 || version == Version::V4 => odd.data.clear(),
            _ => {}
        }
        // Skips pieces that are not fragments, and first fragments that are too short for the UDP header.
        if odd.offset == 0 && (!odd.more || odd.data.len() < 8) {
            continue;
        }
        let at = random.below(pieces.len() + 1);
        pieces.insert(at, odd);
    }
    pieces.retain(|piece| piece.offset > 0 || piece.more);
    pieces
}
