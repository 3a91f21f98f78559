//! The roles of threads, each with its capabilities and system calls.
//!
//! The tables were determined by running every kind of path under `strace`. The tests run under these filters: a thread
//! that makes another system call ends its program with a message that names the call.

use core::ffi::{c_int, c_long};

use rustix::thread::CapabilitySet;

/// Role of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Thread that moves packets between open devices.
    Data,
    /// Thread that does the work of [`Role::Data`] and also reconnects to another program's socket.
    Connecting,
    /// Thread that does the work of [`Role::Connecting`] and also maps the memory of a virtual machine or creates
    /// memory to share.
    Machine,
    /// Thread that serves clients of listeners: counter requests, and captures over IP.
    Statistics,
    /// Thread that reads frames from an open ring and writes them to open files and sockets.
    Recording,
    /// Thread that opens files and queries interfaces on behalf of a recording thread.
    Files,
    /// Thread that waits for signals.
    Signals,
    /// Thread that closes descriptors received from other programs.
    Closer,
    /// Process that writes sequence number files.
    Recorder,
    /// Thread that opens devices and starts the other threads, at startup and at each configuration reload.
    Opener,
}

/// A system call and its name.
pub(super) type Call = (c_long, &'static str);

/// Permitted values of a system call argument.
pub(super) struct Limit {
    pub(super) call: c_long,
    /// Index of the argument, counted from 0.
    pub(super) argument: u8,
    pub(super) values: Values,
}

/// Rule for the values of an argument.
pub(super) enum Values {
    /// Only the values in this list.
    These(&'static [u64]),
    /// Values in which none of these bits is set.
    Without(u64),
    /// ID of the calling process.
    OwnProcess,
}

impl Role {
    /// Returns the capabilities that a thread keeps when it enters the role.
    pub(super) fn capabilities(self) -> CapabilitySet {
        match self {
            Self::Data
            | Self::Connecting
            | Self::Machine
            | Self::Statistics
            | Self::Recording
            | Self::Signals
            | Self::Closer
            | Self::Recorder => CapabilitySet::empty(),
            // Permits access to other users' directories, because the first file of the capture may be in one.
            Self::Files => CapabilitySet::DAC_OVERRIDE,
            // Capabilities for devices, packet sockets, low ports, and the memory and program of AF_XDP.
            Self::Opener => {
                CapabilitySet::NET_ADMIN
                    | CapabilitySet::NET_RAW
                    | CapabilitySet::NET_BIND_SERVICE
                    | CapabilitySet::IPC_LOCK
                    | CapabilitySet::BPF
            }
        }
    }

    /// Returns the system calls that the role makes.
    pub(super) fn calls(self) -> &'static [&'static [Call]] {
        match self {
            Self::Data => &[LIFE, PACKETS],
            Self::Connecting => &[LIFE, PACKETS, CONNECTING, PINNING],
            Self::Machine => {
                &[LIFE, PACKETS, CONNECTING, PINNING, LENGTHS, READINESS, TELLING, SHARING]
            }
            Self::Statistics => &[LIFE, REQUESTS],
            Self::Recording => &[LIFE, PACKETS, READINESS, SYSTEM],
            Self::Files => &[LIFE, PACKETS, NAMES, PINNING, EMPTYING, OLD_FILES, FACTS],
            Self::Signals => &[LIFE, OLD_WAITING],
            Self::Closer => &[LIFE, LINGERING],
            Self::Recorder => &[LIFE, RECORDING],
            Self::Opener => &[
                LIFE,
                PACKETS,
                REQUESTS,
                OLD_WAITING,
                NAMES,
                PINNING,
                READINESS,
                TELLING,
                SHARING,
                OLD_FILES,
                OPENING,
                OLD_OPENING,
            ],
        }
    }

    /// Returns the system calls that fail instead of ending the program: the C library tries these calls and continues
    /// if they fail.
    pub(super) fn refused(self) -> &'static [&'static [Call]] {
        match self {
            Self::Opener | Self::Files => &[],
            Self::Connecting | Self::Machine => &[READING_NAMES, OLD_FILES],
            _ => &[NAMES, LENGTHS, OLD_FILES],
        }
    }

    /// Returns the argument values that make a call fail instead of ending the program.
    pub(super) fn refused_limits(self) -> &'static [Limit] {
        match self {
            Self::Connecting | Self::Machine => OPENING_TO_READ,
            _ => &[],
        }
    }

    /// Returns limits on system call arguments, for the calls that the role makes.
    pub(super) fn limits(self) -> &'static [Limit] {
        match self {
            Self::Opener => NO_CODE,
            Self::Files => FILES,
            _ => NARROW,
        }
    }
}

/// Returns the name of a system call, if it is in one of the tables.
pub(super) fn name(number: c_int) -> Option<&'static str> {
    let mut calls = Role::Opener.calls().iter().copied().chain([NOBODY]).flatten();
    let (_, name) = calls.find(|(call, _)| *call == c_long::from(number))?;
    name.strip_prefix("SYS_")
}

macro_rules! calls {
    ($($name:ident)*) => { &[$((libc::$name, stringify!($name))),*] };
}

/// Memory, time, locks and exit: calls that every thread needs.
const LIFE: &[Call] = calls! {
    SYS_brk SYS_mmap SYS_mprotect SYS_mremap SYS_munmap SYS_madvise SYS_getrandom
    SYS_futex SYS_sched_yield SYS_sched_getaffinity SYS_rseq SYS_set_robust_list SYS_membarrier
    SYS_clock_gettime SYS_clock_getres SYS_clock_nanosleep SYS_nanosleep SYS_gettimeofday SYS_restart_syscall
    SYS_gettid SYS_getpid SYS_tgkill SYS_prctl
    SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigreturn SYS_sigaltstack
    SYS_read SYS_write SYS_writev SYS_close SYS_fcntl SYS_ioctl SYS_ppoll
    SYS_recvfrom SYS_sendto SYS_exit SYS_exit_group
};

/// Calls that transfer packets, accept or connect peers, read the path MTU, and store the sequence numbers of ESP.
const PACKETS: &[Call] = calls! {
    SYS_readv SYS_recvmsg SYS_recvmmsg SYS_sendmsg SYS_sendmmsg SYS_connect SYS_accept4 SYS_shutdown
    SYS_getsockname SYS_getsockopt SYS_setsockopt
    SYS_lseek SYS_pread64 SYS_pwrite64 SYS_fsync SYS_fdatasync
};

/// Calls that start threads for jobs and access files of sequence numbers.
const RECORDING: &[Call] = calls! {
    SYS_recvmsg SYS_lseek SYS_pwrite64 SYS_fdatasync SYS_clone SYS_clone3 SYS_set_tid_address
};

/// Call that sets options of a socket that is about to be closed.
const LINGERING: &[Call] = calls! { SYS_setsockopt };

/// Call that creates a socket to reconnect.
const CONNECTING: &[Call] = calls! { SYS_socket };

/// Calls that find sockets by name: they open descriptors that cannot be read (`O_PATH`), and read metadata and the
/// process's own links.
const PINNING: &[Call] = calls! {
    SYS_openat SYS_fstat SYS_fstatfs SYS_newfstatat SYS_readlinkat SYS_geteuid SYS_getegid
};

/// Calls that open a file without `O_PATH`.
const OPENING_TO_READ: &[Limit] =
    &[Limit { call: libc::SYS_openat, argument: 2, values: Values::Without(libc::O_PATH as u64) }];

/// Calls that serve clients that request counters.
const REQUESTS: &[Call] = calls! { SYS_accept4 SYS_accept SYS_shutdown SYS_getsockopt SYS_recvmsg };

/// Call that reads the length of an open file.
const LENGTHS: &[Call] = calls! { SYS_fstat };

/// Call that truncates a file before it is rewritten.
const EMPTYING: &[Call] = calls! { SYS_ftruncate };

/// Calls that wait for a set of descriptors.
const READINESS: &[Call] = calls! { SYS_epoll_ctl SYS_epoll_pwait };

/// Calls that signal other programs' eventfds without blocking and check them without reading.
const TELLING: &[Call] = calls! { SYS_io_submit SYS_io_getevents SYS_io_destroy };

/// Calls that open sockets for queries about interfaces.
const FACTS: &[Call] = calls! { SYS_socket SYS_bind };

/// Call that reads the kernel release, which interface descriptions contain.
const SYSTEM: &[Call] = calls! { SYS_uname };

/// Calls that create memory and eventfds to share with another program.
const SHARING: &[Call] = calls! { SYS_memfd_create SYS_ftruncate SYS_eventfd2 };

/// Calls that access files by name; the C library and backtraces need them too.
const NAMES: &[Call] = calls! {
    SYS_openat SYS_newfstatat SYS_statx SYS_faccessat SYS_faccessat2 SYS_readlinkat SYS_getcwd
    SYS_fgetxattr
};

/// Calls that access files by name, without the calls that pin a socket.
const READING_NAMES: &[Call] =
    calls! { SYS_statx SYS_faccessat SYS_faccessat2 SYS_getcwd SYS_fgetxattr };

/// Older variants of calls in the other lists. They exist only on x86.
#[cfg(target_arch = "x86_64")]
const OLD_WAITING: &[Call] = calls! { SYS_poll };
#[cfg(target_arch = "x86_64")]
const OLD_FILES: &[Call] = calls! { SYS_open SYS_stat SYS_lstat SYS_access SYS_readlink };
#[cfg(target_arch = "x86_64")]
const OLD_OPENING: &[Call] = calls! { SYS_mkdir SYS_unlink SYS_rename SYS_link SYS_dup2 SYS_pipe };
#[cfg(not(target_arch = "x86_64"))]
const OLD_WAITING: &[Call] = &[];
#[cfg(not(target_arch = "x86_64"))]
const OLD_FILES: &[Call] = &[];
#[cfg(not(target_arch = "x86_64"))]
const OLD_OPENING: &[Call] = &[];

/// Calls that open devices and sockets, create files, and start and confine threads.
const OPENING: &[Call] = calls! {
    SYS_socket SYS_socketpair SYS_bind SYS_listen SYS_bpf SYS_pipe2 SYS_dup SYS_dup3
    SYS_io_setup SYS_epoll_create1
    SYS_clone SYS_clone3 SYS_set_tid_address SYS_sched_setaffinity SYS_mlock SYS_prlimit64
    SYS_getuid SYS_geteuid SYS_getgid SYS_getegid SYS_getppid SYS_uname SYS_sysinfo
    SYS_capget SYS_capset SYS_seccomp
    SYS_landlock_create_ruleset SYS_landlock_add_rule SYS_landlock_restrict_self
    SYS_mkdirat SYS_unlinkat SYS_linkat SYS_renameat2 SYS_fchmod SYS_fchmodat SYS_flock SYS_getdents64
};

/// Calls that no role may make; listed only so that messages can name them.
const NOBODY: &[Call] = calls! {
    SYS_execve SYS_execveat SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev SYS_pidfd_getfd
    SYS_mount SYS_umount2 SYS_pivot_root SYS_chroot SYS_setns SYS_unshare
    SYS_setuid SYS_setgid SYS_setresuid SYS_setresgid SYS_setgroups
    SYS_init_module SYS_finit_module SYS_kexec_load SYS_reboot SYS_keyctl SYS_add_key
    SYS_io_uring_setup SYS_userfaultfd SYS_perf_event_open SYS_kill SYS_wait4 SYS_fchownat
};

/// Limits that forbid executable memory and signals to other processes.
const NO_CODE: &[Limit] = &[
    OWN_SIGNALS,
    Limit { call: libc::SYS_mmap, argument: 2, values: Values::Without(PROT_EXEC) },
    Limit { call: libc::SYS_mprotect, argument: 2, values: Values::Without(PROT_EXEC) },
];

/// The limits in [`NO_CODE`], and limits that permit only local sockets and only requests that change no device and no
/// privilege.
const NARROW: &[Limit] = &[
    OWN_SIGNALS,
    Limit { call: libc::SYS_mmap, argument: 2, values: Values::Without(PROT_EXEC) },
    Limit { call: libc::SYS_mprotect, argument: 2, values: Values::Without(PROT_EXEC) },
    Limit { call: libc::SYS_ioctl, argument: 1, values: Values::These(REQUEST_CODES) },
    Limit { call: libc::SYS_prctl, argument: 0, values: Values::These(PROCESS_CODES) },
    Limit { call: libc::SYS_socket, argument: 0, values: Values::These(LOCAL_FAMILY) },
];

/// The limits in [`NARROW`], except that queries about interfaces are also permitted. Without `CAP_NET_ADMIN`, ethtool
/// only answers queries.
const FILES: &[Limit] = &[
    OWN_SIGNALS,
    Limit { call: libc::SYS_mmap, argument: 2, values: Values::Without(PROT_EXEC) },
    Limit { call: libc::SYS_mprotect, argument: 2, values: Values::Without(PROT_EXEC) },
    Limit { call: libc::SYS_ioctl, argument: 1, values: Values::These(FACT_CODES) },
    Limit { call: libc::SYS_prctl, argument: 0, values: Values::These(PROCESS_CODES) },
    Limit { call: libc::SYS_socket, argument: 0, values: Values::These(FACT_FAMILIES) },
];

/// Signals that `abort(3)` and `pthread_kill(3)` send to threads in this process.
const OWN_SIGNALS: Limit =
    Limit { call: libc::SYS_tgkill, argument: 0, values: Values::OwnProcess };

const PROT_EXEC: u64 = libc::PROT_EXEC as u64;

/// `TCGETS2` on x86 and ARM, used by newer C libraries to determine whether a descriptor is a terminal.
const TCGETS2: u64 = 0x802c_542a;

/// Requests that check for a terminal, set nonblocking mode, and read the index and state of an interface.
#[allow(clippy::unnecessary_cast, reason = "their type differs between C libraries")]
const REQUEST_CODES: &[u64] = &[
    libc::TCGETS as u64,
    libc::TIOCGWINSZ as u64,
    TCGETS2,
    libc::FIONBIO as u64,
    libc::SIOCGIFINDEX as u64,
    libc::SIOCGIFFLAGS as u64,
    libc::SIOCGIFMTU as u64,
];

/// The requests in [`REQUEST_CODES`], and the ethtool request.
#[allow(clippy::unnecessary_cast, reason = "their type differs between C libraries")]
const FACT_CODES: &[u64] = &[
    libc::TCGETS as u64,
    libc::TIOCGWINSZ as u64,
    TCGETS2,
    libc::FIONBIO as u64,
    libc::SIOCGIFINDEX as u64,
    libc::SIOCGIFFLAGS as u64,
    libc::SIOCGIFMTU as u64,
    libc::SIOCETHTOOL as u64,
];

/// Socket families for netlink and for queries about interfaces.
const FACT_FAMILIES: &[u64] =
    &[libc::AF_NETLINK as u64, libc::AF_UNIX as u64, libc::AF_INET as u64];

/// Socket family for connections between programs on this machine.
const LOCAL_FAMILY: &[u64] = &[libc::AF_UNIX as u64];

/// Requests for the names of the thread and of its memory, its timers, and the CPU's features.
const PROCESS_CODES: &[u64] = &[
    libc::PR_SET_NAME as u64,
    libc::PR_GET_NAME as u64,
    libc::PR_SET_TIMERSLACK as u64,
    crate::abi::PR_SET_VMA,
    crate::abi::PR_GET_AUXV,
];
