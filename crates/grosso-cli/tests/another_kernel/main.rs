//! Tunnels and ESP with a second, real kernel at the other end, which has the devices that the running one may lack.
//!
//! ```text
//!  guest: Linux 6.1                    host
//!  eth0 (virtio) ------------- TAP of the machine     tunnel of Grosso
//!  10.9.0.1, fd09::1           10.9.0.2, fd09::2
//!  tunnel of the kernel: 10.8.0.1, fd08::1            10.8.0.2, fd08::2
//! ```

#![cfg(target_os = "linux")]

mod cases;
mod esp;
#[path = "../network/mod.rs"]
mod network;
mod traffic;
mod wire;

use std::io;

use cases::{Case, TUNNELS};
use network::{A, B};
use traffic::Rates;
use wire::{INSIDE, Wire, between};

#[test]
fn tunnels_carry_what_another_kernel_sends_and_takes() {
    let names = TUNNELS.iter().map(Case::title);
    let Some(mut wire) = Wire::new(names) else { return };
    let mut wrong = Vec::new();
    for case in TUNNELS {
        if let Err(error) = case.run(&mut wire) {
            println!("{}: {error}", case.title());
            wrong.push(case.title());
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

impl Case {
    fn title(&self) -> String {
        format!("{} over IPv{}", self.name, [4, 6][self.outer])
    }

    /// Makes the tunnel at both ends, exchanges data, and removes it.
    fn run(&self, wire: &mut Wire) -> io::Result<()> {
        let result = self.exchange(wire);
        let shown = wire.grosso("tunnel show")?;
        wire.grosso("tunnel del g0")?;
        wire.guest.run(CLEAR)?;
        result.map_err(|error| io::Error::other(format!("{error}\n{shown}")))
    }

    fn exchange(&self, wire: &mut Wire) -> io::Result<()> {
        let [near, far] = [A, B].map(|addresses| addresses[self.outer]);
        let line = format!("tunnel add g0 type {} local {far} remote {near}", self.ours);
        let added = wire.grosso(&line)?;
        let mtu = between(&added, "mtu ", " ");
        let mut script = String::new();
        if self.without_gro {
            script += "ethtool -K eth0 gro off\n";
        }
        if let Some(port) = self.port {
            script += &format!("ip fou add {port}\n");
        }
        let (kind, words) = self.theirs.split_once(' ').unwrap_or((self.theirs, ""));
        // The kernel's Geneve has no address of its own.
        let local = if kind == "geneve" { "" } else { &format!("local {near}") };
        let ends = format!("{local} remote {far}");
        script += &format!("set -e\nip link add k0 type {kind} {ends} {words}\n");
        script += &format!("ip link set k0 mtu {mtu} up\n");
        script += "ip addr add 10.8.0.1/24 dev k0\nip addr add fd08::1/64 dev k0 nodad";
        wire.guest.run(&script)?;
        wire.ip("addr add 10.8.0.2/24 dev g0")?;
        wire.ip("addr add fd08::2/64 dev g0 nodad")?;
        let watches: Vec<_> = self
            .unsummed
            .into_iter()
            .flat_map(|filter| {
                [near, far].map(|end| wire.watch(&format!("src host {end} and {filter}")))
            })
            .collect();
        for &version in self.inner {
            let rates = wire.exchange(INSIDE[version])?;
            report(&self.title(), version, &rates);
        }
        for watch in watches {
            watch.said("1 packet captured");
        }
        Ok(())
    }
}

/// Prints the line of a case.
fn report(title: &str, inner: usize, Rates([to, from]): &Rates) {
    let inner = [4, 6][inner];
    println!("{title}, IPv{inner} inside: {to:.0} Mb/s to the other kernel, {from:.0} from it");
}

/// The script of the guest that removes what a case made.
const CLEAR: &str = "ethtool -K eth0 gro on
ip link del k0
ip fou show | while read -r words; do ip fou del $words; done
true";
