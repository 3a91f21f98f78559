//! The report on tunnels and their traffic.

use std::{
    collections::BTreeMap,
    fmt::Write,
    net::{IpAddr, SocketAddr},
};

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    form::ReportForm,
    report::{Envelope, Report, wrap_at},
    style::Style,
    tunnel::Definition,
};

/// State of a tunnel's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TunnelState {
    /// The process runs.
    Up,
    /// There is no process.
    Down,
    /// The process ended without being stopped.
    Ended,
}

/// The report on several tunnels.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Tunnels {
    tunnels: Vec<TunnelFacts>,
    /// Whether the text has only one line for each tunnel.
    #[serde(skip)]
    pub is_brief: bool,
}

/// One tunnel.
#[derive(Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct TunnelFacts {
    pub name: String,
    pub state: TunnelState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// Short description of the tunnel.
    summary: String,
    /// Tunnel in the syntax of `ip link`, starting with the type.
    words: String,
    remote: IpAddr,
    /// Addresses of all remote endpoints, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    remotes: Vec<IpAddr>,
    local: IpAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    udp: Option<Ports>,
    /// The MTU of the device, in bytes.
    pub mtu: u32,
    /// Path MTU to the remote endpoint in bytes, if there is a path.
    #[serde(rename = "path_mtu_bytes")]
    pub path_mtu: Option<usize>,
    /// Path MTU in bytes that ICMP messages report, if it is smaller than `path_mtu`.
    #[serde(rename = "path_hint_bytes", skip_serializing_if = "Option::is_none")]
    pub path_hint: Option<usize>,
    overhead: Vec<Part>,
    /// Whether the tunnel's TUN or TAP device exists under the tunnel's name.
    pub device_is_there: bool,
    /// Offloads that the host's stack leaves to the device.
    pub features: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfer: Option<Traffic>,
    /// Time since the last packet came out of the tunnel, in nanoseconds; `None` before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_packet_age_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offload: Option<Offload>,
    pub drops: BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    pub log: String,
}

/// The UDP ports of a tunnel.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
struct Ports {
    destination: u16,
    source_min: u16,
    source_max: u16,
}

/// Part of the overhead that the tunnel adds to a packet.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
struct Part {
    name: &'static str,
    bytes: usize,
}

/// Traffic in both directions of a tunnel, counted as inner packets.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct Traffic {
    pub rx_bytes: u64,
    pub rx_packets: u64,
    pub tx_bytes: u64,
    pub tx_packets: u64,
}

/// Frames, and the packets that they represent.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct Offload {
    pub rx_frames: u64,
    pub rx_packets: u64,
    pub tx_frames: u64,
    pub tx_packets: u64,
}

impl Tunnels {
    /// The schema of this report.
    pub const FORM: ReportForm = ReportForm::of::<Envelope<Self>>("grosso.tunnel/1");

    /// Creates the report on `tunnels`.
    pub fn new(tunnels: Vec<TunnelFacts>) -> Self {
        Self { tunnels, is_brief: false }
    }
}

impl TunnelFacts {
    /// Returns the facts about a tunnel that do not depend on its process.
    pub fn new(definition: &Definition, state: TunnelState) -> Self {
        let Definition { name, mtu, description } = definition;
        let endpoint = &description.endpoint;
        Self {
            name: name.clone(),
            state,
            pid: None,
            summary: description.summary(),
            words: description.to_string(),
            remote: endpoint.remote,
            remotes: match description.forwarding {
                Some(_) => description.remotes().collect(),
                None => Vec::new(),
            },
            local: endpoint.local,
            udp: endpoint.udp().map(|udp| Ports {
                destination: udp.destination,
                source_min: *udp.source.start(),
                source_max: *udp.source.end(),
            }),
            mtu: (*mtu).into(),
            path_mtu: None,
            path_hint: None,
            overhead: endpoint.overhead().map(|(name, bytes)| Part { name, bytes }).collect(),
            device_is_there: false,
            features: Vec::new(),
            transfer: None,
            last_packet_age_ns: None,
            offload: None,
            drops: BTreeMap::new(),
            last_error: None,
            log: String::new(),
        }
    }

    /// Formats the first line: `gue0: up, mtu 1460 (1500 - ip 20 - ...), vnet_hdr on, uso out 64 KB`.
    fn headline(&self) -> String {
        let segmentation = if self.udp.is_some() { ", uso out 64 KB" } else { "" };
        format!("{}: up, mtu {}, vnet_hdr on{segmentation}\n", self.name, self.mtu_text())
    }

    /// Formats the MTU with its parts: `1460 (1500 - ip 20 - udp 8 - gue 4)`.
    fn mtu_text(&self) -> String {
        let Some(path) = self.path_mtu else {
            return format!("{} (currently no route to {})", self.mtu, self.remote);
        };
        let overhead: usize = self.overhead.iter().map(|part| part.bytes).sum();
        let sum = self
            .overhead
            .iter()
            .fold(path.to_string(), |sum, part| format!("{sum} - {} {}", part.name, part.bytes));
        match path.checked_sub(overhead) {
            Some(fits) if fits == self.mtu as usize => format!("{} ({sum})", self.mtu),
            Some(fits) => format!("{} (as configured; the path allows {fits}: {sum})", self.mtu),
            None => format!("{} (as configured; the path is too small: {sum})", self.mtu),
        }
    }

    /// Formats the path MTU that ICMP reported: `1280 bytes according to ICMP; ...`.
    fn path_text(&self) -> String {
        let Some(hint) = self.path_hint else { return String::new() };
        format!("{hint} bytes according to ICMP; longer packets may be fragmented")
    }

    fn block(&self, style: Style) -> String {
        let mut text = format!("interface: {}  ({})\n", style.strong(&self.name), self.summary);
        let mut line = |name: &str, value: &str| {
            if !value.is_empty() {
                let _ = writeln!(text, "  {:<10}{value}", format!("{name}:"));
            }
        };
        // The lines of a list are aligned.
        let list = |value: &str| wrap_at(value, LIST_COLUMNS).trim_end().replace('\n', LIST_MARGIN);
        line("state", &self.state_text(style));
        line("endpoint", &format!("{}      local: {}", self.at_port(self.remote), self.local));
        self.remotes.iter().skip(1).for_each(|remote| line("and", &self.at_port(*remote)));
        line("ports", &self.ports_text());
        line("mtu", &self.mtu_text());
        line("path", &list(&self.path_text()));
        line("transfer", &self.transfer_text());
        line("offload", &self.offload_text());
        line("features", &list(&self.features.join(" ")));
        let drops = self.drops.iter().map(|(name, count)| format!("{name} {count}"));
        line("drops", &list(&drops.collect::<Vec<_>>().join(", ")));
        line("error", &list(self.last_error.as_deref().unwrap_or_default()));
        text
    }

    /// Formats a remote endpoint, with the port that it receives on.
    fn at_port(&self, remote: IpAddr) -> String {
        match self.udp {
            Some(ports) => SocketAddr::new(remote, ports.destination).to_string(),
            None => remote.to_string(),
        }
    }

    fn state_text(&self, style: Style) -> String {
        let gone = if self.device_is_there { "" } else { "; its device was removed" };
        match (self.state, self.pid) {
            // A path whose device is removed ends.
            (TunnelState::Up, number) => {
                let process = number.map(|number| format!(", process {number}"));
                let other =
                    if self.device_is_there { "" } else { "; its device was renamed or moved" };
                format!("{}{}{other}", style.good("up"), process.unwrap_or_default())
            }
            (TunnelState::Down, _) => format!("{}{gone}", style.notice("down")),
            (TunnelState::Ended, _) => format!(
                "{}: its process ended unexpectedly{gone}; to start it: grosso tunnel up {}",
                style.bad("down"),
                self.name
            ),
        }
    }

    fn ports_text(&self) -> String {
        match self.udp {
            None => String::new(),
            Some(Ports { source_min, source_max, .. }) if source_min == source_max => {
                format!("from {source_min}")
            }
            Some(Ports { source_min, source_max, .. }) => {
                format!("from {source_min}-{source_max}, chosen per flow")
            }
        }
    }

    fn transfer_text(&self) -> String {
        self.transfer.map_or_else(String::new, |traffic| {
            let (received, sent) = (binary(traffic.rx_bytes), binary(traffic.tx_bytes));
            let last = self.last_packet_age_ns.map_or_else(|| "none yet".to_owned(), age);
            format!("{received} received, {sent} sent, last packet: {last}")
        })
    }

    fn offload_text(&self) -> String {
        let Some(offload) = self.offload else { return String::new() };
        let each = |packets: u64, frames: u64, what: &str| {
            (frames > 0).then(|| format!("{:.1} {what}", packets as f64 / frames as f64))
        };
        let rates = [
            each(offload.rx_packets, offload.rx_frames, "packets per read")
                .map(|rate| format!("rx {rate}")),
            each(offload.tx_packets, offload.tx_frames, "per send")
                .map(|rate| format!("tx {rate}")),
        ];
        rates.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

impl Report for Tunnels {
    fn form(&self) -> ReportForm {
        Self::FORM
    }

    fn text(&self, style: Style) -> String {
        if self.is_brief {
            return self.tunnels.iter().map(TunnelFacts::headline).collect();
        }
        let blocks: Vec<String> = self.tunnels.iter().map(|facts| facts.block(style)).collect();
        blocks.join("\n")
    }
}

/// Formats bytes in binary units, as in `wg show`: `9.31 GiB`.
fn binary(bytes: u64) -> String {
    let value = bytes as f64;
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.2} KiB", value / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.2} MiB", value / 1_048_576.0),
        _ => format!("{:.2} GiB", value / 1_073_741_824.0),
    }
}

/// Formats an age in the largest unit that is no longer than the age: `3 seconds ago`.
fn age(age_ns: u64) -> String {
    let seconds = age_ns / 1_000_000_000;
    let units = [(86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second")];
    match units.into_iter().find(|(unit, _)| seconds >= *unit) {
        None => "now".to_owned(),
        Some((unit, name)) if seconds < 2 * unit => format!("1 {name} ago"),
        Some((unit, name)) => format!("{} {name}s ago", seconds / unit),
    }
}

/// Number of columns that remain of 80 after a label and its margin.
const LIST_COLUMNS: usize = 68;
const LIST_MARGIN: &str = "\n            ";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tunnel::describe;

    fn facts(line: &str, mtu: u16) -> TunnelFacts {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let description = describe("test", &words).unwrap();
        let mut facts = TunnelFacts::new(
            &Definition { name: "gue0".into(), mtu, description },
            TunnelState::Up,
        );
        (facts.path_mtu, facts.pid, facts.device_is_there) = (Some(1500), Some(7), true);
        facts
    }

    fn text(facts: TunnelFacts) -> String {
        Tunnels::new(vec![facts]).text(Style { color: false })
    }

    const GUE: &str = "ipip local 192.0.2.1 remote 192.0.2.2 encap gue encap-remcsum";

    #[test]
    fn the_headline_is_that_of_the_guide() {
        let mut tunnels = Tunnels::new(vec![facts(GUE, 1460)]);
        tunnels.is_brief = true;
        assert_eq!(
            tunnels.text(Style { color: false }),
            "gue0: up, mtu 1460 (1500 - ip 20 - udp 8 - gue 4 - private flags 4 - remcsum 4), \
             vnet_hdr on, uso out 64 KB\n"
        );
    }

    #[test]
    fn a_running_tunnel_is_shown_with_what_passed() {
        let mut up = facts(GUE, 1460);
        up.transfer = Some(Traffic {
            rx_bytes: 9_996_536_381,
            rx_packets: 214,
            tx_bytes: 1024,
            tx_packets: 380,
        });
        up.offload =
            Some(Offload { rx_frames: 10, rx_packets: 214, tx_frames: 10, tx_packets: 380 });
        up.last_packet_age_ns = Some(2_999_999_999);
        up.features = vec!["tx-tcp-segmentation".into(), "tx-udp-segmentation".into()];
        up.drops.insert("decap_not_this_tunnel".into(), 3);
        assert_eq!(
            text(up),
            "interface: gue0  (ipip over gue, remcsum)\n\
             \x20 state:    up, process 7\n\
             \x20 endpoint: 192.0.2.2:6080      local: 192.0.2.1\n\
             \x20 ports:    from 49152-65535, chosen per flow\n\
             \x20 mtu:      1460 (1500 - ip 20 - udp 8 - gue 4 - private flags 4 - remcsum 4)\n\
             \x20 transfer: 9.31 GiB received, 1.00 KiB sent, last packet: 2 seconds ago\n\
             \x20 offload:  rx 21.4 packets per read, tx 38.0 per send\n\
             \x20 features: tx-tcp-segmentation tx-udp-segmentation\n\
             \x20 drops:    decap_not_this_tunnel 3\n"
        );
    }

    #[test]
    fn the_age_of_the_last_packet_has_one_unit() {
        let cases = [
            (0, "now"),
            (999, "now"),
            (1000, "1 second ago"),
            (59_999, "59 seconds ago"),
            (60_000, "1 minute ago"),
            (119_999, "1 minute ago"),
            (7_199_000, "1 hour ago"),
            (86_399_000, "23 hours ago"),
            (200_000_000, "2 days ago"),
        ];
        for (milliseconds, text) in cases {
            assert_eq!(age(milliseconds * 1_000_000), text);
        }
        let mut silent = facts(GUE, 1460);
        silent.transfer = Some(Traffic { rx_bytes: 0, rx_packets: 0, tx_bytes: 0, tx_packets: 0 });
        assert!(text(silent).contains(" 0 B received, 0 B sent, last packet: none yet\n"));
    }

    #[test]
    fn lists_fit_80_columns() {
        let mut up = facts(GUE, 1460);
        up.features = vec!["tx-udp_tnl-csum-segmentation".into(); 7];
        up.last_error = Some("no way to 192.0.2.2: ".repeat(9));
        let text = text(up);
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert_eq!(text.matches("tx-udp_tnl").count(), 7);
    }

    #[test]
    fn a_stopped_tunnel_shows_the_command_that_starts_it() {
        let mut ended = facts("ip6tnl local fd00::1 remote fd00::2 encaplimit none", 1400);
        (ended.state, ended.pid) = (TunnelState::Ended, None);
        ended.last_error = Some("path gue0: gue0: the device was removed".into());
        assert_eq!(
            text(ended),
            "interface: gue0  (ip6tnl)\n\x20 state:    down: its process ended unexpectedly; to \
             start it: grosso tunnel up gue0\n\x20 endpoint: fd00::2      local: fd00::1\n\x20 \
             mtu:      1400 (as configured; the path allows 1460: 1500 - ip 40)\n\x20 error:    \
             path gue0: gue0: the device was removed\n"
        );
        let mut alone = facts("vxlan id 1 local fd00::1 remote fd00::2 srcport 9 9", 1430);
        (alone.path_mtu, alone.device_is_there) = (None, false);
        alone.path_hint = Some(1280);
        let text = text(alone);
        assert!(
            text.contains("  state:    up, process 7; its device was renamed or moved\n"),
            "{text}"
        );
        assert!(text.contains("  path:     1280 bytes according to ICMP; "), "{text}");
        assert!(text.contains("  endpoint: [fd00::2]:4789 "), "{text}");
        assert!(text.contains("  ports:    from 9\n"), "{text}");
        assert!(text.contains("  mtu:      1430 (currently no route to fd00::2)\n"), "{text}");
    }
}
