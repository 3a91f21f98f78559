//! Errors of opening a device: name, cause and remedy.

use std::io;

use grosso_sys::{
    errno::ErrorClass,
    ethtool,
    interface::{Control, InterfaceName},
    tun::Layer,
};

use super::options::{Queues, TunOptions};

/// Returns the error with its cause and remedy.
pub(super) fn explained(name: &str, options: &TunOptions, error: io::Error) -> io::Error {
    let why = match (ErrorClass::of(&error), error.kind()) {
        (_, io::ErrorKind::NotFound) => {
            "the kernel has no TUN driver: load it with `modprobe tun`".to_owned()
        }
        (ErrorClass::Forbidden, _) => "CAP_NET_ADMIN is required: run as root".to_owned(),
        (ErrorClass::Later, io::ErrorKind::ResourceBusy) => {
            "another program has the device open: end it, or choose another name".to_owned()
        }
        (ErrorClass::Malformed, _) => match InterfaceName::new(name) {
            Ok(interface) => conflict(&interface, options),
            Err(invalid) => return invalid,
        },
        _ => error.to_string(),
    };
    io::Error::new(error.kind(), format!("{name}: cannot open the device: {why}"))
}

/// Explains `EINVAL` for an interface that exists.
fn conflict(name: &InterfaceName, options: &TunOptions) -> String {
    let driver = Control::new().and_then(|control| ethtool::driver(&control, name));
    let Ok(driver) = driver else { return "the kernel rejects the options".to_owned() };
    if driver.name != "tun" {
        return format!("it is a device of the driver {}: choose another name", driver.name);
    }
    match (driver.bus.as_str(), options.layer, options.queues) {
        ("tap", Layer::Ip, _) => {
            "it is a TAP device: use Layer::Ethernet, or choose another name".to_owned()
        }
        ("tun", Layer::Ethernet, _) => {
            "it is a TUN device: use Layer::Ip, or choose another name".to_owned()
        }
        (_, _, Queues::One) => {
            "it is a multi-queue device: use Queues::Several, or choose another name".to_owned()
        }
        (_, _, Queues::Several) => {
            "it is a single-queue device: use Queues::One, or choose another name".to_owned()
        }
    }
}
