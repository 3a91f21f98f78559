//! The events of a process while its paths run: signals, and ends of paths.

use std::{
    io,
    sync::mpsc::{self, Receiver, Sender},
};

use grosso_io::stage::Scarcity;
use grosso_sys::sandbox::Role;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1},
    iterator::Signals,
};

use crate::confinement;

/// An event to act on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// SIGINT: end, and print a summary.
    Interrupt,
    /// SIGTERM: end.
    Terminate,
    /// SIGHUP: read the configuration again, if there is one.
    HangUp,
    /// SIGUSR1: print the counters so far.
    Report,
    /// The path of this number ended.
    PathEnded(u64),
    /// The path of this number has few sequence numbers of ESP left, or none.
    Scarce(u64, Scarcity),
    /// The path of this number dropped a packet of its own tunnel for the first time.
    Looped(u64),
    /// A route to the other end of the tunnel of this path changed.
    RouteChanged(u64),
    /// A path found something while it started that the user should know.
    Note(String),
}

/// The queue of events. Its length is bounded by the number of signals and paths: the kernel merges equal signals that
/// wait, a path ends once, drops its first own packet once and has a few notes each time it starts, and each of its
/// queues looks at its routes once a second.
#[derive(Debug)]
pub struct Events {
    /// The end at which threads of paths report events.
    pub sender: Sender<Event>,
    receiver: Receiver<Event>,
}

impl Events {
    /// Starts to listen for signals.
    pub fn listen() -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel();
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGUSR1])?;
        let told = sender.clone();
        let listen = move || {
            for signal in signals.forever() {
                let event = match signal {
                    SIGINT => Event::Interrupt,
                    SIGTERM => Event::Terminate,
                    SIGHUP => Event::HangUp,
                    _ => Event::Report,
                };
                if told.send(event).is_err() {
                    break;
                }
            }
        };
        confinement::spawn("signals", Role::Signals, listen)?;
        Ok(Self { sender, receiver })
    }

    /// Waits for the next event.
    pub fn next(&self) -> Event {
        // There is always a sender: the one in this value.
        self.receiver.recv().unwrap_or(Event::Terminate)
    }
}
