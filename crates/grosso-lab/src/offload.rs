//! Experiments that compare measurements with and without coalescing or superframes: tables R1 and R5, other traffic,
//! and other paths.

use std::{sync::atomic::AtomicBool, time::Duration};

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::{
    experiment::{Bench, Experiment, Plan, RunsOf, VERIFIED_BYTES, brief},
    netns::{Layout, Mtu},
    report::FailedRow,
    statistics::digits,
    traffic::Traffic,
    trial::{Carrier, Extent, Measured, Setting, Tool, TrialError, measure, stalls},
    verdict::{Published, Verdict},
};

mod consumer;
mod experiments;
mod findings;
mod load;
mod plot;
mod reorder;
mod rtt;
mod table;

pub use consumer::{Consumer, ListConsumer, ReaderKind, ReadingConsumer};
pub use findings::{Compared, OffloadFindings, OffloadGroup, OffloadRow};

/// Parameters of the measurement.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct OffloadParameters {
    /// TCP congestion control. One that paces, for example BBR, hides the effect of offloads.
    pub congestion: String,
    /// Maximum hold time of a train.
    #[serde(rename = "hold_us", serialize_with = "microseconds")]
    #[schemars(with = "f64")]
    pub hold: Duration,
    /// Whether the sender sends from a file without copying (`sendfile`).
    #[serde(skip)]
    pub sendfile: bool,
    /// Whether packets cross the wire with complete checksums, which the receiver must verify.
    pub full_checksums: bool,
    /// Whether TCP segments have timestamps.
    #[serde(skip_serializing_if = "is_set")]
    pub timestamps: bool,
    /// Maximum size of a TCP socket buffer in bytes, if it is not the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer_bytes: Option<usize>,
    /// Generator of the traffic.
    pub tool: Tool,
    /// Rate of the wire in bits per second, for experiments in which the wire is slower than the machine.
    #[serde(skip)]
    pub wire_bits: u64,
}

impl Default for OffloadParameters {
    /// Returns the defaults: CUBIC, a hold time of 100 microseconds, and a wire of 1 Gb/s.
    fn default() -> Self {
        Self {
            congestion: "cubic".into(),
            hold: Duration::from_micros(100),
            sendfile: false,
            full_checksums: false,
            timestamps: true,
            buffer_bytes: None,
            tool: Tool::BuiltIn,
            wire_bits: 1_000_000_000,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
fn is_set(value: &bool) -> bool {
    *value
}

fn microseconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64() * 1e6)
}

/// An experiment that turns coalescing or superframes on and off.
#[derive(Clone, Debug)]
pub struct Offload {
    name: &'static str,
    /// Host for which Grosso acts as the NIC.
    nic_of: &'static str,
    plan: Plan<OffloadParameters>,
    groups: Vec<RowGroup>,
    /// Payload size of the packets for consumers in memory; `None` if they are not measured.
    consumer: Option<u16>,
    judge: Judge,
    notes: &'static [&'static str],
}

/// Function that decides which claims the results support.
type Judge = fn(&[OffloadGroup], Option<&Consumer>) -> Vec<Verdict>;

/// Settings that are compared with each other.
#[derive(Clone, Debug, PartialEq)]
struct RowGroup {
    title: String,
    rows: Vec<Row>,
    comparisons: Vec<Comparison>,
}

/// A setting, named after the property that distinguishes it from the other settings in its group.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    name: String,
    setting: Setting,
}

/// Two rows to compare, by name.
#[derive(Clone, Debug, PartialEq)]
struct Comparison {
    name: &'static str,
    over: &'static str,
    under: &'static str,
    published: Option<Published>,
}

impl Row {
    fn new(name: &str, setting: &Setting, carrier: Carrier) -> Self {
        Self { name: name.into(), setting: Setting { carrier, ..setting.clone() } }
    }
}

impl Comparison {
    const fn new(name: &'static str, over: &'static str, under: &'static str) -> Self {
        Self { name, over, under, published: None }
    }
}

impl Experiment for Offload {
    type Parameters = OffloadParameters;
    type Setting = Row;
    type Run = Measured;
    type Findings = OffloadFindings;

    fn name(&self) -> &'static str {
        self.name
    }

    fn plan(&self) -> &Plan<OffloadParameters> {
        &self.plan
    }

    fn settings(&self) -> Vec<&[Row]> {
        self.groups.iter().map(|group| &group.rows[..]).collect()
    }

    fn verify(&self, row: &Row, interrupted: &AtomicBool) -> Result<Option<u64>, TrialError> {
        let setting = &row.setting;
        let has_content = matches!(
            setting.traffic,
            Traffic::TcpStream | Traffic::TcpSendfile | Traffic::TcpMaerts
        );
        if !has_content || setting.tool != Tool::BuiltIn {
            return Ok(None);
        }
        let extent = Extent::Bytes(VERIFIED_BYTES);
        let layout = Layout { offered_bits: None, ..setting.layout };
        let setting = Setting { extent, layout, compare: true, ..setting.clone() };
        measure(&setting, interrupted).map(|measured| Some(measured.bytes))
    }

    fn measure(
        &self,
        group: &mut [RunsOf<Self>],
        bench: &mut Bench<'_, Self>,
    ) -> Result<(), TrialError> {
        bench.each(|row, interrupted| measure(&row.setting, interrupted), group)
    }

    fn label(&self, row: &Row) -> String {
        let group = self.groups.iter().find(|group| group.rows.contains(row));
        group.map_or_else(|| row.name.clone(), |group| format!("{}, {}", group.title, row.name))
    }

    fn brief(&self, runs: &[Measured]) -> String {
        brief(runs, Measured::gigabits_a_cpu_second, "Gb/CPU-s")
    }

    fn findings(&self, groups: Vec<Vec<RunsOf<Self>>>) -> OffloadFindings {
        let groups = self.groups.iter().zip(groups);
        OffloadFindings {
            nic_of: self.nic_of,
            groups: groups.map(|(group, series)| OffloadGroup::new(group, series)).collect(),
            consumer: self.consumer.map(|bytes| Consumer::measure(bytes, self.plan.runs)),
        }
    }

    fn judge(&self, findings: &OffloadFindings) -> Vec<Verdict> {
        (self.judge)(&findings.groups, findings.consumer.as_ref())
    }

    fn notes(&self, findings: &OffloadFindings, _failed: &[FailedRow]) -> Vec<String> {
        let rows = || findings.rows();
        let mut notes: Vec<String> = self.notes.iter().map(|&note| note.into()).collect();
        notes.extend(in_pages(findings));
        if rows().any(|row| row.latency.is_none()) {
            notes.push(PATH_NOTE.into());
        }
        if findings.groups.iter().any(|group| !group.traffic.is_tcp()) {
            let lost: u64 = rows().map(|row| row.lost).sum();
            notes.push(format!("Across all runs, {lost} datagrams were lost."));
        }
        if let Some(bytes) = rows().filter_map(|row| row.verified_bytes).min() {
            notes.push(format!(
                "For each setting, another {} MB or more were transferred and verified.",
                bytes / 1_000_000
            ));
        }
        let runs = || rows().flat_map(|row| &row.runs);
        notes.extend(stalls(runs().map(|run| run.repeated).sum(), runs().count()));
        let retransmits: u64 = rows().map(|row| row.retransmits).sum();
        notes.push(format!("Across all runs, {retransmits} segments were retransmitted."));
        notes
    }
}

/// Returns a note on how many packets each row received per page, if packets were received into pages.
fn in_pages(findings: &OffloadFindings) -> Option<String> {
    let group = findings.groups.first()?;
    let in_pages = |row: &OffloadRow| {
        let size = row.name.strip_prefix("pages of ")?;
        Some(format!("{size}: {}", digits(row.packets_per_page?.median)))
    };
    let pages: Vec<String> = group.rows.iter().filter_map(in_pages).collect();
    let Mtu { sender, receiver } = group.mtu;
    (!pages.is_empty()).then(|| {
        format!("Packets per receive page, MTU {sender} to {receiver}:\n{}.", pages.join(", "))
    })
}

const PATH_NOTE: &str = "\
The CPU time of the path includes its own thread and the kernel threads that
process packets. The thread of the path also runs most of the receiver's TCP.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cpu_time::CpuSeconds,
        experiment::{Series, assert_failures_are_rows, assert_headline_is_in_the_table},
        report::Findings as _,
        report::Report,
        statistics::Spread,
    };

    /// Returns made-up results: 10 Gb/s with coalescing and less without.
    pub(super) fn report() -> Report<OffloadFindings> {
        let (experiment, groups) = measured();
        experiment.report(groups).unwrap()
    }

    fn measured() -> (Offload, Vec<Vec<RunsOf<Offload>>>) {
        let run = |bytes, segments| {
            let cpu_seconds = CpuSeconds { sender: 0.25, path: 0.5, receiver: 0.25, kernel: 0.0 };
            let segments_per_train = Some(segments);
            let acknowledgements = 123_456;
            let seconds = 1.0;
            let mut run = Measured { seconds, bytes, cpu_seconds, ..Measured::default() };
            (run.segments_per_train, run.acknowledgements) = (segments_per_train, acknowledgements);
            run
        };
        let mut experiment = Offload::headline(Plan::default()).unwrap();
        experiment.groups.truncate(1);
        experiment.groups[0].title =
            "TCP_STREAM at MTU 1500 to 9000, one CPU for everything".into();
        let runs = [
            vec![run(1_250_000_000, 44.9); 3],
            [312_500_000, 343_750_000, 375_000_000].map(|bytes| run(bytes, 1.0)).to_vec(),
        ];
        let rows = experiment.groups[0].rows.iter().cloned().zip(runs);
        let series = rows.map(|(setting, runs)| Series {
            verified_bytes: Some(1),
            ..Series::new(setting, runs)
        });
        let series = series.collect();
        (experiment, vec![series])
    }

    /// Returns an experiment's verdicts when its rows have these figures, in gigabytes per CPU-second.
    fn judged(
        experiment: &Offload,
        gigabytes: impl Fn(&RowGroup, &Row) -> f64,
    ) -> Vec<(String, String)> {
        judged_runs(experiment, |group, row, run| {
            let bytes = (gigabytes(group, row) * 1e9) as u64 + run;
            let cpu_seconds = CpuSeconds { path: 1.0, ..CpuSeconds::default() };
            Measured { seconds: 1.0, bytes, cpu_seconds, ..Measured::default() }
        })
    }

    /// Returns an experiment's verdicts on these runs. No two runs of a row should be equal.
    pub(super) fn judged_runs(
        experiment: &Offload,
        run: impl Fn(&RowGroup, &Row, u64) -> Measured,
    ) -> Vec<(String, String)> {
        let verdicts = report_of(experiment, run).verdicts.into_iter();
        verdicts.map(|verdict| (verdict.claim.into(), verdict.answer.to_string())).collect()
    }

    /// Returns an experiment's report on these runs.
    pub(super) fn report_of(
        experiment: &Offload,
        run: impl Fn(&RowGroup, &Row, u64) -> Measured,
    ) -> Report<OffloadFindings> {
        let series = |group: &RowGroup, row: &Row| {
            Series::new(row.clone(), (0..3).map(|number| run(group, row, number)).collect())
        };
        let groups = experiment.groups.iter();
        let groups = groups.map(|group| group.rows.iter().map(|row| series(group, row)).collect());
        experiment.report(groups.collect()).unwrap()
    }

    #[test]
    fn a_loss_at_the_longest_mtu_is_no_lesser_gain() {
        let experiment = Offload::gso(Plan::default()).unwrap();
        let long = |share: f64| {
            judged(&experiment, |group, row| {
                let is_long = row.setting.layout.mtu.sender > 1500;
                let is_on = group.rows[0].name == row.name;
                if !is_on {
                    1.0
                } else if is_long {
                    share
                } else {
                    1.5
                }
            })
        };
        let (gain, less) = (
            "superframes are faster at the longest MTU too",
            "superframes gain less at the longest MTU",
        );
        for (share, claim, answer) in [
            (0.88, gain, "not reproduced"),
            (1.1, gain, "reproduced"),
            (1.1, less, "reproduced"),
            (1.6, less, "not reproduced"),
        ] {
            let found = long(share).into_iter().find(|(judged, _)| *judged == claim).unwrap();
            assert_eq!(found.1, answer, "{share}");
        }
    }

    #[test]
    fn columns_of_the_source_are_beside_each_other() {
        let experiment = Offload::lro(Plan::default()).unwrap();
        let with = |name: &str, short: f64, mixed: f64| {
            judged(&experiment, |group, row| match row.name.as_str() {
                judged if judged == name && group.title.contains("1500 to 9000") => mixed,
                judged if judged == name => short,
                "none" | "none, copied" => 0.5,
                _ => 2.0,
            })
        };
        // MTU 1500 to 9000 is slower only if the same row is faster at MTU 1500 to 1500.
        let posted = "as posted 2007";
        for (name, short, mixed, claim, answer) in [
            (posted, 2.0, 1.7, "MTU 1500 to 9000: inet_lro as posted is slower", "reproduced"),
            (posted, 1.7, 1.8, "MTU 1500 to 9000: inet_lro as posted is slower", "not reproduced"),
            (
                posted,
                1.7,
                1.5,
                "inet_lro as posted is as fast as the driver's LRO",
                "not reproduced",
            ),
            (posted, 2.1, 1.5, "inet_lro as posted is as fast as the driver's LRO", "reproduced"),
            (
                "myri10ge",
                2.0,
                2.1,
                "MTU 1500 to 9000: the driver's own LRO is as fast",
                "reproduced",
            ),
            (
                "myri10ge",
                2.0,
                1.5,
                "MTU 1500 to 9000: the driver's own LRO is as fast",
                "not reproduced",
            ),
        ] {
            let found = with(name, short, mixed).into_iter().find(|(judged, _)| *judged == claim);
            assert_eq!(found.unwrap().1, answer, "{claim}: {short} {mixed}");
        }
    }

    /// Tests that the profiles of the original code end a train of large packets before it is full.
    #[test]
    fn trains_of_the_source_leave_room_for_a_packet_of_the_receivers_mtu() {
        let experiment = Offload::lro(Plan::default()).unwrap();
        let long = experiment.groups.iter().find(|group| group.title.contains("at MTU 9000"));
        let limit = |name: &str| {
            let row = long.unwrap().rows.iter().find(|row| row.name == name).unwrap();
            let Carrier::Grosso { profile: Some(profile), .. } = &row.setting.carrier else {
                panic!("{name}: no profile")
            };
            profile.limits.size_bytes
        };
        assert_eq!([limit("myri10ge"), limit("inet_lro")], [65522 - 9000, 65536 - 9000]);
    }

    #[test]
    fn lists_are_slower_than_slices_if_only_headers_are_read_and_as_fast_if_every_byte_is_read() {
        let experiment = Offload::lro(Plan::default()).unwrap();
        let lists = [100.0, 101.0, 102.0];
        for (times, headers, every_byte) in [
            (1.4, "reproduced", "not reproduced"),
            (1.0, "undecided", "reproduced"),
            (0.8, "not reproduced", "not reproduced"),
        ] {
            let [parts, list] = [lists.map(|list| list * times), lists].map(Spread::of);
            let kinds = [ReaderKind::Headers, ReaderKind::EveryByte];
            let lists = kinds.map(|consumer| ListConsumer { consumer, parts, list }).into();
            let (payload_bytes, reading) = (1448, Vec::new());
            let consumer = Consumer { payload_bytes, parts, copied: list, reading, lists };
            let verdicts = (experiment.judge)(&[], Some(&consumer));
            let about_lists = verdicts.iter().filter(|verdict| verdict.claim.ends_with("lists"));
            let answers: Vec<_> = about_lists.map(|verdict| verdict.answer.to_string()).collect();
            assert_eq!(answers, [headers, every_byte], "{times}");
        }
    }

    #[test]
    fn settings_of_table_r1_receive_into_pages_that_hold_their_packets() {
        let experiment = Offload::lro(Plan::default()).unwrap();
        let rows = experiment.groups.iter().flat_map(|group| &group.rows);
        let pages =
            rows.filter_map(|row| Some((&row.setting.layout, row.setting.layout.page_bytes?)));
        let pages: Vec<_> = pages
            .map(|(layout, bytes)| (layout.mtu.sender, bytes, layout.packets_per_page(bytes)))
            .collect();
        for (mtu, bytes, packets) in
            [(1500, 4 << 10, 2), (1500, 32 << 10, 20), (9000, 16 << 10, 1), (9000, 32 << 10, 3)]
        {
            assert!(pages.contains(&(mtu, bytes, packets)), "{mtu}, {bytes}: {pages:?}");
        }
        assert!(pages.iter().all(|(.., packets)| *packets > 0), "{pages:?}");
        let report = report_of(&experiment, |_, row, run| Measured {
            seconds: 1.0,
            bytes: 1_000_000_000 + run,
            cpu_seconds: CpuSeconds { path: 1.0, ..CpuSeconds::default() },
            packets_per_page: (row.name == "pages of 32 KiB").then_some(19.5),
            ..Measured::default()
        });
        let note = "Packets per receive page, MTU 1500 to 1500:\n32 KiB: 19.5.";
        assert!(report.table().contains(note), "{}", report.table());
    }

    #[test]
    fn a_headline_is_the_comparison_and_not_the_order_of_the_rows() {
        // In these experiments, the first row is measured without coalescing or repair.
        for experiment in [Offload::rtt(Plan::default()), Offload::reorder(Plan::default())] {
            let experiment = experiment.unwrap();
            let [over, under] = [
                experiment.groups[0].comparisons[0].over,
                experiment.groups[0].comparisons[0].under,
            ];
            assert_eq!(experiment.groups[0].rows[0].name, under);
            let headline = |with: u64| {
                let report = report_of(&experiment, |_, row, run| {
                    let gigabytes = if row.name == over { with } else { 2 };
                    let cpu_seconds = CpuSeconds { path: 1.0, ..CpuSeconds::default() };
                    let bytes = gigabytes * 1_000_000_000 + run;
                    Measured { seconds: 1.0, bytes, cpu_seconds, ..Measured::default() }
                });
                assert_headline_is_in_the_table(&report);
                report.findings.headline()
            };
            let text = format!(
                "24.0 Gb/s per CPU with {over}, 16.0 Gb/s per CPU with {under}: 1.50 times"
            );
            assert!(headline(3).ends_with(&text), "{}", headline(3));
            assert!(headline(1).ends_with(": 0.50 times"), "{}", headline(1));
            assert!(headline(2).ends_with(": noise explains the difference"), "{}", headline(2));
        }
    }

    #[test]
    fn requests_have_a_headline_of_requests_and_bars_of_percentiles() {
        let experiment = Offload::traffic("tcp-rr", Traffic::TcpRequests, Plan::default()).unwrap();
        let report = report_of(&experiment, |_, row, run| Measured {
            seconds: 1.0,
            units: if row.setting.hold().is_some() { 60_000 } else { 30_000 } + run,
            latencies: (1..=100).map(Duration::from_micros).collect(),
            ..Measured::default()
        });
        assert_headline_is_in_the_table(&report);
        let headline = report.findings.headline();
        let text =
            "60001 requests/s with coalescing on, 30001 requests/s with coalescing off: 2.00 times";
        assert!(headline.ends_with(text), "{headline}");
        let page = report.page("grosso lab tcp-rr", "unknown");
        assert!(page.contains("50 %") && !page.contains("data path"), "{page}");
    }

    #[test]
    fn a_failed_setting_is_a_row_without_figures() {
        let (experiment, groups) = measured();
        assert_failures_are_rows(&experiment, || groups.clone());
    }

    #[test]
    fn every_table_can_do_without_any_row() {
        let plan = Plan::default;
        for experiment in [
            Offload::lro(plan()),
            Offload::gso(plan()),
            Offload::flows(plan()),
            Offload::load(plan()),
            Offload::reorder(plan()),
            Offload::rtt(plan()),
        ] {
            let experiment = Offload { consumer: None, ..experiment.unwrap() };
            let cpu_seconds = CpuSeconds { path: 1.0, ..CpuSeconds::default() };
            let run = |gigabytes: u64| Measured {
                seconds: 1.0,
                bytes: gigabytes << 30,
                cpu_seconds,
                ..Measured::default()
            };
            let series = |row: &Row| Series::new(row.clone(), (1..4).map(run).collect());
            let groups = || {
                let groups = experiment.groups.iter();
                groups.map(|group| group.rows.iter().map(series).collect()).collect()
            };
            assert_failures_are_rows(&experiment, groups);
        }
    }
}
