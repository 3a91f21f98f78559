//! A helper process for work that may block forever.
//!
//! A thread that waits for a frozen file system cannot be killed, and neither can its process. A helper process does
//! this work instead. When this process ends, the helper ends as soon as it can, and no process has to wait for it.

use core::{ffi::c_int, mem::MaybeUninit};
use std::{
    io::{self, IoSlice, IoSliceMut},
    os::fd::{BorrowedFd, OwnedFd},
    thread,
};

use rustix::{
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
    },
    process::getpid,
    thread::set_name,
};

use crate::{path::kernel, scheduling::threads};

/// Handle to the helper process that this process has started.
#[derive(Debug)]
pub struct Helper {
    socket: OwnedFd,
}

/// A job for the helper process. A job consists of two descriptors, and a number that describes them.
#[derive(Debug)]
pub struct Job {
    /// Number that describes the job.
    pub number: u128,
    /// Descriptors that the job uses.
    pub files: [OwnedFd; 2],
}

impl Helper {
    /// Starts the helper. It calls `prepare` once, for example to sandbox itself, and then calls `work` for each job,
    /// in a new thread. The helper has no standard streams and ignores the signals that end this process.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::ResourceBusy`] if this process has other threads, whose locks the helper would inherit,
    /// or any error from `fork(2)` or `socketpair(2)`.
    pub fn start(prepare: fn() -> io::Result<()>, work: fn(Job)) -> io::Result<Self> {
        let threads = threads(getpid()).map_or(1, |threads| threads.len());
        if threads > 1 {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        let kind = SocketType::SEQPACKET;
        let (socket, other) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        // SAFETY: this is the only thread, so the child may do everything that this process may do.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                drop(socket);
                let served = serve(&other, prepare, work);
                // SAFETY: the call ends the child immediately, without running destructors for its parent's state.
                unsafe { libc::_exit(c_int::from(served.is_err())) }
            }
            _ => Ok(Self { socket }),
        }
    }

    /// Sends a job to the helper.
    ///
    /// # Errors
    ///
    /// Returns any error from `sendmsg(2)`, for example [`io::ErrorKind::BrokenPipe`] if the helper was killed.
    pub fn give(&self, number: u128, files: [BorrowedFd<'_>; 2]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        let _ = beside.push(SendAncillaryMessage::ScmRights(&files));
        let number = number.to_ne_bytes();
        sendmsg(&self.socket, &[IoSlice::new(&number)], &mut beside, SendFlags::NOSIGNAL)?;
        Ok(())
    }
}

/// Runs the helper until its parent has ended.
fn serve(socket: &OwnedFd, prepare: fn() -> io::Result<()>, work: fn(Job)) -> io::Result<()> {
    set_name(NAME)?;
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1] {
        // SAFETY: ignoring a signal runs no code of this program.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    // The helper must not keep the parent's output open, because readers of that output wait until it is closed.
    let null = kernel::open_device("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    prepare()?;
    while let Some(job) = receive(socket)? {
        thread::Builder::new().spawn(move || work(job))?;
    }
    Ok(())
}

/// Returns the next job, or `None` once the parent has ended.
fn receive(socket: &OwnedFd) -> io::Result<Option<Job>> {
    let mut number = [0; size_of::<u128>()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(&mut number)];
    let received = recvmsg(socket, &mut into, &mut beside, RecvFlags::CMSG_CLOEXEC)?;
    if received.bytes == 0 {
        return Ok(None);
    }
    let mut files = Vec::new();
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            files.extend(passed);
        }
    }
    let files = <[OwnedFd; 2]>::try_from(files).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(Some(Job { number: u128::from_ne_bytes(number), files }))
}

/// Name of the helper in process lists.
const NAME: &core::ffi::CStr = c"grosso-record";
