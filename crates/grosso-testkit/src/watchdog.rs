//! A time limit for tests that wait.

use std::{
    io::Write,
    process,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::Duration,
};

/// Time limit for a test that waits.
pub const STUCK: Duration = Duration::from_secs(120);

/// Turns a test that waits forever into a failure: ends the test program if the value outlives [`STUCK`].
///
/// A test that makes blocking calls creates a watchdog, so that a call that never returns cannot stop the run. The
/// limit is far above the duration of every test, and says nothing about speed.
///
/// ```
/// let _watchdog = grosso_testkit::Watchdog::new();
/// ```
#[derive(Debug)]
pub struct Watchdog {
    /// Tells the watchdog thread that the test has ended, when dropped.
    _alive: Sender<()>,
}

impl Watchdog {
    /// Starts a watchdog for the calling test.
    #[must_use]
    pub fn new() -> Self {
        let (_alive, ended) = channel();
        let test = thread::current().name().unwrap_or("test").to_owned();
        thread::spawn(move || {
            if is_stuck(&ended, STUCK) {
                // `eprintln!` does not work here, because the test harness would hold the text back until the test
                // ends.
                let text = format!("\n{test}: still waiting after {} s\n", STUCK.as_secs());
                let _ = std::io::stderr().write_all(text.as_bytes());
                process::exit(101);
            }
        });
        Self { _alive }
    }
}

impl Default for Watchdog {
    fn default() -> Self {
        Self::new()
    }
}

/// Waits until the test ends, but not longer than the limit. Returns whether the test is still running.
fn is_stuck(ended: &Receiver<()>, limit: Duration) -> bool {
    ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_test_that_does_not_end_is_stuck() {
        let (alive, ended) = channel::<()>();
        assert!(is_stuck(&ended, Duration::ZERO));
        drop(alive);
        assert!(!is_stuck(&ended, Duration::ZERO));
    }
}
