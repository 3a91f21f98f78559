//! Memory of a receive ring. It stays mapped as long as there are frames in it, even if their ring is gone.
//!
//! A frame marks its slot as taken, and clearing the mark is its last access to the slot. Reference counting is
//! therefore unnecessary: if no slot is marked, there is no frame. If frames still exist when their ring is dropped,
//! the memory goes to a list, which is checked whenever a ring is opened or dropped. A counter would cost two atomic
//! additions per frame, which is more than all other work on a frame.

use core::ops::Deref;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::ring::{RingMemory, SlotPlace};
use crate::abi;

/// Status of a slot that this program has taken and not returned. To the kernel, every status except `TP_STATUS_KERNEL`
/// (zero) means that the slot belongs to the program.
const TAKEN: u32 = 1 << 27;

/// Memory of dropped rings that still held frames. The length of the list is bounded by the number of rings whose
/// frames are still held, plus the rings whose frames were dropped since a ring was last opened or dropped.
static LEFT: Mutex<Vec<LeftMemory>> = Mutex::new(Vec::new());

/// Memory of a ring, which the ring shares with its frames.
#[derive(Debug)]
pub(super) struct FrameMemory(FrameSlot);

/// A frame's reference to the memory of its ring.
#[derive(Debug)]
pub(super) struct FrameSlot(NonNull<RingMemory>);

/// The memory of a dropped ring.
#[derive(Debug)]
struct LeftMemory(NonNull<RingMemory>);

// SAFETY: the pointer is used as a shared reference, and its target may be shared by threads.
unsafe impl Send for FrameSlot {}
// SAFETY: the pointer is used as a shared reference, and its target may be shared by threads.
unsafe impl Sync for FrameSlot {}
// SAFETY: the target may be shared by threads: frames on any thread access the memory through atomic words.
unsafe impl Send for LeftMemory {}

impl FrameMemory {
    pub(super) fn new(memory: RingMemory) -> Self {
        sweep(&mut left());
        Self(FrameSlot(NonNull::from(Box::leak(Box::new(memory)))))
    }

    /// Marks a slot as taken by a frame, which later [returns the slot](FrameSlot::return_slot).
    #[inline(always)]
    pub(super) fn take_slot(&self, slot: SlotPlace) -> FrameSlot {
        self.release(slot, TAKEN);
        FrameSlot(self.0.0)
    }
}

impl Deref for FrameMemory {
    type Target = RingMemory;

    #[inline(always)]
    fn deref(&self) -> &RingMemory {
        &self.0
    }
}

impl Drop for FrameMemory {
    fn drop(&mut self) {
        let mut left = left();
        left.push(LeftMemory(self.0.0));
        sweep(&mut left);
    }
}

impl Deref for FrameSlot {
    type Target = RingMemory;

    #[inline(always)]
    fn deref(&self) -> &RingMemory {
        // SAFETY: the memory is freed once its ring is gone and no slot is taken. Only the ring and its frames, each
        // with a taken slot, have this reference.
        unsafe { self.0.as_ref() }
    }
}

impl FrameSlot {
    /// Returns a frame's slot to the kernel, after which the frame must not use it.
    #[inline(always)]
    pub(super) fn return_slot(&mut self, slot: SlotPlace) {
        self.release(slot, abi::TP_STATUS_KERNEL);
    }
}

impl LeftMemory {
    /// Returns whether the memory holds frames.
    fn has_frames(&self) -> bool {
        // SAFETY: only the list frees the memory, and this entry is still in the list.
        let memory = unsafe { self.0.as_ref() };
        // Frames clear their marks with a release store, after all other accesses.
        memory.slots().any(|slot| memory.status(slot).load(Ordering::Acquire) == TAKEN)
    }
}

fn left() -> MutexGuard<'static, Vec<LeftMemory>> {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Frees memory that no longer holds frames.
fn sweep(left: &mut Vec<LeftMemory>) {
    for memory in left.extract_if(.., |memory| !memory.has_frames()) {
        // SAFETY: the ring that created the memory from a box is gone, and so are all of its frames.
        drop(unsafe { Box::from_raw(memory.0.as_ptr()) });
    }
}
