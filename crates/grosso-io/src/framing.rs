//! Format of a byte stream in which each frame is preceded by its length.
//!
//! The length in bytes is a 4-byte big-endian number. QEMU's `-netdev stream`, passt and libkrun use this format. The
//! module does no IO: the caller reads into [`Deframer::room`].
//!
//! Each byte of a frame is copied at most once: bytes that were read ahead are copied into the frame's buffer, and the
//! rest of a long frame is read directly into that buffer.
//!
//! ```
//! use grosso_io::framing::{Deframer, prefix};
//!
//! let mut deframer = Deframer::new(1514);
//! let mut arrived = Vec::new();
//! for frame in [&b"first"[..], b"second"] {
//!     arrived.extend(prefix(frame.len()).unwrap());
//!     arrived.extend(frame);
//! }
//! let [_, ahead] = deframer.room();
//! ahead[..arrived.len()].copy_from_slice(&arrived);
//! deframer.fill(arrived.len());
//! let mut next = || deframer.next(|| vec![0; 1514]).unwrap();
//! let (buffer, len) = next().unwrap();
//! assert_eq!(&buffer[..len], b"first");
//! let (buffer, len) = next().unwrap();
//! assert_eq!(&buffer[..len], b"second");
//! assert!(next().is_none());
//! ```

/// Error returned if a frame length exceeds the maximum. The rest of the stream cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the length prefix announces a frame of {len} bytes; the maximum is {max}")]
pub struct TooLong {
    /// Length in the stream, in bytes.
    pub len: usize,
    /// Maximum length in bytes.
    pub max: usize,
}

/// Returns the length prefix of a frame, or `None` if the format cannot express the length.
#[must_use]
pub fn prefix(len: usize) -> Option<[u8; PREFIX_LEN]> {
    u32::try_from(len).ok().map(u32::to_be_bytes)
}

/// Parser that splits a byte stream into frames.
#[derive(Debug)]
pub struct Deframer {
    /// Bytes read ahead. The bytes from `start` to `end` have not been parsed yet.
    ahead: Box<[u8]>,
    start: usize,
    end: usize,
    frame: Option<Unfinished>,
    frame_bytes_max: usize,
}

/// A frame that has only partly arrived.
#[derive(Debug)]
struct Unfinished {
    buffer: Vec<u8>,
    have: usize,
    len: usize,
}

impl Deframer {
    /// Creates a deframer for frames of at most `frame_bytes_max` bytes.
    #[must_use]
    pub fn new(frame_bytes_max: usize) -> Self {
        let ahead = vec![0; AHEAD_BYTES].into_boxed_slice();
        Self { ahead, start: 0, end: 0, frame: None, frame_bytes_max }
    }

    /// Returns the next complete frame as a buffer and the length of the frame, which may be 0. The frame is at the
    /// start of the buffer. `buffer` must supply buffers of at least `frame_bytes_max` bytes. `None` means that the
    /// caller must [read](Self::room) more.
    ///
    /// # Errors
    /// Returns [`TooLong`] for a length above the maximum; the stream is then unusable.
    pub fn next(
        &mut self,
        mut buffer: impl FnMut() -> Vec<u8>,
    ) -> Result<Option<(Vec<u8>, usize)>, TooLong> {
        let mut frame = match self.frame.take() {
            Some(frame) => frame,
            None => match self.announced()? {
                Some(len) => Unfinished { buffer: buffer(), have: 0, len },
                None => return Ok(None),
            },
        };
        frame.have += self.copy_into(frame.buffer.get_mut(frame.have..frame.len));
        if frame.have < frame.len {
            self.frame = Some(frame);
            return Ok(None);
        }
        Ok(Some((frame.buffer, frame.len)))
    }

    /// Returns the two buffers to read into, in this order: first the rest of the current frame, then bytes read ahead.
    /// Call this function after [`Self::next`] has returned `None`.
    pub fn room(&mut self) -> [&mut [u8]; 2] {
        self.ahead.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let Self { frame, ahead, end, .. } = self;
        let rest = frame.as_mut().and_then(|frame| frame.buffer.get_mut(frame.have..frame.len));
        let rest = rest.unwrap_or_default();
        // After a long frame, only the next length is read ahead, so that the following frame need not be copied.
        let ahead_max = if rest.len() < DIRECT_BYTES { AHEAD_BYTES } else { *end + PREFIX_LEN };
        [rest, ahead.get_mut(*end..ahead_max).unwrap_or_default()]
    }

    /// Records that `bytes` bytes were read into [`Self::room`].
    pub fn fill(&mut self, bytes: usize) {
        let direct = self.frame.as_mut().map_or(0, |frame| {
            let direct = bytes.min(frame.len - frame.have);
            frame.have += direct;
            direct
        });
        self.end = (self.end + bytes - direct).min(self.ahead.len());
    }

    /// Discards all bytes that were read, to start a new stream. Returns whether they included part of a frame.
    pub fn reset(&mut self) -> bool {
        let had_part = self.frame.take().is_some() || self.start < self.end;
        (self.start, self.end) = (0, 0);
        had_part
    }

    /// Returns the length of the frame at the current position, or `None` if its length prefix is incomplete.
    fn announced(&mut self) -> Result<Option<usize>, TooLong> {
        let ahead = self.ahead.get(self.start..self.end).unwrap_or_default();
        let Some((prefix, _)) = ahead.split_first_chunk::<PREFIX_LEN>() else { return Ok(None) };
        let (len, max) = (u32::from_be_bytes(*prefix), self.frame_bytes_max);
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if len > max {
            return Err(TooLong { len, max });
        }
        self.start += PREFIX_LEN;
        Ok(Some(len))
    }

    /// Copies bytes that were read ahead into `room` until it is full, and returns the number of bytes copied.
    fn copy_into(&mut self, room: Option<&mut [u8]>) -> usize {
        let room = room.unwrap_or_default();
        let ahead = self.ahead.get(self.start..self.end).unwrap_or_default();
        let len = room.len().min(ahead.len());
        room[..len].copy_from_slice(&ahead[..len]);
        self.start += len;
        len
    }
}

/// Length of the length prefix in bytes.
pub const PREFIX_LEN: usize = 4;
/// Size in bytes of the buffer for bytes read ahead. It holds 43 packets of 1514 bytes.
const AHEAD_BYTES: usize = 64 << 10;
/// Minimum number of missing frame bytes that justify a separate system call. At this size, the call costs no more than
/// copying the bytes.
const DIRECT_BYTES: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAX: usize = 70_000;

    /// Encodes these frames as a byte stream.
    fn stream(frames: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for frame in frames {
            bytes.extend(prefix(frame.len()).unwrap());
            bytes.extend(frame);
        }
        bytes
    }

    /// Decodes a stream that arrives in pieces and returns its frames. The sizes of the pieces cycle through `sizes`.
    fn frames(stream: &[u8], sizes: &[usize]) -> Result<Vec<Vec<u8>>, TooLong> {
        let (mut deframer, mut frames, mut rest) = (Deframer::new(MAX), Vec::new(), stream);
        let mut sizes = sizes.iter().cycle();
        loop {
            while let Some((buffer, len)) = deframer.next(|| vec![0; MAX])? {
                frames.push(buffer[..len].to_vec());
            }
            let mut piece = &rest[..rest.len().min(*sizes.next().unwrap())];
            if rest.is_empty() {
                return Ok(frames);
            }
            let mut read = 0;
            for room in deframer.room() {
                let len = room.len().min(piece.len());
                room[..len].copy_from_slice(&piece[..len]);
                piece = &piece[len..];
                read += len;
            }
            assert!(read > 0, "the stream has bytes left");
            deframer.fill(read);
            rest = &rest[read..];
        }
    }

    fn bytes(len: usize, seed: u8) -> Vec<u8> {
        (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect()
    }

    #[test]
    fn frames_are_found_wherever_the_stream_is_split() {
        let sent = [bytes(60, 1), Vec::new(), bytes(1, 2), bytes(14, 3)];
        let stream = stream(&sent);
        for at in 1..stream.len() {
            assert_eq!(frames(&stream, &[at, stream.len()]).unwrap(), sent, "split at {at}");
        }
        assert_eq!(frames(&stream, &[1]).unwrap(), sent, "byte by byte");
    }

    #[test]
    fn one_read_holds_several_frames_and_a_long_frame_takes_several() {
        let sent = [bytes(1514, 1), bytes(1514, 2), bytes(MAX, 3), bytes(MAX, 4), bytes(60, 5)];
        assert_eq!(frames(&stream(&sent), &[usize::MAX]).unwrap(), sent);
        let mut deframer = Deframer::new(MAX);
        let stream = stream(&[bytes(MAX, 3), bytes(MAX, 4)]);
        let first = deframer.room()[1].len();
        deframer.room()[1].copy_from_slice(&stream[..first]);
        deframer.fill(first);
        assert!(deframer.next(|| vec![0; MAX]).unwrap().is_none());
        let [rest, ahead] = deframer.room();
        assert_eq!((rest.len(), ahead.len()), (PREFIX_LEN + MAX - first, AHEAD_BYTES));
    }

    #[test]
    fn a_long_frame_is_read_to_where_it_stays() {
        let mut deframer = Deframer::new(MAX);
        let start = stream(&[bytes(MAX, 1)])[..100].to_vec();
        deframer.room()[1][..100].copy_from_slice(&start);
        deframer.fill(100);
        assert!(deframer.next(|| vec![0; MAX]).unwrap().is_none());
        let [rest, ahead] = deframer.room();
        assert_eq!((rest.len(), ahead.len()), (MAX - 96, PREFIX_LEN));
    }

    #[test]
    fn a_length_beyond_the_limit_ends_the_stream_and_the_longest_does_not() {
        let len = MAX + 1;
        assert_eq!(frames(&prefix(len).unwrap(), &[4]).unwrap_err(), TooLong { len, max: MAX });
        assert!(frames(&u32::MAX.to_be_bytes(), &[1]).is_err());
        assert!(frames(&prefix(MAX).unwrap(), &[4]).unwrap().is_empty());
    }

    #[test]
    fn another_stream_begins_anew() {
        let mut deframer = Deframer::new(MAX);
        assert!(!deframer.reset());
        for part in [2, 10] {
            let start = stream(&[bytes(60, 1)])[..part].to_vec();
            deframer.room()[1][..part].copy_from_slice(&start);
            deframer.fill(part);
            assert!(deframer.next(|| vec![0; MAX]).unwrap().is_none());
            assert!(deframer.reset(), "{part} bytes of a frame are discarded");
            assert!(!deframer.reset());
        }
    }

    proptest! {
        #[test]
        fn what_was_framed_is_found(
            lens in prop::collection::vec(
                prop_oneof![0_usize..100, 1400_usize..1600, 8000_usize..MAX], 0..12),
            sizes in prop::collection::vec(
                prop_oneof![1_usize..10, 100_usize..3000, 60_000_usize..80_000], 1..8),
        ) {
            let sent: Vec<_> = lens.iter().zip(0..).map(|(len, seed)| bytes(*len, seed)).collect();
            prop_assert_eq!(frames(&stream(&sent), &sizes).unwrap(), sent);
        }

        #[test]
        fn any_bytes_are_frames_or_an_end(
            bytes in prop::collection::vec(prop_oneof![3 => Just(0_u8), 1 => any::<u8>()], 0..4000),
            sizes in prop::collection::vec(1_usize..700, 1..8),
        ) {
            let whole = frames(&bytes, &[usize::MAX]);
            prop_assert_eq!(frames(&bytes, &sizes), whole);
        }
    }
}
