//! The connection between a port and its peer. It consists of a socket and shared rings.

use std::{
    io::{self, IoSlice},
    os::fd::{AsFd, BorrowedFd},
};

use grosso_sys::unix_socket::{UnixAddress, UnixSocket, is_absence};
use grosso_vhost::{
    backend::{Refused, Way},
    message::{Inbox, Letter},
    ring::{ChainFault, PIECES_MAX, SIZE_MAX, Sent},
};
use grosso_wire::virtio::Form;

use super::{
    VhostOptions,
    flows::Flows,
    role::VhostRole,
    stats::{VhostEvent, VhostStats},
};
use crate::live::{
    tx_offload::Wire,
    unix::{
        acceptor::{Acceptor, is_own_failure},
        or_later,
    },
};

/// The connection to the peer, and the state negotiated with it.
#[derive(Debug)]
pub(super) struct VhostDevice {
    acceptor: Acceptor,
    peer: Option<VhostPeer>,
    role: VhostRole,
    /// Current time, as set by the owner of the port.
    pub(super) now_ns: u64,
    /// Time at which the guest first had too few buffers for the waiting frame.
    short_since: Option<u64>,
    /// Length of the header before each frame in bytes.
    pub(super) header_bytes: usize,
    /// Number of frames in the shared memory about which the peer has not been notified yet.
    unnotified: usize,
    /// Whether notifications are enabled, for frames and for room. A descriptor becomes ready only while its
    /// notifications are enabled.
    asked: [bool; 2],
    /// Whether frame notifications are enabled, and no frame has arrived since they were enabled.
    will_be_told: bool,
    patience: Patience,
    flows: Flows,
    pub(super) stats: VhostStats,
}

#[derive(Debug)]
struct VhostPeer {
    socket: UnixSocket,
    inbox: Inbox,
}

impl VhostDevice {
    /// Opens the connection of a port. A device offers `features` to its driver; a driver requests them from its
    /// device.
    pub(super) fn open(options: &VhostOptions, features: u64) -> io::Result<Self> {
        let mut device = Self {
            acceptor: Acceptor::open(UnixAddress::new(&options.path)?, &options.role, true)?,
            peer: None,
            role: VhostRole::new(options.side, features, options.memory_bytes_max)?,
            now_ns: 0,
            short_since: None,
            header_bytes: Form::Buffers.len(),
            unnotified: 0,
            asked: [false; 2],
            will_be_told: false,
            patience: Patience::default(),
            flows: Flows::new(options.ports),
            stats: VhostStats::default(),
        };
        or_later(device.connect())?;
        Ok(device)
    }

    /// Copies the next frame from the shared memory, and returns its length including its header. Returns `None` if
    /// there is no frame.
    ///
    /// # Errors
    /// Returns the fault in a skipped entry.
    pub(super) fn receive(&mut self, into: &mut [u8]) -> Result<Option<usize>, ChainFault> {
        let result = self.role.receive(into);
        self.counted(result)
    }

    /// Notifies the peer of the entries that were taken from its ring.
    pub(super) fn received(&mut self) {
        let way = self.role.incoming();
        self.patience.found(core::mem::take(&mut self.will_be_told));
        self.role.hush(way);
        self.role.publish(way);
        self.role.turn();
    }

    /// Prepares to sleep: enables frame notifications, unless polling again is worthwhile. Returns whether
    /// notifications are enabled.
    pub(super) fn rests(&mut self) -> bool {
        let way = self.role.incoming();
        if self.role.has_ring(way) && self.patience.looks_again(self.will_be_told) {
            return false;
        }
        // The next poll finds a frame that arrived in the meantime.
        self.will_be_told = !self.ask(way);
        true
    }

    /// Returns whether the caller must poll for frames again before sleeping, because notifications are disabled.
    pub(super) fn looks_again(&self) -> bool {
        !self.will_be_told && self.role.has_ring(self.role.incoming())
    }

    /// Notifies the peer of the frames in the shared memory.
    pub(super) fn flush(&mut self) {
        if core::mem::take(&mut self.unnotified) > 0 {
            self.role.publish(self.role.outgoing());
        }
    }

    /// Handles the messages that have arrived, and accepts a connecting peer. Returns whether the negotiated features
    /// may have changed.
    pub(super) fn serve(&mut self) -> bool {
        if self.peer.is_none() && !self.try_to_connect() {
            return false;
        }
        let mut is_changed = false;
        for _ in 0..MESSAGES_MAX {
            let Some(peer) = &mut self.peer else { break };
            let served = peer.serve(&mut self.role);
            if let Some(error) = self.role.refused_memory() {
                self.stats.count(match error.kind() {
                    io::ErrorKind::QuotaExceeded => VhostEvent::MemoryOverLimit,
                    _ => VhostEvent::MemoryRefused,
                });
            }
            match served {
                Ok(true) => is_changed = true,
                Ok(false) => break,
                Err(ended) => {
                    ended.event().into_iter().for_each(|event| self.stats.count(event));
                    self.disconnect();
                    is_changed = true;
                }
            }
        }
        if self.role.is_broken() {
            self.stats.count(VhostEvent::PeerCutOff);
            self.disconnect();
        }
        if is_changed {
            (self.asked, self.will_be_told, self.short_since) = ([false; 2], false, None);
        }
        is_changed
    }

    /// Records that entries were written, and notifies the peer immediately if it has not been notified for a long
    /// time.
    fn count_unnotified(&mut self) {
        self.unnotified += 1;
        if self.unnotified >= UNNOTIFIED_MAX {
            self.flush();
        }
    }

    /// Returns the negotiated features, or `None` before the negotiation.
    pub(super) fn chosen(&self) -> Option<u64> {
        self.role.chosen()
    }

    /// Returns the descriptor that signals messages, or a connecting peer.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.peer.as_ref().map_or_else(|| self.acceptor.descriptor(), |peer| peer.socket.as_fd())
    }

    /// Returns the descriptor that signals frames for the port.
    pub(super) fn frames_notification(&self) -> Option<BorrowedFd<'_>> {
        self.role.notification(self.role.incoming())
    }

    /// Returns the descriptor that signals room for frames from the port.
    pub(super) fn buffers_notification(&self) -> Option<BorrowedFd<'_>> {
        self.role.notification(self.role.outgoing())
    }

    /// Returns the time at which to try again to connect to the peer, or to drop a waiting frame.
    pub(super) fn deadline(&self) -> Option<u64> {
        let meets = self.acceptor.deadline().filter(|_| self.peer.is_none());
        let short = self.short_since.map(|since| since.saturating_add(SHORT_NS_MAX));
        meets.into_iter().chain(short).min()
    }

    /// Enables notifications for an empty ring, and returns whether entries have been added in the meantime.
    fn ask(&mut self, way: Way) -> bool {
        let Self { role, asked, .. } = self;
        // The descriptor is cleared once per sleep, not every time the ring is empty.
        if core::mem::take(&mut asked[way as usize]) {
            role.clear_notification(way);
        }
        let has_more = role.ask(way);
        asked[way as usize] = has_more == Some(false);
        has_more == Some(true)
    }

    /// Makes a frame wait for more buffers. If there have been too few for a long time, drops the frame, because the
    /// driver may have no more buffers.
    fn wait_for_room(&mut self) -> io::Result<()> {
        let is_short = self.role.is_short();
        self.short_since = is_short.then(|| self.short_since.unwrap_or(self.now_ns));
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

    /// Connects to the peer if necessary and returns whether it is connected.
    fn try_to_connect(&mut self) -> bool {
        let connected = self.connect();
        if connected.as_ref().is_err_and(is_own_failure) {
            self.stats.count(VhostEvent::SetUpFailed);
        }
        connected.is_ok()
    }

    fn connect(&mut self) -> io::Result<()> {
        let socket = self.acceptor.connect(self.now_ns)?;
        let peer = VhostPeer { socket, inbox: Inbox::default() };
        self.role.greet().map_or(Ok(()), |letter| peer.send(&letter))?;
        self.stats.count(VhostEvent::PeerMet);
        self.peer = Some(peer);
        Ok(())
    }

    fn disconnect(&mut self) {
        self.role.forget();
        if self.peer.take().is_some() {
            self.stats.count(VhostEvent::PeerGone);
        }
    }
}

/// Reason why the port disconnects from the peer.
#[derive(Debug)]
enum Ended {
    Refused(Refused),
    Socket(io::Error),
}

impl Ended {
    /// Returns the event to count, or `None` if the peer closed the connection.
    fn event(&self) -> Option<VhostEvent> {
        match self {
            Self::Refused(Refused::Message) => Some(VhostEvent::PeerCutOff),
            Self::Refused(Refused::System) => Some(VhostEvent::SetUpFailed),
            Self::Socket(error) => match error.kind() {
                io::ErrorKind::UnexpectedEof => None,
                // The peer sent an invalid message, or it does not read the messages sent to it.
                io::ErrorKind::InvalidData | io::ErrorKind::WouldBlock => {
                    Some(VhostEvent::PeerCutOff)
                }
                _ if is_absence(error) => None,
                _ => Some(VhostEvent::SetUpFailed),
            },
        }
    }
}

impl VhostPeer {
    /// Handles a message and answers it. Returns whether a message had arrived.
    fn serve(&mut self, role: &mut VhostRole) -> Result<bool, Ended> {
        let message = self.inbox.next(&self.socket).map_err(Ended::Socket)?;
        let Some(message) = message else { return Ok(false) };
        let letters = role.handle_message(message).map_err(Ended::Refused)?;
        let sent = letters.iter().try_for_each(|letter| self.send(letter));
        sent.map(|()| true).map_err(Ended::Socket)
    }

    fn send(&self, letter: &Letter) -> io::Result<()> {
        let files: Vec<BorrowedFd<'_>> = letter.files.iter().map(AsFd::as_fd).collect();
        let sent = self.socket.send_passing(&letter.bytes, &files)?;
        // If there is no room for such a short message, the peer does not read its messages.
        if sent < letter.bytes.len() { Err(io::ErrorKind::InvalidData.into()) } else { Ok(()) }
    }
}

impl Wire for VhostDevice {
    fn send(&mut self, frame: &[IoSlice<'_>]) -> io::Result<()> {
        if self.role.pairs() > 1 {
            let pair = self.flows.pair(frame, self.header_bytes, self.role.pairs());
            self.role.choose(pair);
        }
        let (mut faults, mut rounds, mut walked) = (0, 0, 0);
        while faults < FAULTS_MAX && rounds < ROUNDS_MAX && walked < WALKED_MAX {
            if !self.role.takes_frames() {
                self.stats.count(VhostEvent::TransmitNoPeer);
                return Ok(());
            }
            let (sent, more) = self.role.send(frame, self.header_bytes);
            walked += more;
            match sent {
                Sent::Whole => {
                    self.short_since = None;
                    self.count_unnotified();
                    return Ok(());
                }
                Sent::TooLong => return Err(io::Error::from_raw_os_error(EMSGSIZE)),
                Sent::NoRoom => {
                    self.flush();
                    if !self.ask(self.role.outgoing()) {
                        return self.wait_for_room();
                    }
                    rounds += 1;
                }
                Sent::Fault(fault) => {
                    faults += 1;
                    self.count_unnotified();
                    let _ = self.counted::<()>(Err(fault));
                    // The ring is broken, and the frame is lost.
                    if !self.role.takes_frames() {
                        return Ok(());
                    }
                }
            }
        }
        // The frame is lost if all of the guest's buffers are invalid, or if the guest creates endless work.
        self.stats.count(VhostEvent::RingUnsteady);
        Ok(())
    }
}

/// Policy that decides how often an empty ring is polled before notifications are enabled.
///
/// A notification costs the peer a system call and this side a wake-up. Polling saves both if the peer runs on another
/// CPU and soon has more entries. If the peer shares this CPU, every poll is wasted. Therefore, some sleeps are delayed
/// by polls as a trial. The other sleeps are delayed only while the trials are successful.
#[derive(Debug, Default)]
struct Patience {
    /// Number of polls to make before a sleep.
    looks: u16,
    /// Number of polls made so far.
    made: u16,
    /// Number of sleeps so far, modulo 2^16.
    sleeps: u16,
}

impl Patience {
    /// Returns whether to poll an empty ring again; `is_asked` means that notifications are enabled.
    fn looks_again(&mut self, is_asked: bool) -> bool {
        if is_asked {
            return false;
        }
        if self.made < self.looks {
            self.made += 1;
            return true;
        }
        self.sleeps = self.sleeps.wrapping_add(1);
        let tries = self.sleeps.is_multiple_of(SLEEPS_OF_A_TRIAL);
        (self.made, self.looks) = (0, if tries { LOOKS_MAX } else { self.looks / 2 });
        false
    }

    /// Records that entries were found; `was_asked` means that notifications were enabled.
    fn found(&mut self, was_asked: bool) {
        if self.made > 0 && !was_asked {
            self.looks = LOOKS_MAX;
        }
        self.made = 0;
    }
}

/// Maximum number of polls of an empty ring. They take about 20 microseconds, long enough for a running driver to send
/// a batch.
const LOOKS_MAX: u16 = 128;
/// Number of sleeps per trial: one in this many sleeps is delayed as a trial.
const SLEEPS_OF_A_TRIAL: u16 = 16;
/// `EMSGSIZE` on Linux.
const EMSGSIZE: i32 = 90;
/// Maximum number of messages handled at once.
const MESSAGES_MAX: usize = 64;
/// Maximum number of attempts to send one frame to a guest whose buffers are invalid.
const FAULTS_MAX: usize = 64;
/// Maximum number of descriptors read for one frame: those of the longest ring, plus the maximum for a frame.
const WALKED_MAX: usize = SIZE_MAX as usize + PIECES_MAX;
/// Maximum time in nanoseconds that a frame waits if there are buffers, but too few. It is much longer than a running
/// driver needs to add buffers.
const SHORT_NS_MAX: u64 = 1_000_000_000;
/// Maximum number of times that a frame is retried because the driver has added entries in the meantime. By then, even
/// a driver that adds entries one by one has added enough for the longest frame.
const ROUNDS_MAX: usize = PIECES_MAX + 1;
/// Maximum number of frames in the shared memory before the peer is notified.
const UNNOTIFIED_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::{LOOKS_MAX, Patience, SLEEPS_OF_A_TRIAL};

    /// Returns how often the ring is polled before the next sleep.
    fn looks(patience: &mut Patience) -> u16 {
        (0..).take_while(|_| patience.looks_again(false)).count() as u16
    }

    #[test]
    fn looks_in_vain_end_but_for_a_trial_and_those_that_help_go_on() {
        let mut patience = Patience::default();
        for sleep in 1..=3 * SLEEPS_OF_A_TRIAL {
            let after_a_trial = sleep.saturating_sub(1) % SLEEPS_OF_A_TRIAL;
            let expected = if sleep <= SLEEPS_OF_A_TRIAL { 0 } else { LOOKS_MAX >> after_a_trial };
            assert_eq!(looks(&mut patience), expected, "{sleep}");
            assert!(!patience.looks_again(true), "no polling while notifications are enabled");
            // Frames that arrive now are no evidence that polling helps.
            patience.found(true);
        }
        for _ in 0..1000 {
            assert!(patience.looks_again(false), "it helped");
            patience.found(false);
        }
        assert_eq!(looks(&mut patience), LOOKS_MAX);
        assert_eq!(looks(&mut patience), LOOKS_MAX / 2);
    }
}
