//! Header fields that a superframe takes from its last packet.

use arrayvec::ArrayVec;
use grosso_wire::LAYERS_MAX;

/// Header bytes that a superframe takes from its last packet. They are stored as words, because most of these fields
/// are adjacent.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastPacket {
    words: ArrayVec<LastPacketWord, WORDS_MAX>,
}

/// Eight header bytes, with a mask of the bits taken from the last packet.
#[derive(Clone, Copy, Debug)]
struct LastPacketWord {
    at: u16,
    bits: u64,
}

impl LastPacket {
    /// Adds one header byte.
    pub(crate) fn add(&mut self, at: usize, header_len: usize) {
        let at = at as u16;
        let start = at.min(header_len.saturating_sub(WORD_BYTES) as u16);
        let is_in =
            |word: &&mut LastPacketWord| (word.at..word.at + WORD_BYTES as u16).contains(&at);
        if self.words.iter_mut().find(is_in).is_none() {
            let full = self.words.try_push(LastPacketWord { at: start, bits: 0 });
            debug_assert!(full.is_ok(), "a stack has fewer words");
        }
        if let Some(word) = self.words.iter_mut().find(is_in) {
            word.bits |= 0xff << (8 * (at - word.at));
        }
    }

    /// Copies these bytes from the last packet to a superframe's header.
    #[inline]
    pub(crate) fn put(&self, last: &[u8], header: &mut [u8]) {
        for &LastPacketWord { at, bits } in &self.words {
            let range = usize::from(at)..usize::from(at) + WORD_BYTES;
            let (last, place) = (last.get(range.clone()), header.get_mut(range));
            if let Some(last) = last.and_then(|last| last.first_chunk())
                && let Some(place) = place.and_then(|place| place.first_chunk_mut())
            {
                let (last, first) = (u64::from_le_bytes(*last), u64::from_le_bytes(*place));
                *place = (last & bits | first & !bits).to_le_bytes();
            }
        }
    }
}

const WORD_BYTES: usize = 8;

/// Maximum number of words: two for each IP header, and two for the TCP header.
const WORDS_MAX: usize = 2 * LAYERS_MAX;

#[cfg(test)]
mod tests {
    use super::LastPacket;

    #[test]
    fn these_bytes_are_the_last_packet_s_and_all_others_stay() {
        let mut latest = LastPacket::default();
        let taken = [1, 2, 9, 10, 27, 29];
        for at in taken {
            latest.add(at, 30);
        }
        let mut header = [0; 30];
        latest.put(&[0xff; 40], &mut header);
        for (at, byte) in header.into_iter().enumerate() {
            assert_eq!(byte == 0xff, taken.contains(&at), "{at}");
        }
    }
}
