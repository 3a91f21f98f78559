//! Decides whether a path is restarted after a panic.

use std::time::{Duration, Instant};

/// Time of each panic in the last minute, with the name of the path.
#[derive(Debug, Default)]
pub struct Restarts(Vec<(String, Instant)>);

impl Restarts {
    /// Returns whether a path that panicked now restarts: at most [`RESTARTS_MAX`] times a minute.
    pub fn allow(&mut self, path: &str, now: Instant) -> bool {
        self.0.retain(|(_, at)| now.duration_since(*at) < RESTART_TIME);
        if self.0.iter().filter(|(name, _)| name == path).count() >= RESTARTS_MAX {
            return false;
        }
        self.0.push((path.to_owned(), now));
        true
    }
}

/// Maximum number of restarts of a path within `RESTART_TIME`: repeated packets could make it panic forever.
pub const RESTARTS_MAX: usize = 3;
/// Time after which a panic no longer counts.
const RESTART_TIME: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_is_started_again_some_times_a_minute() {
        let (mut restarts, start) = (Restarts::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        for _ in 0..RESTARTS_MAX {
            assert!(restarts.allow("edge", at(0)));
        }
        assert!(!restarts.allow("edge", at(59)));
        assert!(restarts.allow("core", at(59)), "another path");
        assert!(restarts.allow("edge", at(60)), "a minute later");
        assert_eq!(restarts.0.len(), 2, "expired restarts are removed");
    }
}
