//! Tests the systemd unit in `packaging/`, started by a real systemd that runs as the first process in separate
//! namespaces: a UDP tunnel with the kernel as the peer, ESP with another Grosso process as the peer, and AF_XDP.

#![cfg(target_os = "linux")]

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

/// Output lines of check.sh about a unit; each is a key with its values.
struct UnitLog<'a> {
    unit: &'a str,
    log: &'a str,
}

impl UnitLog<'_> {
    /// Returns the values of each line with this key.
    fn all(&self, key: &str) -> Vec<Vec<&str>> {
        let lines = self.log.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let ours = lines.filter(|words| words.len() > 2 && words[..2] == [self.unit, key]);
        ours.map(|words| words[2..].to_vec()).collect()
    }

    /// Returns the only value of the only line with this key.
    fn one(&self, key: &str) -> &str {
        match &self.all(key)[..] {
            [values] if values.len() == 1 => self.log_of(values[0]),
            other => panic!("{} {key}: {other:?}\n{}", self.unit, self.log),
        }
    }

    fn log_of(&self, word: &str) -> &str {
        let at = self.log.find(word).unwrap();
        &self.log[at..at + word.len()]
    }
}

/// Returns whether this machine can boot systemd; prints a message if it cannot.
fn can_boot() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    let has = |program: &str| Path::new(program).exists();
    let why = if !is_root {
        "this user is not root"
    } else if !has("/lib/systemd/systemd") {
        "systemd is not installed"
    } else if !has("/bin/busybox") && !has("/usr/bin/busybox") {
        "busybox is not installed"
    } else if !has("/dev/net/tun") {
        "this machine has no /dev/net/tun"
    } else if !has_control_groups() {
        "this machine has no control groups for a test"
    } else {
        return true;
    };
    println!("skipped: {why}");
    false
}

/// Returns whether this process may create control groups and namespaces.
fn has_control_groups() -> bool {
    let folder = tempfile::tempdir().unwrap();
    let script = "mount -t cgroup2 cgroup2 . && mkdir grosso-probe-$$ && rmdir grosso-probe-$$";
    let mut command = Command::new("unshare");
    command.args(["-m", "-C", "-p", "-n", "-u", "-i", "--fork", "sh", "-c", script]);
    command.current_dir(folder.path()).output().is_ok_and(|output| output.status.success())
}

/// Creates the files that are mounted over the host's files.
fn files(folder: &Path) -> io::Result<()> {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    let put = |path: &str, bytes: &[u8]| -> io::Result<()> {
        let path = folder.join("files").join(path);
        fs::create_dir_all(path.parent().unwrap())?;
        fs::write(path, bytes)
    };
    let copy = |path: &str, from: &Path| put(path, &fs::read(from)?);
    copy("usr/bin/grosso", Path::new(env!("CARGO_BIN_EXE_grosso")))?;
    copy("etc/systemd/system/grosso@.service", &packaging.join("grosso@.service"))?;
    copy("usr/lib/sysusers.d/grosso.conf", &packaging.join("grosso.sysusers"))?;
    let drop_in = "etc/systemd/system/grosso@xdp.service.d/af-xdp.conf";
    copy(drop_in, &packaging.join("af-xdp.conf"))?;
    put("etc/systemd/system/grosso@esp.service.d/key.conf", KEY_CONF.as_bytes())?;
    for (unit, text) in [("udp", UDP), ("esp", ESP), ("xdp", XDP), ("cpus", CPUS), ("peer", PEER)] {
        put(&format!("etc/grosso/{unit}.toml"), text.as_bytes())?;
    }
    let back = KEYS.replace("in ", "to ").replace("out ", "in ").replace("to ", "out ");
    for (name, keys) in [("esp.key", KEYS), ("peer.key", &back)] {
        put(&format!("etc/grosso/{name}"), keys.as_bytes())?;
        let key = folder.join("files/etc/grosso").join(name);
        fs::set_permissions(key, PermissionsExt::from_mode(0o600))?;
    }
    put("check.sh", include_bytes!("check.sh"))?;
    fs::write(folder.join("boot.sh"), include_bytes!("boot.sh"))?;
    fs::write(folder.join("inner.sh"), include_bytes!("inner.sh"))
}

/// Boots systemd, and returns the output of check.sh.
fn boot(folder: &Path) -> String {
    files(folder).unwrap();
    let script: PathBuf = folder.join("boot.sh");
    let output = Command::new("bash").arg(script).arg(folder).output().unwrap();
    let log = fs::read_to_string(folder.join("out/log")).unwrap_or_default();
    assert!(log.ends_with("end\n"), "{log}{}", String::from_utf8_lossy(&output.stderr));
    log
}

#[test]
fn the_unit_runs_under_systemd_and_every_thread_is_confined() {
    if !can_boot() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let log = boot(folder.path());
    println!("{log}");
    for unit in ["udp", "esp", "xdp"] {
        let said = UnitLog { unit, log: &log };
        let states = ["started", "restarted", "reloaded"].map(|key| said.one(key));
        assert_eq!(states, ["active"; 3], "{unit}\n{log}");
        assert_eq!(said.one("stopped"), "inactive", "{unit}\n{log}");
        let exposure: f64 = said.one("exposure").parse().unwrap();
        assert!(exposure < 2.0, "{unit}: {exposure}");
        assert_eq!(said.one("stats"), "1", "{unit}\n{log}");
        let threads = said.all("thread");
        assert_eq!(threads.len(), 10, "five threads, twice: {threads:?}");
        for thread in threads {
            let [name, uid, capabilities, no_new_privs, seccomp] = thread[..] else {
                panic!("{thread:?}")
            };
            let capabilities = u64::from_str_radix(capabilities, 16).unwrap();
            // CAP_NET_ADMIN, CAP_NET_RAW, and for AF_XDP CAP_IPC_LOCK and CAP_BPF.
            let kept = if name == "grosso" { 1 << 12 | 1 << 13 | 1 << 14 | 1 << 39 } else { 0 };
            assert_eq!(capabilities & !kept, 0, "{unit} {name}: {capabilities:x}");
            assert_eq!((no_new_privs, seccomp), ("1", "2"), "{unit} {name}");
            assert_ne!(uid, "0", "{unit} {name}");
        }
    }
    assert_eq!(UnitLog { unit: "cpus", log: &log }.one("hint"), "yes", "{log}");
    for unit in ["udp", "esp", "xdp"] {
        assert_eq!(UnitLog { unit, log: &log }.one("ping"), "yes", "{log}");
    }
}

const UDP: &str = r#"
[[path]]
name = "udp"
left = "tap:t-udp"

[path.right.tunnel]
type = "vxlan"
id = 42
local = "192.0.2.1"
remote = "192.0.2.2"
"#;

const ESP: &str = r#"
[[path]]
name = "esp"
right = { port = "tap:t-esp", mtu = 1400 }

[path.left]
port = "w-esp"

[path.left.esp]
spi-in = 0x1001
spi-out = 0x1002
key-file = "/run/credentials/grosso@esp.service/esp.key"
sequence-file = "/var/lib/grosso/esp.sequence"
"#;

/// The peer program, which is not a service.
const PEER: &str = r#"
[[path]]
name = "peer"
right = { port = "tap:t-peer", mtu = 1400 }

[path.left]
port = "p-esp"

[path.left.esp]
spi-in = 0x1002
spi-out = 0x1001
key-file = "/etc/grosso/peer.key"
sequence-file = "/tmp/peer.sequence"
"#;

const XDP: &str = r#"
[[path]]
name = "xdp"
left = { port = "xdp:w-xdp", partial-checksums = true }
right = "tap:t-xdp"
"#;

const CPUS: &str = r#"
[[path]]
left = "tap:t-c1"
right = "tap:t-c2"
cpus = [0]
"#;

const KEY_CONF: &str = "[Service]\nLoadCredential=esp.key:/etc/grosso/esp.key\n";

const KEYS: &str = "in 000102030405060708090a0b0c0d0e0fa0a1a2a3\n\
                    out 101112131415161718191a1b1c1d1e1fb0b1b2b3\n";
