//! Thread that opens files and looks up interface properties on behalf of the recording thread, which is not allowed to
//! do so itself.
//!
//! This thread handles no packets. If the kernel supports Landlock, the thread can create and write files only in the
//! output directories.

use std::{
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::mpsc::{self, Sender},
};

use crate::{confinement, error::Failure};

type Job = Box<dyn FnOnce() + Send>;

/// Thread that opens files.
pub(super) struct Opener {
    jobs: Sender<Job>,
}

impl Opener {
    /// Starts the thread for outputs at these paths, which may contain `strftime(3)` conversions.
    pub(super) fn start(outputs: &[PathBuf]) -> Result<Self, Failure> {
        let directories = outputs.iter().map(|path| directory(path)).collect();
        let (sender, jobs) = mpsc::channel::<Job>();
        let work = move || jobs.into_iter().for_each(|job| job());
        let thread = confinement::spawn_opener("capture-files", directories, work);
        thread.map(|_| Self { jobs: sender }).map_err(|error| failed(&error))
    }

    /// Runs `work` on the thread, and returns its result.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let (sender, answer) = mpsc::sync_channel(1);
        // The send cannot fail, because the caller is waiting for the result.
        let job = move || drop(sender.send(work()));
        let sent = self.jobs.send(Box::new(job)).ok();
        let answer = sent.and_then(|()| answer.recv().ok());
        answer.ok_or_else(|| {
            Failure::internal("capture: the thread that opens files ended unexpectedly")
        })
    }
}

fn failed(error: &io::Error) -> Failure {
    let message = format!("capture: cannot start the thread that opens files: {error}");
    Failure::environment("environment.confinement", message)
}

/// Returns the deepest directory that all file names of an output have in common.
fn directory(output: &Path) -> PathBuf {
    let mut fixed = PathBuf::new();
    let parent = output.parent().unwrap_or_else(|| Path::new(""));
    let is_fixed = |part: &std::path::Component<'_>| !part.as_os_str().as_bytes().contains(&b'%');
    fixed.extend(parent.components().take_while(is_fixed));
    if fixed.as_os_str().is_empty() { ".".into() } else { fixed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_the_part_of_a_name_that_no_time_changes() {
        for (output, expected) in [
            ("x.pcap", "."),
            ("a/x-%H.pcap", "a"),
            ("/var/%Y/%m/x", "/var"),
            ("/var/cap/x", "/var/cap"),
            ("%Y/b/x", "."),
            ("/x", "/"),
        ] {
            assert_eq!(directory(Path::new(output)), Path::new(expected), "{output}");
        }
    }
}
