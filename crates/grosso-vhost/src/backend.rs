//! The state that a front end sets: features, memory and two rings.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use grosso_sys::bell::Bell;

use crate::{
    edges::Edges,
    features::{EVENT_INDEX, PROTOCOL_FEATURES, PROTOCOL_REPLY_ACK},
    memory::Memory,
    message::{Message, reply, request},
    ring::{Addresses, Ring},
};

/// One of the two rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Way {
    /// Frames to the guest, which gives room for them.
    ToGuest = 0,
    /// Frames from the guest.
    FromGuest = 1,
}

/// A back end, with one pair of rings.
///
/// It reads and writes no descriptor that it is passed, because the front end shares each of them and may make any read
/// or write wait: kicks are seen by edges, and calls are made by a [`Bell`].
#[derive(Debug)]
pub struct BackEnd {
    offered: u64,
    bell: Bell,
    kicks: [Edges; 2],
    chosen: Option<u64>,
    protocol: u64,
    memory: Option<Arc<Memory>>,
    /// The reason why a table of memory was refused last.
    refused_memory: Option<io::Error>,
    queues: [Queue; 2],
}

/// A ring, and how it is told of.
#[derive(Debug, Default)]
struct Queue {
    size: u16,
    addresses: Option<Addresses>,
    /// The next entry to take when the ring begins.
    next: u16,
    call: Option<OwnedFd>,
    is_started: bool,
    is_enabled: bool,
    ring: Option<Ring>,
}

/// Refusal of a message, after which nothing can be agreed on: the other end is to be hung up on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The message is malformed, or says what cannot be.
    Message,
    /// This end's system has no descriptors or no memory for what the message is about, and the other end no fault.
    System,
}

impl BackEnd {
    /// A back end that offers these features to a guest.
    ///
    /// # Errors
    /// Those of `epoll_create1(2)` and of [`Bell::new`].
    pub fn new(offered: u64) -> io::Result<Self> {
        Ok(Self {
            offered,
            bell: Bell::new()?,
            kicks: [Edges::new()?, Edges::new()?],
            chosen: None,
            protocol: 0,
            memory: None,
            refused_memory: None,
            queues: Default::default(),
        })
    }

    /// Forgets everything that a front end has set, which is gone.
    pub fn forget(&mut self) {
        self.kicks.iter_mut().for_each(Edges::end);
        (self.chosen, self.protocol, self.memory) = (None, 0, None);
        (self.refused_memory, self.queues) = (None, Default::default());
    }

    /// Obeys a message; returns the answer to send, if it has one.
    ///
    /// A message that is not known, or says what cannot be, is answered so if the front end asks; if it does not, it
    /// could not know.
    ///
    /// # Errors
    /// For a message that is malformed, or failed unheard; for one that the system has not the means to obey.
    pub fn obey(&mut self, mut message: Message) -> Result<Option<Vec<u8>>, Refused> {
        let number = message.request;
        let answer = |value: u64| Ok(Some(reply(number, &value.to_ne_bytes())));
        let obeyed = match number {
            request::GET_FEATURES => return answer(self.offered),
            request::GET_PROTOCOL_FEATURES => return answer(PROTOCOL_REPLY_ACK),
            request::GET_QUEUE_NUM => return answer(1),
            request::GET_VRING_BASE => {
                let (index, _) = message.of_ring().ok_or(Refused::Message)?;
                let next = self.stop(index).ok_or(Refused::Message)?;
                let payload = [index, next.into()].map(u32::to_ne_bytes).concat();
                return Ok(Some(reply(number, &payload)));
            }
            request::SET_VRING_KICK => self.set_kick(&mut message),
            _ => self.set(&mut message).ok_or(Refused::Message),
        };
        self.begin();
        match obeyed {
            Err(Refused::System) => Err(Refused::System),
            _ if message.wants_reply && self.protocol & PROTOCOL_REPLY_ACK != 0 => {
                answer(u64::from(obeyed.is_err()))
            }
            _ => obeyed.map(|()| None),
        }
    }

    /// The features that the guest has chosen; `None` until it has.
    #[must_use]
    pub fn chosen(&self) -> Option<u64> {
        self.chosen
    }

    /// A ring in use.
    #[inline]
    pub fn ring(&mut self, way: Way) -> Option<&mut Ring> {
        self.queues[way as usize].ring.as_mut()
    }

    /// Whether a ring is in use, and to be believed.
    #[must_use]
    pub fn is_running(&self, way: Way) -> bool {
        self.queues[way as usize].ring.as_ref().is_some_and(|ring| !ring.is_broken())
    }

    /// Descriptor that becomes readable when the driver tells of entries.
    #[must_use]
    pub fn kick(&self, way: Way) -> Option<BorrowedFd<'_>> {
        let edges = self.queues[way as usize].ring.as_ref().map(|_| &self.kicks[way as usize]);
        edges.and_then(Edges::descriptor)
    }

    /// Takes note that the driver told of entries.
    pub fn take_kick(&mut self, way: Way) {
        self.kicks[way as usize].take();
    }

    /// Tells the driver of used entries, and interrupts it if it wants that.
    pub fn publish(&mut self, way: Way) {
        let queue = &mut self.queues[way as usize];
        if queue.ring.as_mut().is_some_and(Ring::publish)
            && let Some(call) = &queue.call
        {
            // The file is an eventfd, and a full one has told the driver.
            let _ = self.bell.ring(call.as_fd());
        }
    }

    /// Whether the front end took memory away without a word.
    #[must_use]
    pub fn has_lost_memory(&self) -> bool {
        self.memory.as_ref().is_some_and(|memory| memory.is_lost())
    }

    /// The reason why a table of memory was refused since this was asked last.
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
                self.chosen = Some(chosen);
                Some(())
            }
            request::SET_PROTOCOL_FEATURES => {
                let number = message.number()?;
                self.protocol = number & PROTOCOL_REPLY_ACK;
                (number == self.protocol).then_some(())
            }
            request::SET_MEM_TABLE => {
                self.pause();
                self.memory = None;
                let files = core::mem::take(&mut message.files);
                match message.regions().and_then(|regions| Memory::map(&regions, &files)) {
                    Ok(memory) => self.memory = Some(memory),
                    Err(error) => self.refused_memory = Some(error),
                }
                self.memory.as_ref().map(|_| ())
            }
            request::SET_VRING_NUM => {
                let (index, size) = message.of_ring()?;
                self.queue(index)?.size = u16::try_from(size).ok()?;
                Some(())
            }
            request::SET_VRING_BASE => {
                let (index, next) = message.of_ring()?;
                self.queue(index)?.next = u16::try_from(next).ok()?;
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
                self.queues.get_mut(usize::try_from(index).ok()?)?.call = call;
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

    /// Hears the kicks of a ring, which begins with that.
    fn set_kick(&mut self, message: &mut Message) -> Result<(), Refused> {
        let (index, kick) = message.ring_file().ok_or(Refused::Message)?;
        let kick = self.eventfd(kick).ok_or(Refused::Message)?;
        self.queue(index).ok_or(Refused::Message)?.is_started = true;
        self.kicks[index as usize].begin(kick).map_err(|_| Refused::System)
    }

    /// The file, if it is an eventfd or none: others may make even who asks whether they are readable wait.
    fn eventfd(&self, file: Option<OwnedFd>) -> Option<Option<OwnedFd>> {
        file.as_ref().is_none_or(|file| self.bell.fits(file.as_fd())).then_some(file)
    }

    /// A ring to change, which pauses for it.
    fn queue(&mut self, index: u32) -> Option<&mut Queue> {
        let way = match index {
            0 => Way::ToGuest,
            1 => Way::FromGuest,
            _ => return None,
        };
        self.pause_one(way);
        self.queues.get_mut(way as usize)
    }

    /// Stops a ring, and returns its next entry.
    fn stop(&mut self, index: u32) -> Option<u16> {
        let queue = self.queue(index)?;
        queue.is_started = false;
        let next = queue.next;
        self.kicks.get_mut(usize::try_from(index).ok()?)?.end();
        Some(next)
    }

    /// Lets go of the rings, whose memory or features are about to change.
    fn pause(&mut self) {
        self.pause_one(Way::ToGuest);
        self.pause_one(Way::FromGuest);
    }

    fn pause_one(&mut self, way: Way) {
        self.publish(way);
        let queue = &mut self.queues[way as usize];
        if let Some(ring) = queue.ring.take() {
            queue.next = ring.next();
        }
    }

    /// Begins with the rings of which everything is known.
    fn begin(&mut self) {
        let Self { chosen: Some(chosen), memory: Some(memory), queues, .. } = self else { return };
        for queue in queues {
            if let Queue { is_started: true, is_enabled: true, ring: None, .. } = queue
                && let Some(addresses) = &queue.addresses
            {
                let event_index = *chosen & EVENT_INDEX != 0;
                let Queue { size, next, .. } = *queue;
                queue.ring = Ring::new(memory, addresses, size, next, event_index);
                // Addresses that are nowhere are not looked for again at each message.
                queue.is_started = queue.ring.is_some();
            }
        }
    }
}
