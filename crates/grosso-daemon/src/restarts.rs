//! Paths that met a defect, and whether they are started again.

use std::time::{Duration, Instant};

/// The defects of the last minute, by path.
#[derive(Debug, Default)]
pub struct Restarts(Vec<(String, Instant)>);

impl Restarts {
    /// Whether a path that met a defect now is to be started again: [`RESTARTS_MAX`] times a minute.
    pub fn allow(&mut self, path: &str, now: Instant) -> bool {
        self.0.retain(|(_, at)| now.duration_since(*at) < RESTART_TIME);
        if self.0.iter().filter(|(name, _)| name == path).count() >= RESTARTS_MAX {
            return false;
        }
        self.0.push((path.to_owned(), now));
        true
    }
}

/// Most times that a path is started again within `RESTART_TIME`: packets that someone sends again and again would
/// make it meet the same defect forever.
pub const RESTARTS_MAX: usize = 3;
/// The time for which a defect counts.
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
        assert_eq!(restarts.0.len(), 2, "what no longer counts is forgotten");
    }
}
