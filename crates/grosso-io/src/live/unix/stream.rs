//! Exchange of frames between two programs through a stream, in which each frame is preceded by its length.

use std::{
    collections::VecDeque,
    io::{self, IoSlice, IoSliceMut},
    os::fd::{AsFd, BorrowedFd},
};

use grosso_sys::{
    errno::ErrorClass,
    unix_socket::{UnixAddress, UnixSocket, is_absence},
};

use super::{
    SOCKET_BYTES, UnixOptions,
    acceptor::{Acceptor, is_own_failure},
    or_later,
    stats::{UnixEvent, UnixStats},
};
use crate::{
    buffer::Buffers,
    framing::{Deframer, PREFIX_LEN, prefix},
    live::tx_offload::{Queued, Wire, reused},
};

/// One endpoint of a stream. It has one peer at a time.
#[derive(Debug)]
pub(super) struct StreamEnd {
    acceptor: Acceptor,
    peer: Option<UnixSocket>,
    deframer: Deframer,
    /// Frame that has only partly been sent.
    unsent: Vec<u8>,
    /// Number of bytes of the frame that the socket has accepted so far.
    sent: usize,
    /// An empty vector kept for its capacity.
    parts: Vec<IoSlice<'static>>,
    pub(super) stats: UnixStats,
}

impl StreamEnd {
    pub(super) fn open(options: &UnixOptions, frame_bytes_max: usize) -> io::Result<Self> {
        let acceptor = Acceptor::open(UnixAddress::new(&options.path)?, &options.role, false)?;
        let mut end = Self {
            acceptor,
            peer: None,
            deframer: Deframer::new(frame_bytes_max),
            unsent: Vec::new(),
            sent: 0,
            parts: Vec::new(),
            stats: UnixStats::default(),
        };
        or_later(end.connect(0))?;
        Ok(end)
    }

    /// Returns the next complete frame: a buffer and its length. Returns `None` if there is none, and also when the
    /// peer disconnects, so that a peer that reconnects repeatedly cannot monopolize the loop.
    pub(super) fn receive(
        &mut self,
        now_ns: u64,
        buffers: &mut Buffers,
    ) -> io::Result<Option<(Vec<u8>, usize)>> {
        loop {
            if self.peer.is_none() && !self.try_to_connect(now_ns) {
                return Ok(None);
            }
            match self.deframer.next(|| buffers.take()) {
                Ok(Some(frame)) => return Ok(Some(frame)),
                Ok(None) => {}
                Err(_) => {
                    self.stats.count(UnixEvent::PeerCutOff, 1);
                    self.hang_up();
                    return Ok(None);
                }
            }
            let Self { peer: Some(peer), deframer, .. } = self else { return Ok(None) };
            match peer.read(&mut deframer.room().map(IoSliceMut::new)) {
                Ok(bytes @ 1..) => {
                    deframer.fill(bytes);
                    continue;
                }
                Ok(0) => self.hang_up(),
                Err(error) if ErrorClass::of(&error) == ErrorClass::Later => {}
                Err(error) if is_absence(&error) => self.hang_up(),
                Err(error) => return Err(error),
            }
            return Ok(None);
        }
    }

    /// Sends the rest of a partially sent frame, and returns whether the whole frame has been sent.
    pub(super) fn flush(&mut self) -> io::Result<bool> {
        while let Some(rest) = self.unsent.get(self.sent..).filter(|rest| !rest.is_empty()) {
            let Some(peer) = &self.peer else { return Ok(true) };
            match peer.send(&[IoSlice::new(rest)]) {
                Ok(bytes) => self.sent += bytes,
                Err(error) if ErrorClass::of(&error) == ErrorClass::Later => return Ok(false),
                Err(error) if is_absence(&error) => self.hang_up(),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Returns the descriptor that becomes readable when frames arrive or a peer connects.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.peer.as_ref().map_or_else(|| self.acceptor.descriptor(), AsFd::as_fd)
    }

    /// Returns the descriptor that becomes writable when there is room.
    pub(super) fn transmit_descriptor(&self) -> BorrowedFd<'_> {
        self.peer.as_ref().map_or_else(|| self.acceptor.idle_descriptor(), AsFd::as_fd)
    }

    /// Returns the time of the next attempt to connect to the peer.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.acceptor.deadline().filter(|_| self.peer.is_none())
    }

    /// Connects to the peer if necessary and returns whether it is connected.
    fn try_to_connect(&mut self, now_ns: u64) -> bool {
        let connected = self.connect(now_ns);
        let is_own_failure = connected.as_ref().is_err_and(is_own_failure);
        self.stats.count(UnixEvent::SetUpFailed, is_own_failure.into());
        connected.is_ok()
    }

    fn connect(&mut self, now_ns: u64) -> io::Result<()> {
        let peer = self.acceptor.connect(now_ns)?;
        peer.set_buffer_bytes(SOCKET_BYTES)?;
        self.peer = Some(peer);
        self.stats.count(UnixEvent::PeerMet, 1);
        Ok(())
    }

    fn hang_up(&mut self) {
        let Self { peer, deframer, unsent, sent, stats, .. } = self;
        if peer.take().is_none() {
            return;
        }
        stats.count(UnixEvent::PeerGone, 1);
        stats.count(UnixEvent::ReceiveUnfinished, u64::from(deframer.reset()));
        stats.count(UnixEvent::TransmitUnfinished, u64::from(*sent < unsent.len()));
        unsent.clear();
        *sent = 0;
    }

    /// Writes as many bytes of the frames as the stream has room for. If no peer is connected, the frames are dropped.
    fn write(&mut self, parts: &[IoSlice<'_>], frames: usize) -> io::Result<usize> {
        if !self.flush()? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let absent = match self.peer.as_ref().map(|peer| peer.send(parts)) {
            Some(Err(error)) if is_absence(&error) => true,
            Some(result) => return result,
            None => false,
        };
        if absent {
            self.hang_up();
        }
        self.stats.count(UnixEvent::TransmitNoPeer, frames as u64);
        Ok(parts.iter().map(|part| part.len()).sum())
    }

    /// Queues the bytes of a frame that were not written.
    fn keep(&mut self, parts: &[IoSlice<'_>], written: usize) {
        self.unsent.clear();
        self.sent = 0;
        let mut skipped = written;
        for part in parts {
            self.unsent.extend_from_slice(part.get(skipped..).unwrap_or_default());
            skipped = skipped.saturating_sub(part.len());
        }
    }
}

impl Wire for StreamEnd {
    fn send(&mut self, frame: &[IoSlice<'_>]) -> io::Result<()> {
        let len = frame.iter().map(|part| part.len()).sum();
        let prefix = prefix(len).ok_or(io::ErrorKind::InvalidInput)?;
        let mut parts: Vec<IoSlice<'_>> = reused(core::mem::take(&mut self.parts));
        parts.push(IoSlice::new(&prefix));
        parts.extend_from_slice(frame);
        let result = self.write(&parts, 1).map(|written| {
            if written < PREFIX_LEN + len {
                self.keep(&parts, written);
            }
        });
        self.parts = reused(parts);
        result
    }

    fn send_some(&mut self, frames: &VecDeque<Queued>) -> io::Result<usize> {
        let count = frames.len().min(super::BATCH);
        let mut prefixes = [[0; PREFIX_LEN]; super::BATCH];
        for (place, frame) in prefixes.iter_mut().zip(frames) {
            *place = prefix(frame.bytes.len()).ok_or(io::ErrorKind::InvalidInput)?;
        }
        let mut parts: Vec<IoSlice<'_>> = reused(core::mem::take(&mut self.parts));
        for (prefix, frame) in prefixes.iter().zip(frames) {
            parts.extend([IoSlice::new(prefix), IoSlice::new(&frame.bytes)]);
        }
        let result = self.write(&parts, count).map(|mut written| {
            let mut sent = 0;
            for frame in parts.chunks_exact(2) {
                let len = frame.iter().map(|part| part.len()).sum();
                if written == 0 {
                    break;
                }
                if written < len {
                    self.keep(frame, written);
                }
                written = written.saturating_sub(len);
                sent += 1;
            }
            sent
        });
        self.parts = reused(parts);
        result
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read, os::unix::net::UnixStream};

    use grosso::{Meta, features::Features};
    use grosso_wire::{LinkType, Ports};

    use super::*;
    use crate::{
        live::{LiveStats, tx_offload::TxOffload},
        port::Transmitted,
    };

    /// Returns an endpoint whose socket buffer holds only a few kilobytes, and its peer.
    fn ends(folder: &tempfile::TempDir) -> (StreamEnd, UnixStream) {
        let options = UnixOptions::new(folder.path().join("s"));
        let mut end = StreamEnd::open(&options, 2000).unwrap();
        let other = UnixStream::connect(&options.path).unwrap();
        assert!(end.receive(0, &mut Buffers::new(2000)).unwrap().is_none());
        end.peer.as_ref().unwrap().set_buffer_bytes(1).unwrap();
        other.set_nonblocking(true).unwrap();
        (end, other)
    }

    fn tx_offload() -> TxOffload {
        TxOffload::new(LinkType::Ethernet, Ports::ASSIGNED, None, Features::SCATTER_GATHER)
    }

    fn frame(number: usize) -> Vec<u8> {
        let len = [60, 9000, 1514, 60_000, 0, 3][number % 6];
        (0..len).map(|i| (i * 7 + number) as u8).collect()
    }

    #[test]
    fn frames_that_are_written_in_parts_arrive_whole_and_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let (mut end, mut other) = ends(&folder);
        let mut tx_offload = tx_offload();
        let (mut read, mut sent, mut in_part) = (Vec::new(), Vec::new(), 0);
        let mut take = |read: &mut Vec<u8>, most: usize| {
            let mut piece = vec![0; most];
            let len = other.read(&mut piece).unwrap_or(0);
            read.extend_from_slice(&piece[..len]);
            len
        };
        for number in 0..300 {
            let frame = frame(number);
            sent.extend(prefix(frame.len()).unwrap());
            sent.extend_from_slice(&frame);
            if number % 50 < 25 {
                tx_offload.enqueue(&[&frame], &Meta::default());
                continue;
            }
            let (first, rest) = frame.split_at(frame.len() / 3);
            let meta = Meta::default();
            while tx_offload.transmit(&[first, rest], &meta, &mut end).unwrap()
                == Transmitted::NoRoom
            {
                in_part += usize::from(end.sent < end.unsent.len());
                take(&mut read, 1 + number * 13 % 5000);
            }
        }
        while tx_offload.flush(&mut end).unwrap() == Transmitted::NoRoom || !end.flush().unwrap() {
            take(&mut read, 4000);
        }
        while take(&mut read, 4000) > 0 {}
        assert!(in_part > 100, "{in_part}");
        assert!(read == sent, "{} of {} bytes", read.len(), sent.len());
        assert_eq!(
            (tx_offload.stats, end.stats.events(UnixEvent::TransmitNoPeer)),
            (LiveStats::default(), 0)
        );
    }

    #[test]
    fn a_frame_that_was_taken_in_part_is_counted_when_the_other_program_goes() {
        let folder = tempfile::tempdir().unwrap();
        let (mut end, other) = ends(&folder);
        let mut tx_offload = tx_offload();
        let long = frame(3);
        let sent = tx_offload.transmit(&[&long], &Meta::default(), &mut end).unwrap();
        assert_eq!((sent, end.flush().unwrap()), (Transmitted::Taken, false));
        drop(other);
        assert!(end.flush().unwrap(), "the flush does not wait for a peer that is gone");
        let counted = [UnixEvent::TransmitUnfinished, UnixEvent::PeerGone];
        assert_eq!(counted.map(|event| end.stats.events(event)), [1, 1]);
    }
}
