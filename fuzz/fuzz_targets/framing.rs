//! A stream of frames, each preceded by its length: the parser finds the same frames and the same end, however the
//! bytes are divided on arrival.

use crate::Decisions;
use grosso_io::framing::{Deframer, TooLong};

const FRAME_BYTES_MAX: usize = 9000;
const SIZES: [usize; 6] = [1, 3, 5, 100, 1500, 70_000];

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let mut decisions = Decisions::new(data);
    let sizes = [(); 3].map(|()| decisions.choose(&SIZES));
    let stream = decisions.rest();
    assert_eq!(frames(stream, &sizes), frames(stream, &[usize::MAX]));
}

/// Returns the frames in a stream that arrives in pieces; `sizes` is repeated to determine their lengths.
fn frames(mut stream: &[u8], sizes: &[usize]) -> (Vec<Vec<u8>>, Option<TooLong>) {
    let (mut deframer, mut frames) = (Deframer::new(FRAME_BYTES_MAX), Vec::new());
    for size in sizes.iter().cycle() {
        loop {
            match deframer.next(|| vec![0; FRAME_BYTES_MAX]) {
                Ok(Some((buffer, len))) => frames.push(buffer[..len].to_vec()),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
        if stream.is_empty() {
            break;
        }
        let mut piece = &stream[..stream.len().min(*size)];
        let mut read = 0;
        for room in deframer.room() {
            let len = room.len().min(piece.len());
            room[..len].copy_from_slice(&piece[..len]);
            piece = &piece[len..];
            read += len;
        }
        deframer.fill(read);
        stream = &stream[read..];
    }
    (frames, None)
}
