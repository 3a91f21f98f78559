//! Checks whether two paths refer to the same file, so that no capture is overwritten while it is read.

use std::io;
use std::path::Path;

/// Returns whether both paths refer to the same file, possibly through symbolic or hard links.
///
/// A path that does not exist never refers to the same file as another.
///
/// # Errors
/// Returns any error from `stat(2)` except `ENOENT`.
pub fn same_file(one: impl AsRef<Path>, other: impl AsRef<Path>) -> io::Result<bool> {
    match (identity(one.as_ref()), identity(other.as_ref())) {
        (Ok(one), Ok(other)) => Ok(one == other),
        (Err(error), _) | (_, Err(error)) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        (Err(error), _) | (_, Err(error)) => Err(error),
    }
}

#[cfg(unix)]
#[expect(clippy::disallowed_methods, reason = "nothing is opened")]
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;

    let metadata = path.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

#[cfg(not(unix))]
fn identity(path: &Path) -> io::Result<std::path::PathBuf> {
    path.canonicalize()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn links_are_the_same_file_and_copies_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let [file, copy, hard, missing] =
            ["file", "copy", "hard", "missing"].map(|name| folder.path().join(name));
        fs::write(&file, b"x").unwrap();
        fs::copy(&file, &copy).unwrap();
        fs::hard_link(&file, &hard).unwrap();
        assert!(same_file(&file, &file).unwrap());
        assert!(same_file(&file, &hard).unwrap());
        assert!(same_file(&file, folder.path().join(".").join("file")).unwrap());
        assert!(!same_file(&file, &copy).unwrap());
        assert!(!same_file(&file, &missing).unwrap());
    }
}
