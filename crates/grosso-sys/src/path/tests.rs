use std::{
    fs,
    io::{self, Read},
    os::{
        fd::AsRawFd,
        unix::{
            fs::{PermissionsExt, chown, lchown, symlink},
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, FileType, Mode, mknodat},
    process::geteuid,
};

use super::*;

/// A directory that is removed when the value is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("grosso-path-{}-{name}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A user ID that is neither root's nor the caller's.
const ALICE: u32 = 12_345;

fn refusal(result: io::Result<impl Sized>) -> io::ErrorKind {
    result.map(drop).unwrap_err().kind()
}

fn is_root() -> bool {
    let is_root = geteuid().is_root();
    if !is_root {
        println!("skipped: only root can give a file to another user");
    }
    is_root
}

#[test]
fn the_user_s_own_links_are_followed_anywhere_in_a_path() {
    let scratch = Scratch::new("own");
    // The links have the structure of a Kubernetes ConfigMap.
    fs::create_dir(scratch.join("..2026")).unwrap();
    fs::write(scratch.join("..2026/grosso.toml"), "text").unwrap();
    symlink("..2026", scratch.join("..data")).unwrap();
    symlink("..data/grosso.toml", scratch.join("grosso.toml")).unwrap();
    symlink(scratch.join("grosso.toml"), scratch.join("absolute")).unwrap();
    for name in
        ["grosso.toml", "..data/grosso.toml", "./..2026/../absolute", "..data/./grosso.toml"]
    {
        assert_eq!(read_text(&scratch.join(name), 4).unwrap(), "text", "{name}");
    }
    assert_eq!(refusal(read_text(&scratch.join("absolute"), 3)), io::ErrorKind::FileTooLarge);
    assert_eq!(refusal(open(&scratch.join("absolute/"))), io::ErrorKind::NotADirectory);
    symlink("circle", scratch.join("circle")).unwrap();
    let circle = open(&scratch.join("circle")).unwrap_err();
    assert_eq!(circle.raw_os_error(), Some(rustix::io::Errno::LOOP.raw_os_error()));
    assert!(metadata(&scratch.0).unwrap().is_dir());
    assert!(metadata(Path::new("/")).unwrap().is_dir());
    assert!(metadata(Path::new(".")).unwrap().is_dir());
    if Path::new("/var/run").is_symlink() {
        assert!(metadata(Path::new("/var/run/.")).unwrap().is_dir());
    }
}

#[test]
fn a_link_of_another_user_or_in_the_directory_of_one_is_refused_and_a_file_there_is_read() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new("others");
    fs::write(scratch.join("target"), "text").unwrap();
    symlink("target", scratch.join("theirs")).unwrap();
    lchown(scratch.join("theirs"), Some(ALICE), None).unwrap();
    fs::create_dir(scratch.join("home")).unwrap();
    symlink("../target", scratch.join("home/link")).unwrap();
    symlink("..", scratch.join("home/up")).unwrap();
    fs::write(scratch.join("home/file"), "file").unwrap();
    chown(scratch.join("home"), Some(ALICE), None).unwrap();
    chown(scratch.join("home/file"), Some(ALICE), None).unwrap();
    for name in ["theirs", "home/link", "home/up/target"] {
        let path = scratch.join(name);
        assert_eq!(refusal(open(&path)), io::ErrorKind::PermissionDenied, "{name}");
        assert_eq!(refusal(create(&path, 0o600)), io::ErrorKind::PermissionDenied, "{name}");
        assert_eq!(refusal(metadata(&path)), io::ErrorKind::PermissionDenied, "{name}");
    }
    assert_eq!(fs::read(scratch.join("target")).unwrap(), b"text");
    assert_eq!(read_text(&scratch.join("home/file"), 9).unwrap(), "file");
    remove(&scratch.join("home/link")).unwrap();
    assert!(scratch.join("target").exists());

    let others = control(&scratch.join("home/file")).unwrap();
    let shown = others.to_string();
    assert!(shown.contains("user 12345") && shown.contains("/home, with mode"), "{shown}");
    assert_eq!(control(&scratch.join("target")).unwrap(), Controller::Own);
    fs::set_permissions(&scratch.0, fs::Permissions::from_mode(0o777)).unwrap();
    assert_ne!(control(&scratch.join("target")).unwrap(), Controller::Own);
    fs::set_permissions(&scratch.0, fs::Permissions::from_mode(0o1777)).unwrap();
    assert_eq!(control(&scratch.join("target")).unwrap(), Controller::Own);
}

#[test]
fn a_file_with_a_second_name_is_not_written_in_the_directory_of_another_user() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new("linked");
    fs::write(scratch.join("target"), "text").unwrap();
    fs::create_dir(scratch.join("home")).unwrap();
    fs::hard_link(scratch.join("target"), scratch.join("home/out")).unwrap();
    chown(scratch.join("home"), Some(ALICE), None).unwrap();
    let path = scratch.join("home/out");
    assert_eq!(refusal(create(&path, 0o600)), io::ErrorKind::PermissionDenied);
    assert_eq!(refusal(open_for_update(&path)), io::ErrorKind::PermissionDenied);
    assert_eq!(fs::read(scratch.join("target")).unwrap(), b"text");
    replace(&path, b"new", 0o600).unwrap();
    assert_eq!(fs::read(scratch.join("target")).unwrap(), b"text");
    assert_eq!(fs::read(&path).unwrap(), b"new");
}

#[test]
fn a_pipe_or_a_device_is_refused_at_once_unless_the_caller_accepts_it() {
    let scratch = Scratch::new("pipes");
    let pipe = scratch.join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    for path in [&pipe, Path::new("/dev/zero"), &scratch.0] {
        for result in [open(path).map(drop), read(path, 10).map(drop)] {
            assert_eq!(refusal(result), io::ErrorKind::InvalidInput, "{}", path.display());
        }
    }
    let _socket = UnixListener::bind(scratch.join("socket")).unwrap();
    for path in [&pipe, &scratch.join("socket"), &scratch.0] {
        assert_eq!(refusal(open(path)), io::ErrorKind::InvalidInput, "{}", path.display());
        assert_eq!(refusal(open_for_update(path)), io::ErrorKind::InvalidInput);
        assert_eq!(refusal(input::open_regular(path)), io::ErrorKind::InvalidInput);
    }
    let (reader, writer) = io::pipe().unwrap();
    for tree in ["/dev/fd", "/proc/self/fd"] {
        let path = format!("{tree}/{}", reader.as_raw_fd());
        open_any(Path::new(&path)).unwrap();
    }
    drop(writer);
    let mut null = [0; 1];
    assert_eq!(open_any(Path::new("/dev/null")).unwrap().read(&mut null).unwrap(), 0);
    create(Path::new("/dev/null"), 0o600).unwrap();
}

#[test]
fn files_are_published_and_replaced_as_a_whole() {
    let scratch = Scratch::new("whole");
    let path = scratch.join("file");
    // A program that was killed while creating the file left this behind.
    fs::write(scratch.join("file.new"), "half").unwrap();
    publish(&path, b"one", 0o600).unwrap();
    assert_eq!(refusal(publish(&path, b"two", 0o600)), io::ErrorKind::AlreadyExists);
    assert_eq!(read(&path, 9).unwrap(), b"one");
    replace(&path, b"three", 0o600).unwrap();
    assert_eq!(read(&path, 9).unwrap(), b"three");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    create(&path, 0o600).unwrap();
    assert_eq!(read(&path, 9).unwrap(), b"");
    assert_eq!(refusal(create_new(&path, 0o600)), io::ErrorKind::AlreadyExists);
    let names: Vec<_> = entries(&scratch.0).unwrap().into_iter().map(|entry| entry.name).collect();
    assert!(names.contains(&"file".into()), "{names:?}");
}

#[test]
fn the_kernels_files_are_read_and_no_others() {
    assert!(kernel::read("/proc/self/status").unwrap().starts_with("Name:"));
    assert!(!kernel::names("/proc/self/task").unwrap().is_empty());
    for path in ["/etc/passwd", "/proc/../etc/passwd", "passwd"] {
        assert_eq!(refusal(kernel::read(path)), io::ErrorKind::InvalidInput, "{path}");
    }
}

#[test]
fn a_socket_is_connected_to_through_own_links_and_through_no_others() {
    let scratch = Scratch::new("sockets");
    let listener = UnixListener::bind(scratch.join("s")).unwrap();
    listener.set_nonblocking(true).unwrap();
    symlink("s", scratch.join("own")).unwrap();
    let connected = |name: &str| {
        let socket = rustix::net::socket(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::STREAM,
            None,
        )?;
        socket::Pinned::at(&scratch.join(name), None)?.connect(&socket)?;
        io::Result::Ok(UnixStream::from(socket))
    };
    connected("own").unwrap();
    listener.accept().unwrap();
    fs::write(scratch.join("file"), "").unwrap();
    assert_eq!(refusal(connected("file")), io::ErrorKind::ConnectionRefused);
    if !is_root() {
        return;
    }
    symlink("s", scratch.join("theirs")).unwrap();
    lchown(scratch.join("theirs"), Some(ALICE), None).unwrap();
    assert_eq!(refusal(connected("theirs")), io::ErrorKind::PermissionDenied);
    let pinned = |owner| socket::Pinned::at(&scratch.join("s"), Some(owner)).map(drop);
    pinned(0).unwrap();
    assert_eq!(refusal(pinned(ALICE)), io::ErrorKind::PermissionDenied);
    assert_eq!(refusal(listener.accept()), io::ErrorKind::WouldBlock);
}
