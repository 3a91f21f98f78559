//! Writes the manual pages and completions of `grosso` into the given directory; `packaging/release` runs this program.
#![forbid(unsafe_code)]

use std::{env, io, path::PathBuf};

fn main() -> io::Result<()> {
    let folder = env::args_os().nth(1).map(PathBuf::from);
    let folder = folder.ok_or_else(|| io::Error::other("usage: pages FOLDER"))?;
    grosso_cli::pages::write(&folder)
}
