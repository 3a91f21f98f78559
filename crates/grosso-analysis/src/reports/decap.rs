//! The report of `decap`.

use std::collections::BTreeMap;

use grosso::tunnel::{Congestion, Tunnel};
use schemars::JsonSchema;
use serde::Serialize;

use super::reassemble::{Alone, Joining};
use crate::{
    form::ReportForm,
    report::{Counts, Envelope, InputFacts, OutputFacts, Report, count_lines, list_lines},
    style::Style,
    units,
};

/// Report of `decap`.
#[derive(Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct DecapReport {
    pub input: InputFacts,
    pub output: OutputFacts,
    pub recursive: bool,
    /// Frames that were guessed to be superframes made of tunnel packets, and were split into those packets before
    /// decapsulation.
    pub guessed: u64,
    /// Frames that were split into tunnel packets before decapsulation, even though some evidence contradicted this.
    pub contradictions: u64,
    #[serde(flatten)]
    pub tally: DecapTally,
    /// Fragments by tunnel depth: the number of tunnels from which they were extracted.
    pub joined: Vec<Depth>,
    #[serde(skip)]
    pub lists_all: bool,
    pub elapsed_s: f64,
}

/// Packet counts by outcome.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct DecapTally {
    /// Number of output packets extracted from at least one tunnel.
    pub decapsulated: u64,
    #[serde(serialize_with = "serialize_tunnels")]
    #[schemars(with = "Vec<TunnelCount>")]
    tunnels: BTreeMap<(u32, Tunnel), u64>,
    /// Packets whose tunnel header signaled congestion, or had an ECN field that contradicts the inner packet's (RFC
    /// 6040).
    congestion: Counts,
    /// Inner headers missing from the output because the capture's link type cannot represent them, by name: Ethernet
    /// addresses, VLAN tags and labels.
    left_out: Counts,
    /// Packets that were not in a tunnel.
    pub plain: u64,
    /// Packets that remain in a tunnel, by reason.
    pub refused: Alone,
}

/// Fragments at one tunnel depth.
#[derive(Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct Depth {
    /// Number of tunnels from which the fragments were extracted.
    pub depth: usize,
    #[serde(flatten)]
    pub found: Joining,
}

/// Packets extracted from one type of tunnel.
#[derive(Serialize, JsonSchema)]
struct TunnelCount {
    tunnel: &'static str,
    /// Depth of the tunnel; 1 is the outermost.
    depth: u32,
    packets: u64,
}

fn serialize_tunnels<S: serde::Serializer>(
    tunnels: &BTreeMap<(u32, Tunnel), u64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(tunnels.iter().map(|(&(depth, tunnel), &packets)| TunnelCount {
        tunnel: tunnel.name(),
        depth,
        packets,
    }))
}

impl DecapTally {
    /// Counts a packet extracted from a tunnel at `depth`; the outermost tunnel has depth 1.
    pub fn count(&mut self, depth: u32, tunnel: Tunnel, congestion: Congestion) {
        *self.tunnels.entry((depth, tunnel)).or_default() += 1;
        let name = match congestion {
            Congestion::Unchanged => return,
            Congestion::Contradicted => "contradicted",
            Congestion::Capable1 => "set to ECT(1)",
            Congestion::Experienced => "set to CE",
        };
        *self.congestion.entry(name).or_default() += 1;
    }

    /// Counts an inner header that is missing from the output.
    pub fn leave_out(&mut self, header: &'static str) {
        *self.left_out.entry(header).or_default() += 1;
    }

    /// Returns a note to print with the report.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        if self.left_out.is_empty() {
            return None;
        }
        let headers = self.left_out.iter().map(|(name, count)| format!("{name} {count}"));
        Some(format!(
            "inner headers omitted, because the capture's link type cannot store them: {}",
            headers.collect::<Vec<_>>().join(", ")
        ))
    }

    fn lines(&self) -> String {
        let tunnels = self.tunnels.iter().map(|((depth, tunnel), packets)| match depth {
            1 => format!("{tunnel} {packets}"),
            _ => format!("{tunnel} {packets} at depth {depth}"),
        });
        let mut text = list_lines("tunnels", tunnels);
        text.push_str(&count_lines("congestion", &self.congestion));
        text.push_str(&count_lines("omitted headers", &self.left_out));
        if self.plain > 0 {
            let plain = core::iter::once(self.plain.to_string());
            text.push_str(&list_lines("not in a tunnel", plain));
        }
        text + &self.refused.lines()
    }
}

impl DecapReport {
    /// Name and version of the JSON schema.
    pub const FORM: ReportForm = ReportForm::of::<Envelope<Self>>("grosso.decap/1");

    /// Returns whether all packets were extracted and reassembled, with no guess or contradiction.
    pub fn is_certain(&self) -> bool {
        self.tally.refused.is_empty()
            && !self.joined.iter().any(|depth| depth.found.is_incomplete())
            && self.guessed == 0
            && self.contradictions == 0
    }
}

impl Report for DecapReport {
    fn form(&self) -> ReportForm {
        Self::FORM
    }

    fn text(&self, style: Style) -> String {
        let mut text = format!(
            "{}: {} -> {} packets; {} decapsulated\n",
            style.strong(self.output.name()),
            self.input.packets,
            self.output.packets,
            self.tally.decapsulated,
        );
        text.push_str(&self.tally.lines());
        for Depth { depth, found } in &self.joined {
            let place = match depth {
                0 => "outside the tunnels".into(),
                depth => format!("at depth {depth}"),
            };
            text.push_str(&format!(
                "{place}: {} of {}\n",
                units::count(found.datagrams, "datagram"),
                units::count(found.fragments, "fragment"),
            ));
            text.push_str(&found.lines(self.lists_all));
        }
        text
    }

    fn input(&self) -> Option<&InputFacts> {
        Some(&self.input)
    }

    fn output(&self) -> Option<&OutputFacts> {
        Some(&self.output)
    }
}
