//! The machine's side of a port: the front end's socket, and the rings that it describes.

use std::{
    io::{self, IoSlice},
    os::fd::{AsFd, BorrowedFd},
};

use grosso_sys::local::{LocalAddress, LocalKind, LocalSocket, is_absence};
use grosso_vhost::{
    backend::{BackEnd, Way},
    features::MRG_RXBUF,
    message::Inbox,
    ring::{ChainFault, PIECES_MAX, Sent},
};
use grosso_wire::virtio::Form;

use super::{
    VhostOptions,
    stats::{VhostEvent, VhostStats},
};
use crate::live::{
    outgoing::Wire,
    unix::{TRY_AGAIN_NS, UnixRole, or_later},
};

/// The front end, if it is there, and what it has said.
#[derive(Debug)]
pub(super) struct MachineEnd {
    meeting: Rendezvous,
    peer: Option<FrontPeer>,
    /// Never ready: stands for a front end that is not there.
    nobody: LocalSocket,
    try_ns: u64,
    offered: u64,
    /// Bytes of the header in front of each frame.
    pub(super) header_bytes: usize,
    /// Frames in the guest's memory of which it was not told.
    untold: usize,
    /// Whether the driver was asked to tell of frames, or of room.
    asked: [bool; 2],
    pub(super) stats: VhostStats,
}

#[derive(Debug)]
enum Rendezvous {
    Listening(LocalSocket),
    Connecting(LocalAddress),
}

#[derive(Debug)]
struct FrontPeer {
    socket: LocalSocket,
    inbox: Inbox,
    back: BackEnd,
}

impl MachineEnd {
    pub(super) fn open(options: &VhostOptions, offered: u64) -> io::Result<Self> {
        let address = LocalAddress::new(&options.path)?;
        let meeting = match options.role {
            UnixRole::Listen { mode } => {
                Rendezvous::Listening(LocalSocket::at(LocalKind::Stream, &address, mode)?)
            }
            UnixRole::Connect { .. } => Rendezvous::Connecting(address),
        };
        let mut end = Self {
            meeting,
            peer: None,
            nobody: LocalSocket::new(LocalKind::Datagram)?,
            try_ns: 0,
            offered,
            header_bytes: Form::Buffers.len(),
            untold: 0,
            asked: [false; 2],
            stats: VhostStats::default(),
        };
        or_later(end.meet())?;
        Ok(end)
    }

    /// Copies the next frame of the guest, and returns its length with that of its header; `None` if there is none.
    ///
    /// # Errors
    /// The defect of an entry that was passed over.
    pub(super) fn receive(&mut self, into: &mut [u8]) -> Result<Option<usize>, ChainFault> {
        // A frame may come while its driver is asked; one that is taken back each time comes never.
        for _ in 0..ROUNDS_MAX {
            let Some(FrontPeer { back, .. }) = &mut self.peer else { break };
            let Some(ring) = back.ring(Way::FromGuest) else { break };
            let result = ring.receive(into);
            if !matches!(result, Ok(None)) {
                return self.counted(result);
            }
            if !self.ask(Way::FromGuest) {
                break;
            }
        }
        Ok(None)
    }

    /// Tells the guest of what was taken from it.
    pub(super) fn received(&mut self) {
        if let Some(FrontPeer { back, .. }) = &mut self.peer {
            back.publish(Way::FromGuest);
        }
    }

    /// Tells the guest of the frames in its memory.
    pub(super) fn flush(&mut self) {
        if core::mem::take(&mut self.untold) > 0
            && let Some(FrontPeer { back, .. }) = &mut self.peer
        {
            back.publish(Way::ToGuest);
        }
    }

    /// Obeys the messages that are there, and meets who is there. Returns whether the features of the guest may have
    /// changed.
    pub(super) fn serve(&mut self, now_ns: u64) -> bool {
        if self.peer.is_none() && !self.try_to_meet(now_ns) {
            return false;
        }
        let mut is_changed = false;
        for _ in 0..MESSAGES_MAX {
            let Some(peer) = &mut self.peer else { break };
            match peer.serve() {
                Ok(true) => is_changed = true,
                Ok(false) => break,
                Err(error) => {
                    if !is_absence(&error) && error.kind() != io::ErrorKind::UnexpectedEof {
                        self.stats.count(VhostEvent::PeerCutOff);
                    }
                    self.hang_up();
                    is_changed = true;
                }
            }
        }
        if self.peer.as_ref().is_some_and(|peer| peer.back.has_lost_memory()) {
            self.stats.count(VhostEvent::PeerCutOff);
            self.hang_up();
        }
        if is_changed {
            self.asked = [false; 2];
        }
        is_changed
    }

    /// Notes that entries were used, and tells the guest at once if it was told of none for long.
    fn will_tell(&mut self) {
        self.untold += 1;
        if self.untold >= UNTOLD_MAX {
            self.flush();
        }
    }

    /// The features that the guest has chosen, if it has.
    pub(super) fn chosen(&self) -> Option<u64> {
        self.peer.as_ref()?.back.chosen()
    }

    /// Descriptor that tells of messages, or of who brings them.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        match (&self.peer, &self.meeting) {
            (Some(peer), _) => peer.socket.as_fd(),
            (None, Rendezvous::Listening(listener)) => listener.as_fd(),
            (None, Rendezvous::Connecting(_)) => self.nobody.as_fd(),
        }
    }

    /// Descriptor that tells of entries in a ring.
    pub(super) fn kick(&self, way: Way) -> Option<BorrowedFd<'_>> {
        self.peer.as_ref()?.back.kick(way)
    }

    /// Time of the next attempt to connect.
    pub(super) fn deadline(&self) -> Option<u64> {
        let connects = matches!(self.meeting, Rendezvous::Connecting(_));
        (self.peer.is_none() && connects).then_some(self.try_ns)
    }

    /// Asks the driver to tell of entries of a ring that has none; returns whether it has some now.
    fn ask(&mut self, way: Way) -> bool {
        let Some(FrontPeer { back, .. }) = &mut self.peer else { return false };
        // The descriptor is taken once a sleep, and not each time that the ring is empty.
        if core::mem::take(&mut self.asked[way as usize]) {
            back.take_kick(way);
        }
        let Some(ring) = back.ring(way) else { return false };
        let has_more = ring.ask();
        if has_more {
            ring.hush();
        } else {
            self.asked[way as usize] = true;
        }
        has_more
    }

    fn counted<T>(&mut self, result: Result<T, ChainFault>) -> Result<T, ChainFault> {
        if let Err(fault) = result
            && let Some(event) = VhostEvent::of(fault)
        {
            self.stats.count(event);
        }
        result
    }

    /// Whether the front end is there, now or already.
    fn try_to_meet(&mut self, now_ns: u64) -> bool {
        if matches!(self.meeting, Rendezvous::Connecting(_)) {
            if now_ns < self.try_ns {
                return false;
            }
            self.try_ns = now_ns.saturating_add(TRY_AGAIN_NS);
        }
        self.meet().is_ok()
    }

    fn meet(&mut self) -> io::Result<()> {
        let socket = match &self.meeting {
            Rendezvous::Listening(listener) => listener.accept()?,
            Rendezvous::Connecting(address) => {
                let socket = LocalSocket::new(LocalKind::Stream)?;
                socket.connect(address)?;
                socket
            }
        };
        let (inbox, back) = (Inbox::default(), BackEnd::new(self.offered));
        self.peer = Some(FrontPeer { socket, inbox, back });
        self.stats.count(VhostEvent::PeerMet);
        Ok(())
    }

    fn hang_up(&mut self) {
        if self.peer.take().is_some() {
            self.stats.count(VhostEvent::PeerGone);
        }
    }
}

impl FrontPeer {
    /// Obeys a message; returns whether there was one.
    fn serve(&mut self) -> io::Result<bool> {
        let Some(message) = self.inbox.next(&self.socket)? else { return Ok(false) };
        let answer = self.back.obey(message).map_err(|_| io::ErrorKind::InvalidData)?;
        if let Some(answer) = answer {
            let sent = self.socket.send(&[IoSlice::new(&answer)])?;
            if sent < answer.len() {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        Ok(true)
    }
}

impl Wire for MachineEnd {
    fn send(&mut self, frame: &[IoSlice<'_>]) -> io::Result<()> {
        let (mut faults, mut rounds) = (0, 0);
        while faults < FAULTS_MAX {
            let header_bytes = self.header_bytes;
            let running = self.peer.as_mut().filter(|peer| peer.back.is_running(Way::ToGuest));
            let Some(FrontPeer { back, .. }) = running else {
                self.stats.count(VhostEvent::TransmitNoPeer);
                return Ok(());
            };
            let mergeable = back.chosen().is_some_and(|chosen| chosen & MRG_RXBUF != 0);
            let Some(ring) = back.ring(Way::ToGuest) else { return Ok(()) };
            match ring.send(frame, header_bytes, mergeable) {
                Sent::Whole => {
                    self.will_tell();
                    return Ok(());
                }
                Sent::TooLong => return Err(io::Error::from_raw_os_error(EMSGSIZE)),
                Sent::NoRoom => {
                    self.flush();
                    if !self.ask(Way::ToGuest) {
                        return Err(io::ErrorKind::WouldBlock.into());
                    }
                    rounds += 1;
                    if rounds == ROUNDS_MAX {
                        self.stats.count(VhostEvent::RingUnsteady);
                        return Ok(());
                    }
                }
                Sent::Fault(fault) => {
                    faults += 1;
                    self.will_tell();
                    let _ = self.counted::<()>(Err(fault));
                    if fault == ChainFault::Overrun {
                        return Ok(());
                    }
                }
            }
        }
        // A guest whose every buffer is wrong: its frame is lost.
        Ok(())
    }
}

/// `EMSGSIZE` of Linux.
const EMSGSIZE: i32 = 90;
/// Messages that are obeyed at a time.
const MESSAGES_MAX: usize = 64;
/// Attempts to send one frame to a guest whose buffers are wrong.
const FAULTS_MAX: usize = 64;
/// Times that one frame finds more entries while its driver is asked for some. An honest driver that adds them one by
/// one has added all that a frame may take by then.
const ROUNDS_MAX: usize = PIECES_MAX + 1;
/// Frames in a guest's memory before it is told of them in any case.
const UNTOLD_MAX: usize = 32;
