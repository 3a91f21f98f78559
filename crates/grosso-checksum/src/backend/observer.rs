//! Observation of checksums, to measure their cost.
//!
//! Without an observer this costs no instruction: an observer replaces the selected backend, which every long block
//! loads anyway.

use core::sync::atomic::{AtomicPtr, Ordering};

use super::{CHOSEN, NOT_CHOSEN};

/// Function called for each long block with its length in bytes and the work to do. It must call the work exactly once;
/// the duration of that call is the cost of the checksum.
pub type Observer = fn(bytes: usize, work: &mut dyn FnMut());

/// Sets the observer for every sum, and every copy with sum, of a block of more than 64 bytes, in all threads. `None`
/// removes it.
///
/// Calls in progress in other threads may be missed, or still be observed.
pub fn observe(observer: Option<Observer>) {
    let pointer = observer.map_or(core::ptr::null_mut(), |observer| observer as *mut ());
    OBSERVER.store(pointer, Ordering::SeqCst);
    CHOSEN.store(NOT_CHOSEN, Ordering::SeqCst);
}

/// Runs the work through the observer, if there is one.
pub(super) fn run_observed(bytes: usize, work: &mut dyn FnMut()) {
    match observer() {
        Some(observer) => observer(bytes, work),
        None => work(),
    }
}

/// Runs `choose` unless there is an observer: `choose` selects a backend for all blocks, which would bypass the
/// observer.
pub(super) fn unless_observed(choose: impl FnOnce()) {
    if observer().is_some() {
        return;
    }
    choose();
    // An observer may have been set between the check and the selection.
    if observer().is_some() {
        CHOSEN.store(NOT_CHOSEN, Ordering::SeqCst);
    }
}

fn observer() -> Option<Observer> {
    let pointer = OBSERVER.load(Ordering::SeqCst);
    if pointer.is_null() {
        return None;
    }
    // SAFETY: a non-null pointer was made from an `Observer` by `observe`, the only writer.
    Some(unsafe { core::mem::transmute::<*mut (), Observer>(pointer) })
}

static OBSERVER: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
