//! `grosso dev`.

use clap::Args;

#[derive(Args, Debug)]
pub(crate) struct Dev {
    /// Show what the device and its driver take off the CPU (the default)
    #[arg(short = 'k', long, visible_alias = "show-offload", group = "action")]
    pub(crate) show_features: bool,
    /// Turn features on or off: NAME on|off ...
    #[arg(short = 'K', long, visible_alias = "offload", group = "action")]
    pub(crate) features: bool,
    /// Show the driver's own counters
    #[arg(short = 'S', long, group = "action")]
    pub(crate) statistics: bool,
    /// Show interrupt coalescing
    #[arg(short = 'c', long, group = "action")]
    pub(crate) show_coalesce: bool,
    /// Set interrupt coalescing: NAME N ...
    #[arg(short = 'C', long, group = "action")]
    pub(crate) coalesce: bool,
    /// The device
    #[arg(value_name = "DEV")]
    pub(crate) device: String,
    /// Names and their new values
    #[arg(value_name = "NAME VALUE")]
    pub(crate) changes: Vec<String>,
}

pub(super) const DEV_HELP: &str = "\
Names, layout and JSON are ethtool's. Short names: rx tx sg tso gso gro lro rxvlan
txvlan ntuple rxhash; every name of -k is one too.

Examples:
  grosso dev -k eth0                    features, as ethtool -k
  grosso dev -k eth0 | grep -v fixed    those that can be changed
  grosso dev -K eth0 gro on rx-udp-gro-forwarding on
  grosso dev -K eth0 rx-gro-hw off      then captures show the packets of the wire
  grosso dev -C eth0 rx-usecs 20 rx-frames 64
  grosso dev --json -k eth0 | jq '.[0][\"rx-gro-hw\"].active'";
