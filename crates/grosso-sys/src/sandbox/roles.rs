//! The kinds of threads, each with its capabilities and its system calls.
//!
//! The tables were found by running every kind of path under `strace`, and are held by the tests, which run under
//! them: a thread that makes another system call ends its program, by name.

use core::ffi::{c_int, c_long};

use rustix::thread::CapabilitySet;

/// Role of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Moves packets between devices that are open.
    Data,
    /// Like [`Role::Data`], and reconnects to the socket of another program.
    Connecting,
    /// Like [`Role::Connecting`], and maps the memory of a virtual machine, or creates memory to share.
    Machine,
    /// Serves clients of listeners: counter requests, and captures over IP.
    Statistics,
    /// Reads frames from an open ring and writes them to open files and sockets.
    Recording,
    /// Opens files and queries interfaces on behalf of a recording thread.
    Files,
    /// Waits for signals.
    Signals,
    /// Closes descriptors received from other programs.
    Closer,
    /// Writes sequence number files, in its own process.
    Recorder,
    /// Opens devices and starts the other threads, at startup and at each configuration reload.
    Opener,
}

/// A system call, and its name.
pub(super) type Call = (c_long, &'static str);

/// Values of an argument that a system call may have.
pub(super) struct Limit {
    pub(super) call: c_long,
    /// The argument's number, from 0 on.
    pub(super) argument: u8,
    pub(super) values: Values,
}

/// Values of an argument.
pub(super) enum Values {
    /// Exactly these values.
    These(&'static [u64]),
    /// Values with none of these bits set.
    Without(u64),
    /// ID of the calling process.
    OwnProcess,
}

impl Role {
    /// Returns the capabilities that the role keeps, if the thread has them.
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
            // A file in a directory of another user, as the first one of the capture.
            Self::Files => CapabilitySet::DAC_OVERRIDE,
            // Devices, packet sockets, low ports, memory of AF_XDP, and its program.
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

    /// The system calls that fail without an end of the program: the C library tries them, and does without.
    pub(super) fn refused(self) -> &'static [&'static [Call]] {
        match self {
            Self::Opener | Self::Files => &[],
            Self::Connecting | Self::Machine => &[READING_NAMES, OLD_FILES],
            _ => &[NAMES, LENGTHS, OLD_FILES],
        }
    }

    /// Limits of arguments beyond which a call fails without an end of the program.
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

/// The name of a system call, if it is in one of the tables.
pub(super) fn name(number: c_int) -> Option<&'static str> {
    let mut calls = Role::Opener.calls().iter().copied().chain([NOBODY]).flatten();
    let (_, name) = calls.find(|(call, _)| *call == c_long::from(number))?;
    name.strip_prefix("SYS_")
}

macro_rules! calls {
    ($($name:ident)*) => { &[$((libc::$name, stringify!($name))),*] };
}

/// Memory, time, locks, and the end: what every thread needs.
const LIFE: &[Call] = calls! {
    SYS_brk SYS_mmap SYS_mprotect SYS_mremap SYS_munmap SYS_madvise SYS_getrandom
    SYS_futex SYS_sched_yield SYS_sched_getaffinity SYS_rseq SYS_set_robust_list SYS_membarrier
    SYS_clock_gettime SYS_clock_getres SYS_clock_nanosleep SYS_nanosleep SYS_gettimeofday SYS_restart_syscall
    SYS_gettid SYS_getpid SYS_tgkill SYS_prctl
    SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigreturn SYS_sigaltstack
    SYS_read SYS_write SYS_writev SYS_close SYS_fcntl SYS_ioctl SYS_ppoll
    SYS_recvfrom SYS_sendto SYS_exit SYS_exit_group
};

/// Packets, waiting for them or for who sends them, the MTU of their paths, and the numbers of ESP.
const PACKETS: &[Call] = calls! {
    SYS_readv SYS_recvmsg SYS_recvmmsg SYS_sendmsg SYS_sendmmsg SYS_connect SYS_accept4 SYS_shutdown
    SYS_getsockname SYS_getsockopt SYS_setsockopt
    SYS_lseek SYS_pread64 SYS_pwrite64 SYS_fsync SYS_fdatasync
};

/// Jobs, threads for them, and the files of sequence numbers.
const RECORDING: &[Call] = calls! {
    SYS_recvmsg SYS_lseek SYS_pwrite64 SYS_fdatasync SYS_clone SYS_clone3 SYS_set_tid_address
};

/// Options of a socket that is about to be closed.
const LINGERING: &[Call] = calls! { SYS_setsockopt };

/// A socket to connect again with.
const CONNECTING: &[Call] = calls! { SYS_socket };

/// Sockets by name: descriptors that stand for an entry and cannot be read (`O_PATH`), their facts, and own links.
const PINNING: &[Call] = calls! {
    SYS_openat SYS_fstat SYS_fstatfs SYS_newfstatat SYS_readlinkat SYS_geteuid SYS_getegid
};

/// Opening of anything for more than that.
const OPENING_TO_READ: &[Limit] =
    &[Limit { call: libc::SYS_openat, argument: 2, values: Values::Without(libc::O_PATH as u64) }];

/// Connections of those who ask for counters.
const REQUESTS: &[Call] = calls! { SYS_accept4 SYS_accept SYS_shutdown SYS_getsockopt SYS_recvmsg };

/// Lengths of files that are open.
const LENGTHS: &[Call] = calls! { SYS_fstat };

/// Emptying of a file that is written again.
const EMPTYING: &[Call] = calls! { SYS_ftruncate };

/// Waiting for the descriptors of a set.
const READINESS: &[Call] = calls! { SYS_epoll_ctl SYS_epoll_pwait };

/// Eventfds of other programs, which are signalled without waiting, and looked at without reading.
const TELLING: &[Call] = calls! { SYS_io_submit SYS_io_getevents SYS_io_destroy };

/// Sockets at which the kernel answers questions about interfaces.
const FACTS: &[Call] = calls! { SYS_socket SYS_bind };

/// The release of the kernel, which descriptions of interfaces contain.
const SYSTEM: &[Call] = calls! { SYS_uname };

/// Memory and eventfds that are passed to another program.
const SHARING: &[Call] = calls! { SYS_memfd_create SYS_ftruncate SYS_eventfd2 };

/// Files by name, which the C library and a backtrace look for too.
const NAMES: &[Call] = calls! {
    SYS_openat SYS_newfstatat SYS_statx SYS_faccessat SYS_faccessat2 SYS_readlinkat SYS_getcwd
    SYS_fgetxattr
};

/// The same without the calls by which a socket is pinned.
const READING_NAMES: &[Call] =
    calls! { SYS_statx SYS_faccessat SYS_faccessat2 SYS_getcwd SYS_fgetxattr };

/// Older forms of these calls, which only x86 has.
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

/// Devices, sockets, threads, files that are made, and the confinement of those who are started.
const OPENING: &[Call] = calls! {
    SYS_socket SYS_socketpair SYS_bind SYS_listen SYS_bpf SYS_pipe2 SYS_dup SYS_dup3
    SYS_io_setup SYS_epoll_create1
    SYS_clone SYS_clone3 SYS_set_tid_address SYS_sched_setaffinity SYS_mlock SYS_prlimit64
    SYS_getuid SYS_geteuid SYS_getgid SYS_getegid SYS_getppid SYS_uname SYS_sysinfo
    SYS_capget SYS_capset SYS_seccomp
    SYS_landlock_create_ruleset SYS_landlock_add_rule SYS_landlock_restrict_self
    SYS_mkdirat SYS_unlinkat SYS_linkat SYS_renameat2 SYS_fchmod SYS_fchmodat SYS_flock SYS_getdents64
};

/// Nobody's: named in messages.
const NOBODY: &[Call] = calls! {
    SYS_execve SYS_execveat SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev SYS_pidfd_getfd
    SYS_mount SYS_umount2 SYS_pivot_root SYS_chroot SYS_setns SYS_unshare
    SYS_setuid SYS_setgid SYS_setresuid SYS_setresgid SYS_setgroups
    SYS_init_module SYS_finit_module SYS_kexec_load SYS_reboot SYS_keyctl SYS_add_key
    SYS_io_uring_setup SYS_userfaultfd SYS_perf_event_open SYS_kill SYS_wait4 SYS_fchownat
};

/// No memory that can be run, and no signals to other processes.
const NO_CODE: &[Limit] = &[
    OWN_SIGNALS,
    Limit { call: libc::SYS_mmap, argument: 2, values: Values::Without(PROT_EXEC) },
    Limit { call: libc::SYS_mprotect, argument: 2, values: Values::Without(PROT_EXEC) },
];

/// The same, requests that change no device and no privilege, and no sockets but those of this machine.
const NARROW: &[Limit] = &[
    OWN_SIGNALS,
    Limit { call: libc::SYS_mmap, argument: 2, values: Values::Without(PROT_EXEC) },
    Limit { call: libc::SYS_mprotect, argument: 2, values: Values::Without(PROT_EXEC) },
    Limit { call: libc::SYS_ioctl, argument: 1, values: Values::These(REQUEST_CODES) },
    Limit { call: libc::SYS_prctl, argument: 0, values: Values::These(PROCESS_CODES) },
    Limit { call: libc::SYS_socket, argument: 0, values: Values::These(LOCAL_FAMILY) },
];

/// The same, with questions about interfaces. Without `CAP_NET_ADMIN`, ethtool only answers.
const FILES: &[Limit] = &[
    OWN_SIGNALS,
    Limit { call: libc::SYS_mmap, argument: 2, values: Values::Without(PROT_EXEC) },
    Limit { call: libc::SYS_mprotect, argument: 2, values: Values::Without(PROT_EXEC) },
    Limit { call: libc::SYS_ioctl, argument: 1, values: Values::These(FACT_CODES) },
    Limit { call: libc::SYS_prctl, argument: 0, values: Values::These(PROCESS_CODES) },
    Limit { call: libc::SYS_socket, argument: 0, values: Values::These(FACT_FAMILIES) },
];

/// Signals of `abort(3)` and `pthread_kill(3)`, which go to the threads of this process.
const OWN_SIGNALS: Limit =
    Limit { call: libc::SYS_tgkill, argument: 0, values: Values::OwnProcess };

const PROT_EXEC: u64 = libc::PROT_EXEC as u64;

/// `TCGETS2` of x86 and ARM, with which newer C libraries find out whether a descriptor is a terminal.
const TCGETS2: u64 = 0x802c_542a;

/// Whether a terminal is there, waiting or not, and the number and state of an interface.
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

/// The same, and ethtool.
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

/// Sockets for netlink, and for requests about interfaces.
const FACT_FAMILIES: &[u64] =
    &[libc::AF_NETLINK as u64, libc::AF_UNIX as u64, libc::AF_INET as u64];

/// Sockets between programs of this machine.
const LOCAL_FAMILY: &[u64] = &[libc::AF_UNIX as u64];

/// The name of the thread and of its memory, its timers, and the processor's features.
const PROCESS_CODES: &[u64] = &[
    libc::PR_SET_NAME as u64,
    libc::PR_GET_NAME as u64,
    libc::PR_SET_TIMERSLACK as u64,
    crate::abi::PR_SET_VMA,
    crate::abi::PR_GET_AUXV,
];
