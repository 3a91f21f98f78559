//! Observation of checksum computations, to measure their cost.
//!
//! Without an observer, this costs no instructions: an observer takes the place of the selected backend, which has to
//! be loaded for every long block anyway.

use core::sync::atomic::{AtomicPtr, Ordering};

use super::{CHOSEN, NOT_CHOSEN};

/// Function that is called for each long block, with its length in bytes and the work to do. It must call `work`
/// exactly once; the duration of that call is the cost of the checksum.
pub type Observer = fn(bytes: usize, work: &mut dyn FnMut());

/// Sets the observer, which is called on every thread whenever a block of more than 64 bytes is summed, with or without
/// being copied. `None` removes it.
///
/// Operations in progress on other threads may or may not be observed.
pub fn observe(observer: Option<Observer>) {
    let pointer = observer.map_or(core::ptr::null_mut(), |observer| observer as *mut ());
    OBSERVER.store(pointer, Ordering::SeqCst);
    CHOSEN.store(NOT_CHOSEN, Ordering::SeqCst);
}

/// Does the work through the observer, if there is one.
pub(super) fn run_observed(bytes: usize, work: &mut dyn FnMut()) {
    match observer() {
        Some(observer) => observer(bytes, work),
        None => work(),
    }
}

/// Runs `choose` unless an observer is set: `choose` would select a backend for all blocks, bypassing the observer.
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
