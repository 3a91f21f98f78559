//! Tests a race between root, who binds a socket, and the user who owns the socket's directory. Each form of the race
//! runs many times.
#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_methods, reason = "tests make their files themselves")]

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
};

use grosso_sys::unix_socket::{UnixAddress, UnixKind, UnixSocket};
use rustix::{
    process::{Gid, Uid, geteuid},
    thread::{
        CapabilitySet, capabilities, set_capabilities, set_thread_res_gid, set_thread_res_uid,
    },
};

/// The user who owns the directory.
const ALICE: u32 = 12_345;
/// Number of times that each form of the race starts the socket.
const STARTS: u32 = 1000;
/// Number of links on the path to the socket; the kernel would follow more.
const LINKS: u32 = 30;
/// Number of directories on the path of each link.
const DEPTH: usize = 60;

struct Home {
    root: PathBuf,
}

impl Home {
    fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("grosso-names-{}-{name}", std::process::id()));
        fs::create_dir(&root).unwrap();
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
        let home = Self { root };
        fs::create_dir(home.directory()).unwrap();
        fs::write(home.victim(), "secret").unwrap();
        fs::set_permissions(home.victim(), fs::Permissions::from_mode(0o600)).unwrap();
        chown(home.directory(), Some(ALICE), Some(ALICE)).unwrap();
        home
    }

    fn directory(&self) -> PathBuf {
        self.root.join("alice")
    }

    fn victim(&self) -> PathBuf {
        self.root.join("victim")
    }

    fn mode(&self) -> u32 {
        fs::metadata(self.victim()).unwrap().permissions().mode() & 0o7777
    }

    /// Creates a maze of links that makes path lookups slow: each link leads through many directories to the next link.
    fn maze(&self) -> PathBuf {
        let deep: PathBuf = (0..DEPTH).map(|_| "d").collect();
        let up: PathBuf = (0..DEPTH).map(|_| "..").collect();
        fs::create_dir_all(self.directory().join(&deep)).unwrap();
        let through = |link: u32| deep.join(&up).join(link.to_string());
        for link in 0..LINKS {
            let target = if link + 1 == LINKS { ".".into() } else { through(link + 1) };
            symlink(target, self.directory().join(link.to_string())).unwrap();
        }
        for entry in fs::read_dir(self.directory()).unwrap() {
            std::os::unix::fs::lchown(entry.unwrap().path(), Some(ALICE), Some(ALICE)).unwrap();
        }
        self.directory().join("0")
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// Changes the user ID of the calling thread to alice's.
fn become_alice() {
    let (user, group) = (Uid::from_raw(ALICE), Gid::from_raw(ALICE));
    set_thread_res_gid(group, group, group).unwrap();
    set_thread_res_uid(user, user, user).unwrap();
}

/// State of a race. The numbers say which start of the socket is meant.
#[derive(Default)]
struct Attack {
    /// Start that is in progress.
    start: AtomicU32,
    /// Start that the attacker is waiting for.
    ready: AtomicU32,
    /// Start during which the attacker last replaced the socket.
    struck: AtomicU32,
    over: AtomicBool,
}

impl Attack {
    /// Replaces every new socket with a link to the victim. Returns how many sockets it replaced.
    fn run(&self, directory: &Path, victim: &Path) -> u32 {
        become_alice();
        let (name, moved) = (directory.join("s"), directory.join("moved"));
        let mut replaced = 0;
        let is_over = || self.over.load(Ordering::Acquire);
        while !is_over() {
            let round = self.start.load(Ordering::Acquire);
            let _ = fs::remove_file(&name);
            let _ = fs::remove_file(&moved);
            self.ready.store(round, Ordering::Release);
            while self.start.load(Ordering::Acquire) == round && !is_over() {
                if self.struck.load(Ordering::Relaxed) == round {
                    thread::yield_now();
                } else if fs::rename(&name, &moved).is_ok() {
                    symlink(victim, &name).unwrap();
                    self.struck.store(round, Ordering::Release);
                    replaced += 1;
                }
            }
        }
        replaced
    }
}

fn race(kind: UnixKind, through_maze: bool, knows_file: bool) {
    if !geteuid().is_root() {
        println!("skipped: only root can make another user's directory");
        return;
    }
    let home = Home::new(&format!("{kind:?}-{through_maze}-{knows_file}"));
    let directory = if through_maze { home.maze() } else { home.directory() };
    let address = UnixAddress::new(&directory.join("s")).unwrap();
    let attack = Attack::default();
    let Attack { start, ready, struck, over } = &attack;
    let replaced = thread::scope(|scope| {
        let attacker = scope.spawn(|| attack.run(&home.directory(), &home.victim()));
        let binder = scope.spawn(|| {
            if !knows_file {
                // Without this capability, the kernel does not report which file a socket is bound to.
                let mut sets = capabilities(None).unwrap();
                sets.effective.remove(CapabilitySet::NET_ADMIN);
                set_capabilities(None, sets).unwrap();
            }
            for round in 1..=STARTS {
                start.store(round, Ordering::Release);
                while ready.load(Ordering::Acquire) != round {
                    thread::yield_now();
                }
                if let Ok(_socket) = UnixSocket::at(kind, &address, 0o666) {
                    while struck.load(Ordering::Acquire) != round {
                        thread::yield_now();
                    }
                }
                if home.mode() != 0o600 {
                    return Err(round);
                }
            }
            Ok(())
        });
        let outcome = binder.join().unwrap();
        over.store(true, Ordering::Release);
        let replaced = attacker.join().unwrap();
        assert_eq!(outcome, Ok(()), "the mode of root's file was changed");
        replaced
    });
    println!("{kind:?}, maze {through_maze}: {replaced} of {STARTS} sockets were replaced");
    // No socket is bound through the maze, because alice owns the links in it.
    assert_eq!(replaced == 0, through_maze);
}

#[test]
fn a_stream_socket_that_is_replaced_changes_no_other_file() {
    race(UnixKind::Stream, false, true);
    race(UnixKind::Stream, false, false);
}

#[test]
fn a_datagram_socket_that_is_replaced_changes_no_other_file() {
    race(UnixKind::Datagram, false, true);
    race(UnixKind::Datagram, false, false);
}

#[test]
fn a_maze_of_links_leads_no_socket_anywhere() {
    race(UnixKind::Stream, true, true);
    race(UnixKind::Datagram, true, true);
}
