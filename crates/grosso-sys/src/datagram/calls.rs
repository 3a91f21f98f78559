//! Somebody who wants to know how long a thread is in system calls of sockets.

use core::cell::Cell;

/// Is called for each batch that is sent or received, with the system call, which it must make once.
pub type CallObserver = fn(call: &mut dyn FnMut());

/// Lets somebody see each system call by which a [`DatagramSocket`](super::DatagramSocket) sends or receives in the
/// calling thread, or nobody any more.
pub fn observe_calls(observer: Option<CallObserver>) {
    OBSERVER.set(observer);
}

/// Makes a system call before the eyes of the observer, if there is one.
pub(super) fn tell(call: &mut dyn FnMut()) {
    match OBSERVER.get() {
        Some(observer) => observer(call),
        None => call(),
    }
}

thread_local! {
    static OBSERVER: Cell<Option<CallObserver>> = const { Cell::new(None) };
}
