//! State of a device, as set by a front end: features, memory and queue pairs.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
};

use grosso_sys::{closer::PassedFile, errno::ErrorClass, eventfd_signal::EventfdSignal};

use crate::{
    dirty::DirtyLog,
    eventfd_set::Edges,
    features::{
        LOG_ALL, PROTOCOL_FEATURES, PROTOCOL_LOG_SHMFD, PROTOCOL_MQ, PROTOCOL_REPLY_ACK,
        RING_PACKED,
    },
    memory::{MAPPED_BYTES_MAX, Memory, RegionPlace},
    message::{Message, reply, request},
    ring::{Addresses, Base, Ring},
};

/// One of the two rings of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Way {
    /// Ring for frames to the guest, which supplies the buffers.
    ToGuest = 0,
    /// Ring for frames from the guest.
    FromGuest = 1,
}

/// The device's endpoint of a vhost-user connection.
///
/// In each direction, the ring of one queue pair is selected; [`BackEnd::ring`] returns this ring. Without multiqueue,
/// only pair 0 exists.
///
/// The back end never reads or writes a received descriptor, because the front end shares the descriptor and could make
/// any read or write block. Kicks are detected by edge-triggered polling, and calls are signaled by an
/// [`EventfdSignal`].
#[derive(Debug)]
pub struct BackEnd {
    offered: u64,
    signal: EventfdSignal,
    /// Eventfds that the driver uses to kick the rings, by direction.
    kicks: [Edges; 2],
    chosen: Option<u64>,
    protocol: u64,
    memory: Option<Arc<Memory>>,
    /// Maximum size in bytes of the memory that a front end may share.
    memory_bytes_max: u64,
    /// Dirty log. The front end may set the log before or after it enables logging, and the log stays mapped when
    /// logging is disabled.
    log: Option<Arc<DirtyLog>>,
    /// Whether the front end has enabled logging.
    wants_log: bool,
    /// Reason for the last refusal of a memory table or log.
    refused_memory: Option<io::Error>,
    /// Rings by index; the rings of a pair are adjacent.
    queues: Vec<Queue>,
    /// Number of queue pairs up to the last one with a ring in use, at least 1.
    pairs: usize,
    /// Index of the selected ring for each direction.
    at_hand: [usize; 2],
}

/// A virtqueue with its notification eventfds.
#[derive(Debug)]
struct Queue {
    size: u16,
    addresses: Option<Addresses>,
    /// Position at which the ring starts.
    base: Base,
    call: Option<PassedFile>,
    is_started: bool,
    is_enabled: bool,
    ring: Option<Ring>,
    /// Whether the ring is new. If so, the driver is notified unconditionally, because a previous device may have died
    /// between using entries and notifying the driver.
    is_new: bool,
}

/// Reason why a message was refused. The connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The message is malformed or contradictory.
    Message,
    /// The system has no descriptors or memory for the message; the peer is not at fault.
    System,
}

impl BackEnd {
    /// Creates a back end that offers the features `offered` to a guest.
    ///
    /// # Errors
    /// Returns any error from `epoll_create1(2)` or [`EventfdSignal::new`].
    pub fn new(offered: u64) -> io::Result<Self> {
        Ok(Self {
            offered,
            signal: EventfdSignal::new()?,
            kicks: [Edges::new(PAIRS_MAX)?, Edges::new(PAIRS_MAX)?],
            chosen: None,
            protocol: 0,
            memory: None,
            memory_bytes_max: MAPPED_BYTES_MAX,
            log: None,
            wants_log: false,
            refused_memory: None,
            queues: queues(),
            pairs: 1,
            at_hand: FIRST,
        })
    }

    /// Refuses more than `bytes` bytes of memory, starting with the next memory table; the default is
    /// [`MAPPED_BYTES_MAX`].
    ///
    /// Ring entries of a guest may point to any page of its memory. The first access to a page allocates it, and the
    /// kernel charges the page to the accessing process. This limit therefore bounds how much a guest can make this
    /// process grow.
    pub fn limit_memory(&mut self, bytes: u64) {
        self.memory_bytes_max = bytes;
    }

    /// Resets all state after the front end has disconnected.
    pub fn forget(&mut self) {
        self.kicks.iter_mut().for_each(Edges::end_all);
        (self.chosen, self.protocol, self.memory) = (None, 0, None);
        (self.log, self.wants_log) = (None, false);
        (self.refused_memory, self.queues) = (None, queues());
        (self.pairs, self.at_hand) = (1, FIRST);
    }

    /// Handles a message. Returns the reply to send, if there is one.
    ///
    /// An unknown or invalid message is reported in the reply if the front end requested one, and by [`Refused`]
    /// otherwise.
    ///
    /// # Errors
    /// Returns [`Refused`] for a malformed message, for a message that failed and requested no reply, and if system
    /// resources are exhausted.
    pub fn obey(&mut self, mut message: Message) -> Result<Option<Vec<u8>>, Refused> {
        let number = message.request;
        let answer = |value: u64| Ok(Some(reply(number, &value.to_ne_bytes())));
        let obeyed = match number {
            request::GET_FEATURES => return answer(self.offered),
            request::GET_PROTOCOL_FEATURES => return answer(PROTOCOL),
            request::GET_QUEUE_NUM => return answer(PAIRS_MAX as u64),
            request::GET_VRING_BASE => {
                let (index, _) = message.of_ring().ok_or(Refused::Message)?;
                let next = self.stop(index).ok_or(Refused::Message)?;
                self.settle();
                let payload = [index, next].map(u32::to_ne_bytes).concat();
                return Ok(Some(reply(number, &payload)));
            }
            request::SET_MEM_TABLE => self.set_memory(&mut message),
            request::SET_LOG_BASE => self.set_log(&mut message),
            request::SET_VRING_KICK => self.set_kick(&mut message),
            _ => self.set(&mut message).ok_or(Refused::Message),
        };
        self.begin();
        self.settle();
        match obeyed {
            Err(Refused::System) => Err(Refused::System),
            // This message has its own reply, which reports success.
            _ if number == request::SET_LOG_BASE => obeyed.and_then(|()| answer(0)),
            _ if message.wants_reply && self.protocol & PROTOCOL_REPLY_ACK != 0 => {
                answer(u64::from(obeyed.is_err()))
            }
            _ => obeyed.map(|()| None),
        }
    }

    /// Returns the features that the guest has chosen, or `None` if it has not chosen any yet.
    #[must_use]
    pub fn chosen(&self) -> Option<u64> {
        self.chosen
    }

    /// Returns the number of queue pairs up to the last pair in use, at least 1.
    #[inline]
    #[must_use]
    pub fn pairs(&self) -> usize {
        self.pairs
    }

    /// Returns the selected ring, if it is in use.
    #[inline]
    pub fn ring(&mut self, way: Way) -> Option<&mut Ring> {
        self.queues[self.at_hand[way as usize]].ring.as_mut()
    }

    /// Selects the ring of queue pair `pair`. If this ring is not in use, selects the ring of the next pair that is in
    /// use.
    pub fn choose(&mut self, way: Way, pair: usize) {
        let rings = (pair..pair + self.pairs).map(|pair| number(way, pair % self.pairs));
        let mut used = rings.filter(|number| self.queues[*number].ring.is_some());
        self.at_hand[way as usize] = used.next().unwrap_or(way as usize);
    }

    /// Selects the ring of the next pair.
    #[inline]
    pub fn turn(&mut self, way: Way) {
        let next = self.at_hand[way as usize] + 2;
        self.at_hand[way as usize] = if next < 2 * self.pairs { next } else { way as usize };
    }

    /// Returns the rings in use.
    pub fn rings(&mut self, way: Way) -> impl Iterator<Item = &mut Ring> {
        let queues = self.queues.iter_mut().skip(way as usize).step_by(2).take(self.pairs);
        queues.filter_map(|queue| queue.ring.as_mut())
    }

    /// Returns whether a ring is in use and not broken.
    #[must_use]
    pub fn is_running(&self, way: Way) -> bool {
        self.used(way).any(|ring| !ring.is_broken())
    }

    /// Returns a descriptor that becomes readable when the driver signals new entries.
    #[must_use]
    pub fn kick(&self, way: Way) -> Option<BorrowedFd<'_>> {
        self.used(way).next().and_then(|_| self.kicks[way as usize].descriptor())
    }

    /// Clears the driver's notification.
    pub fn take_kick(&mut self, way: Way) {
        self.kicks[way as usize].take();
    }

    /// Publishes used entries to the driver, and interrupts the driver if it has requested this.
    pub fn publish(&mut self, way: Way) {
        (0..self.pairs).for_each(|pair| self.publish_one(number(way, pair)));
    }

    /// Returns whether the front end truncated the shared memory.
    #[must_use]
    pub fn has_lost_memory(&self) -> bool {
        self.memory.as_ref().is_some_and(|memory| memory.is_lost())
    }

    /// Returns the reason why a memory table or dirty log was refused since the last call.
    pub fn refused_memory(&mut self) -> Option<io::Error> {
        self.refused_memory.take()
    }

    fn set(&mut self, message: &mut Message) -> Option<()> {
        match message.request {
            request::SET_OWNER => Some(()),
            request::RESET_OWNER => {
                self.queues.iter_mut().for_each(|queue| queue.is_started = false);
                self.pause();
                Some(())
            }
            request::SET_FEATURES => {
                let chosen = message.number().filter(|chosen| chosen & !self.offered == 0)?;
                self.pause();
                if chosen & PROTOCOL_FEATURES == 0 {
                    self.queues.iter_mut().for_each(|queue| queue.is_enabled = true);
                }
                self.chosen = Some(chosen & !LOG_ALL);
                self.wants_log = chosen & LOG_ALL != 0;
                let kept = self.keep_log();
                kept.map_err(|error| self.refuse_memory(error)).ok()
            }
            request::SET_PROTOCOL_FEATURES => {
                let number = message.number()?;
                self.protocol = number & PROTOCOL;
                (number == self.protocol).then_some(())
            }
            request::SET_VRING_NUM => {
                let (index, size) = message.of_ring()?;
                self.queue(index)?.size = u16::try_from(size).ok()?;
                Some(())
            }
            request::SET_VRING_BASE => {
                let (index, next) = message.of_ring()?;
                let is_packed = self.chosen.is_some_and(|chosen| chosen & RING_PACKED != 0);
                let base = (is_packed || next <= u16::MAX.into()).then_some(Base::Told(next))?;
                self.queue(index)?.base = base;
                Some(())
            }
            request::SET_VRING_ADDR => {
                let (index, [descriptors, used, available]) = message.ring_addresses()?;
                self.queue(index)?.addresses = Some(Addresses { descriptors, used, available });
                Some(())
            }
            request::SET_VRING_CALL => {
                let (index, call) = message.ring_file()?;
                let call = self.eventfd(call)?;
                let index = self.known(index)?;
                self.queues[index].call = call;
                Some(())
            }
            request::SET_VRING_ERR => message.ring_file().map(|_| ()),
            request::SET_VRING_ENABLE => {
                let (index, enabled) = message.of_ring()?;
                self.queue(index)?.is_enabled = enabled != 0;
                Some(())
            }
            _ => None,
        }
    }

    /// Maps a memory table and replaces the previous one.
    fn set_memory(&mut self, message: &mut Message) -> Result<(), Refused> {
        self.pause();
        self.memory = None;
        let files = core::mem::take(&mut message.files);
        let limit = self.memory_bytes_max;
        let mapped = message.regions().and_then(|regions| {
            check_length(&regions, limit)?;
            Memory::map(&regions, &files)
        });
        let kept = mapped.and_then(|memory| {
            self.memory = Some(memory);
            self.keep_log()
        });
        kept.map_err(|error| self.refuse_memory(error))
    }

    /// Maps a dirty log and replaces the previous one.
    fn set_log(&mut self, message: &mut Message) -> Result<(), Refused> {
        if self.protocol & PROTOCOL_LOG_SHMFD == 0 {
            return Err(Refused::Message);
        }
        let (bytes, offset, file) = message.dirty_log().ok_or(Refused::Message)?;
        self.pause();
        let kept = DirtyLog::map(&file, offset, bytes).and_then(|log| {
            self.log = Some(Arc::new(log));
            self.keep_log()
        });
        kept.map_err(|error| self.refuse_memory(error))
    }

    /// Starts or stops recording writes to the guest's memory in the dirty log. All rings pause during the change.
    fn keep_log(&mut self) -> io::Result<()> {
        let Some(memory) = &mut self.memory else { return Ok(()) };
        let memory = Arc::get_mut(memory);
        debug_assert!(memory.is_some(), "paused rings have released the memory");
        let log = self.log.clone().filter(|_| self.wants_log);
        memory.map_or(Ok(()), |memory| memory.log_to(log))
    }

    fn refuse_memory(&mut self, error: io::Error) -> Refused {
        if ErrorClass::of(&error) == ErrorClass::Exhausted {
            return Refused::System;
        }
        self.refused_memory = Some(error);
        Refused::Message
    }

    /// Sets the kick eventfd of a ring and starts the ring.
    fn set_kick(&mut self, message: &mut Message) -> Result<(), Refused> {
        let (index, kick) = message.ring_file().ok_or(Refused::Message)?;
        let kick = self.eventfd(kick).ok_or(Refused::Message)?;
        self.queue(index).ok_or(Refused::Message)?.is_started = true;
        let (way, pair) = place(index as usize);
        self.kicks[way as usize].begin(pair, kick).map_err(|_| Refused::System)
    }

    /// Returns the file if it is an eventfd or absent. Other types of files are refused, because even polling them may
    /// block.
    fn eventfd(&self, file: Option<PassedFile>) -> Option<Option<PassedFile>> {
        file.as_ref().is_none_or(|file| self.signal.accepts(file.as_fd())).then_some(file)
    }

    /// Pauses a ring and returns a mutable reference to it.
    fn queue(&mut self, index: u32) -> Option<&mut Queue> {
        let index = self.known(index)?;
        self.pause_one(index);
        self.queues.get_mut(index)
    }

    /// Returns `index` if the ring exists. Without multiqueue, only the rings of pair 0 exist.
    fn known(&self, index: u32) -> Option<usize> {
        let pairs = if self.protocol & PROTOCOL_MQ == 0 { 1 } else { PAIRS_MAX };
        usize::try_from(index).ok().filter(|index| *index < 2 * pairs)
    }

    /// Stops a ring and returns its position.
    fn stop(&mut self, index: u32) -> Option<u32> {
        let queue = self.queue(index)?;
        queue.is_started = false;
        let (Base::Told(next) | Base::Left(next)) = queue.base;
        let (way, pair) = place(index as usize);
        self.kicks[way as usize].end(pair);
        Some(next)
    }

    /// Releases the rings before their memory or features change.
    fn pause(&mut self) {
        (0..self.queues.len()).for_each(|index| self.pause_one(index));
    }

    fn pause_one(&mut self, index: usize) {
        self.publish_one(index);
        let queue = &mut self.queues[index];
        if let Some(ring) = queue.ring.take() {
            queue.base = Base::Left(ring.base());
        }
    }

    fn publish_one(&mut self, index: usize) {
        self.queues[index].publish(&mut self.signal);
    }

    /// Starts the rings whose configuration is complete, with the dirty log if required.
    fn begin(&mut self) {
        let Self { chosen: Some(chosen), memory: Some(memory), queues, signal, .. } = self else {
            return;
        };
        if self.wants_log && !memory.is_logged() {
            return;
        }
        for queue in queues {
            if let Queue { is_started: true, is_enabled: true, ring: None, .. } = queue
                && let Some(addresses) = &queue.addresses
            {
                let Queue { size, base, .. } = *queue;
                queue.ring = Ring::new(memory, addresses, size, base, *chosen);
                // Invalid addresses are not looked up again after every message.
                queue.is_started = queue.ring.is_some();
                queue.is_new |= queue.is_started && matches!(base, Base::Told(_));
                queue.publish(signal);
            }
        }
    }

    /// Updates the number of queue pairs in use.
    fn settle(&mut self) {
        let last = self.queues.iter().rposition(|queue| queue.ring.is_some());
        self.pairs = last.map_or(1, |last| last / 2 + 1);
        self.choose(Way::ToGuest, 0);
        self.choose(Way::FromGuest, 0);
    }

    fn used(&self, way: Way) -> impl Iterator<Item = &Ring> {
        let queues = self.queues.iter().skip(way as usize).step_by(2).take(self.pairs);
        queues.filter_map(|queue| queue.ring.as_ref())
    }
}

impl Queue {
    /// Creates an unconfigured ring.
    fn new() -> Self {
        Self {
            size: 0,
            addresses: None,
            base: Base::Told(0),
            call: None,
            is_started: false,
            is_enabled: false,
            ring: None,
            is_new: false,
        }
    }

    /// Publishes used entries to the driver, and interrupts the driver if it has requested this.
    fn publish(&mut self, signal: &mut EventfdSignal) {
        let Some(ring) = &mut self.ring else { return };
        if (ring.publish() || self.is_new)
            && let Some(call) = &self.call
        {
            self.is_new = false;
            // This cannot fail, because the file is an eventfd. If its counter is at the maximum, the driver has
            // already been notified.
            let _ = signal.notify(call.as_fd());
        }
    }
}

/// Checks that the regions are at most `bytes_max` bytes long in total.
fn check_length(regions: &[RegionPlace], bytes_max: u64) -> io::Result<()> {
    let bytes = regions.iter().fold(0_u64, |sum, region| sum.saturating_add(region.bytes));
    // The default limit is checked when the memory is mapped.
    if bytes > bytes_max && bytes_max < MAPPED_BYTES_MAX {
        let why = format!("the VM shares {bytes} bytes of memory; the limit is {bytes_max}");
        return Err(io::Error::new(io::ErrorKind::QuotaExceeded, why));
    }
    Ok(())
}

fn queues() -> Vec<Queue> {
    (0..2 * PAIRS_MAX).map(|_| Queue::new()).collect()
}

/// Supported protocol features.
const PROTOCOL: u64 = PROTOCOL_REPLY_ACK | PROTOCOL_MQ | PROTOCOL_LOG_SHMFD;

/// Returns the index of a ring in messages.
const fn number(way: Way, pair: usize) -> usize {
    2 * pair + way as usize
}

/// Returns the direction and the pair of a ring index.
const fn place(number: usize) -> (Way, usize) {
    let way = if number.is_multiple_of(2) { Way::ToGuest } else { Way::FromGuest };
    (way, number / 2)
}

/// Ring indices of pair 0.
const FIRST: [usize; 2] = [0, 1];
/// Maximum number of queue pairs. The number is limited because each ring needs two descriptors, and other ports need
/// descriptors too.
pub const PAIRS_MAX: usize = 16;
