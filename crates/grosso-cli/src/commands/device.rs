//! Interfaces that the user names, and what to say when one is not there or may not be touched.

use std::io;

use grosso_sys::{
    fault::Fault,
    interface::{Control, InterfaceName},
    netlink::Netlink,
};

use crate::error::Failure;

/// The interface called `name`, for the command `command`.
pub(crate) fn find(command: &str, control: &Control, name: &str) -> Result<InterfaceName, Failure> {
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

/// An attribute of an interface in sysfs, if it is this interface that sysfs shows: the one that is
/// mounted may be that of another network, with another interface of the name.
pub(super) fn attribute(name: &InterfaceName, index: u32, attribute: &str) -> Option<String> {
    let read = |attribute: &str| {
        let text = std::fs::read_to_string(format!("/sys/class/net/{name}/{attribute}"));
        text.ok().map(|text| text.trim().to_owned())
    };
    if read("ifindex")? != index.to_string() {
        return None;
    }
    read(attribute)
}

/// Of what there is, what the user may have meant.
pub(crate) fn similar<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    names
        .map(|name| (strsim::jaro_winkler(word, name), name))
        .filter(|(similarity, _)| *similarity >= SIMILAR)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, name)| name)
}

/// Why the kernel did not do what `command` asked of it: to do `what`, which takes `capability`.
pub(crate) fn refused(
    command: &str,
    what: &str,
    capability: &'static str,
    error: &io::Error,
) -> Failure {
    match Fault::of(error) {
        Fault::Forbidden => {
            let message = format!("{command}: {what} needs {}", capability.to_uppercase());
            Failure::environment("environment.permission", message).hint(privilege(capability))
        }
        Fault::Gone => {
            let message = format!("{command}: {what}: the device is gone");
            Failure::environment("environment.device_gone", message)
        }
        Fault::Unsupported => {
            let message = format!("{command}: {what}: the driver does not support it");
            Failure::environment("environment.unsupported", message)
        }
        _ => Failure::environment("environment.device", format!("{command}: {what}: {error}")),
    }
}

/// How to get a capability.
pub(crate) fn privilege(capability: &str) -> String {
    format!("sudo, or: sudo setcap {capability}+ep {}", program())
}

/// This program, as another command line can name it.
pub(super) fn program() -> String {
    let path = std::env::current_exe();
    path.map_or_else(|_| "grosso".into(), |path| path.display().to_string())
}

/// The similarity (Jaro-Winkler) from which on a name may be meant.
const SIMILAR: f64 = 0.8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_similar_is_meant_and_what_is_not_is_not() {
        let names = || ["rx-gro", "rx-udp-gro-forwarding", "tx-udp-segmentation"].into_iter();
        assert_eq!(similar("rx-udp-gro-fwd", names()), Some("rx-udp-gro-forwarding"));
        assert_eq!(similar("warp-drive", names()), None);
    }
}
