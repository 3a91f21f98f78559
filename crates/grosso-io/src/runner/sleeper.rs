//! Where the thread of a data path sleeps.

use std::{io, os::fd::AsRawFd, time::Duration};

use grosso_sys::wait::{Event, Interest, Ready, Timer, Waiter};

use super::{ROOM_AGAIN_NS, now_ns};
use crate::port::Port;

/// Where the thread sleeps.
///
/// Frames are waited for by edges: while a frame of a mapped ring is held, its descriptor stays readable. So the thread
/// sleeps only after a turn in which both ports said that nothing is there.
#[derive(Debug)]
pub(super) struct Sleeper {
    waiter: Waiter,
    timer: Timer,
    ready: Vec<Ready>,
    /// A port without a descriptor to wait for: it is asked again after a while.
    is_blind: bool,
    /// How often it slept.
    pub(super) sleeps: u64,
}

impl Sleeper {
    pub(super) fn new(left: &impl Port, right: &impl Port, event: &Event) -> io::Result<Self> {
        let (waiter, timer) = (Waiter::new()?, Timer::new()?);
        let mut is_blind = false;
        for (token, descriptor) in [(LEFT, left.descriptor()), (RIGHT, right.descriptor())] {
            match descriptor {
                Some(descriptor) => {
                    waiter.add(&descriptor, token, Interest::READ.edge_triggered())?;
                }
                None => is_blind = true,
            }
        }
        // An edge for each raise, so that nobody needs to take it.
        waiter.add(event, OTHER, Interest::READ.edge_triggered())?;
        waiter.add(&timer, OTHER, Interest::READ)?;
        Ok(Self { waiter, timer, ready: Vec::new(), is_blind, sleeps: 0 })
    }

    /// Sleeps until a port has frames, or room where it is wanted, or the deadline has come.
    pub(super) fn sleep(
        &mut self,
        left: &impl Port,
        right: &impl Port,
        wants_room: (bool, bool),
        deadline: Option<u64>,
    ) -> io::Result<()> {
        self.sleeps += 1;
        let left_room = self.watch_room(left, LEFT, wants_room.0, true)?;
        let right_room = self.watch_room(right, RIGHT, wants_room.1, true)?;
        let ask_again = self.is_blind || !left_room || !right_room;
        let again = ask_again.then(|| now_ns().saturating_add(ROOM_AGAIN_NS));
        match deadline.into_iter().chain(again).min() {
            Some(at_ns) => self.timer.set(Duration::from_nanos(at_ns))?,
            None => self.timer.clear()?,
        }
        self.waiter.wait(&mut self.ready, None)?;
        self.watch_room(left, LEFT, wants_room.0, false)?;
        self.watch_room(right, RIGHT, wants_room.1, false)?;
        Ok(())
    }

    /// Starts or ends to wait for room; whether the port can be waited for.
    fn watch_room(
        &self,
        port: &impl Port,
        token: u64,
        wanted: bool,
        starts: bool,
    ) -> io::Result<bool> {
        if !wanted {
            return Ok(true);
        }
        let (Some(receiving), Some(sending)) = (port.descriptor(), port.transmit_descriptor())
        else {
            return Ok(false);
        };
        let is_one = receiving.as_raw_fd() == sending.as_raw_fd();
        match (is_one, starts) {
            (true, true) => self.waiter.modify(&sending, token, Interest::BOTH.edge_triggered()),
            (true, false) => self.waiter.modify(&sending, token, Interest::READ.edge_triggered()),
            (false, true) => self.waiter.add(&sending, token, Interest::WRITE),
            (false, false) => self.waiter.remove(&sending),
        }?;
        Ok(true)
    }
}

/// Tokens of what is waited for; nobody looks at them, since every port is asked in every turn.
const LEFT: u64 = 0;
const RIGHT: u64 = 1;
const OTHER: u64 = 2;
