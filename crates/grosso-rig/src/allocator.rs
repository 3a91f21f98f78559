//! An allocator that counts allocations per thread, and therefore per test. A program declares it in its crate root:
//!
//! ```
//! use grosso_rig::allocator::{Counting, allocations, live_bytes};
//!
//! #[global_allocator]
//! static ALLOCATOR: Counting = Counting;
//!
//! let before = (allocations(), live_bytes());
//! let held = std::hint::black_box(vec![0_u8; 5000]);
//! assert_eq!((allocations(), live_bytes()), (before.0 + 1, before.1 + 5000));
//! # drop(held);
//! ```

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

/// The system allocator with per-thread counters.
#[derive(Debug)]
pub struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static LIVE_BYTES: Cell<i64> = const { Cell::new(0) };
}

// SAFETY: every method passes its arguments to the system allocator and returns its result. The counters are plain
// cells without a destructor and never allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller upholds the contract of `GlobalAlloc::alloc`, which is also the contract of the system
        // allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE_BYTES.set(LIVE_BYTES.get() - layout.size() as i64);
        // SAFETY: the pointer comes from `alloc` above, and therefore from the system allocator, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as i64 - layout.size() as i64);
        // SAFETY: the pointer comes from `alloc` above, and therefore from the system allocator, with this layout.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

fn count(bytes: i64) {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
    LIVE_BYTES.set(LIVE_BYTES.get() + bytes);
}

/// Returns the number of allocations by the calling thread.
#[must_use]
pub fn allocations() -> u64 {
    ALLOCATIONS.get()
}

/// Returns the number of bytes that the calling thread has allocated and not freed.
#[must_use]
pub fn live_bytes() -> i64 {
    LIVE_BYTES.get()
}
