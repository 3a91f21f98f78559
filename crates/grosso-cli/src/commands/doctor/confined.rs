//! Reports whether running data paths are confined, and whether this kernel supports confinement.

use grosso_sys::sandbox;

use super::finding::Finding;
use crate::observe::control::{Answer, Ask, ask_all, folders};

/// Returns one finding for each running Grosso process that this user may query, or a single finding if there is none.
pub(super) fn findings() -> Vec<Finding> {
    let answers = ask_all(&folders(), &Ask::Counters { per_queue: false }).answers;
    match answers.is_empty() {
        true => vec![machine()],
        false => answers.iter().map(process).collect(),
    }
}

/// Returns the finding about the kernel, for use if no data path is running.
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
