//! Functions that bind, find and connect Unix sockets by name.

use std::{
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use rustix::{
    fs::{AtFlags, FileType, Mode, chmod, fchmod, fstat, unlinkat},
    io::Errno,
    net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind as bind_address, connect,
        socket_with,
    },
    process::geteuid,
};

use super::resolve::{Controller, Last, Place, control, control_of, descriptor_path};

/// A pinned socket file. Replacing the file under its name later has no effect on it.
#[derive(Debug)]
pub struct Pinned(OwnedFd);

impl Pinned {
    /// Pins the socket file at a path. If `owner` is given, the socket must belong to this user.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::ConnectionRefused`] if it is not a socket, [`io::ErrorKind::PermissionDenied`] for a
    /// link or a socket owned by another user, and for a socket with several names in a directory that others control.
    pub fn at(path: &Path, owner: Option<u32>) -> io::Result<Self> {
        Self::of(&Place::of(path, Last::Follow)?, owner)
    }

    fn of(place: &Place, owner: Option<u32>) -> io::Result<Self> {
        let denied = |why: &str| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        let file = place.pin()?;
        let facts = fstat(&file)?;
        if FileType::from_raw_mode(facts.st_mode) != FileType::Socket {
            return Err(Errno::CONNREFUSED.into());
        }
        if owner.is_some_and(|owner| owner != facts.st_uid) {
            return denied("the socket does not belong to the user who configured it");
        }
        if facts.st_nlink > 1 && control_of(place.directory.as_fd())? != Controller::Own {
            return denied(
                "the socket has several hard links, and another user can replace one of them",
            );
        }
        Ok(Self(file))
    }

    /// Connects `socket` to this socket.
    ///
    /// # Errors
    /// Returns any error from `connect(2)`.
    pub fn connect(&self, socket: impl AsFd) -> io::Result<()> {
        Ok(connect(socket, &SocketAddrUnix::new(descriptor_path(&self.0).as_str())?)?)
    }
}

/// Returns the address of a socket file, which can be compared with the address of a sender.
///
/// # Errors
/// Returns [`io::ErrorKind::InvalidInput`] if the path is too long.
pub fn address(path: &Path) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new(path)?)
}

/// Returns the address of an abstract name. Any user of the network namespace can take such a name.
///
/// # Errors
/// Returns [`io::ErrorKind::InvalidInput`] if the name is too long.
pub fn abstract_address(name: &str) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(name.as_bytes())?)
}

/// Binds a Unix socket of this type to a name. The file has this mode from the moment it is created. Replaces a stale
/// socket file.
///
/// If others control a directory on the path, a stream is bound through the directory's descriptor. Datagram peers
/// reply to the bound name, so a datagram socket is bound to the path itself, and the name is checked before use.
///
/// # Errors
/// Returns [`io::ErrorKind::AddrInUse`] if another program uses the socket or the entry is not a socket,
/// [`io::ErrorKind::PermissionDenied`] if the entry was replaced in the meantime, or any error from `bind(2)`.
pub fn bind(socket: impl AsFd, kind: SocketType, path: &Path, mode: u32) -> io::Result<()> {
    let socket = socket.as_fd();
    let place = Place::of(path, Last::Keep)?;
    // The kernel gives the file the socket's mode, restricted by the umask.
    fchmod(socket, Mode::from_raw_mode(mode))?;
    let is_own = control(path)? == Controller::Own;
    let address = match kind == SocketType::DGRAM || is_own {
        true => SocketAddrUnix::new(path)?,
        false => {
            let mut name = descriptor_path(&place.directory).into_bytes();
            name.push(b'/');
            name.extend(place.name.as_bytes());
            SocketAddrUnix::new(name)?
        }
    };
    match bind_address(socket, &address) {
        Err(Errno::ADDRINUSE) if is_stale(&place, kind)? => {
            unlinkat(&place.directory, &place.name, AtFlags::empty())?;
            bind_address(socket, &address)?;
        }
        result => result?,
    }
    let file = bound_file(socket, &place)?;
    // The umask may have cleared bits that the caller requested.
    if fstat(&file)?.st_mode & 0o777 != mode {
        chmod(descriptor_path(&file), Mode::from_raw_mode(mode))?;
    }
    Ok(())
}

/// Removes a socket file that a program left behind; other entries are kept.
///
/// # Errors
/// Returns any error from `open(2)` or `unlink(2)`.
pub fn remove_stale(path: &Path, kind: SocketType) -> io::Result<()> {
    let place = Place::of(path, Last::Keep)?;
    match is_stale(&place, kind)? {
        true => Ok(unlinkat(&place.directory, &place.name, AtFlags::empty())?),
        false => Ok(()),
    }
}

/// Returns the file that a socket was bound to.
///
/// Without CAP_NET_ADMIN, the kernel does not report the file. In that case, the file is looked up by name. It must be
/// a socket that belongs to the caller and has no other name.
fn bound_file(socket: BorrowedFd<'_>, place: &Place) -> io::Result<OwnedFd> {
    // SAFETY: the call takes no argument besides the descriptor, which is open.
    let number = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCUNIXFILE) };
    if number >= 0 {
        // SAFETY: the kernel has just created this descriptor for the caller, its only owner.
        return Ok(unsafe { OwnedFd::from_raw_fd(number) });
    }
    let replaced = || {
        let why = "another user replaced the socket while it was being created";
        io::Error::new(io::ErrorKind::PermissionDenied, why)
    };
    let file = place.pin().map_err(|_| replaced())?;
    let facts = fstat(&file)?;
    let is_socket = FileType::from_raw_mode(facts.st_mode) == FileType::Socket;
    match is_socket && facts.st_nlink == 1 && facts.st_uid == geteuid().as_raw() {
        true => Ok(file),
        false => Err(replaced()),
    }
}

/// Returns whether an entry is a socket that no program uses anymore.
fn is_stale(place: &Place, kind: SocketType) -> io::Result<bool> {
    let file = place.pin()?;
    // A connection to a file that is not a socket is also refused.
    if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::Socket {
        return Ok(false);
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let probe = socket_with(AddressFamily::UNIX, kind, flags, None)?;
    let refused = io::ErrorKind::ConnectionRefused;
    Ok(Pinned(file).connect(&probe).is_err_and(|error| error.kind() == refused))
}

/// Opens the file that a Unix socket is bound to (`linux/un.h`: the first request that is specific to Unix sockets).
const SIOCUNIXFILE: libc::Ioctl = 0x89e0;
