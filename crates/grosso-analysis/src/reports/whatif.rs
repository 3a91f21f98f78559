//! The report of `whatif`.

mod page;

use grosso::{coalesce::reason::NoMerge, meta::Gso};
use grosso_capture::Packet;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    distribution::{Distribution, Quantiles},
    form::ReportForm,
    name::{Name, harmless},
    report::{COLUMNS, Counts, Envelope, InputFacts, Report, count_lines, wrap},
    slowdown::Slowdowns,
    style::Style,
    units,
};

/// The report of `whatif`: the effects of profiles, reorder levels and holds.
#[derive(Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct WhatifReport {
    pub input: InputFacts,
    pub offered: Offered,
    /// Rule that ends polls, in `--batch` syntax.
    pub batch: String,
    /// Settings, ordered by profile, then reorder level, then hold, each in the order in which the user listed them.
    pub settings: Vec<Setting>,
    pub best: Option<Best>,
    /// Cost of reordering; `None` if it is small, or if `--reorder` was used.
    pub disorder: Option<Disorder>,
    /// Causes that slow down TCP, by direction.
    pub slowdown: Slowdowns,
    /// Questions that a capture cannot answer.
    pub not_known: &'static [&'static str],
    /// Page with plots, if one was written.
    pub html: Option<Name>,
    pub elapsed_s: f64,
}

/// Traffic in the capture.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct Offered {
    /// Wire packets. A superframe with a recorded segment size counts as the packets into which it would be segmented.
    pub wire_packets: u64,
    /// Captured packets that are superframes.
    pub superframes: u64,
    /// Time between the earliest and the latest packet.
    pub duration_ns: u64,
    #[serde(skip)]
    pub bytes: u64,
    /// Timestamps of the earliest and the latest packet.
    #[serde(skip)]
    span_ns: Option<(u64, u64)>,
}

/// Effect of one combination of profile, reorder level and hold.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct Setting {
    pub profile: String,
    /// Whether trains can be segmented into the original packets.
    pub invertible: bool,
    /// Resequencing, in `--reorder` syntax.
    pub reorder: String,
    /// Hold time of trains, in `--hold` syntax.
    pub hold: String,
    /// Maximum hold time.
    pub hold_ns: u64,
    /// Frames delivered to the stack: superframes, and packets that did not merge.
    pub packets_up: u64,
    pub superframes: u64,
    /// Wire packets in the superframes.
    pub merged_packets: u64,
    /// Frames with TCP or UDP payload, single packets included.
    pub trains: u64,
    pub segments_per_train: Option<SegmentsPerTrain>,
    /// Waiting times of packets with TCP or UDP payload.
    pub held_ns: Option<Quantiles>,
    /// Packets that cannot be part of any train, by reason.
    pub passed: Counts,
    /// Packets that did not merge into their flow's train, by reason.
    pub not_merged: Counts,
    /// Trains delivered, by reason.
    pub closed: Counts,
    /// Packets that were held back for resequencing and then released, by reason.
    pub waited: Counts,
    /// Flows whose hold time depends on a round-trip time that neither the capture nor the user provides.
    pub blind_flows: u64,
    #[serde(skip)]
    pub segments: Distribution,
}

/// Wire packets per train.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct SegmentsPerTrain {
    pub mean: f64,
    #[serde(flatten)]
    pub quantiles: Quantiles,
}

/// The best settings.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Best {
    /// Setting that delivers the fewest packets. If any setting is invertible, only invertible settings are considered.
    pub fewest: Choice,
    /// Setting with the shortest waiting time that keeps 90 % of the saving of `fewest`. If several settings have the
    /// same waiting time, the one with the shortest hold.
    pub shortest: Choice,
    /// Command that applies the `shortest` setting to the capture.
    pub command: String,
    /// Commands that set the hold time on a live device, with a placeholder for the device name; empty if no hold is
    /// needed.
    pub live: Vec<String>,
}

/// Cost of reordering.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Disorder {
    /// Packets that, under the first setting, did not merge with their train because they were out of order.
    pub not_merged: u64,
    /// Packets delivered under the first setting.
    pub packets_up: u64,
    /// First setting, with resequencing.
    pub repaired: Choice,
    /// Command that applies the `repaired` setting to the capture.
    pub command: String,
    /// Commands that restore the order on a live device, with a placeholder for the device name.
    pub live: Vec<String>,
}

/// Setting, and its effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct Choice {
    pub profile: String,
    pub reorder: String,
    pub hold: String,
    pub hold_ns: u64,
    pub packets_up: u64,
    pub held_ns: Option<Quantiles>,
}

impl Offered {
    /// Counts a packet. A superframe with a recorded segment size counts as the packets into which it would be
    /// segmented.
    pub fn count(&mut self, packet: &Packet<'_>, gso: Option<&Gso>) {
        self.bytes += packet.data.len() as u64;
        self.superframes += u64::from(gso.is_some());
        self.wire_packets += gso.map_or(1, |gso| u64::from(gso.segments.max(1)));
        if let Some(now_ns) = packet.timestamp_ns {
            let (first, last) = self.span_ns.unwrap_or((now_ns, now_ns));
            let (first, last) = (first.min(now_ns), last.max(now_ns));
            (self.span_ns, self.duration_ns) = (Some((first, last)), last - first);
        }
    }
}

impl Setting {
    /// Returns the name of the profile, and the resequencing if there is any.
    fn name(&self) -> String {
        name(&self.profile, &self.reorder)
    }

    /// Returns only the effect, without the names of the rules or the packets that were held back for resequencing.
    fn without_name(&self) -> Self {
        let (profile, reorder, waited) = Default::default();
        Self { profile, reorder, waited, invertible: true, ..self.clone() }
    }

    /// Returns the commands that set this hold time on a live device: with NAPI, with interrupt moderation, or with
    /// Grosso. Linux supports only a fixed hold time.
    fn live(&self) -> Vec<String> {
        let Self { hold, hold_ns, .. } = self;
        if *hold_ns == 0 {
            return Vec::new();
        }
        let ours = format!("grosso bridge DEV tap:NAME --hold {hold}");
        let linux = [
            format!("echo {hold_ns} > /sys/class/net/DEV/gro_flush_timeout"),
            "echo 2 > /sys/class/net/DEV/napi_defer_hard_irqs".into(),
            format!("ethtool -C DEV rx-usecs {}", hold_ns.div_ceil(1000)),
        ];
        let linux = linux.into_iter().filter(|_| !hold.starts_with("auto"));
        linux.chain([ours]).collect()
    }

    /// Returns groups of settings that differ only in hold time.
    fn groups(settings: &[Self]) -> impl Iterator<Item = &[Self]> {
        settings.chunk_by(|one, next| one.profile == next.profile && one.reorder == next.reorder)
    }
}

impl SegmentsPerTrain {
    /// Returns the statistics of a distribution; `None` if it is empty.
    pub fn of(segments: &Distribution) -> Option<Self> {
        Some(Self { mean: segments.mean()?, quantiles: segments.quantiles()? })
    }
}

impl Best {
    /// Returns the best settings for a capture of `packets` packets. `command` formats the command that applies a
    /// setting.
    pub fn of(
        settings: &[Setting],
        packets: u64,
        command: impl FnOnce(&Setting) -> String,
    ) -> Option<Self> {
        let any_invertible = settings.iter().any(|setting| setting.invertible);
        let eligible = || settings.iter().filter(|s| s.invertible || !any_invertible);
        let wait = |setting: &Setting| setting.held_ns.map(|held| (held.p99, held.max));
        let fewest = eligible().min_by_key(|setting| (setting.packets_up, wait(setting)))?;
        let saved = |setting: &Setting| packets.saturating_sub(setting.packets_up);
        if saved(fewest) == 0 {
            return None;
        }
        let enough = eligible().filter(|setting| saved(setting) * 10 >= saved(fewest) * 9);
        let cost = |setting: &Setting| (wait(setting), setting.hold_ns);
        let shortest = enough.min_by_key(|setting| (cost(setting), setting.packets_up))?;
        Some(Self {
            command: command(shortest),
            live: shortest.live(),
            fewest: Choice::of(fewest),
            shortest: Choice::of(shortest),
        })
    }
}

impl Disorder {
    /// Returns the cost of reordering, if resequencing reduces the number of delivered packets by at least 2 %.
    pub fn of(
        as_it_came: &Setting,
        ordered: &Setting,
        command: impl FnOnce(&Setting) -> String,
    ) -> Option<Self> {
        let saved = as_it_came.packets_up.saturating_sub(ordered.packets_up);
        let behind_or_ahead = [NoMerge::TcpSequenceBehind, NoMerge::TcpSequenceAhead];
        (saved > 0 && saved * 50 >= as_it_came.packets_up).then(|| Self {
            not_merged: behind_or_ahead
                .iter()
                .filter_map(|no| as_it_came.not_merged.get(no.name()))
                .sum(),
            packets_up: as_it_came.packets_up,
            repaired: Choice::of(ordered),
            command: command(ordered),
            live: LIVE_ORDER.map(String::from).to_vec(),
        })
    }

    fn text(&self, style: Style) -> String {
        let Self { not_merged, packets_up, repaired, command, live } = self;
        let lead = format!(
            "{} arrived out of order and did not continue a train. {}.",
            units::count(*not_merged, "packet"),
            repaired.text(*packets_up)
        );
        wrap(&lead) + &format!("{}\n", style.good(&harmless(command))) + &live_text(live)
    }
}

impl Choice {
    fn of(setting: &Setting) -> Self {
        Self {
            profile: setting.profile.clone(),
            reorder: setting.reorder.clone(),
            hold: setting.hold.clone(),
            hold_ns: setting.hold_ns,
            packets_up: setting.packets_up,
            held_ns: setting.held_ns,
        }
    }

    /// Formats the benefit and the cost of the setting.
    pub(super) fn text(&self, packets: u64) -> String {
        let held = self.held_ns.map_or(String::new(), |held| {
            let (p99, max) = (units::duration(held.p99), units::duration(held.max));
            format!(
                "; 99 % of the merged packets are held for at most {p99}, all for at most {max}"
            )
        });
        format!(
            "{} with a hold time of {}: {} delivered instead of {packets}{held}",
            name(&self.profile, &self.reorder),
            self.hold,
            units::count(self.packets_up, "packet"),
        )
    }
}

impl Report for WhatifReport {
    fn form(&self) -> ReportForm {
        Self::FORM
    }

    fn text(&self, style: Style) -> String {
        let mut text = self.head(style);
        if self.offered.wire_packets == 0 {
            return text + "No packets, so there is nothing to compare.\n";
        }
        let mut before: &[Setting] = &[];
        for group in Setting::groups(&self.settings) {
            text.push_str(&self.group(group, before, style));
            before = group;
        }
        text.push_str(&self.conclusion(style));
        text
    }

    fn input(&self) -> Option<&InputFacts> {
        Some(&self.input)
    }
}

impl WhatifReport {
    /// Name and version of the JSON schema.
    pub const FORM: ReportForm = ReportForm::of::<Envelope<Self>>("grosso.whatif/1");

    fn head(&self, style: Style) -> String {
        let Self { input, offered, .. } = self;
        let mut words = format!(
            "{}: {}, {} in {}",
            style.strong(&input.path),
            units::count(input.packets, "packet"),
            units::bytes(input.bytes),
            units::duration(offered.duration_ns),
        );
        if offered.wire_packets != input.packets {
            words.push_str(&format!(" ({} on the wire)", offered.wire_packets));
        }
        words + "\n"
    }

    /// Formats a profile: one line per hold time, and the reasons that limited the longest one. If the effect is the
    /// same as the previous profile's, only says so.
    fn group(&self, settings: &[Setting], before: &[Setting], style: Style) -> String {
        let [first, ..] = settings else { return String::new() };
        let mut text = format!("\n{}", style.strong(&first.name()));
        if !first.invertible {
            text.push_str(" (lossy: use it only on a host that terminates TCP)");
        }
        text.push('\n');
        if let [other, ..] = before
            && settings
                .iter()
                .map(Setting::without_name)
                .eq(before.iter().map(Setting::without_name))
        {
            return text + &format!("  the same as {}\n", other.name());
        }
        for line in HEADINGS {
            text.push_str(&format!("{}\n", style.faint(line)));
        }
        for setting in settings {
            text.push_str(&self.line(setting));
        }
        if let Some(longest) = settings.iter().max_by_key(|setting| setting.hold_ns) {
            if settings.len() > 1 {
                text.push_str(&format!("  with a hold time of {}:\n", longest.hold));
            }
            text.push_str(&count_lines("not merged", &longest.not_merged));
            text.push_str(&count_lines("passed through", &longest.passed));
            text.push_str(&count_lines("trains ended by", &longest.closed));
            text.push_str(&count_lines("waits ended by", &longest.waited));
        }
        text
    }

    fn line(&self, setting: &Setting) -> String {
        let or_none = |value: Option<String>| value.unwrap_or_else(|| "-".into());
        let segments = |value: fn(&SegmentsPerTrain) -> String| {
            or_none(setting.segments_per_train.as_ref().map(value))
        };
        let held = |value: fn(&Quantiles) -> u64| {
            or_none(setting.held_ns.as_ref().map(|held| units::duration(value(held))))
        };
        let ended = setting.closed.iter().max_by_key(|(_, count)| **count);
        let mut line = format!(
            "  {}{:>up$}{:>8}{:>6}{:>6}{:>7}{:>8}{:>8}{:>8}  {}",
            setting.hold,
            setting.packets_up,
            units::percent(setting.merged_packets, self.offered.wire_packets),
            segments(|s| s.quantiles.p50.to_string()),
            segments(|s| s.quantiles.p99.to_string()),
            segments(|s| format!("{:.1}", s.mean)),
            held(|held| held.p50),
            held(|held| held.p99),
            held(|held| held.max),
            ended.map_or("-", |(name, _)| name),
            up = 15_usize.saturating_sub(setting.hold.len()),
        );
        // The most frequent reason is given in full below.
        line.truncate(COLUMNS);
        line.trim_end().to_string() + "\n"
    }

    /// Formats the conclusion if no setting is worth recommending. Names the lossy profiles that do merge, because they
    /// are suitable only for hosts that terminate TCP.
    fn nothing_merges(&self) -> String {
        let mut lossy: Vec<String> = Vec::new();
        for group in Setting::groups(&self.settings) {
            let merged = group.iter().filter(|setting| !setting.invertible);
            let Some(most) = merged.max_by_key(|setting| setting.merged_packets) else { continue };
            if most.merged_packets > 0 {
                let share = units::percent(most.merged_packets, self.offered.wire_packets);
                lossy.push(format!("{} merges {share}", most.name()));
            }
        }
        if lossy.is_empty() {
            let names = Setting::groups(&self.settings).filter_map(|group| group.first());
            let names: Vec<String> = names.map(Setting::name).collect();
            return format!(
                "No packets merge with any of these profiles, at any hold time: {}",
                names.join("; ")
            );
        }
        format!(
            "No packets merge with the invertible profiles. Lossy profiles are suitable only for \
             hosts that terminate TCP: {}",
            lossy.join(", ")
        )
    }

    fn conclusion(&self, style: Style) -> String {
        let packets = self.input.packets;
        let mut text = String::from("\n");
        match &self.best {
            None => text.push_str(&wrap(&format!("{}.", self.nothing_merges()))),
            Some(Best { fewest, shortest, command, live }) => {
                let fewest_text = format!("Fewest packets: {}.", fewest.text(packets));
                text.push_str(&wrap(&fewest_text));
                if shortest != fewest {
                    text.push_str(&wrap(&format!(
                        "90 % of that saving at the lowest delay: {}.",
                        shortest.text(packets)
                    )));
                }
                text.push_str(&format!("{}\n", style.good(&harmless(command))));
                text.push_str(&live_text(live));
            }
        }
        text.push_str(&self.disorder.as_ref().map_or(String::new(), |found| found.text(style)));
        text.push_str(&self.slowdown.text(style));
        text.push_str(&wrap(&format!("Not visible in a trace: {}.", self.not_known.join("; "))));
        if let Some(page) = &self.html {
            text.push_str(&format!("Plots: {page}\n"));
        }
        text
    }
}

/// Returns the name of the profile, and the resequencing if there is any.
fn name(profile: &str, reorder: &str) -> String {
    match reorder {
        "off" => profile.into(),
        level => format!("{profile}, reorder {level}"),
    }
}

/// Formats the commands for a live device, one per line.
fn live_text(commands: &[String]) -> String {
    let first = ["Live: "].into_iter().chain(std::iter::repeat("      "));
    first.zip(commands).map(|(lead, command)| format!("{lead}{command}\n")).collect()
}

/// Remedies for reordering: keep a connection on one device queue or on one link of a bond, or let a Grosso path
/// restore the order.
const LIVE_ORDER: [&str; 4] = [
    "ethtool -N DEV rx-flow-hash tcp4 sdfn",
    "ethtool -N DEV rx-flow-hash tcp6 sdfn",
    "ip link add BOND type bond mode balance-xor xmit_hash_policy layer3+4",
    "grosso bridge DEV tap:NAME --reorder batch",
];

/// Column headings of a profile's lines.
const HEADINGS: [&str; 2] = [
    "          packets             segments/train            packets held  trains end",
    "  hold  delivered  merged   p50   p99   mean     p50     p99     max  mostly by",
];

/// Questions that a capture cannot answer.
pub const NOT_KNOWN: &[&str] = &[
    "CPU time saved or spent",
    "the number of packets per poll, which --batch sets",
    "how senders react to delayed acknowledgments",
    "the timing at other points on the path",
    "packets that offloads had merged before the capture",
];
