//! Observes the system calls that receive, send and wait, so that their cost can be measured.

use core::cell::Cell;

/// Function that makes an observed system call. It must call `call` exactly once.
pub type CallObserver = fn(call: &mut dyn FnMut());

/// Sets the observer for the calling thread's system calls that send or receive on a TUN device, a packet socket, an
/// AF_XDP socket or a [`DatagramSocket`](crate::datagram::DatagramSocket), or that [wait](crate::wait::wait_for).
/// `None` removes it.
pub fn observe(observer: Option<CallObserver>) {
    OBSERVER.set(observer);
}

/// Makes a system call through the observer, if one is set.
pub(crate) fn seen<T>(mut call: impl FnMut() -> T) -> T {
    let Some(observer) = OBSERVER.get() else { return call() };
    let mut result = None;
    observer(&mut || result = Some(call()));
    result.unwrap_or_else(call)
}

thread_local! {
    static OBSERVER: Cell<Option<CallObserver>> = const { Cell::new(None) };
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::wait::{Event, Interest, wait_for};

    thread_local! {
        static SEEN: Cell<u32> = const { Cell::new(0) };
    }

    fn count(call: &mut dyn FnMut()) {
        SEEN.set(SEEN.get() + 1);
        call();
    }

    #[test]
    fn a_call_is_made_once_whoever_looks() {
        let mut made = 0;
        assert_eq!(
            seen(|| {
                made += 1;
                made
            }),
            1
        );
        observe(Some(count));
        assert_eq!(
            (
                seen(|| {
                    made += 1;
                    made
                }),
                SEEN.get()
            ),
            (2, 1)
        );
        observe(Some(|_| {}));
        assert_eq!(
            seen(|| {
                made += 1;
                made
            }),
            3,
            "an observer that makes no calls is harmless"
        );
        observe(None);
        assert_eq!((seen(|| made), SEEN.get()), (3, 1));
    }

    #[test]
    fn waiting_is_seen() {
        let event = Event::new().unwrap();
        event.raise().unwrap();
        observe(Some(count));
        let sources = [(std::os::fd::AsFd::as_fd(&event), Interest::READ)];
        assert_eq!(wait_for(&sources, Some(Duration::ZERO)).unwrap(), Some(0));
        observe(None);
        assert_eq!(SEEN.get(), 1);
    }
}
