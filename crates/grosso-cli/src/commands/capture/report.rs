//! The report on a capture.

use schemars::JsonSchema;
use serde::Serialize;

use super::unloader::Unloaded;
use crate::{
    form::ReportForm,
    name::Name,
    report::{Counts, Envelope, OutputFacts, Report, count_lines, list_lines},
    style::Style,
    units,
};

/// Report on a capture.
#[derive(Serialize, JsonSchema)]
pub(super) struct CaptureReport {
    /// Interface name, or `any`.
    pub(super) interface: String,
    /// Packets from each interface.
    pub(super) interfaces: Vec<InterfacePackets>,
    pub(super) output: OutputFacts,
    pub(super) files: FilesReport,
    pub(super) outputs: Vec<OutputReport>,
    /// Name of the first output.
    #[serde(skip)]
    pub(super) name: String,
    /// Superframes split and checksums completed; `null` if packets are left unchanged.
    pub(super) wire: Option<Unloaded>,
    pub(super) elapsed_ns: u64,
    /// Reason why the capture ended.
    pub(super) ended: CaptureEnd,
    /// Packets that the kernel dropped because it had no room for them.
    pub(super) drops: u64,
    /// Packets from interfaces with an unsupported link type, which are not in the output.
    pub(super) unknown: u64,
    #[serde(flatten)]
    pub(super) counts: FrameCounts,
}

/// Packets from one interface.
#[derive(Serialize, JsonSchema)]
pub(super) struct InterfacePackets {
    pub(super) name: String,
    pub(super) packets: u64,
}

/// Files written, one after another.
#[derive(Serialize, JsonSchema)]
pub(super) struct FilesReport {
    /// Files started, including those that were later overwritten.
    pub(super) begun: u64,
    /// Last file.
    pub(super) last: Option<Name>,
}

/// Destination of packets.
#[derive(Serialize, JsonSchema)]
pub(super) struct OutputReport {
    /// `file`, `pcap-over-ip` or `device`.
    pub(super) kind: &'static str,
    pub(super) name: String,
    pub(super) packets: u64,
    /// Clients accepted by a listener.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) clients: Option<usize>,
    /// Clients rejected by the listener.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) turned_away: Option<usize>,
    /// Clients disconnected by the listener because they did not read their data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cut_off: Option<usize>,
    /// Packets that this destination lost, by reason.
    pub(super) lost: Counts,
}

/// Frame counts by kind.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub(super) struct FrameCounts {
    /// Frames as captured on the interface.
    pub(super) frames: u64,
    pub(super) outgoing: u64,
    pub(super) superframes_tcp: u64,
    pub(super) superframes_udp: u64,
    pub(super) checksums_partial: u64,
    pub(super) checksums_verified: u64,
    pub(super) checksums_unknown: u64,
    pub(super) vlan_tags: u64,
    /// Packets whose end is missing.
    pub(super) cut: u64,
}

/// Reason why a capture ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum CaptureEnd {
    Count,
    Duration,
    /// The maximum number of files was reached.
    Files,
    Interrupted,
    Terminated,
    InterfaceGone,
}

impl Report for CaptureReport {
    fn form(&self) -> ReportForm {
        Self::FORM
    }

    fn text(&self, style: Style) -> String {
        let counts = &self.counts;
        let packets = units::count(self.output.packets, "packet");
        let bytes = units::bytes(self.output.bytes);
        let elapsed = units::duration(self.elapsed_ns);
        let drops = match self.drops {
            0 => "none".into(),
            drops => style.bad(&format!("{drops} (ring full; use a larger --ring)")),
        };
        let files = match self.files.begun {
            0 | 1 => String::new(),
            begun => {
                let last = self.files.last.as_ref().map(Name::to_string).unwrap_or_default();
                format!("\n  files         {begun}; the last is {last}")
            }
        };
        let by_interface = match &self.interfaces[..] {
            [] | [_] => String::new(),
            several => {
                let of = several.iter().map(|one| format!("{} {}", one.name, one.packets));
                let lines = list_lines("interfaces", of);
                format!("\n{}", lines.trim_end())
            }
        };
        format!(
            "{}: {packets} of {}, {bytes}, {elapsed}{files}{by_interface}\n  superframes   {} \
             tcp, {} udp (segment sizes recorded)\n  checksums     {} partial, {} verified, {} \
             not checked\n  direction     {} out, {} in\n  dropped       {drops}\n{}{}",
            style.strong(&self.name),
            self.interface,
            counts.superframes_tcp,
            counts.superframes_udp,
            counts.checksums_partial,
            counts.checksums_verified,
            counts.checksums_unknown,
            counts.outgoing,
            counts.frames - counts.outgoing.min(counts.frames),
            self.wire.as_ref().map(Unloaded::text).unwrap_or_default(),
            self.outputs(),
        )
    }
}

impl CaptureReport {
    /// Schema of this report.
    pub(super) const FORM: ReportForm = ReportForm::of::<Envelope<Self>>("grosso.capture/1");

    /// Returns a line for each output, unless the only output is a single file.
    fn outputs(&self) -> String {
        if matches!(&self.outputs[..], [only] if only.kind == "file") {
            return String::new();
        }
        let line = |output: &OutputReport| {
            let mut line = format!(
                "  to            {}: {}",
                output.name,
                units::count(output.packets, "packet")
            );
            if let Some(clients) = output.clients {
                line += &format!(", {}", units::count(clients as u64, "client"));
            }
            let ends = [("rejected", output.turned_away), ("disconnected", output.cut_off)];
            for (end, count) in ends {
                let count = count.filter(|count| *count > 0);
                line += &count.map(|count| format!(", {count} {end}")).unwrap_or_default();
            }
            for (reason, count) in &output.lost {
                line += &format!(", {reason} {count}");
            }
            line + "\n"
        };
        self.outputs.iter().map(line).collect()
    }
}

impl Unloaded {
    fn text(&self) -> String {
        let lines = count_lines("unchanged", &self.left);
        format!(
            "  wire          {} split into {}, {} completed\n{lines}",
            units::count(self.superframes, "superframe"),
            units::count(self.segments, "packet"),
            units::count(self.checksums_completed, "checksum"),
        )
    }
}
