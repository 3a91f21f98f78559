//! Runs the commands that `grosso tunnel export --as ip` prints, with iproute2 on the other kernel.

use super::wire::Wire;
use crate::network::{A, B};

#[test]
#[ignore = "boots a VM: bash .ci/run guests"]
fn ip_takes_what_is_exported() {
    let names = EXPORTED.iter().map(|(words, _)| format!("export of {words}"));
    let Some(mut wire) = Wire::new(names) else { return };
    let mut wrong = Vec::new();
    for (words, outer) in EXPORTED {
        let ends = format!("local {} remote {}", B[*outer], A[*outer]);
        wire.grosso(&format!("tunnel add g0 type {words} {ends}")).unwrap();
        let commands = wire.grosso("tunnel export g0 --as ip").unwrap();
        wire.grosso("tunnel del g0").unwrap();
        if let Err(error) = wire.guest.run(&alone(&commands)) {
            wrong.push(format!("{words}: {error}\n{commands}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns a guest script that runs these commands in a separate network namespace.
fn alone(commands: &str) -> String {
    format!(
        "ip netns add e
        ip netns exec e dash -e -c '{commands}'
        said=$?
        ip netns del e
        [ $said = 0 ]"
    )
}

/// Tunnel arguments, and the outer IP version: 0 for IPv4, 1 for IPv6.
const EXPORTED: &[(&str, usize)] = &[
    ("vxlan id 42 gbp df inherit tos 0x10 ttl inherit nolearning", 0),
    ("vxlan id 42 remcsumtx remcsumrx flowlabel 7 fdb 02:00:00:00:00:07 fd09::1 remote fd09::7", 1),
    ("vxlan id 42 gpe", 0),
    ("geneve id 42 df set innerprotoinherit", 0),
    ("geneve id 42 udp6zerocsumtx udp6zerocsumrx", 1),
    ("ipip nopmtudisc", 0),
    ("ipip encap fou encap-dport 5555 encap-sport 7 noencap-csum", 0),
    ("sit nopmtudisc", 0),
    ("sit encap gue", 0),
    ("gre nopmtudisc ignore-df key 7 csum", 0),
    ("gretap encap gue encap-remcsum", 0),
    ("ip6gre key 7 csum seq encaplimit none flowlabel 7", 1),
    ("ip6gre encap fou encap-dport 5555 noencap-csum", 1),
    ("ip6gretap encap gue encap-remcsum", 1),
    ("ip6tnl mode ipip6 tos 0x10 ttl inherit", 1),
    ("ip6tnl encap gue", 1),
];
