//! A veth pair for `grosso lab nic`, with the sink at its peer.

#![allow(dead_code, reason = "each program of tests uses its own part")]

use std::{
    io::{BufRead, BufReader, Read},
    os::{fd::AsFd, unix::process::CommandExt},
    process::{Child, Command, Stdio},
    thread,
};

use grosso_sys::{
    ethtool::{self, Feature},
    interface::{Control, InterfaceName},
    namespace::NetworkNamespace,
    netlink::{LinkChange, Netlink},
};

use crate::common::{Bench, Run, finished};

/// A network with one end of a veth pair, and a sink at the other end.
pub(crate) struct Net {
    pub(crate) bench: Bench,
    pub(crate) network: NetworkNamespace,
    sink: Child,
}

impl Net {
    /// Creates the network; `None` if the caller cannot create it.
    pub(crate) fn new() -> Option<Self> {
        let [network, far] = [NetworkNamespace::new(), NetworkNamespace::new()];
        let (network, far) = match (network, far) {
            (Ok(network), Ok(far)) => (network, far),
            (Err(error), _) | (_, Err(error)) => {
                println!("skipped: no private network namespace: {error}");
                assert!(std::env::var_os("GROSSO_SKIP_NOTHING").is_none(), "{error}");
                return None;
            }
        };
        let add = || {
            let there = LinkChange::new().namespace(far.as_fd());
            Netlink::new()?.add_veth((&name(), LinkChange::new()), (&name(), there))?;
            set_up("192.0.2.1")
        };
        network.run(add).unwrap().unwrap();
        far.run(|| set_up("192.0.2.2")).unwrap().unwrap();
        let bench = Bench::new();
        let mut command = bench.command("lab sink 192.0.2.2");
        let (sink, address) = listening(far.host(&mut command).unwrap());
        assert_eq!(address, "192.0.2.2:5297");
        Some(Self { bench, network, sink })
    }

    pub(crate) fn features(&self) -> Vec<Feature> {
        let ask = || ethtool::features(&Control::new()?, &name());
        self.network.run(ask).unwrap().unwrap()
    }

    pub(crate) fn set(&self, wishes: &[(&str, bool)]) {
        let set = || ethtool::set_features(&Control::new()?, &name(), wishes);
        self.network.run(set).unwrap().unwrap();
    }

    /// Returns the command for a lab on this device.
    pub(crate) fn lab(&self, options: &str) -> Command {
        let mut command = self.bench.command(&format!("lab nic v0 --peer 192.0.2.2 {options}"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.network.host(&mut command).unwrap();
        command
    }

    pub(crate) fn run(&self, options: &str) -> Run {
        finished(self.lab(options).output().unwrap())
    }

    /// Starts a lab, and returns it once it has changed the device.
    pub(crate) fn changing(&self, before: &[Feature]) -> Child {
        let mut lab = self.lab("--runs 1000 --no-html --quiet").process_group(0).spawn().unwrap();
        while self.features() == before {
            assert_eq!(lab.try_wait().unwrap(), None, "the lab ends without a change");
            thread::yield_now();
        }
        lab
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        let _ = self.sink.kill();
        let _ = self.sink.wait();
    }
}

/// Starts a sink, and returns it with its listening address. Its output is not read after that.
pub(crate) fn listening(command: &mut Command) -> (Child, String) {
    let mut sink = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(sink.stderr.take().unwrap()).read_line(&mut said).unwrap();
    let address = said.split("listening at ").nth(1).and_then(|rest| rest.split(';').next());
    (sink, address.unwrap_or_else(|| panic!("{said}")).to_owned())
}

fn name() -> InterfaceName {
    InterfaceName::new("v0").unwrap()
}

fn set_up(address: &str) -> std::io::Result<()> {
    let control = Control::new()?;
    for device in [name(), InterfaceName::new("lo")?] {
        control.set_up(&device, true)?;
    }
    Netlink::new()?.add_address(control.index(&name())?, address.parse().unwrap(), 24)
}

/// Waits until a lab and its watchdog have exited: both hold the lab's standard error open.
pub(crate) fn ended(mut lab: Child) -> (Option<i32>, String) {
    let mut said = String::new();
    lab.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (lab.wait().unwrap().code(), said)
}
