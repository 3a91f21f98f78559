//! Prepares the kernel that guests boot.

use std::{
    env, io,
    path::{Path, PathBuf},
};

use grosso_lab::guest::{self, Contents, Image, Kernel};

/// Returns the directory into which `.ci/run` unpacks the kernel, or `GROSSO_GUEST_KERNEL` if that is set.
pub(crate) fn kernel() -> PathBuf {
    let own = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/guest/kernel");
    env::var_os("GROSSO_GUEST_KERNEL").map_or_else(own, PathBuf::from)
}

/// Returns why no guest with these programs can boot.
pub(crate) fn missing(programs: &[&str]) -> Option<String> {
    guest::missing(&kernel(), programs)
}

/// Creates an image of the kernel with an initial file system.
pub(crate) fn image(folder: &Path, contents: &Contents<'_>) -> io::Result<Image> {
    Image::new(folder, Kernel::find(&kernel())?, contents)
}
