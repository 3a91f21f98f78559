//! A tunnel with its device, stored as a configuration file with one path for `grosso run`.

use super::Description;

/// A tunnel and the TUN or TAP device that leads into it.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// Name of the device and of the path.
    pub name: String,
    /// The MTU of the device, in bytes.
    pub mtu: u16,
    /// The tunnel.
    pub description: Description,
}

impl Definition {
    /// Returns the configuration file for `grosso run`.
    pub fn to_toml(&self) -> String {
        let Self { name, mtu, description } = self;
        let kind = if description.endpoint.carries_ethernet() { "tap" } else { "tun" };
        // A JSON string is also a valid TOML string.
        let quoted = |text: String| serde_json::Value::from(text);
        format!(
            "[[path]]\nname = {}\nleft = {{ port = {}, mtu = {mtu}, persist = true }}\n\n\
             [path.right.tunnel]\n{}",
            quoted(name.clone()),
            quoted(format!("{kind}:{name}")),
            description.to_toml()
        )
    }
}
