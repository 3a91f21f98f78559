//! The helper process that writes sequence number files, so that no path waits for a disk.

use std::{
    fs::File,
    io,
    os::{fd::AsFd, unix::net::UnixStream},
    sync::OnceLock,
};

use grosso_io::stage::{SequenceFile, SequenceRecorder, record};
use grosso_sys::{
    helper::{Helper, Job},
    sandbox::{self, Role},
};

/// The helper process, once started.
static HELPER: OnceLock<Helper> = OnceLock::new();

/// Starts the helper. Call it before any thread starts.
pub fn start() -> io::Result<()> {
    let helper = Helper::start(|| sandbox::enter(Role::Recorder).map(drop), work)?;
    let _ = HELPER.set(helper);
    Ok(())
}

fn work(Job { number, files: [file, link] }: Job) {
    record(File::from(file), number, UnixStream::from(link));
}

/// Returns a recorder for this file. The helper runs it; in a program without a helper, the path's thread does.
pub(super) fn recorder(file: SequenceFile) -> io::Result<SequenceRecorder> {
    let Some(helper) = HELPER.get() else { return SequenceRecorder::here(file) };
    SequenceRecorder::apart(file, |file, keys, link| {
        helper.give(keys, [file.as_fd(), link.as_fd()])
    })
}
