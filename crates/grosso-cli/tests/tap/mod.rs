//! Helpers that create a network with a TAP, and run commands that capture on it.

#![allow(dead_code, reason = "every test file uses its own part")]

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use grosso_sys::{
    interface::{Control, InterfaceName},
    namespace::NetworkNamespace,
    tun::{Tun, TunBuilder},
};

/// A network namespace with a TAP.
pub(crate) struct Tap {
    pub(crate) network: NetworkNamespace,
    pub(crate) device: Tun,
}

impl Tap {
    pub(crate) fn new() -> Option<Self> {
        let [network] = namespaces()?;
        let open = || {
            // Without IPv6, the kernel has no neighbor discovery to silence.
            let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
            let device = TunBuilder::tap(name("t0")).virtio_header(true).open()?;
            Control::new()?.set_up(&name("t0"), true)?;
            io::Result::Ok(device)
        };
        let device = network.run(open).unwrap().unwrap();
        Some(Self { network, device })
    }

    pub(crate) fn command(&self, mut command: Command) -> Command {
        self.network.host(&mut command).unwrap();
        command
    }

    pub(crate) fn start(&self, mut command: Command, file: &Path) -> Child {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        start(&self.network, command, file)
    }

    pub(crate) fn write(&self, packet: &[u8]) {
        assert_eq!(self.device.write(packet).unwrap(), packet.len());
    }
}

/// Creates network namespaces for the test; `None` if the caller cannot create them.
pub(crate) fn namespaces<const COUNT: usize>() -> Option<[NetworkNamespace; COUNT]> {
    let networks: io::Result<Vec<_>> = (0..COUNT).map(|_| NetworkNamespace::new()).collect();
    match networks {
        Ok(networks) => networks.try_into().ok(),
        Err(error) => {
            println!("skipped: no private network namespace: {error}");
            assert!(std::env::var_os("GROSSO_SKIP_NOTHING").is_none(), "{error}");
            None
        }
    }
}

pub(crate) fn name(name: &str) -> InterfaceName {
    InterfaceName::new(name).unwrap()
}

/// Starts a command that captures into a file, and waits until the capture has started.
pub(crate) fn start(network: &NetworkNamespace, mut command: Command, file: &Path) -> Child {
    let mut child = network.host(&mut command).unwrap().spawn().unwrap();
    until(|| {
        assert!(child.try_wait().unwrap().is_none(), "it does not run");
        std::fs::metadata(file).is_ok_and(|metadata| metadata.len() >= 24)
    });
    child
}

pub(crate) fn signal(child: &Child, name: &str) {
    Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status().unwrap();
}

/// Ends a command with the signal of Ctrl-C.
pub(crate) fn end(child: &mut Child) -> Option<i32> {
    signal(child, "INT");
    child.wait().unwrap().code()
}

/// Repeats the check until it succeeds. The limit is generous, because the duration depends on the scheduler.
pub(crate) fn until(mut is_so: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if is_so() {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("the condition was never met");
}

pub(crate) fn read(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    File::open(path).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

/// Returns a TCP superframe over IPv4 with two segments of 100 bytes, and its virtio header.
pub(crate) fn superframe() -> ([u8; 10], Vec<u8>) {
    let mut frame = vec![0; 254];
    (frame[0], frame[6]) = (2, 2);
    frame[12] = 8;
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&240_u16.to_be_bytes());
    (frame[22], frame[23]) = (8, 6);
    (frame[26], frame[30], frame[46]) = (10, 10, 0x50);
    let mut header = [1, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    for (at, word) in [(2, 54_u16), (4, 100), (6, 34), (8, 16)] {
        header[at..at + 2].copy_from_slice(&word.to_ne_bytes());
    }
    (header, frame)
}

/// A broadcast of an experimental protocol (RFC 5342).
pub(crate) const BROADCAST: [u8; 60] = {
    let mut frame = [0; 60];
    let mut i = 0;
    while i < 6 {
        frame[i] = 0xff;
        i += 1;
    }
    (frame[6], frame[12], frame[13]) = (0x02, 0x88, 0xb5);
    frame
};
