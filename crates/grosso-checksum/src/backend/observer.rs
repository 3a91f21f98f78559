//! Somebody who wants to know what checksums cost.
//!
//! While there is nobody, no instruction is spent on the question: an observer takes the place of
//! the choice of a backend, which every long block asks for anyway.

use core::sync::atomic::{AtomicPtr, Ordering};

use super::{CHOSEN, NOT_CHOSEN};

/// Is called for each block that is not short, with its bytes and the work to do on it, which it
/// must call once: the time that passes meanwhile is that of the checksum.
pub type Observer = fn(bytes: usize, work: &mut dyn FnMut());

/// Lets somebody see each sum, and each copy with sum, of a block of more than 64 bytes, in every
/// thread of the program, or nobody any more.
///
/// What is under way in other threads may still go unseen, or be seen once more.
pub fn observe(observer: Option<Observer>) {
    let pointer = observer.map_or(core::ptr::null_mut(), |observer| observer as *mut ());
    OBSERVER.store(pointer, Ordering::SeqCst);
    CHOSEN.store(NOT_CHOSEN, Ordering::SeqCst);
}

/// Does the work before the eyes of the observer, if there is one.
pub(super) fn tell(bytes: usize, work: &mut dyn FnMut()) {
    match observer() {
        Some(observer) => observer(bytes, work),
        None => work(),
    }
}

/// Makes a choice that keeps all blocks from the observer, unless there is one.
pub(super) fn unless_observed(choose: impl FnOnce()) {
    if observer().is_some() {
        return;
    }
    choose();
    // Somebody may have come between the question and the choice.
    if observer().is_some() {
        CHOSEN.store(NOT_CHOSEN, Ordering::SeqCst);
    }
}

fn observer() -> Option<Observer> {
    let pointer = OBSERVER.load(Ordering::SeqCst);
    if pointer.is_null() {
        return None;
    }
    // SAFETY: a pointer that is not null was made of an `Observer` by `observe`, the only writer.
    Some(unsafe { core::mem::transmute::<*mut (), Observer>(pointer) })
}

static OBSERVER: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
