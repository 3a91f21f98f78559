//! Finds interfaces by name, and describes the failure if an interface does not exist or may not be changed.

use std::{collections::BTreeSet, io};

use grosso_sys::{
    errno::ErrorClass,
    interface::{Control, InterfaceName},
    netlink::Netlink,
    path::kernel,
    userns,
};

use crate::{
    error::Failure,
    needs::{CAPABILITIES, Needs},
    wrong::similar,
};

/// Returns the interface called `name`. If it does not exist, the message of the failure starts with `command`.
pub fn find(command: &str, control: &Control, name: &str) -> Result<InterfaceName, Failure> {
    if let Ok(interface) = InterfaceName::new(name)
        && control.index(&interface).is_ok()
    {
        return Ok(interface);
    }
    let links = Netlink::new().and_then(|netlink| netlink.links()).unwrap_or_default();
    let names: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
    let mut message = format!("{command}: no interface \"{name}\"");
    if let Some(similar) = similar(name, names.iter().copied()) {
        message += &format!("; did you mean {similar}?");
    }
    let hint = format!("interfaces here: {}", names.join(", "));
    Err(Failure::environment("environment.no_interface", message).hint(hint))
}

/// Returns an attribute of an interface from sysfs, if sysfs shows this interface. A mounted sysfs may show another
/// network namespace, with another interface of the same name.
pub fn attribute(name: &InterfaceName, index: u32, attribute: &str) -> Option<String> {
    let read = |attribute: &str| {
        let text = kernel::read(format!("/sys/class/net/{name}/{attribute}"));
        text.ok().map(|text| text.trim().to_owned())
    };
    if read("ifindex")? != index.to_string() {
        return None;
    }
    read(attribute)
}

/// Returns the failure of `command` if the kernel refused `what` with `error`. `capability` is the capability that
/// `what` requires.
pub fn refused(command: &str, what: &str, capability: &'static str, error: &io::Error) -> Failure {
    match ErrorClass::of(error) {
        ErrorClass::Forbidden => forbidden(command, what, &[capability]),
        ErrorClass::Gone => {
            let message = format!("{command}: {what}: the device was removed");
            Failure::environment("environment.device_gone", message)
        }
        ErrorClass::Unsupported => {
            let message = format!("{command}: {what}: not supported by the driver");
            Failure::environment("environment.unsupported", message)
        }
        _ => {
            let failure =
                Failure::environment("environment.device", format!("{command}: {what}: {error}"));
            match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
                Some(rustix::io::Errno::MFILE) => failure.hint(DESCRIPTORS),
                _ => failure,
            }
        }
    }
}

/// Creates the failure with which `command` ends if the process lacks one of the capabilities `needed` for `what`.
pub fn forbidden(command: &str, what: &str, needed: &[&'static str]) -> Failure {
    let message = format!("{command}: {what} needs {}", listed(needed));
    Failure::environment("environment.permission", message)
        .hint(privilege(needed))
        .missing(Needs::of(needed))
}

/// Adds to a failure all capabilities that its command needs and this process lacks, so that one change of privileges
/// is enough.
pub fn with_all_needs(failure: Failure, needs: impl FnOnce() -> Needs) -> Failure {
    if failure.missing == Needs::NONE {
        return failure;
    }
    let held = Needs::of(&capabilities());
    let others = needs().without(held).without(failure.missing);
    if others == Needs::NONE {
        return failure;
    }
    let all = failure.missing.and(others);
    let mut failure = failure.hint(privilege(&all.names()));
    failure.message += &format!("; the command also needs {}", listed(&others.names()));
    failure
}

/// Returns the names of capabilities as a list within a sentence.
fn listed(names: &[&str]) -> String {
    let names: Vec<String> =
        names.iter().map(|name| format!("CAP_{}", name.to_uppercase())).collect();
    match &names[..] {
        [] => String::new(),
        [only] => only.clone(),
        [others @ .., last] => format!("{} and {last}", others.join(", ")),
    }
}

/// Hint for a user whose program has reached its limit of file descriptors. One queue of a UDP tunnel takes 22
/// descriptors.
const DESCRIPTORS: &str = "each queue needs several file descriptors: raise the limit with ulimit \
                           -n 20000, or with LimitNOFILE=20000 in a service";

/// Returns a hint that explains how to get these capabilities.
pub fn privilege(missing: &[&str]) -> String {
    format!("run it with sudo, or: sudo {}", setcap(missing, &capabilities()))
}

/// Returns the `setcap` command that adds capabilities to this program's file. The command also names the capabilities
/// that the file already has, because `setcap` replaces them all.
pub fn setcap(missing: &[&str], held: &[&str]) -> String {
    let names: BTreeSet<_> = held.iter().chain(missing).map(|name| format!("cap_{name}")).collect();
    let names: Vec<_> = names.into_iter().collect();
    format!("setcap {}+ep {}", names.join(","), program())
}

/// Returns the names of the relevant capabilities that this process has.
pub fn capabilities() -> Vec<&'static str> {
    let has = userns::capabilities().unwrap_or(0);
    let held = CAPABILITIES.iter().filter(|(number, _)| has & (1 << number) != 0);
    held.map(|(_, name)| *name).collect()
}

/// Returns the name of this program for use in suggested command lines.
pub fn program() -> String {
    let path = std::env::current_exe();
    path.map_or_else(|_| "grosso".into(), |path| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_every_capability_that_its_command_needs() {
        let error = io::Error::from(rustix::io::Errno::PERM);
        let failure = || refused("bridge", "opening e0", "net_raw", &error);
        let none = with_all_needs(failure(), || Needs::of(&["net_raw"]));
        assert_eq!(none.message, "bridge: opening e0 needs CAP_NET_RAW");
        // The test process may already have some of the capabilities; those are not reported as missing.
        let needed = ["bpf", "net_admin", "net_raw", "sys_admin"];
        let held = capabilities();
        let others: Vec<_> =
            ["net_admin", "bpf"].into_iter().filter(|name| !held.contains(name)).collect();
        let all = with_all_needs(failure(), || Needs::of(&["net_admin", "bpf"]));
        assert_eq!(all.message.contains("; the command also needs "), !others.is_empty());
        assert_eq!(listed(&needed[..3]), "CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW");
        assert_eq!(Needs::of(&needed).names(), ["net_admin", "net_raw", "sys_admin", "bpf"]);
    }

    #[test]
    fn exhausted_descriptors_are_reported_with_a_remedy() {
        let error = io::Error::from(rustix::io::Errno::MFILE);
        let failure = refused("run", "opening sockets", "net_admin", &error);
        assert_eq!(failure.hint.as_deref(), Some(DESCRIPTORS));
        let other = refused("run", "opening", "net_admin", &io::ErrorKind::BrokenPipe.into());
        assert_eq!(other.hint, None);
    }
}
