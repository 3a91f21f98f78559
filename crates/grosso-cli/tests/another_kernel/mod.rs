//! Tunnels and ESP with another real kernel as the peer, because the running kernel may lack some of the devices.
//!
//! ```text
//!  guest: Linux 6.1                    host
//!  eth0 (virtio) ------------- TAP of the VM          tunnel of Grosso
//!  10.9.0.1, fd09::1           10.9.0.2, fd09::2
//!  tunnel of the kernel: 10.8.0.1, fd08::1            10.8.0.2, fd08::2
//!  behind it: 10.7.0.2, fd07::2                       10.6.0.2, fd06::2
//! ```

#![cfg(target_os = "linux")]

pub(crate) mod boot;
mod cases;
mod esp;
mod export;
pub(crate) mod traffic;
mod wire;

use std::{io, net::IpAddr};

use crate::network::{A, B};
use cases::{Case, TUNNELS};
use traffic::Rates;
use wire::{INSIDE, Wire, between};

#[test]
#[ignore = "boots a VM: bash .ci/run guests"]
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

    /// Creates the tunnel at both endpoints, exchanges data, and removes it.
    fn run(&self, wire: &mut Wire) -> io::Result<()> {
        let result = self.connect(wire).and_then(|()| self.exchange(wire));
        let shown = wire.grosso("tunnel show --json")?;
        let removed = wire.grosso("tunnel del g0");
        wire.guest.run(CLEAR)?;
        let result = result.and_then(|()| nothing_dropped(&shown)).and(removed);
        result.map(drop).map_err(|error| io::Error::other(format!("{error}\n{shown}")))
    }

    fn connect(&self, wire: &mut Wire) -> io::Result<()> {
        let [near, far] = self.ends();
        let line = format!("tunnel add g0 type {} local {far} remote {near}", self.ours);
        let added = wire.grosso(&line)?;
        let mtu = between(&added, "mtu ", " ");
        wire.guest.run(&self.script(mtu))?;
        wire.ip("addr add 10.8.0.2/24 dev g0")?;
        wire.ip("addr add fd08::2/64 dev g0 nodad")?;
        wire.route()
    }

    /// Returns the script with which the guest creates its endpoint.
    fn script(&self, mtu: &str) -> String {
        let [near, far] = self.ends();
        let (kind, words) = self.theirs.split_once(' ').unwrap_or((self.theirs, ""));
        // The kernel's Geneve device has no local address.
        let local = if kind == "geneve" { "" } else { &format!("local {near}") };
        let gro = if self.without_gro { "ethtool -K eth0 gro off" } else { "" };
        let port = self.port.map(|port| format!("ip fou add {port}")).unwrap_or_default();
        format!(
            "set -e
            {gro}
            {port}
            ip link add k0 type {kind} {local} remote {far} {words}
            ip link set k0 mtu {mtu} up
            ip addr add 10.8.0.1/24 dev k0
            ip addr add fd08::1/64 dev k0 nodad"
        )
    }

    /// Exchanges data. If checksums are left to the receiver, waits until each endpoint has sent a packet with such a
    /// checksum.
    fn exchange(&self, wire: &Wire) -> io::Result<()> {
        let watch =
            |filter| self.ends().map(|end| wire.watch(&format!("src host {end} and {filter}")));
        let watches: Vec<_> = self.unsummed.into_iter().flat_map(watch).collect();
        for &version in self.inner {
            report(&self.title(), version, &wire.exchange(INSIDE[version])?);
            if self.unsummed.is_some() {
                let title = format!("{}, forwarded", self.title());
                report(&title, version, &wire.exchange_behind(version)?);
            }
        }
        for watch in watches {
            watch.wait_for_line("1 packet captured");
        }
        Ok(())
    }

    /// Returns the outer addresses of the guest and of the host.
    fn ends(&self) -> [IpAddr; 2] {
        [A, B].map(|addresses| addresses[self.outer])
    }
}

/// Fails if Grosso refused a packet of the other kernel, or could not send one.
fn nothing_dropped(shown: &str) -> io::Result<()> {
    let shown = crate::common::report(shown);
    let drops = shown["tunnels"][0]["drops"].as_object().ok_or(io::ErrorKind::InvalidData)?;
    // Drops at a full socket buffer depend on the CPU load, so they are ignored.
    if drops.keys().all(|name| name == "socket_rx_dropped") {
        return Ok(());
    }
    Err(io::Error::other(format!("packets were dropped: {drops:?}")))
}

/// Prints the result line for a case.
fn report(title: &str, inner: usize, Rates([to, from]): &Rates) {
    let inner = [4, 6][inner];
    println!("{title}, IPv{inner} inside: {to:.0} Mb/s to the other kernel, {from:.0} from it");
}

/// Guest script that cleans up after a case.
const CLEAR: &str = "ethtool -K eth0 gro on
ip link del k0
ip fou show | while read -r words; do ip fou del $words; done
true";
