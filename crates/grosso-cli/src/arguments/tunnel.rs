//! Arguments of `grosso tunnel`.

use clap::{Args, Subcommand, ValueEnum};

use super::own::Detail;
use crate::tunnel::keyword_help;

#[derive(Debug, Subcommand)]
pub(crate) enum Tunnel {
    /// Create a tunnel with its TUN or TAP device, and start it
    #[command(after_long_help = add_help())]
    Add(TunnelAdd),
    /// Stop a tunnel, and delete it and its device
    Del(TunnelName),
    /// Start an existing tunnel
    Up(TunnelUp),
    /// Stop a tunnel, but keep its device
    Down(TunnelName),
    /// Show tunnels and their traffic
    #[command(after_long_help = SHOW_HELP)]
    Show(TunnelShow),
    /// Print a tunnel as the configuration of another program
    #[command(after_long_help = EXPORT_HELP)]
    Export(TunnelExport),
}

#[derive(Args, Debug)]
pub(crate) struct TunnelAdd {
    /// Name of the tunnel's device
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Arguments of `ip link add NAME`: [mtu BYTES] type TYPE ...
    #[arg(value_name = "ARGS", required = true)]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    pub(crate) start: TunnelStart,
    #[command(flatten)]
    pub(crate) detail: Detail,
}

/// Options for the process that runs a tunnel.
#[derive(Args, Debug)]
pub(crate) struct TunnelStart {
    /// Run in the foreground, not in a background process
    #[arg(long)]
    pub(crate) foreground: bool,
    /// Run the process as this user, with only the required capabilities
    #[arg(long, value_name = "NAME", conflicts_with = "foreground")]
    pub(crate) user: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct TunnelName {
    /// Tunnel name
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

#[derive(Args, Debug)]
pub(crate) struct TunnelUp {
    /// Tunnel name
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) start: TunnelStart,
    #[command(flatten)]
    pub(crate) detail: Detail,
}

#[derive(Args, Debug)]
pub(crate) struct TunnelShow {
    /// Show only this tunnel [default: all]
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct TunnelExport {
    /// Tunnel name
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Output format
    #[arg(long = "as", value_name = "FORMAT")]
    pub(crate) format: ExportFormat,
}

/// Programs for which a tunnel can be exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// iproute2 commands that create a kernel tunnel
    Ip,
    /// systemd-networkd units
    Networkd,
    /// Configuration file for `grosso run`
    Toml,
}

pub(crate) const TUNNEL_HELP: &str = "\
Examples:
  sudo grosso tunnel add gue0 type ipip local 192.0.2.1 remote 192.0.2.2 \\
       encap gue encap-sport auto encap-dport 6080 encap-remcsum
  sudo ip addr add 10.0.0.1/30 dev gue0
  sudo grosso tunnel show
  sudo grosso tunnel down gue0
  sudo grosso tunnel up gue0
  sudo grosso tunnel del gue0";

/// Returns the help for `tunnel add`, including the keywords that the parser accepts.
fn add_help() -> String {
    format!(
        "The arguments are those of ip-link(8); a value after a colon is the default:\n{}\n{ADD_HELP}",
        keyword_help()
    )
}

const ADD_HELP: &str = "\
Several remotes require a tunnel that carries Ethernet frames. The keywords
encap-... require encap.

Without mtu, the device's MTU is the path MTU minus the tunnel's headers. Each
tunnel runs in its own process, which `tunnel down` and `tunnel del` end.

Examples:
  sudo grosso tunnel add vx0 type vxlan id 42 local 192.0.2.1 remote 192.0.2.2
  sudo grosso tunnel add vx1 type vxlan id 43 local 192.0.2.1 remote 192.0.2.2 \\
       remote 192.0.2.3 fdb 02:00:00:00:00:07 192.0.2.3
  sudo grosso tunnel add gre6 mtu 1400 type ip6gre local fd00::1 remote fd00::2 \\
       key 7";

const SHOW_HELP: &str = "\
Bytes and packets are counted without the tunnel headers, since the tunnel's process
started. `last packet` is the time since a packet was last received.

Examples:
  sudo grosso tunnel show
  sudo grosso tunnel show gue0 --json | jq '.tunnels[0].mtu'";

const EXPORT_HELP: &str = "\
Settings that the other program does not support are reported.

Examples:
  sudo grosso tunnel export vx0 --as ip > vx0.sh
  sudo grosso tunnel export vx0 --as toml > vx0.toml && grosso config check vx0.toml";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use crate::{commands::Arguments, tunnel::keyword_names};

    #[test]
    fn the_help_of_tunnel_add_lists_every_keyword() {
        let mut command = Arguments::command();
        let tunnel = command.find_subcommand_mut("tunnel").unwrap();
        let help = tunnel.find_subcommand_mut("add").unwrap().render_long_help().to_string();
        let said = |name: &str| help.split(|c: char| " []\n:".contains(c)).any(|word| word == name);
        for name in keyword_names() {
            // The help combines the keywords for one direction and for both, as `[[i|o]NAME`.
            let of_both = |both: &str| help.contains(&format!("[[i|o]{both}"));
            let of_one = name.strip_prefix(['i', 'o']).is_some_and(of_both);
            assert!(
                said(name) || said(&format!("no{name}")) || of_both(name) || of_one,
                "{name} is not in {help}"
            );
        }
    }
}
