//! Tests that the kernel confines threads to their roles.

#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_methods, reason = "tests make their files themselves")]

use std::{
    env,
    fs::File,
    io,
    os::{fd::AsFd, unix::process::CommandExt},
    process::{Command, Output},
    thread,
    time::Duration,
};

use grosso_sys::{
    eventfd_signal::EventfdSignal,
    sandbox::{Role, ThreadState, enter, enter_files, is_supported, name_violations, own_threads},
    secret,
    wait::{Event, Interest, Waiter},
};
use rustix::net::{AddressFamily, SocketType, socket};

/// Returns whether the kernel can filter system calls here, and prints a note if it cannot.
fn can_filter() -> bool {
    if !is_supported() {
        println!("skipped: this machine has no filters of system calls");
    }
    is_supported()
}

/// Runs `work` on a thread confined to `role`.
fn confined<T: Send + 'static>(role: Role, work: impl FnOnce() -> T + Send + 'static) -> T {
    let confined = move || {
        enter(role).unwrap();
        work()
    };
    thread::Builder::new().name("confined".into()).spawn(confined).unwrap().join().unwrap()
}

const ROLES: [Role; 8] = [
    Role::Data,
    Role::Connecting,
    Role::Machine,
    Role::Statistics,
    Role::Recording,
    Role::Files,
    Role::Signals,
    Role::Opener,
];

#[test]
fn a_thread_has_the_capabilities_of_its_role_and_can_gain_none() {
    if !can_filter() {
        return;
    }
    const NET_BIND_SERVICE_ADMIN_RAW: u64 = 1 << 10 | 1 << 12 | 1 << 13;
    const IPC_LOCK_BPF: u64 = 1 << 14 | 1 << 39;
    const DAC_OVERRIDE: u64 = 1 << 1;
    let number = || rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
    let own = |role| -> ThreadState {
        // The other roles must not be able to read the state, so another thread reads it.
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = thread::spawn(move || {
            enter(role).unwrap();
            tell.send(number()).unwrap();
            let _ = ended.recv();
        });
        let number = told.recv().unwrap();
        let state = own_threads().unwrap().into_iter().find(|state| state.number == number);
        drop(end);
        thread.join().unwrap();
        state.unwrap()
    };
    let before = own_threads().unwrap().into_iter().find(|state| state.number == number()).unwrap();
    for role in ROLES {
        let state = own(role);
        let kept = match role {
            Role::Opener => NET_BIND_SERVICE_ADMIN_RAW | IPC_LOCK_BPF,
            Role::Files => DAC_OVERRIDE,
            _ => 0,
        };
        assert_eq!(state.capabilities, before.capabilities & kept, "{role:?}");
        assert!(state.no_new_privs && state.seccomp, "{role:?}: {state:?}");
    }
}

#[test]
fn roles_without_files_are_refused_files_and_continue() {
    if !can_filter() {
        return;
    }
    for role in ROLES.into_iter().filter(|role| !matches!(role, Role::Opener | Role::Files)) {
        let refused = confined(role, || File::open("/dev/null")).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied, "{role:?}");
    }
    confined(Role::Opener, || File::open("/dev/null")).unwrap();
}

#[test]
fn a_role_that_reconnects_may_create_sockets() {
    if can_filter() {
        let make = || socket(AddressFamily::UNIX, SocketType::STREAM, None).map(drop);
        confined(Role::Connecting, make).unwrap();
        confined(Role::Machine, make).unwrap();
    }
}

#[test]
fn a_role_that_maps_vm_memory_may_read_its_length() {
    if can_filter() {
        let length = || rustix::fs::fstat(io::stderr()).map(drop);
        confined(Role::Machine, length).unwrap();
        assert_eq!(confined(Role::Data, length), Err(rustix::io::Errno::ACCESS));
    }
}

#[test]
fn a_role_that_shares_vm_memory_may_use_eventfds() {
    if can_filter() {
        let (mut signal, waiter) = (EventfdSignal::new().unwrap(), Waiter::new().unwrap());
        let event = Event::new().unwrap();
        let tells = move || -> io::Result<usize> {
            let mut seen = Vec::new();
            waiter.add(&event, 0, Interest::READ.edge_triggered())?;
            (0..100).try_for_each(|_| signal.notify(event.as_fd()))?;
            waiter.wait(&mut seen, Some(Duration::ZERO))?;
            waiter.remove(&event).map(|()| seen.len())
        };
        assert_eq!(confined(Role::Machine, tells).unwrap(), 1);
    }
}

#[test]
fn a_role_that_offers_memory_may_create_it() {
    use rustix::{
        event::{EventfdFlags, eventfd},
        fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create},
    };
    if can_filter() {
        let make = || -> io::Result<()> {
            let file = memfd_create("rings", MemfdFlags::ALLOW_SEALING)?;
            ftruncate(&file, 4096)?;
            fcntl_add_seals(&file, SealFlags::SHRINK)?;
            Ok(eventfd(0, EventfdFlags::NONBLOCK).map(drop)?)
        };
        confined(Role::Machine, make).unwrap();
    }
}

#[test]
fn landlock_takes_what_a_role_never_needs() {
    use rustix::fs::{AtFlags, CWD, unlinkat};
    let folder = env::temp_dir().join(format!("grosso-sandbox-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let inside = folder.clone();
    // The system call filter allows `unlinkat`, because the role removes sockets. Only Landlock can reject this call.
    let work =
        move || enter(Role::Opener).unwrap().then(|| unlinkat(CWD, &inside, AtFlags::REMOVEDIR));
    let removed = thread::spawn(work).join().unwrap();
    std::fs::remove_dir(&folder).unwrap();
    match removed {
        Some(removed) => assert_eq!(removed, Err(rustix::io::Errno::ACCESS)),
        None => println!("skipped: Linux (this one) has no Landlock"),
    }
}

#[test]
fn a_thread_that_opens_files_makes_them_in_its_directories_and_nowhere_else() {
    let folder = env::temp_dir().join(format!("grosso-files-{}", std::process::id()));
    let (inside, outside) = (folder.join("inside"), folder.join("outside"));
    std::fs::create_dir_all(&inside).unwrap();
    std::fs::create_dir_all(&outside).unwrap();
    let made = [inside.join("a"), outside.join("a")];
    let work = move || {
        let has_landlock = enter_files(&[inside]).unwrap();
        (has_landlock, made.map(|path| File::create(path).map(drop)))
    };
    let (has_landlock, [made, refused]) = thread::spawn(work).join().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    made.unwrap();
    match has_landlock {
        true => assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::PermissionDenied),
        false => println!("skipped: Linux (this one) has no Landlock"),
    }
}

/// Returns whether Landlock supports scopes, which Linux has had since 6.12.
fn has_scopes() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    let version: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version >= (6, 12)
}

#[test]
fn abstract_sockets_of_others_are_reachable_only_for_openers() {
    use std::os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    };
    let name = format!("grosso-sandbox-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let _listener = UnixListener::bind_addr(&address).unwrap();
    for role in [Role::Connecting, Role::Machine, Role::Opener] {
        let theirs = address.clone();
        let connect = move || {
            let has_landlock = enter(role).unwrap();
            (has_landlock, UnixStream::connect_addr(&theirs).map(drop))
        };
        let (has_landlock, connected) = thread::spawn(connect).join().unwrap();
        match role {
            // On a configuration reload, this role checks which other programs use the same keys.
            Role::Opener => connected.unwrap(),
            _ if has_landlock && has_scopes() => {
                assert_eq!(connected.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
            }
            _ => println!("skipped: Linux (this one) has no scopes of Landlock"),
        }
    }
}

/// Process ID of init, which is a different process from this one.
const INIT: u32 = 1;

/// Sends signal 0 to the main thread of a process and returns the result.
fn signal(process: u32) -> i64 {
    // SAFETY: signal 0 changes nothing, regardless of the process.
    unsafe { libc::syscall(libc::SYS_tgkill, process, process, 0) }
}

#[test]
fn a_thread_may_signal_its_own_process() {
    if can_filter() {
        for role in ROLES {
            assert_eq!(confined(role, || signal(std::process::id())), 0, "{role:?}");
        }
    }
}

#[test]
fn memory_and_random_numbers_are_there_for_each_role() {
    if !can_filter() {
        return;
    }
    for role in ROLES {
        // The allocation is too large for the allocator's heap.
        let sum = confined(role, || {
            let memory = vec![secret::random().unwrap(); 1 << 20];
            memory.iter().fold(0_u64, |sum, number| sum.wrapping_add(*number >> 20))
        });
        assert_ne!(sum, 0);
    }
}

/// Runs this program again for a test that terminates its process.
fn alone(wrong: &str) -> Output {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "a_wrong_call_is_made", "--nocapture"]).env("WRONG_CALL", wrong);
    command.output().unwrap()
}

/// Makes the forbidden call that is named in the environment variable.
#[test]
fn a_wrong_call_is_made() {
    let Ok(wrong) = env::var("WRONG_CALL") else { return };
    name_violations().unwrap();
    let (role, call): (_, fn()) = match &*wrong {
        "socket" => (Role::Data, || drop(socket(AddressFamily::UNIX, SocketType::STREAM, None))),
        "socket of another machine" => {
            (Role::Connecting, || drop(socket(AddressFamily::INET, SocketType::STREAM, None)))
        }
        "ioctl" => (Role::Data, || {
            let _ = rustix::io::ioctl_fionread(io::stderr());
        }),
        "kill" => (Role::Statistics, || {
            let own = rustix::process::getpid();
            let _ = rustix::process::test_kill_process(own);
        }),
        "tgkill of another process" => (Role::Data, || {
            let _ = signal(INIT);
        }),
        "tgkill of another process by the main thread" => (Role::Opener, || {
            let _ = signal(INIT);
        }),
        "accept" => (Role::Signals, || {
            let _ = rustix::net::accept(io::stderr());
        }),
        _ => (Role::Opener, || drop(Command::new("/bin/true").exec())),
    };
    confined(role, call);
    println!("still here");
}

#[test]
fn another_call_ends_the_program_by_the_names_of_its_thread_and_of_the_call() {
    if !can_filter() {
        return;
    }
    for wrong in [
        "socket",
        "socket of another machine",
        "ioctl",
        "kill",
        "tgkill of another process",
        "tgkill of another process by the main thread",
        "accept",
        "execve",
    ] {
        let call = wrong.split(' ').next().unwrap();
        let ended = alone(wrong);
        let said = String::from_utf8_lossy(&ended.stderr);
        let expected = format!("grosso: thread confined made the system call {call}, which is ");
        assert!(said.contains(&expected), "{said}");
        assert_eq!(ended.status.code(), Some(5), "{said}");
        assert!(!String::from_utf8_lossy(&ended.stdout).contains("still here"));
    }
}
