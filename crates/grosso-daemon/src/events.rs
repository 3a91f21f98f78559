//! Events that a process handles while its paths run, for example signals and paths that end.

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

/// An event that the process handles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// SIGINT: exit, and print a summary.
    Interrupt,
    /// SIGTERM: exit.
    Terminate,
    /// SIGHUP: reload the configuration, if there is one.
    HangUp,
    /// SIGUSR1: print the current counters.
    Report,
    /// The path with this number ended.
    PathEnded(u64),
    /// The path with this number has few ESP sequence numbers left, or none.
    Scarce(u64, Scarcity),
    /// The path with this number dropped, for the first time, a packet that its own tunnel had sent.
    Looped(u64),
    /// The path with this number has a tunnel, and a route to the tunnel's remote endpoint changed.
    RouteChanged(u64),
    /// A note about the start of a path, for the user.
    Note(String),
}

/// Event queue. The number of signals and paths bounds its length: the kernel merges equal pending signals, and a path
/// ends once, reports only its first looping packet, and sends a few notes each time it starts. Each of its queues
/// checks the routes once per second.
#[derive(Debug)]
pub struct Events {
    /// Sender that path threads use to report events.
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
        // This value holds a sender, so the channel never closes.
        self.receiver.recv().unwrap_or(Event::Terminate)
    }
}
