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
    ring::{ChainFault, PIECES_MAX, SIZE_MAX, Sent},
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
    back: BackEnd,
    /// Never ready: stands for a front end that is not there.
    nobody: LocalSocket,
    try_ns: u64,
    /// The time, as the owner of the port says it.
    pub(super) now_ns: u64,
    /// Time since which the guest's buffers have been too few for a frame.
    short_since: Option<u64>,
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
            back: BackEnd::new(offered)?,
            nobody: LocalSocket::new(LocalKind::Datagram)?,
            try_ns: 0,
            now_ns: 0,
            short_since: None,
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
            let Some(ring) = self.back.ring(Way::FromGuest) else { break };
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
        self.back.publish(Way::FromGuest);
    }

    /// Tells the guest of the frames in its memory.
    pub(super) fn flush(&mut self) {
        if core::mem::take(&mut self.untold) > 0 {
            self.back.publish(Way::ToGuest);
        }
    }

    /// Obeys the messages that are there, and meets who is there. Returns whether the features of the guest may have
    /// changed.
    pub(super) fn serve(&mut self) -> bool {
        if self.peer.is_none() && !self.try_to_meet() {
            return false;
        }
        let mut is_changed = false;
        for _ in 0..MESSAGES_MAX {
            let Some(peer) = &mut self.peer else { break };
            let served = peer.serve(&mut self.back);
            if self.back.refused_memory().is_some() {
                self.stats.count(VhostEvent::MemoryRefused);
            }
            match served {
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
        if self.back.has_lost_memory() {
            self.stats.count(VhostEvent::PeerCutOff);
            self.hang_up();
        }
        if is_changed {
            (self.asked, self.short_since) = ([false; 2], None);
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
        self.back.chosen()
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
        self.back.kick(way)
    }

    /// Time of the next attempt to connect, or at which a frame that waits is given up.
    pub(super) fn deadline(&self) -> Option<u64> {
        let connects = matches!(self.meeting, Rendezvous::Connecting(_));
        let meets = (self.peer.is_none() && connects).then_some(self.try_ns);
        let short = self.short_since.map(|since| since.saturating_add(SHORT_NS_MAX));
        meets.into_iter().chain(short).min()
    }

    /// Asks the driver to tell of entries of a ring that has none; returns whether it has some now.
    fn ask(&mut self, way: Way) -> bool {
        let Self { back, asked, .. } = self;
        // The descriptor is taken once a sleep, and not each time that the ring is empty.
        if core::mem::take(&mut asked[way as usize]) {
            back.take_kick(way);
        }
        let Some(ring) = back.ring(way) else { return false };
        let has_more = ring.ask();
        if has_more {
            ring.hush();
        } else {
            asked[way as usize] = true;
        }
        has_more
    }

    /// Whether a frame may be in several buffers.
    fn merges(&self) -> bool {
        self.back.chosen().is_some_and(|chosen| chosen & MRG_RXBUF != 0)
    }

    /// Lets a frame wait for more buffers, or gives it up when some have been there for long, and too few: a driver may
    /// have no more than these.
    fn wait_for_room(&mut self) -> io::Result<()> {
        let has_some = self.back.ring(Way::ToGuest).is_some_and(|ring| ring.offered() > 0);
        self.short_since = has_some.then(|| self.short_since.unwrap_or(self.now_ns));
        let is_over = |since| self.now_ns.saturating_sub(since) >= SHORT_NS_MAX;
        if !self.short_since.is_some_and(is_over) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.stats.count(VhostEvent::RingShort);
        Ok(())
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
    fn try_to_meet(&mut self) -> bool {
        if matches!(self.meeting, Rendezvous::Connecting(_)) {
            if self.now_ns < self.try_ns {
                return false;
            }
            self.try_ns = self.now_ns.saturating_add(TRY_AGAIN_NS);
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
        self.peer = Some(FrontPeer { socket, inbox: Inbox::default() });
        self.stats.count(VhostEvent::PeerMet);
        Ok(())
    }

    fn hang_up(&mut self) {
        self.back.forget();
        if self.peer.take().is_some() {
            self.stats.count(VhostEvent::PeerGone);
        }
    }
}

impl FrontPeer {
    /// Obeys a message; returns whether there was one.
    fn serve(&mut self, back: &mut BackEnd) -> io::Result<bool> {
        let Some(message) = self.inbox.next(&self.socket)? else { return Ok(false) };
        let answer = back.obey(message).map_err(|_| io::ErrorKind::InvalidData)?;
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
        let (mut faults, mut rounds, mut walked) = (0, 0, 0);
        while faults < FAULTS_MAX && rounds < ROUNDS_MAX && walked < WALKED_MAX {
            let (header_bytes, mergeable) = (self.header_bytes, self.merges());
            if !self.back.is_running(Way::ToGuest) {
                self.stats.count(VhostEvent::TransmitNoPeer);
                return Ok(());
            }
            let Some(ring) = self.back.ring(Way::ToGuest) else { return Ok(()) };
            let sent = ring.send(frame, header_bytes, mergeable);
            walked += ring.take_walked();
            match sent {
                Sent::Whole => {
                    self.short_since = None;
                    self.will_tell();
                    return Ok(());
                }
                Sent::TooLong => return Err(io::Error::from_raw_os_error(EMSGSIZE)),
                Sent::NoRoom => {
                    self.flush();
                    if !self.ask(Way::ToGuest) {
                        return self.wait_for_room();
                    }
                    rounds += 1;
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
        // A guest whose every buffer is wrong loses its frame, and so does one that makes work without an end.
        self.stats.count(VhostEvent::RingUnsteady);
        Ok(())
    }
}

/// `EMSGSIZE` of Linux.
const EMSGSIZE: i32 = 90;
/// Messages that are obeyed at a time.
const MESSAGES_MAX: usize = 64;
/// Attempts to send one frame to a guest whose buffers are wrong.
const FAULTS_MAX: usize = 64;
/// Descriptors that are read for one frame: those of the longest ring, and those of a frame.
const WALKED_MAX: usize = SIZE_MAX as usize + PIECES_MAX;
/// Time that a frame waits for more buffers while some are there: far more than a driver takes that runs.
const SHORT_NS_MAX: u64 = 1_000_000_000;
/// Times that one frame finds more entries while its driver is asked for some. An honest driver that adds them one by
/// one has added all that a frame may take by then.
const ROUNDS_MAX: usize = PIECES_MAX + 1;
/// Frames in a guest's memory before it is told of them in any case.
const UNTOLD_MAX: usize = 32;
