//! Determines which kinds of tunnel devices the kernel supports.

use std::io;

use grosso_sys::{
    errno::ErrorClass,
    interface::InterfaceName,
    namespace::NetworkNamespace,
    netlink::{Netlink, has_generic_family},
    path::kernel,
};

use super::{finding::Finding, host::Host};

/// Kernel support for a kind of tunnel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    Present,
    /// The module exists. The probe does not load it, because some modules create a device in every network namespace
    /// on the host.
    Loadable,
    Absent,
}

/// Returns the finding that covers all kinds of tunnels.
pub(super) fn finding(host: &Host, network: &NetworkNamespace) -> Finding {
    let modules = kernel::read(format!("/lib/modules/{}/modules.dep", host.release));
    let modules = modules.unwrap_or_default();
    let look = || KINDS.map(|kind| (kind, presence(kind, &modules)));
    let found = match network.run(look) {
        Ok(found) => found,
        Err(error) => return Finding::warn(NAME, format!("not probed: {error}")),
    };
    let list = |wanted: Presence| {
        let kinds = found.iter().filter(|(_, presence)| *presence == wanted);
        kinds.map(|((kind, _), _)| *kind).collect::<Vec<_>>().join(", ")
    };
    let parts: Vec<String> = [
        (list(Presence::Present), "present"),
        (list(Presence::Loadable), "loadable"),
        (list(Presence::Absent), "absent"),
    ]
    .into_iter()
    .filter(|(kinds, _)| !kinds.is_empty())
    .map(|(kinds, state)| format!("{kinds} {state}"))
    .collect();
    let what = parts.join("; ");
    if list(Presence::Absent).is_empty() {
        return Finding::ok(NAME, what);
    }
    Finding::warn(NAME, format!("{what}; grosso tunnel does not need kernel tunnels"))
}

fn presence((kind, module): (&str, &str), modules: &str) -> Presence {
    let is_loaded = kernel::is_there(format!("/sys/module/{module}"));
    let file = format!("/{module}.ko");
    if !is_loaded
        && modules.lines().any(|line| line.split(':').next().unwrap_or(line).contains(&file))
    {
        return Presence::Loadable;
    }
    let is_there = if kind == "fou" { has_generic_family(kind) } else { make(kind) };
    if is_there.unwrap_or(false) { Presence::Present } else { Presence::Absent }
}

/// Tries to create a device of the given kind. If the error is anything other than an unknown kind, the kernel supports
/// it.
fn make(kind: &str) -> io::Result<bool> {
    let name = InterfaceName::new("probe")?;
    let netlink = Netlink::new()?;
    let is_known = match netlink.add_link(&name, kind) {
        Err(error) => ErrorClass::of(&error) != ErrorClass::Unsupported,
        Ok(()) => true,
    };
    if let Ok(link) = netlink.link(&name) {
        netlink.delete_link(link.index)?;
    }
    Ok(is_known)
}

const NAME: &str = "kernel tunnels";
/// Kinds of tunnels, with the names of their kernel modules. `fou` also provides GUE.
const KINDS: [(&str, &str); 5] =
    [("vxlan", "vxlan"), ("gre", "ip_gre"), ("ipip", "ipip"), ("geneve", "geneve"), ("fou", "fou")];
