//! The report of `explain`: what happened to one packet.

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    evidence::{Evidence, Judgment, Nature},
    form::ReportForm,
    name::Name,
    report::{COLUMNS, Envelope, Interrupted, Report, wrap, wrap_at},
    style::Style,
    units,
};

/// Report of `explain`: what happened to one packet.
#[derive(Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct ExplainReport {
    pub path: Name,
    pub profile: String,
    pub packet: PacketFacts,
    /// Train that was being held for the packet's flow when the packet arrived.
    pub lookup: Option<Held>,
    pub decision: Decision,
    /// Trains that were delivered because the packet arrived.
    pub flushed: Vec<Train>,
    /// Train that contained the packet when it was delivered.
    pub left: Option<Train>,
    /// Reason why the train in `left` was delivered.
    pub ended: Option<Ended>,
    /// Part of the input that was read, if Ctrl-C was pressed before the packet was delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupted: Option<Interrupted>,
}

/// Facts about the packet.
#[derive(Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct PacketFacts {
    pub number: u64,
    /// Time since the first packet of the capture.
    pub time_ns: Option<i128>,
    pub bytes: u64,
    pub endpoints: Option<String>,
    pub protocol: String,
    /// TCP sequence numbers of the first byte and of the byte after the last one.
    pub sequence: Option<(u32, u32)>,
    /// Headers with the TCP options, outermost first.
    pub headers: String,
    /// Worst verdict on any checksum in the packet.
    pub checksum: Option<&'static str>,
    /// Classification of the frame; `None` if it is not parsed.
    pub judgment: Option<JudgmentFacts>,
}

/// Classification of a frame, and the evidence for it.
#[derive(Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct JudgmentFacts {
    /// `packet`, `superframe`, or the reason name if the frame is neither.
    pub nature: &'static str,
    /// Segment size in bytes.
    pub size: Option<u16>,
    pub by: Option<Evidence>,
    /// Whether the evidence also allows a different answer.
    pub guess: bool,
    /// Evidence that contradicts the classification.
    pub against: Option<Evidence>,
}

impl JudgmentFacts {
    /// Converts a judgment for the report.
    pub fn of(judgment: &Judgment) -> Self {
        let (nature, size) = match judgment.nature {
            Nature::Packet => ("packet", None),
            Nature::Superframe { size, .. } => ("superframe", Some(size.bytes)),
            Nature::Left(reason) => (reason, None),
        };
        let against = judgment.against.map(|against| against.by);
        Self { nature, size, by: judgment.by, guess: judgment.is_guess, against }
    }

    fn text(&self) -> String {
        let what = match (self.nature, self.size) {
            ("packet", _) => "a wire packet".to_owned(),
            ("superframe", Some(0)) => "a superframe whose packets differ in size".to_owned(),
            ("superframe", Some(size)) => format!("a superframe, split every {size} B"),
            (reason, _) => format!("undecided: {reason}"),
        };
        let evidence = self.by.map(|evidence| format!(", according to {}", evidence.noun()));
        let guess = if self.guess { " (a guess)" } else { "" };
        let against = self.against.map(|against| format!("; contradicted by {}", against.noun()));
        let (evidence, against) = (evidence.unwrap_or_default(), against.unwrap_or_default());
        format!("{what}{evidence}{guess}{against}")
    }
}

/// Train that is being held.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct Held {
    /// Number of the train's first packet.
    pub since: u64,
    pub packets: u64,
    pub payload_bytes: u64,
    pub gso_size: Option<u64>,
}

/// Decision, and the rule behind it.
#[derive(Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct Decision {
    /// `held`, `joined`, `waited`, `refused`, `passed` or `aside`.
    pub verdict: &'static str,
    pub reason: Option<&'static str>,
    /// Values that led to the decision, for example `TSval 77 -> 78`.
    pub detail: Option<String>,
    /// Law violated by the packet.
    pub law: Option<BrokenLaw>,
    /// Limit that the packet would have exceeded.
    pub limit: Option<Limit>,
    /// Setting, or change to the packet, that would have let it merge.
    pub remedy: Option<String>,
    /// Sentence that explains the rule.
    pub sentence: Option<String>,
}

/// Law in the engine's table, with two values that violate it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct BrokenLaw {
    /// Name of the header that contains the field.
    pub header: String,
    pub field: String,
    /// Law for the field: how it may change from one packet of a train to the next.
    pub law: &'static str,
    /// Value in the last packet of the train.
    pub held: String,
    /// Value in the arriving packet.
    pub came: String,
}

/// Limit that was reached.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct Limit {
    /// Name of the limit. If a profile file can set the limit, this is the name used there.
    pub name: &'static str,
    pub most: u64,
    pub would_be: Option<u64>,
}

/// Reason why a train was delivered.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct Ended {
    pub sentence: &'static str,
    pub limit: Option<Limit>,
    /// Packet that caused the delivery.
    pub by: Option<u64>,
}

/// Delivered train.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct Train {
    pub first: u64,
    pub last: u64,
    pub packets: u64,
    pub bytes: u64,
    /// Reason for the delivery.
    pub closed: &'static str,
}

impl Report for ExplainReport {
    fn form(&self) -> ReportForm {
        Self::FORM
    }

    fn text(&self, style: Style) -> String {
        let mut text = self.packet.head(style);
        let line = |label: &str, value: String| {
            let value = wrap_at(&value, COLUMNS - INDENT);
            let lines = value.lines().enumerate();
            let lines = lines
                .map(|(i, value)| format!("  {:<11} {value}\n", if i == 0 { label } else { "" }));
            lines.collect::<String>()
        };
        let headers = &self.packet.headers;
        let parsed = match self.packet.checksum {
            Some(verdict) => format!("{headers:<34} csum {verdict}"),
            None => headers.clone(),
        };
        // If the line is short enough, pad it to align the verdicts.
        text.push_str(&match INDENT + parsed.len() <= COLUMNS {
            true => format!("  {:<11} {parsed}\n", "parse"),
            false => line("parse", parsed),
        });
        text.push_str(&match &self.packet.judgment {
            Some(judgment) => line("wire", judgment.text()),
            None => String::new(),
        });
        if self.decision.verdict != "aside" {
            text.push_str(&line("gro lookup", self.lookup_text()));
        }
        text.push_str(&line("gro decide", self.decision_text(style)));
        if let Some(law) = &self.decision.law {
            text.push_str(&line("law", law.text()));
        }
        if let Some(limit) = &self.decision.limit {
            text.push_str(&line("limit", limit.text()));
        }
        if let Some(remedy) = &self.decision.remedy {
            text.push_str(&line("would merge", remedy.clone()));
        }
        for train in &self.flushed {
            text.push_str(&line("gro flush", train.text()));
        }
        text.push_str(&line("gro out", self.fate_text()));
        if let Some(ended) = &self.ended {
            text.push_str(&line("ended by", ended.text()));
        }
        if let Some(sentence) = &self.decision.sentence {
            text.push_str(&wrap(sentence));
        }
        text
    }

    fn interrupted(&self) -> Option<Interrupted> {
        self.interrupted
    }
}

impl PacketFacts {
    fn head(&self, style: Style) -> String {
        let mut words = vec![style.strong(&format!("#{}", self.number))];
        if let Some(time_ns) = self.time_ns {
            let sign = if time_ns < 0 { '-' } else { '+' };
            let time_ns = time_ns.unsigned_abs();
            let (seconds, rest) = (time_ns / 1_000_000_000, time_ns % 1_000_000_000 / 1000);
            words.push(format!("{sign}{seconds}.{rest:06} s"));
        }
        words.push(format!("{} B", self.bytes));
        words.extend(self.endpoints.clone());
        words.push(self.protocol.clone());
        if let Some((from, to)) = self.sequence {
            words.push(format!("seq {from}:{to}"));
        }
        wrap(&words.join(" "))
    }
}

impl ExplainReport {
    /// Name and version of the JSON schema.
    pub const FORM: ReportForm = ReportForm::of::<Envelope<Self>>("grosso.explain/1");

    fn lookup_text(&self) -> String {
        let Some(held) = &self.lookup else { return "no train of its flow is held".into() };
        let packets = units::count(held.packets, "packet");
        let size = held.gso_size.map_or(String::new(), |size| format!(", gso_size {size}"));
        format!("flow held since #{}: {packets}, {} B{size}", held.since, held.payload_bytes)
    }

    fn decision_text(&self, style: Style) -> String {
        let Decision { verdict, reason, detail, .. } = &self.decision;
        let mut text = match *verdict {
            "joined" => style.good("MERGED"),
            "held" => style.good("STARTS A TRAIN"),
            "waited" => style.notice("HELD UNTIL THE END OF THE POLL"),
            "refused" => style.notice("NOT MERGED"),
            _ => style.notice("PASSED THROUGH"),
        };
        if let Some(reason) = reason {
            text.push_str(&format!(": {reason}"));
        }
        if let Some(detail) = detail {
            text.push_str(&format!(" ({detail})"));
        }
        text
    }

    fn fate_text(&self) -> String {
        let number = self.packet.number;
        match (&self.left, self.decision.verdict) {
            (None, _) | (Some(Train { packets: 1, closed: "never", .. }), _) => {
                format!("#{number} unchanged")
            }
            (Some(train), "refused") if train.first == number && train.packets > 1 => {
                format!("#{number} starts the next train: {}", train.text())
            }
            (Some(train), _) => train.text(),
        }
    }
}

impl BrokenLaw {
    fn text(&self) -> String {
        format!("{} {} {}", self.header, self.field, self.law)
    }
}

impl Limit {
    fn text(&self) -> String {
        let would_be = self.would_be.map_or(String::new(), |value| format!(", would be {value}"));
        format!("{}: the maximum is {}{would_be}", self.name, self.most)
    }
}

impl Ended {
    fn text(&self) -> String {
        let limit = self.limit.map_or(String::new(), |limit| format!(" ({})", limit.text()));
        let by = self.by.map_or(String::new(), |by| format!(" It was #{by}."));
        format!("{}{limit}{by}", self.sentence)
    }
}

impl Train {
    fn text(&self) -> String {
        let Self { first, last, packets, bytes, closed } = self;
        if *packets == 1 {
            return format!("#{first} alone, {bytes} B ({closed})");
        }
        format!("{packets} packets (#{first} to #{last}) -> 1 of {bytes} B ({closed})")
    }
}

/// Column of the text after a label.
const INDENT: usize = 14;
