//! Sends generic netlink requests, which read `ethtool` settings that no ioctl supports.

use std::io;

use rustix::net::netlink;

use super::message::{Attributes, Request};
use super::{Netlink, abi};
use crate::interface::InterfaceName;

/// Sends a request about a device to the ethtool family, and returns the attributes of the reply,
/// each with its type.
///
/// # Errors
///
/// Returns `ENOENT` before Linux 5.6, `EOPNOTSUPP` if the driver does not report the setting, or `ENODEV` if there is
/// no such device.
pub(crate) fn ask_ethtool(name: &InterfaceName, command: u8) -> io::Result<Vec<(u16, Vec<u8>)>> {
    let socket = Netlink::of(Some(netlink::GENERIC))?;
    let family = family(&socket, "ethtool")?;
    let mut request =
        Request::new(family, &[command, abi::ETHTOOL_GENL_VERSION, 0, 0]).flags(abi::NLM_F_ACK);
    request.nested(abi::ETHTOOL_A_HEADER | abi::NLA_F_NESTED, |header| {
        header.text(abi::ETHTOOL_A_HEADER_DEV_NAME, name.as_str());
    });
    let mut answer = Vec::new();
    socket.exchange(request, |kind, payload| {
        if kind == family {
            let attributes = Attributes::new(payload.get(GENERIC_BYTES..).unwrap_or_default());
            answer.extend(attributes.map(|(kind, value)| (kind, value.to_vec())));
        }
    })?;
    Ok(answer)
}

/// Returns whether the kernel has a generic netlink family, for example `fou`. The kernel tries to load the module of
/// an unknown family.
///
/// # Errors
///
/// Returns errors from the netlink socket.
pub fn has_generic_family(name: &str) -> io::Result<bool> {
    match family(&Netlink::of(Some(netlink::GENERIC))?, name) {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the ID of a family, which the kernel assigns at boot.
fn family(socket: &Netlink, name: &str) -> io::Result<u16> {
    let fixed = [abi::CTRL_CMD_GETFAMILY, abi::CTRL_VERSION, 0, 0];
    let mut request = Request::new(abi::GENL_ID_CTRL, &fixed).flags(abi::NLM_F_ACK);
    request.text(abi::CTRL_ATTR_FAMILY_NAME, name);
    let mut found = None;
    socket.exchange(request, |_, payload| {
        let mut attributes = Attributes::new(payload.get(GENERIC_BYTES..).unwrap_or_default());
        let id = attributes.find(|(kind, _)| *kind == abi::CTRL_ATTR_FAMILY_ID);
        found = id.and_then(|(_, value)| value.first_chunk().copied().map(u16::from_ne_bytes));
    })?;
    found.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
}

/// Length of `struct genlmsghdr` in bytes.
const GENERIC_BYTES: usize = 4;
