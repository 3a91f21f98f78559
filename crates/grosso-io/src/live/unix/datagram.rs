//! Exchange of frames between two programs, one frame per datagram.

use std::{
    io::{self, IoSlice},
    os::fd::{AsFd, BorrowedFd},
};

use grosso_sys::{
    errno::ErrorClass,
    unix_socket::{Sender, UnixAddress, UnixKind, UnixSocket, is_absence},
};

use super::{
    SOCKET_BYTES, TRY_AGAIN_NS, UnixOptions, UnixRole, or_later,
    stats::{UnixEvent, UnixStats},
};
use crate::{buffer::Buffers, live::tx_offload::Wire};

/// One endpoint of a datagram exchange.
#[derive(Debug)]
pub(super) struct DatagramEnd {
    socket: UnixSocket,
    peer: Other,
    /// Time at which to check again whether the peer still exists.
    look_ns: u64,
    /// Whether the peer has sent a frame since the last check.
    was_heard: bool,
    pub(super) stats: UnixStats,
}

/// The peer program.
#[derive(Debug)]
enum Other {
    /// The peer is not known: the first program that sends becomes the peer.
    Unknown,
    /// The program that sent first.
    Learned(Sender),
    /// The program at this address, which may not be running yet.
    Fixed { address: UnixAddress, is_there: bool },
}

impl DatagramEnd {
    pub(super) fn open(options: &UnixOptions) -> io::Result<Self> {
        let address = UnixAddress::new(&options.path)?;
        let (own, mode, peer) = match &options.role {
            UnixRole::Listen { mode } => (address, *mode, Other::Unknown),
            UnixRole::Connect { local, mode } => {
                let why = "a connecting datagram socket needs a local path for replies";
                let none = || io::Error::new(io::ErrorKind::InvalidInput, why);
                let own = UnixAddress::new(local.as_ref().ok_or_else(none)?)?;
                (own, *mode, Other::Fixed { address, is_there: false })
            }
        };
        let socket = UnixSocket::at(UnixKind::Datagram, &own, mode)?;
        socket.set_buffer_bytes(SOCKET_BYTES)?;
        let stats = UnixStats::default();
        let mut end = Self { socket, peer, look_ns: 0, was_heard: false, stats };
        or_later(end.find())?;
        Ok(end)
    }

    /// Returns the next frame that has arrived: a buffer and its length.
    pub(super) fn receive(
        &mut self,
        now_ns: u64,
        buffers: &mut Buffers,
    ) -> io::Result<Option<(Vec<u8>, usize)>> {
        self.look(now_ns);
        let mut buffer = buffers.take();
        match self.socket.receive(&mut buffer) {
            Ok((len, from)) => {
                self.was_heard = true;
                if let (Other::Unknown, Some(from)) = (&self.peer, from) {
                    self.learn(from, now_ns);
                }
                Ok(Some((buffer, len)))
            }
            Err(error) => {
                buffers.put_back(buffer);
                match ErrorClass::of(&error) {
                    ErrorClass::Later => Ok(None),
                    // The peer disappeared before it had read all frames from this port.
                    _ if is_absence(&error) => Ok(None),
                    _ => Err(error),
                }
            }
        }
    }

    /// Returns the descriptor that signals both frames and room.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns the time at which to check again whether the peer still exists. The check is necessary because the
    /// kernel does not report that a peer has exited.
    pub(super) fn deadline(&self) -> Option<u64> {
        (!matches!(self.peer, Other::Unknown)).then_some(self.look_ns)
    }

    fn look(&mut self, now_ns: u64) {
        if now_ns < self.look_ns {
            return;
        }
        self.look_ns = now_ns.saturating_add(TRY_AGAIN_NS);
        if !core::mem::take(&mut self.was_heard) && self.find().is_err() {
            self.lose();
        }
    }

    /// Connects to the known address of the peer, and reconnects if the peer has restarted.
    fn find(&mut self) -> io::Result<()> {
        match &mut self.peer {
            Other::Unknown => {}
            Other::Learned(sender) => self.socket.answer(sender)?,
            Other::Fixed { address, is_there } => {
                self.socket.connect(address)?;
                self.stats.count(UnixEvent::PeerMet, u64::from(!*is_there));
                *is_there = true;
            }
        }
        Ok(())
    }

    fn learn(&mut self, from: Sender, now_ns: u64) {
        if self.socket.answer(&from).is_ok() {
            self.stats.count(UnixEvent::PeerMet, 1);
            self.peer = Other::Learned(from);
            self.look_ns = now_ns.saturating_add(TRY_AGAIN_NS);
        }
    }

    /// Records that the peer is gone, so that another program can become the peer.
    fn lose(&mut self) {
        if !self.is_met() {
            return;
        }
        self.stats.count(UnixEvent::PeerGone, 1);
        // This fails if the kernel has already disconnected the socket.
        let _ = self.socket.disconnect();
        match &mut self.peer {
            Other::Fixed { is_there, .. } => *is_there = false,
            peer => *peer = Other::Unknown,
        }
    }

    fn is_met(&self) -> bool {
        match &self.peer {
            Other::Unknown => false,
            Other::Learned(_) => true,
            Other::Fixed { is_there, .. } => *is_there,
        }
    }
}

impl Wire for DatagramEnd {
    fn send(&mut self, frame: &[IoSlice<'_>]) -> io::Result<()> {
        if self.is_met() {
            match self.socket.send(frame) {
                Ok(_) => return Ok(()),
                Err(error) if is_absence(&error) => self.lose(),
                Err(error) => return Err(error),
            }
        }
        self.stats.count(UnixEvent::TransmitNoPeer, 1);
        Ok(())
    }
}
