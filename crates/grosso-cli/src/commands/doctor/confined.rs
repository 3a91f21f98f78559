//! The confinement of running data paths, and what this kernel has for it.

use grosso_sys::sandbox;

use super::finding::Finding;
use crate::observe::control::{Answer, Ask, ask_all, folders};

/// A finding for each program that this user may ask, or one that there is none.
pub(super) fn findings() -> Vec<Finding> {
    let answers = ask_all(&folders(), &Ask::Counters { per_queue: false }).answers;
    match answers.is_empty() {
        true => vec![machine()],
        false => answers.iter().map(process).collect(),
    }
}

/// Facts about the kernel, while nothing runs.
fn machine() -> Finding {
    match sandbox::is_supported() {
        true => Finding::ok("confinement", "system calls can be filtered; no data path is running"),
        false => {
            Finding::warn("confinement", "this kernel cannot filter system calls (no seccomp)")
        }
    }
}

fn process(answer: &Answer) -> Finding {
    let lines: Vec<String> = answer.confinement.lines().collect();
    let what = format!("process {}: {}", answer.pid, lines.join("; "));
    match answer.confinement.is_whole() {
        true => Finding::ok("confinement", what),
        false => Finding::warn("confinement", what),
    }
}
