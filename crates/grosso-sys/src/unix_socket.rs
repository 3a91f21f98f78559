//! Nonblocking Unix sockets that carry frames, as streams or datagrams.
//!
//! The module uses only calls that are also available on other systems with Unix sockets.

use core::mem::{ManuallyDrop, MaybeUninit};
use std::{
    ffi::OsStr,
    io::{self, IoSlice, IoSliceMut},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, RecvMsg, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags,
    SocketType, accept_with, connect_unspec, listen, recvmsg, sendmsg, shutdown, socket_with,
    sockopt,
};

use crate::{
    calls::seen,
    closer::PassedFile,
    path::{self, socket::Pinned},
};

/// Type of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnixKind {
    /// A byte stream between two programs.
    Stream,
    /// Datagrams, which keep their boundaries and order.
    Datagram,
}

impl UnixKind {
    fn socket_type(self) -> SocketType {
        match self {
            Self::Stream => SocketType::STREAM,
            Self::Datagram => SocketType::DGRAM,
        }
    }
}

/// Address of a socket: a path, or on Linux an abstract name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixAddress(SocketAddrUnix);

impl UnixAddress {
    /// Returns the address of a socket file.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::InvalidInput`] for a path that is empty, contains a NUL byte, or is longer than
    /// [`PATH_BYTES_MAX`].
    pub fn new(path: &Path) -> io::Result<Self> {
        let bytes = path.as_os_str().as_encoded_bytes();
        if bytes.is_empty() || bytes.len() > PATH_BYTES_MAX || bytes.contains(&0) {
            let why = format!("a socket path must have 1 to {PATH_BYTES_MAX} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        Ok(Self(path::socket::address(path)?))
    }

    /// Returns the path of the file, if the address has one.
    #[must_use]
    pub fn path(&self) -> Option<PathBuf> {
        Some(PathBuf::from(OsStr::from_bytes(self.0.path()?.to_bytes())))
    }
}

/// Sender of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sender {
    /// Address chosen by the sender.
    pub address: UnixAddress,
    /// User ID of the sender, reported by the kernel.
    pub user: u32,
}

/// A nonblocking Unix socket.
#[derive(Debug)]
pub struct UnixSocket {
    file: ManuallyDrop<OwnedFd>,
    kind: UnixKind,
    /// Whether the socket may hold passed descriptors that have not been received yet.
    may_hold_files: bool,
}

impl UnixSocket {
    /// Creates an unbound socket that accepts no passed descriptors. Kernels before Linux 6.16 cannot refuse
    /// descriptors; there, the closing thread closes the descriptors that arrive.
    ///
    /// # Errors
    /// Returns any error from `socket(2)`.
    pub fn new(kind: UnixKind) -> io::Result<Self> {
        let mut socket = Self::passing(kind)?;
        socket.may_hold_files = !refuses_files(&*socket.file);
        Ok(socket)
    }

    /// Creates an unbound socket that accepts passed descriptors.
    ///
    /// # Errors
    /// Returns any error from `socket(2)`.
    pub fn passing(kind: UnixKind) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let file = socket_with(AddressFamily::UNIX, kind.socket_type(), flags, None)?;
        Ok(Self { file: ManuallyDrop::new(file), kind, may_hold_files: true })
    }

    /// Creates a socket at this address and gives its file the mode `mode`. A stream socket also starts to listen.
    /// Replaces a stale socket file.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::AddrInUse`] if another program uses the socket, or the file is not a socket, or any
    /// error from `bind(2)`.
    pub fn at(kind: UnixKind, address: &UnixAddress, mode: u32) -> io::Result<Self> {
        Self::new(kind)?.placed_at(address, mode)
    }

    /// Binds this socket to an address as [`UnixSocket::at`] does.
    ///
    /// # Errors
    /// Returns the same errors as [`UnixSocket::at`].
    pub fn placed_at(self, address: &UnixAddress, mode: u32) -> io::Result<Self> {
        let (kind, socket) = (self.kind, self);
        let name = address.path().ok_or(io::ErrorKind::InvalidInput)?;
        path::socket::bind(&socket, kind.socket_type(), &name, mode)?;
        if kind == UnixKind::Datagram {
            // With this option, the kernel reports the user who sent each datagram.
            sockopt::set_socket_passcred(&*socket.file, true)?;
        }
        if kind == UnixKind::Stream {
            listen(&*socket.file, BACKLOG)?;
        }
        Ok(socket)
    }

    /// Accepts a connection.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::WouldBlock`] if no connection is waiting, or any error from `accept(2)`.
    pub fn accept(&self) -> io::Result<Self> {
        let file = accept_with(&*self.file, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        // The accepted socket refuses descriptors if this socket refuses them.
        Ok(Self { file: ManuallyDrop::new(file), ..*self })
    }

    /// Connects the socket. A connected datagram socket receives only from that address. It may be reconnected to
    /// another address.
    ///
    /// # Errors
    /// Returns any error from `connect(2)`, for example [`io::ErrorKind::ConnectionRefused`] if no program listens.
    /// Returns [`io::ErrorKind::PermissionDenied`] in the same cases as [`Pinned::at`].
    pub fn connect(&self, address: &UnixAddress) -> io::Result<()> {
        Pinned::at(&address.path().ok_or(io::ErrorKind::InvalidInput)?, None)?.connect(self)
    }

    /// Connects a datagram socket to the sender of a datagram, if the sender owns the socket file at its address. The
    /// check is necessary because a sender chooses its address, which may be another user's socket.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::PermissionDenied`] if the sender does not own the file, if the kernel did not report
    /// the sender's user, or if the address has no file. Otherwise returns the same errors as [`UnixSocket::connect`].
    pub fn answer(&self, sender: &Sender) -> io::Result<()> {
        let path = sender.address.path().ok_or(io::ErrorKind::PermissionDenied)?;
        Pinned::at(&path, Some(sender.user))?.connect(self)
    }

    /// Lets a datagram socket receive from any address again.
    ///
    /// # Errors
    /// Returns any error from `connect(2)`.
    pub fn disconnect(&self) -> io::Result<()> {
        Ok(connect_unspec(&*self.file)?)
    }

    /// Requests buffers of this size in bytes for each direction, limited to what the system permits.
    ///
    /// # Errors
    /// Returns any error from `setsockopt(2)`.
    pub fn set_buffer_bytes(&self, bytes: usize) -> io::Result<()> {
        sockopt::set_socket_send_buffer_size(&*self.file, bytes)?;
        Ok(sockopt::set_socket_recv_buffer_size(&*self.file, bytes)?)
    }

    /// Sends the parts as one datagram, or as much of a stream as fits. Returns the number of bytes sent.
    ///
    /// # Errors
    /// Returns any error from `sendmsg(2)`. No signal is raised if the peer has closed the socket.
    pub fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let none = || SendAncillaryBuffer::default();
        Ok(seen(|| sendmsg(&*self.file, parts, &mut none(), SendFlags::NOSIGNAL))?)
    }

    /// Sends as many bytes of a stream as fit, and passes at most [`PASSED_MAX`] files with the first byte. Returns the
    /// number of bytes sent.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::InvalidInput`] for more than [`PASSED_MAX`] files, or any error from
    /// [`UnixSocket::send`].
    pub fn send_passing(&self, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PASSED_MAX))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        // The space is larger than the files require, to allow for alignment.
        let fits = files.is_empty() || beside.push(SendAncillaryMessage::ScmRights(files));
        if files.len() > PASSED_MAX || !fits {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let parts = [IoSlice::new(bytes)];
        Ok(seen(|| sendmsg(&*self.file, &parts, &mut beside, SendFlags::NOSIGNAL))?)
    }

    /// Reads a stream into the buffers, in order. Returns the number of bytes read, which is 0 at the end of the
    /// stream.
    ///
    /// # Errors
    /// Returns any error from `readv(2)`.
    pub fn read(&self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if self.may_hold_files {
            return Ok(receive_without_files(&*self.file, into)?.bytes);
        }
        Ok(seen(|| rustix::io::readv(&*self.file, into))?)
    }

    /// Reads a stream and the files passed with it. Returns the number of bytes read, which is 0 at the end of the
    /// stream.
    ///
    /// # Errors
    /// Returns any error from `recvmsg(2)`, and `EMFILE` if this process reached its descriptor limit and lost some
    /// files.
    pub fn receive_passed(
        &self,
        into: &mut [u8],
        files: &mut Vec<PassedFile>,
    ) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); FILES_SPACE];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received =
            seen(|| recvmsg(&*self.file, &mut [IoSliceMut::new(into)], &mut beside, flags))?;
        take_files(&mut beside, files);
        // The space is large enough for all descriptors, so the process's descriptor table must be full.
        if received.flags.contains(ReturnFlags::CTRUNC) {
            return Err(rustix::io::Errno::MFILE.into());
        }
        Ok(received.bytes)
    }

    /// Receives a datagram. Returns its length (at most the length of the buffer) and its sender; the sender is `None`
    /// if it has no address.
    ///
    /// # Errors
    /// Returns any error from `recvmsg(2)`.
    pub fn receive(&self, into: &mut [u8]) -> io::Result<(usize, Option<Sender>)> {
        let mut space = [MaybeUninit::uninit(); USER_SPACE + FILES_SPACE];
        // Without room for descriptors the kernel would close them in this thread.
        let space = match self.may_hold_files {
            true => &mut space[..],
            false => &mut space[..USER_SPACE],
        };
        let mut beside = RecvAncillaryBuffer::new(space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received =
            seen(|| recvmsg(&*self.file, &mut [IoSliceMut::new(into)], &mut beside, flags))?;
        let mut user = None;
        for message in beside.drain() {
            match message {
                RecvAncillaryMessage::ScmCredentials(sender) => user = Some(sender.uid.as_raw()),
                RecvAncillaryMessage::ScmRights(passed) => {
                    passed.map(PassedFile::from).for_each(drop);
                }
                _ => {}
            }
        }
        let address = received.address.and_then(|from| SocketAddrUnix::try_from(from).ok());
        let address = address.filter(|from| !from.is_unnamed()).map(UnixAddress);
        // Without this option the kernel reports no user, and the sender cannot be answered.
        let sender = address.zip(user);
        Ok((received.bytes, sender.map(|(address, user)| Sender { address, user })))
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        // SAFETY: the field is not used after this.
        let file = unsafe { ManuallyDrop::take(&mut self.file) };
        if self.may_hold_files {
            // Peers notice the shutdown immediately, even if the closing thread handles the socket later.
            let _ = shutdown(&file, Shutdown::Both);
            drop(PassedFile::from(file));
        }
    }
}

/// Makes the kernel refuse descriptors passed to a Unix socket or to the sockets that it accepts; the sender then gets
/// `EPERM`. Call it before binding the socket. Returns false if the kernel does not support this (before Linux 6.16).
pub fn refuses_files<S: AsFd>(socket: &S) -> bool {
    crate::stream::set(socket, SO_PASSRIGHTS, &0_i32.to_ne_bytes()).is_ok()
}

/// Receives from a Unix socket and hands passed descriptors to the closing thread. A call without space for descriptors
/// would close them in the calling thread.
///
/// # Errors
/// Returns any error from `recvmsg(2)`.
pub fn receive_without_files(
    socket: &impl AsFd,
    into: &mut [IoSliceMut<'_>],
) -> rustix::io::Result<RecvMsg> {
    let mut space = [MaybeUninit::uninit(); FILES_SPACE];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let received = seen(|| recvmsg(socket, into, &mut beside, RecvFlags::CMSG_CLOEXEC))?;
    take_files(&mut beside, &mut Vec::new());
    Ok(received)
}

fn take_files(beside: &mut RecvAncillaryBuffer<'_>, files: &mut Vec<PassedFile>) {
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            files.extend(passed.map(PassedFile::from));
        }
    }
}

impl AsFd for UnixSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Returns whether an error means that the peer is absent, or connected to another program.
#[must_use]
pub fn is_absence(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let absent = [
        Errno::CONNREFUSED,
        Errno::NOENT,
        Errno::PIPE,
        Errno::CONNRESET,
        Errno::NOTCONN,
        Errno::PERM,
    ];
    absent.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Maximum length in bytes of a socket path on Linux, without the terminating NUL (`sun_path`). Other systems allow 103
/// bytes.
pub const PATH_BYTES_MAX: usize = 107;
/// Maximum number of files per call: no vhost-user message needs more.
pub const PASSED_MAX: usize = 8;
/// `SCM_MAX_FD` on Linux: maximum number of descriptors that can arrive at once.
const FILES_MAX: usize = 253;
/// Size of a control message with this many descriptors. The kernel would close descriptors that do not fit, which
/// could block the call.
const FILES_SPACE: usize = rustix::cmsg_space!(ScmRights(FILES_MAX));
/// Size of the control message with a datagram's sender.
const USER_SPACE: usize = rustix::cmsg_space!(ScmCredentials(1));
/// `SO_PASSRIGHTS` from Linux 6.16 (`asm-generic/socket.h`).
const SO_PASSRIGHTS: core::ffi::c_int = 83;
/// Maximum number of connections waiting to be accepted while one is in use.
const BACKLOG: i32 = 16;

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("grosso-local-{}-{name}", std::process::id()));
        fs::create_dir(&path).unwrap();
        path
    }

    fn address(folder: &Path, file: &str) -> UnixAddress {
        UnixAddress::new(&folder.join(file)).unwrap()
    }

    #[test]
    fn a_file_left_behind_is_replaced_and_one_in_use_or_of_another_kind_is_not() {
        for (kind, other) in
            [(UnixKind::Stream, UnixKind::Datagram), (UnixKind::Datagram, UnixKind::Stream)]
        {
            let folder = folder(&format!("stale-{kind:?}"));
            let at = address(&folder, "s");
            let refused = |kind| UnixSocket::at(kind, &at, 0o600).unwrap_err().kind();
            let first = UnixSocket::at(kind, &at, 0o660).unwrap();
            assert_eq!(fs::metadata(folder.join("s")).unwrap().permissions().mode() & 0o777, 0o660);
            assert_eq!([refused(kind), refused(other)], [io::ErrorKind::AddrInUse; 2]);
            drop(first);
            drop(UnixSocket::at(kind, &at, 0o600).unwrap());
            fs::remove_file(folder.join("s")).unwrap();
            fs::write(folder.join("s"), "text").unwrap();
            assert_eq!(refused(kind), io::ErrorKind::AddrInUse);
            assert_eq!(fs::read(folder.join("s")).unwrap(), b"text");
            fs::remove_dir_all(&folder).unwrap();
        }
    }

    #[test]
    fn a_path_that_no_address_holds_is_refused() {
        for (len, fits) in [(0, false), (1, true), (107, true), (108, false)] {
            let path = "p".repeat(len);
            assert_eq!(UnixAddress::new(Path::new(&path)).is_ok(), fits, "{len}");
        }
    }

    #[test]
    fn a_stream_carries_bytes_until_one_end_hangs_up() {
        let folder = folder("stream");
        let at = address(&folder, "s");
        let listener = UnixSocket::at(UnixKind::Stream, &at, 0o600).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let near = UnixSocket::new(UnixKind::Stream).unwrap();
        near.connect(&at).unwrap();
        let far = listener.accept().unwrap();
        far.set_buffer_bytes(1 << 16).unwrap();
        assert_eq!(near.send(&[IoSlice::new(b"one"), IoSlice::new(b"two")]).unwrap(), 6);
        let (mut first, mut second) = ([0; 4], [0; 4]);
        let mut into = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
        assert_eq!(far.read(&mut into).unwrap(), 6);
        assert_eq!((&first, &second[..2]), (b"onet", &b"wo"[..]));
        drop(near);
        assert_eq!(far.read(&mut [IoSliceMut::new(&mut first)]).unwrap(), 0);
        assert_eq!(far.send(&[IoSlice::new(b"x")]).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn files_arrive_with_the_bytes_beside_which_they_were_passed() {
        let folder = folder("passed");
        let at = address(&folder, "s");
        let listener = UnixSocket::passing(UnixKind::Stream).unwrap();
        let listener = listener.placed_at(&at, 0o600).unwrap();
        let near = UnixSocket::new(UnixKind::Stream).unwrap();
        near.connect(&at).unwrap();
        let far = listener.accept().unwrap();
        let (reader, writer) = io::pipe().unwrap();
        assert_eq!(near.send_passing(b"none", &[]).unwrap(), 4);
        assert_eq!(near.send_passing(b"two", &[reader.as_fd(), writer.as_fd()]).unwrap(), 3);
        let (mut bytes, mut files) = ([0; 4], Vec::new());
        assert_eq!(far.receive_passed(&mut bytes, &mut files).unwrap(), 4);
        assert!(files.is_empty());
        assert_eq!(far.receive_passed(&mut bytes, &mut files).unwrap(), 3);
        let [_, passed] = <[PassedFile; 2]>::try_from(files).unwrap();
        rustix::io::write(&passed, b"x").unwrap();
        assert_eq!(rustix::io::read(&reader, &mut bytes).unwrap(), 1);
        let nine = near.send_passing(b"x", &[reader.as_fd(); PASSED_MAX + 1]);
        assert_eq!(nine.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn descriptors_that_nobody_expects_are_refused_or_go_to_the_closing_thread() {
        for kind in [UnixKind::Stream, UnixKind::Datagram] {
            let folder = folder(&format!("refused-{kind:?}"));
            let at = address(&folder, "s");
            let listener = UnixSocket::at(kind, &at, 0o600).unwrap();
            let near = UnixSocket::new(kind).unwrap();
            near.connect(&at).unwrap();
            let (reader, _writer) = io::pipe().unwrap();
            let sent = near.send_passing(b"x", &[reader.as_fd()]);
            if refuses_files(&UnixSocket::new(kind).unwrap()) {
                assert_eq!(sent.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
            } else {
                println!("skipped: this kernel has no SO_PASSRIGHTS (Linux 6.16)");
                assert_eq!(sent.unwrap(), 1);
            }
            // If the kernel accepts the descriptors, they stay in the process's descriptor table only briefly.
            let far = if kind == UnixKind::Stream { listener.accept().unwrap() } else { listener };
            near.send(&[IoSlice::new(b"y")]).unwrap();
            let mut bytes = [0; 4];
            assert!(
                receive_without_files(&far, &mut [IoSliceMut::new(&mut bytes)]).unwrap().bytes >= 1
            );
            fs::remove_dir_all(&folder).unwrap();
        }
    }

    #[test]
    fn datagrams_name_their_sender_and_a_connected_socket_has_one() {
        let folder = folder("datagram");
        let [one, two, three] = ["1", "2", "3"].map(|name| address(&folder, name));
        let bound = |at| UnixSocket::at(UnixKind::Datagram, at, 0o600).unwrap();
        let (first, second, third) = (bound(&one), bound(&two), bound(&three));
        second.connect(&one).unwrap();
        third.connect(&one).unwrap();
        second.send(&[IoSlice::new(b"hello")]).unwrap();
        let mut buffer = [0; 16];
        let sender = |address| Some(Sender { address, user: rustix::process::getuid().as_raw() });
        assert_eq!(first.receive(&mut buffer).unwrap(), (5, sender(two.clone())));
        first.connect(&two).unwrap();
        assert!(is_absence(&third.send(&[IoSlice::new(b"me too")]).unwrap_err()));
        first.disconnect().unwrap();
        third.send(&[IoSlice::new(b"me too")]).unwrap();
        assert_eq!(first.receive(&mut buffer).unwrap(), (6, sender(three)));
        drop(second);
        assert!(is_absence(&first.connect(&two).unwrap_err()));
        let nameless = UnixSocket::new(UnixKind::Datagram).unwrap();
        nameless.connect(&one).unwrap();
        nameless.send(&[IoSlice::new(b"?")]).unwrap();
        assert_eq!(first.receive(&mut buffer).unwrap(), (1, None));
        fs::remove_dir_all(&folder).unwrap();
    }
}
