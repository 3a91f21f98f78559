//! The report of `inspect`.

use grosso_wire::Kind;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    checksums::Verdict,
    evidence::Evidence,
    form::ReportForm,
    report::{COLUMNS, Counts, Envelope, InputFacts, Report, wrap},
    slowdown::Slowdowns,
    style::Style,
    units,
};

/// Report of `inspect`.
#[derive(Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct InspectReport {
    pub input: InspectInput,
    pub superframes: Superframes,
    pub checksums: Verdicts,
    pub fragments: Fragments,
    pub tunnels: Vec<TunnelPackets>,
    /// Causes that slow down TCP, by direction.
    pub slowdown: Slowdowns,
    pub verdict: Vantage,
    #[serde(skip)]
    pub on_link: OnLink,
}

/// Traffic on the link, including bytes that were not captured.
#[derive(Debug, Default)]
pub struct OnLink {
    /// Total length of all packets in bytes.
    pub bytes: u64,
    /// Packets longer than [`MTU_OF_REPLAY`], whether superframes or not.
    pub too_long: u64,
    /// Total length in bytes of the packets that are too long.
    pub too_long_bytes: u64,
}

impl OnLink {
    /// Counts a packet of `len` bytes whose outermost IP header is at `ip`.
    pub fn count(&mut self, len: u64, ip: u64) {
        if len > ip + MTU_OF_REPLAY {
            self.too_long += 1;
            self.too_long_bytes += len;
        }
    }
}

/// MTU of the path on which a capture would be replayed, in bytes.
pub const MTU_OF_REPLAY: u64 = 1500;

/// Facts about the input file.
#[derive(Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct InspectInput {
    #[serde(flatten)]
    pub facts: InputFacts,
    /// Link types, with their names in the tcpdump.org registry.
    pub linktype: String,
    pub snaplen: u32,
    /// Timestamp of the earliest packet.
    pub first_ts_ns: Option<u64>,
    /// Timestamp of the latest packet.
    pub last_ts_ns: Option<u64>,
    /// Position at which the file is damaged or ends early, with a description of the damage.
    pub truncated: Option<String>,
    /// Packets that were only partially captured.
    pub cut_packets: u64,
    /// Captured and original lengths of the first partially captured packet.
    pub first_cut: Option<(u64, u64)>,
}

/// Packets that were never on a wire.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct Superframes {
    pub packets: u64,
    pub bytes: u64,
    pub largest_bytes: u64,
    pub by_proto: Counts,
    /// Estimated number of wire packets in the superframes whose segment size is known or guessed.
    pub wire_packets_estimate: u64,
    pub mss: Vec<Mss>,
    /// Superframes that cannot be segmented because the size is unknown or a checksum is wrong.
    pub undecided: u64,
    /// Frames that were classified by a guess.
    pub guessed: u64,
    /// Frames with contradicting evidence.
    pub contradictions: u64,
}

/// Segment size.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct Mss {
    pub bytes: u16,
    pub flows: u64,
    pub source: Evidence,
    /// Whether the evidence also allows a different size.
    pub guess: bool,
    /// Superframes after which the IP ID advances by their number of segments at this size.
    pub ip_id_agree: u64,
    /// Superframes after which the IP ID step reveals their number of segments.
    pub ip_id_pairs: u64,
}

/// Packets by the worst verdict on any of their checksums.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct Verdicts {
    pub valid: u64,
    pub partial: u64,
    pub zero_udp: u64,
    pub bad: u64,
    pub unverifiable: u64,
    /// Packets for which only the IP headers were verified.
    pub not_verified: u64,
}

impl Verdicts {
    /// Counts one packet.
    pub fn count(&mut self, verdict: Verdict) {
        *match verdict {
            Verdict::Valid => &mut self.valid,
            Verdict::Partial => &mut self.partial,
            Verdict::ZeroUdp => &mut self.zero_udp,
            Verdict::Bad => &mut self.bad,
            Verdict::Unverifiable => &mut self.unverifiable,
            Verdict::NotVerified => &mut self.not_verified,
        } += 1;
    }

    /// Formats the counts as `12 valid, 231 partial, 1 bad, 0 unverifiable`. Zeros are omitted, except for bad and
    /// unverifiable packets.
    pub fn text(&self, style: Style) -> String {
        let mut words = Vec::new();
        let mut push = |count: u64, verdict: Verdict| {
            if count > 0 || matches!(verdict, Verdict::Bad | Verdict::Unverifiable) {
                let word = format!("{count} {}", verdict.name());
                words.push(match verdict {
                    Verdict::Bad if count > 0 => style.bad(&word),
                    _ => word,
                });
            }
        };
        push(self.valid, Verdict::Valid);
        push(self.partial, Verdict::Partial);
        push(self.bad, Verdict::Bad);
        push(self.zero_udp, Verdict::ZeroUdp);
        push(self.unverifiable, Verdict::Unverifiable);
        push(self.not_verified, Verdict::NotVerified);
        words.join(", ")
    }
}

/// Fragmented datagrams.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct Fragments {
    pub packets: u64,
    pub sets: u64,
    pub complete: u64,
    pub incomplete: u64,
}

/// Packets inside one kind of tunnel.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct TunnelPackets {
    pub kind: &'static str,
    pub packets: u64,
}

/// Capture point, if the packets reveal it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct Vantage {
    /// Whether the packets appear as they were on the wire; false if there is any reason for doubt.
    pub wire_faithful: bool,
    pub vantage: &'static str,
    pub reasons: Vec<&'static str>,
}

impl Report for InspectReport {
    fn form(&self) -> ReportForm {
        Self::FORM
    }

    fn text(&self, style: Style) -> String {
        let mut text = self.head(style);
        text.push_str(&self.superframe_line());
        text.push_str(&format!("  {:<14}{}\n", "checksums", self.checksums.text(style)));
        text.push_str(&self.other_line());
        for mss in &self.superframes.mss {
            text.push_str(&mss_line(mss));
        }
        text.push_str(&self.slowdown.text(style));
        text.push_str(&self.verdict_lines(style));
        text
    }

    fn input(&self) -> Option<&InputFacts> {
        Some(&self.input.facts)
    }
}

impl InspectReport {
    /// Name and version of the JSON schema.
    pub const FORM: ReportForm = ReportForm::of::<Envelope<Self>>("grosso.inspect/2");

    fn head(&self, style: Style) -> String {
        let InspectInput { facts, linktype, snaplen, first_ts_ns, last_ts_ns, .. } = &self.input;
        let span = match (first_ts_ns, last_ts_ns) {
            (Some(first), Some(last)) => {
                format!(", {}", units::duration(last.saturating_sub(*first)))
            }
            _ => String::new(),
        };
        let snaplen = if *snaplen > 0 { format!(", snaplen {snaplen}") } else { String::new() };
        format!(
            "{}: {}, {linktype}, {}, {}{span}{snaplen}\n",
            style.strong(&facts.path),
            facts.format,
            units::count(facts.packets, "packet"),
            units::bytes(facts.bytes),
        )
    }

    fn superframe_line(&self) -> String {
        let superframes = &self.superframes;
        if superframes.packets == 0 {
            return format!("  {:<14}none\n", "superframes");
        }
        let protocols: Vec<&str> = superframes.by_proto.keys().copied().collect();
        let line = format!(
            "  {:<14}{}, {} of bytes",
            "superframes",
            units::count(superframes.packets, "packet"),
            units::percent(superframes.bytes, self.on_link.bytes),
        );
        let known = superframes.packets - superframes.undecided;
        let about = units::about(superframes.wire_packets_estimate - superframes.undecided);
        let on_wire = match (known, superframes.undecided) {
            (_, 0) => format!("about {about} wire packets"),
            (0, _) => "wire packet count unknown".into(),
            (_, undecided) => {
                format!("about {about} wire packets, plus an unknown number from {undecided}")
            }
        };
        let more =
            format!("{} up to {} B; {on_wire}", protocols.join(" "), superframes.largest_bytes);
        if line.len() + 3 + more.len() <= COLUMNS {
            format!("{line}   {more}\n")
        } else {
            format!("{line}\n{:16}{more}\n", "")
        }
    }

    fn other_line(&self) -> String {
        let fragments = match &self.fragments {
            Fragments { sets: 0, packets: 0, .. } => "none".into(),
            Fragments { sets, incomplete: 0, .. } => units::count(*sets, "set"),
            Fragments { sets, incomplete, .. } => {
                format!("{}, {incomplete} incomplete", units::count(*sets, "set"))
            }
        };
        let tunnels = if self.tunnels.is_empty() {
            "none".into()
        } else {
            let words =
                self.tunnels.iter().map(|tunnel| format!("{} {}", tunnel.kind, tunnel.packets));
            words.collect::<Vec<_>>().join(", ")
        };
        let truncated = match (&self.input.truncated, self.input.first_cut) {
            (Some(_), _) => "file".into(),
            (None, Some((captured, original))) => format!(
                "{} ({captured} of {original} B)",
                units::count(self.input.cut_packets, "packet"),
            ),
            (None, None) => "none".into(),
        };
        let line = format!("  {:<14}{fragments}", "fragments");
        let rest = format!("tunnels  {tunnels}       truncated  {truncated}");
        if line.len() + 7 + rest.len() <= COLUMNS {
            format!("{line}       {rest}\n")
        } else {
            format!("{line}\n  {:<14}{tunnels}\n  {:<14}{truncated}\n", "tunnels", "truncated")
        }
    }

    /// Returns the commands for packets in tunnels and for fragments.
    fn other_commands(&self) -> String {
        let input = self.input.facts.words();
        let is_in_clear = |tunnel: &TunnelPackets| tunnel.kind != Kind::Esp.name();
        let has_fragments = self.fragments.packets > 0;
        if self.tunnels.iter().any(is_in_clear) {
            let recursive = if has_fragments { "--recursive " } else { "" };
            format!(
                "To decapsulate packets: grosso decap {recursive}{input} -w \
                     inner.pcapng\n"
            )
        } else if has_fragments {
            format!("To reassemble the fragments: grosso reassemble {input} -w whole.pcapng\n")
        } else {
            String::new()
        }
    }

    fn verdict_lines(&self, style: Style) -> String {
        let has_superframes = self.superframes.packets > 0;
        let verdict = match self.verdict.vantage {
            "empty" => "No packets.",
            "unknown" => "No IP packets, so there is nothing to classify.",
            "wire" => "These are wire packets: no superframes, no partial checksums.",
            "undecided" => {
                "The capture has only headers, so no checksum can be verified. The headers are \
                 consistent with a wire capture: no superframes, no partial checksums."
            }
            "sender-host" if has_superframes => {
                "Captured on the sending host, before segmentation and checksum offload (or on a \
                 virtual link, where they never happen). These are not wire packets:"
            }
            "sender-host" if self.checksums.bad > 0 => {
                "Captured on the sending host, before checksum offload (or on a virtual link, where \
                 it never happens). These are not wire packets, and some checksums are bad. To list them, \
                 run grosso csum verify."
            }
            "sender-host" => {
                "Captured on the sending host, before checksum offload (or on a virtual link, \
                 where it never happens). Nothing is corrupt, but these are not wire packets."
            }
            "receiver-host" => {
                "Captured on the receiving host, after packets were merged (GRO). These are not wire \
                 packets:"
            }
            _ => {
                "Captured on a host, after packets were merged or before they were split; the \
                 packets do not show which. These are not wire packets:"
            }
        };
        let mut sentences = verdict.to_string();
        let OnLink { bytes, too_long, too_long_bytes } = self.on_link;
        if has_superframes && too_long > 0 {
            sentences.push_str(&format!(
                " at MTU {MTU_OF_REPLAY} a replay would lose {} ({} of the bytes).",
                units::count(too_long, "packet"),
                units::percent(too_long_bytes, bytes),
            ));
        } else if sentences.ends_with(':') {
            sentences.pop();
            sentences.push('.');
        }
        let wrapped = wrap(&sentences);
        let mut text = match self.verdict.vantage {
            "empty" | "unknown" | "undecided" => wrapped,
            "wire" => style.good(wrapped.trim_end()) + "\n",
            _ => style.notice(wrapped.trim_end()) + "\n",
        };
        let input = self.input.facts.words();
        if self.checksums.bad > 0 {
            let packets = units::count(self.checksums.bad, "packet");
            text.push_str(&format!(
                "To list {packets} with a bad checksum: grosso csum verify {input}\n"
            ));
        }
        text.push_str(&self.other_commands());
        if self.superframes.packets > 0 || self.checksums.partial > 0 {
            text.push_str(&format!("Next: grosso wire {input} -w wire.pcapng\n"));
        } else if self.verdict.vantage == "wire" && self.checksums.bad == 0 {
            text.push_str(&format!("Next: grosso coalesce {input} -w merged.pcapng\n"));
        }
        text
    }
}

fn mss_line(mss: &Mss) -> String {
    let Mss { bytes, flows, source, guess, ip_id_agree, ip_id_pairs } = mss;
    let mut line =
        format!("  {:<14}{bytes} in {} ({}", "mss", units::count(*flows, "flow"), source.name());
    if *guess && *source != Evidence::Mtu {
        line.push_str(", a guess");
    }
    if *ip_id_pairs > 0 {
        let gaps = ip_id_pairs - ip_id_agree;
        let agree = format!("; IP IDs agree in {ip_id_agree} of {ip_id_pairs} pairs");
        line.push_str(&agree);
        if gaps > 0 && line.len() + 12 + gaps.to_string().len() <= COLUMNS {
            line.push_str(&format!(", {gaps} gap{}", if gaps == 1 { "" } else { "s" }));
        }
    }
    line + ")\n"
}
