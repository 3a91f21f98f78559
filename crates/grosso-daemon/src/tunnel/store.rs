//! The files in which tunnels are stored. Each tunnel has three files, in a directory next to the sockets of running
//! programs. Each network namespace has its own directory, because two namespaces may have devices, and therefore
//! tunnels, of the same name.

use std::{
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use grosso_sys::{namespace::network_cookie, path};

use super::Definition;
use crate::{
    error::Failure,
    observe::control::{OWN_FOLDER, folders, is_trusted, usable},
    wrong::similar,
};

/// The location of one tunnel's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelFiles {
    /// The name of the tunnel.
    pub name: String,
    folder: PathBuf,
}

impl TunnelFiles {
    /// Returns the location for a new tunnel.
    ///
    /// # Errors
    /// Fails if no directory is usable.
    pub fn new(name: &str) -> io::Result<Self> {
        let tunnels = usable(&folders())?.join(FOLDER);
        path::prepare_private(&tunnels)?;
        let folder = tunnels.join(namespace()?);
        path::prepare_private(&folder)?;
        Ok(Self { name: name.to_owned(), folder })
    }

    /// Returns the tunnel with this name.
    pub fn find(command: &str, name: &str) -> Result<Self, Failure> {
        let places = Self::all();
        if let Some(place) = places.iter().find(|place| place.name == name) {
            return Ok(place.clone());
        }
        let mut message = format!("{command}: no tunnel \"{name}\"");
        let names = || places.iter().map(|place| place.name.as_str());
        if let Some(meant) = similar(name, names()) {
            message += &format!("; did you mean {meant}?");
        }
        let hint = match places.is_empty() {
            true => "this user has no tunnels in this network namespace; create one with grosso \
                 tunnel add"
                .to_owned(),
            false => format!("existing tunnels: {}", names().collect::<Vec<_>>().join(", ")),
        };
        Err(Failure::environment("environment.no_tunnel", message).hint(hint))
    }

    /// Returns all tunnels of this user in this network namespace, sorted by name.
    pub fn all() -> Vec<Self> {
        let Ok(namespace) = namespace() else { return Vec::new() };
        let folders = folders().into_iter().filter(|folder| is_trusted(folder));
        let read = |folder: PathBuf| {
            let folder = folder.join(FOLDER).join(&namespace);
            let entries = path::entries(&folder).into_iter().flatten();
            entries.filter_map(move |entry| {
                let name = entry.name.to_str()?.strip_suffix(DEFINITION)?.to_owned();
                Some(Self { name, folder: folder.clone() })
            })
        };
        let mut places: Vec<Self> = folders.flat_map(read).take(TUNNELS_MAX).collect();
        places.sort_by(|one, other| one.name.cmp(&other.name));
        places
    }

    /// Returns the path of the definition file, which `grosso run` reads.
    pub fn definition(&self) -> PathBuf {
        self.file(DEFINITION)
    }

    /// Returns the path of the process's log.
    pub fn log(&self) -> PathBuf {
        self.file(".log")
    }

    /// Returns the path of the file with the process ID.
    pub fn process(&self) -> PathBuf {
        self.file(".pid")
    }

    /// Returns the path of the socket on which the process reports that it runs.
    pub fn notice(&self) -> PathBuf {
        self.file(".notify")
    }

    /// Creates a new directory for a process that switches to another user; this user owns it at first. Other users may
    /// traverse its parent directory, but not list it.
    pub fn make_private_folder(&self) -> io::Result<PathBuf> {
        let (above, folder) = self.private_folder()?;
        self.remove_private_folder()?;
        path::create_directory(&folder, 0o700)?;
        path::set_directory_mode(&above, 0o011)?;
        Ok(folder)
    }

    /// Removes the directory of a process that switched to another user, if it exists.
    pub fn remove_private_folder(&self) -> io::Result<()> {
        let (_, folder) = self.private_folder()?;
        match path::remove_directory(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    /// Returns the directory for the sockets of running programs, and its subdirectory for the process of this tunnel.
    fn private_folder(&self) -> io::Result<(PathBuf, PathBuf)> {
        let above = self.folder.ancestors().nth(2).ok_or(io::ErrorKind::NotFound)?;
        let namespace = self.folder.file_name().ok_or(io::ErrorKind::NotFound)?;
        let name = format!("{}-{}.{OWN_FOLDER}", namespace.display(), self.name);
        Ok((above.to_owned(), above.join(name)))
    }

    /// Writes the definition atomically.
    pub fn save(&self, definition: &Definition) -> io::Result<()> {
        path::replace(&self.definition(), definition.to_toml().as_bytes(), 0o644)
    }

    /// Removes the tunnel's files.
    pub fn remove(&self) -> io::Result<()> {
        for file in [self.log(), self.process(), self.notice()] {
            // A process that ended early may not have created every file.
            let _ = path::remove(&file);
        }
        let _ = self.remove_private_folder();
        path::remove(&self.definition())
    }

    fn file(&self, end: &str) -> PathBuf {
        Path::new(&self.folder).join(format!("{}{end}", self.name))
    }
}

/// Returns the name of this network namespace's directory, with a number that no later namespace gets. Before Linux
/// 5.14, it is the inode number, which a later namespace may get once this one is gone.
fn namespace() -> io::Result<String> {
    let number =
        network_cookie().or_else(|_| Ok(path::kernel::metadata("/proc/self/ns/net")?.ino()));
    number.map(|number| format!("net-{number}"))
}

/// Name of the directory that contains the files of tunnels.
const FOLDER: &str = "tunnels";
/// File extension of tunnel definitions.
const DEFINITION: &str = ".toml";
/// Maximum number of tunnels that are read.
const TUNNELS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests that a new namespace gets a different number even if the kernel reuses the inode number of a removed
    /// namespace.
    #[test]
    fn a_folder_has_the_number_that_no_later_network_gets() {
        match network_cookie() {
            Ok(number) => assert_eq!(namespace().unwrap(), format!("net-{number}")),
            Err(_) => println!("skipped: the number of a network wants Linux 5.14"),
        }
    }
}
