//! Makes the thread of a data path sleep until there is work.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use arrayvec::ArrayVec;
use grosso_sys::wait::{Event, Interest, SOURCES_MAX, wait_for};

use super::{FULL_PORT_RETRY_NS, now_ns};
use crate::port::Port;

/// Port events that the thread waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wants {
    /// Whether to wait for the arrival of frames.
    pub(super) frames: bool,
    /// Whether to wait for room for queued frames.
    pub(super) room: bool,
}

/// Descriptors to wait for. Each port has at most four.
type Sources<'a> = ArrayVec<(BorrowedFd<'a>, Interest), SOURCES_MAX>;

/// Sleeper for the thread of a data path, which waits until a port has an event.
///
/// Descriptors are registered only during a sleep, so a frame that arrives while the thread is running costs the kernel
/// no wake-up.
#[derive(Debug, Default)]
pub(super) struct Sleeper {
    /// Number of sleeps.
    pub(super) sleeps: u64,
}

impl Sleeper {
    /// Sleeps until a port has a wanted event, a request arrives, or the deadline is reached.
    pub(super) fn sleep(
        &mut self,
        (left, left_wants): (&impl Port, Wants),
        (right, right_wants): (&impl Port, Wants),
        asked: &Event,
        deadline: Option<u64>,
    ) -> io::Result<()> {
        self.sleeps += 1;
        let mut sources = Sources::new();
        sources.push((asked.as_fd(), Interest::READ));
        let left_tells = watch(left, left_wants, &mut sources);
        let right_tells = watch(right, right_wants, &mut sources);
        let now_ns = now_ns();
        let again =
            (!left_tells || !right_tells).then(|| now_ns.saturating_add(FULL_PORT_RETRY_NS));
        let until = deadline.into_iter().chain(again).min();
        let at_most = until.map(|until_ns| Duration::from_nanos(until_ns.saturating_sub(now_ns)));
        if wait_for(&sources, at_most)? == Some(0) {
            asked.take()?;
        }
        Ok(())
    }
}

/// Adds the descriptors for the wanted events of a port. Returns whether every wanted event has a descriptor.
fn watch<'a>(port: &'a impl Port, wants: Wants, sources: &mut Sources<'a>) -> bool {
    let frames = wants.frames.then(|| port.descriptor().map(|file| (file, Interest::READ)));
    let room = wants.room.then(|| port.transmit_descriptor().map(|file| (file, Interest::WRITE)));
    let kick = port.room_kick().filter(|_| wants.room);
    let room = kick.map_or(room, |file| Some(Some((file, Interest::READ))));
    let wanted = [frames, room];
    sources.extend(wanted.into_iter().flatten().flatten());
    // If a kick signals room, the first descriptor is still needed, because it reports that the peer has disconnected.
    let told = port.descriptor().filter(|_| kick.is_some() && !wants.frames);
    let frames_kick = port.frames_kick().filter(|_| wants.frames);
    sources.extend(told.into_iter().chain(frames_kick).map(|file| (file, Interest::READ)));
    wanted.iter().flatten().all(Option::is_some)
}
