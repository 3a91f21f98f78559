//! A capture that is read twice, because the fate of a packet is known only after later ones.

use std::{
    fs::File,
    io::{self, Seek},
    path::{Path, PathBuf},
    sync::atomic::Ordering,
};

use crate::{
    error::Failure,
    input::{Input, Session, Source, io_failure, open_stream},
};

/// A file, or the bytes of a pipe in a temporary file without a name (ADR 0045).
pub(crate) struct Twice {
    path: PathBuf,
    spool: Option<File>,
    /// The user ended the pipe by Ctrl-C; the packets before that are processed.
    is_interrupted: bool,
}

impl Twice {
    /// Makes sure that a capture can be read again. A pipe is read to its end.
    pub(crate) fn open(path: &Path, session: &Session) -> Result<Self, Failure> {
        let mut twice = Self { path: path.into(), spool: None, is_interrupted: false };
        let (stream, bytes) = open_stream(path)?;
        if bytes.is_none() {
            let mut spool = tempfile::tempfile().map_err(spool_failure)?;
            io::copy(&mut Source::new(stream, false, session), &mut spool)
                .map_err(spool_failure)?;
            twice.spool = Some(spool);
            twice.is_interrupted = session.interrupted.swap(false, Ordering::Relaxed);
        }
        Ok(twice)
    }

    /// Opens the capture at its start. Only one reading at a time is possible.
    pub(crate) fn input(&self, is_hashed: bool, session: &Session) -> Result<Input, Failure> {
        let Some(spool) = &self.spool else {
            return Input::open(&self.path, is_hashed, session);
        };
        let rewound = || {
            let mut stream = spool.try_clone()?;
            stream.rewind()?;
            let bytes = stream.metadata()?.len();
            io::Result::Ok((stream, bytes))
        };
        let (stream, bytes) = rewound().map_err(|error| io_failure(&self.path, error))?;
        let mut input = Input::over(stream, Some(bytes), &self.path, is_hashed, session)?;
        input.is_cut_off = self.is_interrupted;
        Ok(input)
    }
}

fn spool_failure(error: io::Error) -> Failure {
    let folder = std::env::temp_dir();
    let message = format!("keeping the pipe in {}: {error}", folder.display());
    let hint = "TMPDIR=DIR in the environment chooses another folder; a file needs none";
    Failure::environment("environment.spool", message).hint(hint)
}
