//! A Grosso tunnel endpoint on one of the hosts.

use std::{path::PathBuf, process::Command};

use grosso_sys::namespace::NetworkNamespace;

use crate::{
    network::Running,
    vantage::{Chain, INSIDE, IPV4, ip},
};

/// The tunnel device `t0` on one host, removed on drop.
pub(crate) struct Tunnel<'a> {
    host: &'a NetworkNamespace,
    folder: PathBuf,
}

impl<'a> Tunnel<'a> {
    /// Creates the tunnel over UDP and this IP version, on the sender (0) or the receiver (1).
    pub(crate) fn new(chain: &'a Chain, kind: &str, outer: usize, side: usize) -> Self {
        let host = [&chain.sender, &chain.receiver][side];
        let [local, remote] = {
            let ends = chain.ends(outer);
            [ends[side], ends[1 - side]]
        };
        let folder = chain.path(&format!("tunnel{side}"));
        std::fs::create_dir(&folder).unwrap();
        let tunnel = Self { host, folder };
        let (name, words) = kind.split_once(' ').unwrap();
        let line = format!("tunnel add t0 type {name} local {local} remote {remote} {words}");
        let ended = tunnel.run(&line);
        assert_eq!(ended.0, Some(0), "{line}: {}", ended.1);
        ip(host, &format!("addr add {}/24 dev t0", INSIDE[side][IPV4]));
        tunnel
    }

    fn run(&self, line: &str) -> (Option<i32>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_grosso"));
        command.args(line.split_whitespace()).env_remove("NOTIFY_SOCKET").env("NO_COLOR", "1");
        command.env("RUNTIME_DIRECTORY", &self.folder);
        let ended = Running::spawn(self.host.host(&mut command).unwrap()).end();
        (ended.code, ended.stdout + &ended.stderr)
    }
}

impl Drop for Tunnel<'_> {
    fn drop(&mut self) {
        self.run("tunnel del t0");
    }
}
