//! The C boundary: catches panics, and rejects calls that use a handle already in use.

use core::{
    cell::{Cell, RefCell},
    ffi::c_int,
};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Failure, GROSSO_ERROR_ARGUMENT, GROSSO_ERROR_BROKEN, GROSSO_ERROR_BUSY};

/// State of a handle.
#[derive(Debug)]
pub(crate) struct Handle<T> {
    inner: RefCell<T>,
    is_broken: Cell<bool>,
}

impl<T> Handle<T> {
    pub(crate) const fn new(inner: T) -> Self {
        Self { inner: RefCell::new(inner), is_broken: Cell::new(false) }
    }

    /// Runs a function on the handle, unless one is running or the handle is broken.
    pub(crate) fn enter(&self, work: impl FnOnce(&mut T) -> Result<c_int, Failure>) -> c_int {
        if self.is_broken.get() {
            return GROSSO_ERROR_BROKEN;
        }
        let Ok(mut inner) = self.inner.try_borrow_mut() else { return GROSSO_ERROR_BUSY };
        let result = guarded(|| work(&mut inner));
        self.is_broken.set(result == GROSSO_ERROR_BROKEN);
        result
    }

    /// Returns whether a function on the handle is running.
    pub(crate) fn is_busy(&self) -> bool {
        self.inner.try_borrow_mut().is_err()
    }
}

/// Runs a function without a handle and converts a panic into an error.
pub(crate) fn guarded(work: impl FnOnce() -> Result<c_int, Failure>) -> c_int {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(result)) => result,
        Ok(Err(Failure(code))) => code,
        Err(_) => GROSSO_ERROR_BROKEN,
    }
}

/// Runs a function on the caller's handle.
///
/// # Safety
/// The pointer must be null, or come from [`give`] and not yet have been freed by [`take_back`].
pub(crate) unsafe fn enter<T>(
    handle: *const Handle<T>,
    work: impl FnOnce(&mut T) -> Result<c_int, Failure>,
) -> c_int {
    // SAFETY: by this function's contract the pointer is null or points to a live allocation from `give`; only shared
    // references are ever made.
    match unsafe { handle.as_ref() } {
        Some(handle) => handle.enter(work),
        None => GROSSO_ERROR_ARGUMENT,
    }
}

/// Passes a new handle to the caller through `out`.
///
/// # Safety
/// `out` must be null or point to a pointer.
pub(crate) unsafe fn give<T>(
    out: *mut *mut Handle<T>,
    make: impl FnOnce() -> Result<T, Failure>,
) -> c_int {
    guarded(|| {
        if out.is_null() {
            return Err(Failure(GROSSO_ERROR_ARGUMENT));
        }
        let handle = Box::into_raw(Box::new(Handle::new(make()?)));
        // SAFETY: the pointer is not null, so by this function's contract it points to a pointer.
        unsafe { out.write(handle) };
        Ok(0)
    })
}

/// Frees a handle; null is allowed.
///
/// # Safety
/// See [`enter`]; the pointer must not be used again unless the result is an error.
pub(crate) unsafe fn take_back<T>(handle: *mut Handle<T>) -> c_int {
    // SAFETY: as in `enter`.
    match unsafe { handle.as_ref() } {
        None => return 0,
        Some(handle) if handle.is_busy() => return GROSSO_ERROR_BUSY,
        Some(_) => {}
    }
    // SAFETY: by this function's contract it came from `Box::into_raw` in `give` and is freed once; it is not in use.
    let owned = unsafe { Box::from_raw(handle) };
    guarded(|| {
        drop(owned);
        Ok(0)
    })
}
