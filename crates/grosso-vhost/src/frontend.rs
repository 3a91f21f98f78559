//! The driver's endpoint of a vhost-user connection. It creates new memory and a new queue pair for each back end.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use grosso_sys::eventfd_signal::EventfdSignal;
use rustix::{
    event::{EventfdFlags, eventfd},
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create},
};

use crate::{
    backend::{Refused, Way},
    driver::{DriverRing, RING_BYTES, SLOTS, addresses},
    eventfd_set::Edges,
    features::{
        EVENT_INDEX, OF_MOVES, OF_RINGS, PROTOCOL_FEATURES, PROTOCOL_REPLY_ACK, VERSION_1, usable,
    },
    memory::{Memory, RegionPlace},
    message::{Letter, Message, pair, request},
};

/// The driver's endpoint of a vhost-user connection, with one queue pair.
///
/// The front end creates new memory and eventfds for each back end, so that an earlier back end has no access to them.
/// Because the back end shares the eventfds, the front end writes to them through an [`EventfdSignal`] and detects the
/// back end's writes by edge-triggered polling, as the [`BackEnd`](crate::backend::BackEnd) does. The front end seals
/// the memory file so that its length cannot change.
#[derive(Debug)]
pub struct FrontEnd {
    wanted: u64,
    signal: EventfdSignal,
    calls: [Edges; 2],
    /// Requests that the back end has not answered yet, in order.
    awaited: VecDeque<u32>,
    chosen: Option<u64>,
    answers_all: bool,
    shared: Option<Shared>,
}

/// The resources that are shared with a back end.
#[derive(Debug)]
struct Shared {
    memory: Arc<Memory>,
    rings: [DriverRing; 2],
    kicks: [OwnedFd; 2],
}

impl FrontEnd {
    /// Creates a front end. The driver uses the features in `wanted` that the device offers.
    ///
    /// # Errors
    /// Returns any error from `epoll_create1(2)` or [`EventfdSignal::new`].
    pub fn new(wanted: u64) -> io::Result<Self> {
        Ok(Self {
            wanted,
            signal: EventfdSignal::new()?,
            calls: [Edges::new(1)?, Edges::new(1)?],
            awaited: VecDeque::new(),
            chosen: None,
            answers_all: false,
            shared: None,
        })
    }

    /// Resets all state after the back end has disconnected.
    pub fn forget(&mut self) {
        self.calls.iter_mut().for_each(Edges::end_all);
        self.awaited.clear();
        (self.chosen, self.answers_all, self.shared) = (None, false, None);
    }

    /// Returns the first message to a new back end.
    pub fn greet(&mut self) -> Letter {
        self.forget();
        self.ask(request::GET_FEATURES)
    }

    /// Handles a reply. Returns the messages to send.
    ///
    /// # Errors
    /// Returns [`Refused::Message`] for an unexpected reply, for a failed message, and for a device that only supports
    /// versions before virtio 1, or [`Refused::System`] if the system has no memory or descriptors to share.
    pub fn handle_answer(&mut self, answer: &Message) -> Result<Vec<Letter>, Refused> {
        let awaited = self.awaited.pop_front().filter(|awaited| *awaited == answer.request);
        let number = answer.number().ok_or(Refused::Message)?;
        match awaited.ok_or(Refused::Message)? {
            request::GET_FEATURES => {
                let others = !(OF_RINGS | OF_MOVES);
                let chosen = usable(number & self.wanted & (OF_DRIVER | others));
                if chosen & VERSION_1 == 0 {
                    return Err(Refused::Message);
                }
                self.chosen = Some(chosen);
                if chosen & PROTOCOL_FEATURES != 0 {
                    return Ok(vec![self.ask(request::GET_PROTOCOL_FEATURES)]);
                }
                self.set_up(chosen)
            }
            request::GET_PROTOCOL_FEATURES => {
                let chosen = number & PROTOCOL_REPLY_ACK;
                let tells =
                    Letter::new(request::SET_PROTOCOL_FEATURES, &chosen.to_ne_bytes(), vec![]);
                let mut letters = vec![tells];
                self.answers_all = chosen != 0;
                letters.extend(self.set_up(self.chosen.ok_or(Refused::Message)?)?);
                Ok(letters)
            }
            // The request only had to succeed; the content of the reply does not matter.
            _ if number == 0 => Ok(vec![]),
            _ => Err(Refused::Message),
        }
    }

    /// Returns the device features that the driver uses, or `None` before they are known.
    #[must_use]
    pub fn chosen(&self) -> Option<u64> {
        self.chosen
    }

    /// Returns a ring if it is in use, which means that the back end has received its complete configuration.
    #[inline]
    pub fn ring(&mut self, way: Way) -> Option<&mut DriverRing> {
        if !self.awaited.is_empty() {
            return None;
        }
        self.shared.as_mut().map(|shared| &mut shared.rings[way as usize])
    }

    /// Returns an iterator over the rings in use in this direction: one ring or none.
    pub fn rings(&mut self, way: Way) -> impl Iterator<Item = &mut DriverRing> {
        self.ring(way).into_iter()
    }

    /// Returns whether a ring is in use and not broken.
    #[must_use]
    pub fn is_running(&self, way: Way) -> bool {
        let ring = self.shared.as_ref().map(|shared| &shared.rings[way as usize]);
        self.awaited.is_empty() && ring.is_some_and(|ring| !ring.is_broken())
    }

    /// Returns a descriptor that becomes readable when the back end signals new entries.
    #[must_use]
    pub fn call(&self, way: Way) -> Option<BorrowedFd<'_>> {
        self.calls[way as usize].descriptor()
    }

    /// Clears the back end's notification.
    pub fn take_call(&mut self, way: Way) {
        self.calls[way as usize].take();
    }

    /// Publishes entries to the back end, and kicks the back end if it has requested this.
    pub fn publish(&mut self, way: Way) {
        let Self { shared: Some(Shared { rings, kicks, .. }), signal, .. } = self else { return };
        if rings[way as usize].publish() {
            // This cannot fail, because the file is an eventfd. If its counter is at the maximum, the back end has
            // already been notified.
            let _ = signal.notify(kicks[way as usize].as_fd());
        }
    }

    /// Returns whether a ring is broken or memory was truncated, so that no frames can be exchanged.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.shared.as_ref().is_some_and(|shared| {
            shared.memory.is_lost() || shared.rings.iter().any(DriverRing::is_broken)
        })
    }

    /// Creates the shared resources, and the messages that pass them to the back end.
    fn set_up(&mut self, chosen: u64) -> Result<Vec<Letter>, Refused> {
        let letters = self.share(chosen).map_err(|_| Refused::System)?;
        if !self.answers_all {
            return Ok(letters);
        }
        self.awaited.extend(letters.iter().map(Letter::request));
        Ok(letters.into_iter().map(Letter::to_be_answered).collect())
    }

    fn share(&mut self, chosen: u64) -> io::Result<Vec<Letter>> {
        let (memory, file) = sealed(2 * RING_BYTES)?;
        let ring = |way: Way| {
            let at = ring_at(way);
            DriverRing::new(&memory, at, way, chosen & EVENT_INDEX != 0)
                .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
        };
        let rings = [ring(Way::ToGuest)?, ring(Way::FromGuest)?];
        // A ring starts with its first kick, so the eventfd is signaled from the start.
        let kicks = [eventfd(1, FLAGS)?, eventfd(1, FLAGS)?];
        let calls = [eventfd(0, FLAGS)?, eventfd(0, FLAGS)?];
        let table = [1, AT, 2 * RING_BYTES, AT, 0].map(u64::to_ne_bytes).concat();
        let mut letters = vec![
            Letter::new(request::SET_OWNER, &[], vec![]),
            Letter::new(request::SET_FEATURES, &chosen.to_ne_bytes(), vec![]),
            Letter::new(request::SET_MEM_TABLE, &table, vec![file]),
        ];
        for (way, (kick, call)) in WAYS.into_iter().zip(kicks.iter().zip(calls)) {
            letters.extend(ring_letters(way, kick.try_clone()?, call.try_clone()?));
            self.calls[way as usize].begin(0, Some(call.into()))?;
        }
        if chosen & PROTOCOL_FEATURES != 0 {
            let enables =
                |way| Letter::new(request::SET_VRING_ENABLE, &pair(way as u32, 1), vec![]);
            letters.extend(WAYS.map(enables));
        }
        self.shared = Some(Shared { memory, rings, kicks });
        Ok(letters)
    }

    fn ask(&mut self, request: u32) -> Letter {
        self.awaited.push_back(request);
        Letter::new(request, &[], vec![])
    }
}

/// Returns the messages that configure a ring. The call eventfd comes first, because DPDK's back end uses it to
/// identify the ring.
fn ring_letters(way: Way, kick: OwnedFd, call: OwnedFd) -> [Letter; 5] {
    let index = way as u32;
    let number = u64::from(index).to_ne_bytes();
    let at = addresses(ring_at(way));
    let places = [index.into(), at.descriptors, at.used, at.available, 0].map(u64::to_ne_bytes);
    [
        Letter::new(request::SET_VRING_CALL, &number, vec![call]),
        Letter::new(request::SET_VRING_NUM, &pair(index, SLOTS.into()), vec![]),
        Letter::new(request::SET_VRING_BASE, &pair(index, 0), vec![]),
        Letter::new(request::SET_VRING_ADDR, &places.concat(), vec![]),
        Letter::new(request::SET_VRING_KICK, &number, vec![kick]),
    ]
}

/// Creates zeroed memory whose file is sealed against shrinking.
fn sealed(bytes: u64) -> io::Result<(Arc<Memory>, OwnedFd)> {
    let file = memfd_create("grosso-rings", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, bytes)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    let files = [file];
    let memory = Memory::map(&[RegionPlace { guest: AT, bytes, user: AT, offset: 0 }], &files)?;
    let [file] = files;
    Ok((memory, file))
}

const fn ring_at(way: Way) -> u64 {
    AT + way as u64 * RING_BYTES
}

const WAYS: [Way; 2] = [Way::ToGuest, Way::FromGuest];
/// Base address of the memory in all messages and descriptors: it is arbitrary, but not 0, because some programs treat
/// 0 as invalid.
const AT: u64 = 1 << 32;
const FLAGS: EventfdFlags = EventfdFlags::CLOEXEC.union(EventfdFlags::NONBLOCK);
/// Ring features that the driver uses: each frame uses one descriptor, so no other features are needed.
const OF_DRIVER: u64 = EVENT_INDEX | PROTOCOL_FEATURES | VERSION_1;
