//! Notices of rare events. The thread that moves packets sends them, and another thread shows them to the user.

use std::{fmt, sync::Arc};

/// Callback through which a port reports rare events. It runs in the thread that moves packets, so it must not block.
#[derive(Clone)]
pub struct Notice(Arc<dyn Fn() + Send + Sync>);

impl Notice {
    /// Creates a notice that calls `notify`.
    pub fn new(notify: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(notify))
    }

    /// Calls the callback.
    pub(crate) fn send(&self) {
        (self.0)();
    }
}

impl fmt::Debug for Notice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Notice")
    }
}

/// Compares two notices, which are equal if they call the same function object.
impl PartialEq for Notice {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Notice {}
