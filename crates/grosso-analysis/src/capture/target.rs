//! Path and format of an output capture.

use std::path::{Path, PathBuf};

use grosso_capture::Format;

use super::Session;

/// Path and format of an output capture.
#[derive(Clone, Debug, Default)]
pub struct Target {
    /// File to write, or `-` for standard output; `None` if only the report is wanted.
    pub path: Option<PathBuf>,
    /// Requested format; `None` to derive it from the file name or the input.
    pub format: Option<Format>,
}

impl Target {
    /// Returns the output format: the requested one, else the one that the file name implies, else `default`.
    pub fn format(&self, default: Format) -> Format {
        let name = self.path.as_deref().map(|path| match compressor(path) {
            Some(_) => path.with_extension(""),
            None => path.to_path_buf(),
        });
        let by_name = || match name?.extension()?.to_str()? {
            "pcap" => Some(Format::Pcap),
            "pcapng" => Some(Format::Pcapng),
            _ => None,
        };
        self.format.or_else(by_name).unwrap_or(default)
    }

    /// Returns whether the hash of the input is needed, either for pcapng output or for the report.
    pub(crate) fn keeps_hash(&self, session: &Session) -> bool {
        let is_kept = self.path.is_some() && self.format(Format::Pcapng) != Format::Pcap;
        session.names_hash || is_kept
    }
}

/// Returns the compression program that the file name implies, if any.
pub(crate) fn compressor(path: &Path) -> Option<&'static str> {
    match path.extension()?.to_str()? {
        "gz" => Some("gzip"),
        "zst" => Some("zstd"),
        _ => None,
    }
}
