//! Memory of a receive ring, in which frames may be that outlive their ring.
//!
//! A frame marks its slot as taken, and to take the mark away is the last that it does there. So frames need no count:
//! where no slot is marked, there is no frame. Memory that is left with frames in it stays on a list, which rings look
//! through when they are opened and dropped. A count of frames would cost two atomic additions for each, which take
//! longer than all else that a frame is asked.

use core::ops::Deref;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::ring::{RingMemory, SlotPlace};
use crate::abi;

/// Status of a slot that this program has taken and not returned. The kernel treats every value but
/// `TP_STATUS_KERNEL`, which is zero, as not its own.
const TAKEN: u32 = 1 << 27;

/// Memory of rings that were dropped while frames were in it: no more than rings with such frames, and those whose
/// frames went since a ring was opened or dropped.
static LEFT: Mutex<Vec<LeftMemory>> = Mutex::new(Vec::new());

/// The memory of a ring, which lends it to the ring's frames.
#[derive(Debug)]
pub(super) struct FrameMemory(FrameSlot);

/// The memory of a ring, as a frame in it has it.
#[derive(Debug)]
pub(super) struct FrameSlot(NonNull<RingMemory>);

/// The memory of a ring that is no more.
#[derive(Debug)]
struct LeftMemory(NonNull<RingMemory>);

// SAFETY: it stands for a shared reference, and what it refers to may be shared by threads.
unsafe impl Send for FrameSlot {}
// SAFETY: as above.
unsafe impl Sync for FrameSlot {}
// SAFETY: as above; frames of any thread may be in it, and say so by atomic words.
unsafe impl Send for LeftMemory {}

impl FrameMemory {
    pub(super) fn new(memory: RingMemory) -> Self {
        sweep(&mut left());
        Self(FrameSlot(NonNull::from(Box::leak(Box::new(memory)))))
    }

    /// Takes a slot for a frame, which [gives it back](FrameSlot::return_slot).
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
        // SAFETY: the memory is freed when its ring is gone and no slot is taken; a ring and its frames, which have
        // taken one, are all that have this.
        unsafe { self.0.as_ref() }
    }
}

impl FrameSlot {
    /// Returns a frame's slot to the kernel, by which the loan is over.
    #[inline(always)]
    pub(super) fn return_slot(&mut self, slot: SlotPlace) {
        self.release(slot, abi::TP_STATUS_KERNEL);
    }
}

impl LeftMemory {
    /// Whether frames are in it.
    fn has_frames(&self) -> bool {
        // SAFETY: it is freed by the list alone, which has it.
        let memory = unsafe { self.0.as_ref() };
        // Frames take their marks away with a release, behind all else that they do.
        memory.slots().any(|slot| memory.status(slot).load(Ordering::Acquire) == TAKEN)
    }
}

fn left() -> MutexGuard<'static, Vec<LeftMemory>> {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Frees what no frame is in any more.
fn sweep(left: &mut Vec<LeftMemory>) {
    for memory in left.extract_if(.., |memory| !memory.has_frames()) {
        // SAFETY: its ring is gone, which made it from a box, and so are all frames, which were the ring's.
        drop(unsafe { Box::from_raw(memory.0.as_ptr()) });
    }
}
