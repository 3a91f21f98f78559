//! The report on a capture.

use serde::Serialize;

use crate::{
    report::{OutputFacts, Report, Tool},
    style::Style,
    units,
};

/// The report on a capture.
#[derive(Serialize)]
pub(super) struct CaptureReport {
    pub(super) schema: &'static str,
    pub(super) tool: Tool,
    pub(super) interface: String,
    pub(super) output: OutputFacts,
    pub(super) elapsed_ns: u64,
    /// The reason why it ended.
    pub(super) ended: CaptureEnd,
    /// Packets for which the kernel had no room.
    pub(super) drops: u64,
    #[serde(flatten)]
    pub(super) counts: Counts,
    pub(super) warnings: Vec<String>,
}

/// Counts of packets by kind.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Counts {
    /// Captured bytes that were written.
    #[serde(skip)]
    pub(super) bytes: u64,
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

/// The reason why a capture ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CaptureEnd {
    Count,
    Duration,
    Interrupted,
    Terminated,
    InterfaceGone,
}

impl Report for CaptureReport {
    fn text(&self, style: Style) -> String {
        let counts = &self.counts;
        let packets = units::count(self.output.packets, "packet");
        let bytes = units::bytes(counts.bytes);
        let elapsed = units::duration(self.elapsed_ns);
        let drops = match self.drops {
            0 => "none".into(),
            drops => style.bad(&format!("{drops}, for want of room (--ring)")),
        };
        let name = match self.output.name().to_string() {
            name if name == "-" => "standard output".into(),
            name => name,
        };
        format!(
            "{}: {packets} of {}, {bytes}, {elapsed}\n  \
             superframes   {} tcp, {} udp, with their segment size\n  \
             checksums     {} partial, {} verified, {} not looked at\n  \
             direction     {} out, {} in\n  \
             dropped       {drops}\n",
            style.strong(&name),
            self.interface,
            counts.superframes_tcp,
            counts.superframes_udp,
            counts.checksums_partial,
            counts.checksums_verified,
            counts.checksums_unknown,
            counts.outgoing,
            self.output.packets - counts.outgoing.min(self.output.packets),
        )
    }

    fn warn(&mut self, warnings: Vec<String>) {
        self.warnings = warnings;
    }
}
