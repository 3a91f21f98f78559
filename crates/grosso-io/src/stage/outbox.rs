//! Queue of the frames that a stage created from one frame. The port may not have room for all of them at once.

use std::collections::VecDeque;

use grosso::Meta;

use crate::port::{Port, PortError, Transmitted};

/// Frames waiting for room, stored back to back.
///
/// A stage accepts no frame while any are waiting, so the queue holds at most the frames created from one frame.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    bytes: Vec<u8>,
    /// Start of the oldest frame in `bytes`.
    start: usize,
    frames: VecDeque<(usize, Meta)>,
}

impl Outbox {
    /// Passes a frame to the port, or queues it after the waiting frames.
    pub(super) fn send(
        &mut self,
        frame: &[u8],
        meta: &Meta,
        to: &mut impl Port,
    ) -> Result<(), PortError> {
        if self.is_empty() && to.transmit(&[frame], meta)? == Transmitted::Taken {
            return Ok(());
        }
        self.bytes.extend_from_slice(frame);
        self.frames.push_back((frame.len(), *meta));
        Ok(())
    }

    /// Passes on waiting frames while the port has room.
    pub(super) fn drain(&mut self, to: &mut impl Port) -> Result<Transmitted, PortError> {
        while let Some((len, meta)) = self.frames.front() {
            let frame = self.bytes.get(self.start..self.start + len).unwrap_or_default();
            if to.transmit(&[frame], meta)? == Transmitted::NoRoom {
                return Ok(Transmitted::NoRoom);
            }
            self.start += len;
            self.frames.pop_front();
        }
        self.bytes.clear();
        self.start = 0;
        Ok(Transmitted::Taken)
    }

    /// Passes on waiting frames and flushes the port. A batching port may have room after sending its batch, so the
    /// queue is then drained again.
    pub(super) fn flush(&mut self, to: &mut impl Port) -> Result<Transmitted, PortError> {
        if self.drain(to)? == Transmitted::NoRoom {
            let _ = to.flush()?;
            let _ = self.drain(to)?;
        }
        let flushed = to.flush()?;
        Ok(if self.is_empty() { flushed } else { Transmitted::NoRoom })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }
}
