//! What a process is told while its paths run: by signals, and by the paths themselves.

use std::{
    io,
    sync::mpsc::{self, Receiver, Sender},
    thread,
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1},
    iterator::Signals,
};

/// Something to act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// SIGINT: end, and say what was done.
    Interrupt,
    /// SIGTERM: end.
    Terminate,
    /// SIGHUP: read the configuration again, where there is one.
    HangUp,
    /// SIGUSR1: say what was done so far.
    Report,
    /// The path of this number ended.
    PathEnded(u64),
}

/// The queue of events. It is as long as there are signals and paths that nobody looked after yet: the kernel merges
/// equal signals that wait, and a path ends once.
#[derive(Debug)]
pub(crate) struct Events {
    pub(crate) sender: Sender<Event>,
    receiver: Receiver<Event>,
}

impl Events {
    /// Listens for signals from now on.
    pub(crate) fn listen() -> io::Result<Self> {
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
        thread::Builder::new().name("signals".into()).spawn(listen)?;
        Ok(Self { sender, receiver })
    }

    /// Waits for the next event.
    pub(crate) fn next(&self) -> Event {
        // There is always a sender, this one's own.
        self.receiver.recv().unwrap_or(Event::Terminate)
    }
}
