//! The experiments, with their settings and comparisons.
//!
//! Longer than 600 lines: each experiment is next to the claims that it tests.

use std::{io, time::Duration};

use grosso::Profile;
use grosso_sys::scheduling::allowed_processors;

use super::{
    Comparison, Consumer, ListConsumer, Offload, OffloadGroup, OffloadParameters, OffloadRow,
    ReaderKind, Row, RowGroup, findings::distinct,
};
use crate::{
    experiment::Plan,
    netns::{Family, Layout, Mtu},
    publications::{PAGES_OVER_BUFFERS, nic},
    statistics::Spread,
    traffic::Traffic,
    trial::{Carrier, Extent, Measured, Setting},
    verdict::{Bound, Evidence, Published, Unit, Verdict},
};

impl Offload {
    /// Creates an experiment on the gain from coalescing at an MTU of 1500: on one CPU and, if possible, on two.
    ///
    /// # Errors
    /// Fails if `sched_getaffinity(2)` fails.
    pub fn headline(plan: Plan<OffloadParameters>) -> io::Result<Self> {
        let groups = plan.layouts()?.into_iter().map(|processors| {
            let setting = plan.setting(plan.stream(), processors);
            let published = (distinct(processors) == 1).then_some(nic(SHORT.pages[0]));
            let compared = Comparison { published, ..ON_OFF.clone() };
            let rows = coalescing(&plan, &setting).to_vec();
            RowGroup { title: title(&setting), rows, comparisons: vec![compared] }
        });
        let groups = groups.collect();
        Ok(Self { name: "", plan, groups, judge: judge_headline, ..Self::receiving() })
    }

    /// Creates the experiment behind table R1. It covers three pairs of MTUs, packets merged in place or copied first,
    /// buffers of several sizes, and the kernel's own GRO on the same wire.
    ///
    /// # Errors
    /// Fails if `sched_getaffinity(2)` fails.
    pub fn lro(plan: Plan<OffloadParameters>) -> io::Result<Self> {
        let mut groups = Vec::new();
        for processors in plan.layouts()? {
            for (mtu, published) in MTU_PAIRS {
                let mut setting = plan.setting(plan.stream(), processors);
                setting.layout.mtu = mtu;
                groups.push(lro_group(&plan, &setting, published));
            }
        }
        let notes = LRO_NOTES;
        let (judge, consumer) = (judge_lro as super::Judge, Some(1448));
        Ok(Self { name: "lro", plan, groups, notes, judge, consumer, ..Self::receiving() })
    }

    /// Creates the experiment behind table R5: the gain if the sender's kernel sends superframes that Grosso segments,
    /// for TCP and UDP over IPv4 and IPv6.
    ///
    /// # Errors
    /// Fails if `sched_getaffinity(2)` fails.
    pub fn gso(plan: Plan<OffloadParameters>) -> io::Result<Self> {
        let mut groups = Vec::new();
        for processors in plan.layouts()?.into_iter().take(1) {
            for traffic in [plan.stream(), Traffic::UdpSegments] {
                for (family, (bytes, published)) in
                    [Family::V4, Family::V6].into_iter().flat_map(|f| SENDER_MTUS.map(|m| (f, m)))
                {
                    let mut setting = plan.setting(traffic, processors);
                    setting.layout.mtu = Mtu { sender: bytes, receiver: bytes };
                    setting.layout.family = family;
                    let rows = SUPERFRAMES.map(|(name, carrier)| Row::new(name, &setting, carrier));
                    let mut rows = rows.to_vec();
                    if traffic.is_tcp() && family == Family::V4 && bytes == SENDER_MTUS[0].0 {
                        let mut setting = setting.clone();
                        setting.layout.generic_segmentation = false;
                        let carrier = SUPERFRAMES[0].1.clone();
                        rows.push(Row::new(GSO_ALONE_OFF, &setting, carrier));
                    }
                    let published = Some(published).filter(|_| traffic.is_tcp());
                    let comparison = Comparison {
                        published,
                        ..Comparison::new("on / off", SUPERFRAMES[0].0, SUPERFRAMES[1].0)
                    };
                    let comparisons = vec![comparison];
                    groups.push(RowGroup { title: title(&setting), rows, comparisons });
                }
            }
        }
        let (notes, judge) = (GSO_NOTES, judge_gso as super::Judge);
        Ok(Self { name: "gso", plan, groups, nic_of: "sender", notes, judge, ..Self::receiving() })
    }

    /// Creates an experiment with one kind of traffic, with and without coalescing, and also on the kernel's own wire.
    /// All traffic is measured on one CPU, and streams also on two. With two CPUs, the time of a request would mostly
    /// consist of the wake-ups of a VM.
    ///
    /// # Errors
    /// Fails if `sched_getaffinity(2)` fails.
    pub fn traffic(
        name: &'static str,
        traffic: Traffic,
        plan: Plan<OffloadParameters>,
    ) -> io::Result<Self> {
        let layouts = plan.layouts()?.into_iter();
        let layouts = layouts.take(if traffic.is_requests() { 1 } else { 2 });
        let groups = layouts.map(|processors| {
            let setting = plan.setting(traffic, processors);
            let rows = coalescing(&plan, &setting).into_iter();
            let kernel = KERNEL.map(|(name, carrier)| Row::new(name, &setting, carrier));
            let comparisons = vec![ON_OFF, KERNEL_ON_OFF];
            RowGroup { title: title(&setting), rows: rows.chain(kernel).collect(), comparisons }
        });
        let groups = groups.collect();
        let notes = if traffic == Traffic::TcpMaerts { MAERTS_NOTES } else { &[] };
        Ok(Self { name, plan, groups, notes, ..Self::receiving() })
    }

    /// Creates an experiment on how the number of connections and the hold time affect the length of trains.
    ///
    /// # Errors
    /// Fails if `sched_getaffinity(2)` fails.
    pub fn flows(plan: Plan<OffloadParameters>) -> io::Result<Self> {
        let mut groups = Vec::new();
        for processors in plan.layouts()?.into_iter().take(1) {
            for hold_us in HOLDS_US {
                let rows = CONNECTIONS.map(|connections| {
                    let mut setting = plan.setting(Traffic::TcpStream, processors);
                    setting.connections = connections;
                    setting.layout = setting.layout.streams(connections);
                    let name = if connections == 1 { "flow" } else { "flows" };
                    let coalesce = Some(Duration::from_micros(hold_us));
                    let carrier = Carrier::grosso(coalesce, false);
                    Row::new(&format!("{connections} {name}"), &setting, carrier)
                });
                let title =
                    format!("Trains held for at most {hold_us} us, {}", layout_words(processors));
                groups.push(RowGroup { title, rows: rows.to_vec(), comparisons: Vec::new() });
            }
        }
        Ok(Self { name: "flows", plan, groups, notes: FLOWS_NOTES, ..Self::receiving() })
    }

    /// Returns the settings that most experiments have in common: Grosso acts as the receiver's NIC, and there are no
    /// verdicts.
    pub(super) fn receiving() -> Self {
        Self {
            name: "",
            nic_of: "receiver",
            plan: Plan::default(),
            groups: Vec::new(),
            consumer: None,
            judge: |_, _| Vec::new(),
            notes: &[],
        }
    }
}

impl Plan<OffloadParameters> {
    /// Returns the sets of CPUs for sender, data path and receiver: the chosen set, or by default one CPU for
    /// everything and, if there are two CPUs, also a set with one for the sender and one for the rest. The last CPUs
    /// are used, because the first one often handles interrupts.
    pub(super) fn layouts(&self) -> io::Result<Vec<[usize; 3]>> {
        Ok(match (self.processors, &allowed_processors()?[..]) {
            (Some(chosen), _) => vec![chosen],
            (None, &[.., one, other]) => vec![[other; 3], [one, other, other]],
            (None, &[one]) => vec![[one; 3]],
            (None, []) => Vec::new(),
        })
    }

    pub(super) fn stream(&self) -> Traffic {
        if self.parameters.sendfile { Traffic::TcpSendfile } else { Traffic::TcpStream }
    }

    pub(super) fn setting(&self, traffic: Traffic, processors: [usize; 3]) -> Setting {
        Setting {
            traffic,
            connections: 1,
            tool: self.parameters.tool,
            layout: self.layout(),
            carrier: Carrier::Kernel { gro: false },
            impairment: None,
            back: None,
            device: self.device,
            processors,
            congestion: self.parameters.congestion.clone(),
            extent: Extent::Time { warm_up: WARM_UP, measured: self.measured },
            compare: false,
        }
    }

    fn layout(&self) -> Layout {
        let OffloadParameters { full_checksums, timestamps, buffer_bytes, .. } = self.parameters;
        let layout = Layout { full_checksums, timestamps, ..Layout::default() };
        match buffer_bytes {
            Some(bytes) => {
                let under_way_bytes = bytes.min(UNDER_WAY_BYTES_MAX);
                Layout { tcp_buffer_bytes: bytes, under_way_bytes, ..layout }
            }
            None => layout,
        }
    }
}

fn lro_group(plan: &Plan<OffloadParameters>, setting: &Setting, published: R1) -> RowGroup {
    let is_one = distinct(setting.processors) == 1;
    let holds = |page: &&(usize, &str, &str)| setting.layout.packets_per_page(page.0) > 0;
    let sizes = PAGES.iter().filter(holds).take(if is_one { PAGES.len() } else { 1 });
    let row = |name: &str, page_bytes, coalesce, copy| {
        let mut setting = setting.clone();
        setting.layout.page_bytes = Some(page_bytes);
        Row::new(name, &setting, Carrier::grosso(coalesce, copy))
    };
    let (mut rows, mut comparisons) = (Vec::new(), Vec::new());
    let (least, first, _) = sizes.clone().next().copied().unwrap_or(PAGES[PAGES.len() - 1]);
    for (i, (bytes, pages, over_none)) in PAGES.iter().enumerate() {
        if sizes.clone().any(|(size, ..)| size == bytes) {
            rows.push(row(pages, *bytes, Some(plan.parameters.hold), false));
            let published = Some(nic(published.pages[i])).filter(|_| is_one);
            comparisons.push(Comparison { published, ..Comparison::new(over_none, pages, NONE) });
        }
    }
    if is_one {
        rows.extend(of_the_source(plan, setting, least));
        comparisons.extend(SOURCE_OVER_NONE.map(|(over, name)| {
            let published = match over {
                OWN => Some(nic(published.pages[0])),
                POSTED => Some(nic(published.posted)),
                _ => None,
            };
            Comparison { published, ..Comparison::new(name, over, NONE) }
        }));
    }
    rows.push(row(COPIED, least, Some(plan.parameters.hold), true));
    rows.push(row(NONE, least, None, false));
    if is_one {
        rows.push(row(NONE_COPIED, least, None, true));
        let published = Some(nic(published.copied));
        let copied = Comparison::new("copied / none", COPIED, NONE_COPIED);
        comparisons.push(Comparison { published, ..copied });
    }
    rows.extend(KERNEL.map(|(name, carrier)| Row::new(name, setting, carrier)));
    comparisons.push(KERNEL_ON_OFF);
    comparisons.push(Comparison::new("pages / copied", first, COPIED));
    comparisons.push(Comparison::new("Grosso / kernel", first, KERNEL[0].0));
    RowGroup { title: title(setting), rows, comparisons }
}

/// Returns rows for the columns of the publication: the driver's own LRO, generic LRO, and generic LRO as originally
/// posted, where the receiver's MTU limits the trains.
fn of_the_source(plan: &Plan<OffloadParameters>, setting: &Setting, page: usize) -> Vec<Row> {
    let mtu = setting.layout.mtu.receiver;
    // The originals leave room for one more packet of the receiver's MTU. The built-in profiles assume the shortest.
    let longer = u32::from(mtu - MTU_PAIRS[0].0.receiver);
    let [mut own, mut generic] = [Profile::myri10ge(), Profile::inet_lro()];
    own.limits.size_bytes -= longer;
    generic.limits.size_bytes -= longer;
    let profiles = [own, generic, Profile::inet_lro_2007(mtu)];
    let names = SOURCE_OVER_NONE.map(|(name, _)| name);
    let rows = names.into_iter().zip(profiles).map(|(name, mut profile)| {
        profile.limits.hold_ns = u64::try_from(plan.parameters.hold.as_nanos()).unwrap_or(u64::MAX);
        let mut setting = setting.clone();
        setting.layout.page_bytes = Some(page);
        // A large MTU allows superframes whose metadata does not say how to segment them.
        setting.layout.mtu.receiver = DEVICE_MTU;
        let profile = Some(Box::new(profile));
        Row::new(name, &setting, Carrier::Grosso { profile, copy: false, expand: false })
    });
    rows.collect()
}

fn judge_headline(groups: &[OffloadGroup], _: Option<&Consumer>) -> Vec<Verdict> {
    groups.first().and_then(|group| gain(group, WORTH, [ON, OFF])).into_iter().collect()
}

/// Judges whether the first setting transfers more data per CPU-second than the second, and quotes the published ratio.
fn gain(group: &OffloadGroup, claim: &'static str, [over, under]: [&str; 2]) -> Option<Verdict> {
    let [on, off] = group.pair(over, under)?.map(|row| row.gigabits_a_cpu_second);
    let published = group.comparisons.first().and_then(|first| first.published);
    let evidence = Evidence::ratio(&on, &off, Bound::AtLeast(1.0));
    Some(evidence.verdict(claim, Unit::Times, COSTLY_RECEIVE).beside(published))
}

fn judge_lro(groups: &[OffloadGroup], consumer: Option<&Consumer>) -> Vec<Verdict> {
    let group = |processors, mtu| {
        groups.iter().find(|group| group.processors == processors && group.mtu == mtu)
    };
    let [same, mixed, long] = MTU_PAIRS.map(|(mtu, _)| group(1, mtu));
    let over_none = |group: Option<&OffloadGroup>, claim| {
        let group = group?;
        gain(group, claim, [&group.first, NONE])
    };
    // Compares a row at MTU 1500 to 9000 with the same row at 1500 to 1500.
    let between = |name, bound, (claim, cause), published| {
        let speed = |group: Option<&OffloadGroup>| Some(group?.row(name)?.gigabits_a_cpu_second);
        let evidence = Evidence::ratio(&speed(mixed)?, &speed(same)?, bound);
        Some(evidence.verdict(claim, Unit::Times, cause).beside(nic(published)))
    };
    let as_fast = |name, claim, cause| {
        Some(beside(same?, name, Bound::AtLeast(AS_FAST))?.verdict(claim, Unit::Times, cause))
    };
    let posted_over_own = nic(SHORT.posted / SHORT.pages[0]);
    let shared = group(2, MTU_PAIRS[0].0).filter(|group| group.cpus.is_none());
    let verdicts = [
        over_none(same, WORTH),
        over_none(long, "coalescing is also faster at MTU 9000"),
        as_fast(POSTED, "inet_lro as posted is as fast as the driver's LRO", FEW_PARTS)
            .map(|verdict| verdict.beside(posted_over_own)),
        as_fast(GENERIC, "the final inet_lro is as fast as the driver's LRO", COSTLY_RECEIVE),
        between(POSTED, Bound::Under(1.0), SEVEN_PACKETS, MIXED.posted / SHORT.posted),
        between(OWN, Bound::AtLeast(AS_FAST), OWN_IS_AS_FAST, 1.0),
        same.and_then(larger_pages),
        shared.and_then(behind_the_wire),
    ];
    let consumed = consumer.into_iter().flat_map(|consumer| consumer.readings().map(pages));
    let lists = consumer.into_iter().flat_map(|consumer| &consumer.lists);
    let listed = lists.filter_map(ListConsumer::verdict);
    verdicts.into_iter().flatten().chain(consumed).chain(listed).collect()
}

/// Judges the publication's claim that packet buffers, into which every byte is copied, are slower than pages. For a
/// consumer that reads only headers, parts save more here than in the publication.
fn pages((reader, parts, copied): (ReaderKind, &Spread, &Spread)) -> Verdict {
    let (claim, cause, published) = match reader {
        ReaderKind::Headers => {
            ("reading only headers: slices are no slower than copies", COSTLY_RECEIVE, None)
        }
        ReaderKind::EveryByte => (
            "reading every byte: slices are faster than copies",
            READ_ANYWAY,
            Some(PAGES_OVER_BUFFERS),
        ),
        ReaderKind::VhostUser => (
            "vhost-user, reading every byte: slices are faster",
            COPIED_ANYWAY,
            Some(PAGES_OVER_BUFFERS),
        ),
    };
    let evidence = Evidence::ratio(parts, copied, Bound::AtLeast(1.0));
    evidence.verdict(claim, Unit::Times, cause).beside(published.map(nic))
}

/// Compares a row with the driver's own LRO, as the publication does.
fn beside(group: &OffloadGroup, name: &str, bound: Bound) -> Option<Evidence> {
    let [one, own] = group.pair(name, OWN)?.map(|row| row.gigabits_a_cpu_second);
    Some(Evidence::ratio(&one, &own, bound))
}

/// Judges the CPU time per gigabyte for the data path and the receiver, which share a CPU.
fn behind_the_wire(group: &OffloadGroup) -> Option<Verdict> {
    let cost = |row: &OffloadRow| {
        let both = |run: &Measured| run.cpu_seconds.path + run.cpu_seconds.receiver;
        Spread::of(row.runs.iter().map(|run| both(run) / (run.bytes as f64 * 1e-9)))
    };
    let (coalesced, none) = (cost(group.first_row()?), cost(group.row(NONE)?));
    let evidence = Evidence::ratio(&coalesced, &none, Bound::Under(0.5));
    Some(evidence.verdict(
        "path and receiver on one CPU: LRO halves the cost",
        Unit::Times,
        COSTLY_RECEIVE,
    ))
}

/// Judges the publication's claim that larger receive pages increase throughput.
fn larger_pages(group: &OffloadGroup) -> Option<Verdict> {
    let speed = |page: usize| Some(group.row(PAGES[page].1)?.gigabits_a_cpu_second);
    let evidence = Evidence::ratio(&speed(3)?, &speed(0)?, Bound::AtLeast(1.0));
    let cause = "the kernel reuses the pages of a packet socket's ring, but the driver in 2007 allocated \
                 every page, so larger pages saved allocations";
    let published = nic((9.4 / 72.0) / (8.9 / 78.0));
    Some(
        evidence
            .verdict("pages of 32 KiB are faster than pages of 4 KiB", Unit::Times, cause)
            .beside(published),
    )
}

fn judge_gso(groups: &[OffloadGroup], _: Option<&Consumer>) -> Vec<Verdict> {
    let group = |bytes| {
        groups.iter().find(move |group| {
            group.mtu.sender == bytes && group.family == Family::V4 && group.traffic.is_tcp()
        })
    };
    let names = SUPERFRAMES.map(|(name, _)| name);
    let [short, long] = SENDER_MTUS.map(|(bytes, _)| group(bytes));
    let verdicts = [
        short.and_then(|short| gain(short, "superframes are faster at MTU 1500", names)),
        long.and_then(|long| gain(long, "superframes are faster at the longest MTU too", names)),
        short.zip(long).and_then(|(short, long)| less_to_gain(short, long, names)),
        short.and_then(gso_alone_off),
    ];
    verdicts.into_iter().flatten().collect()
}

/// Judges the publication's claim that superframes gain less at the longest MTU. Compares, for each run, the gain at
/// the longest MTU with the gain at the shortest.
fn less_to_gain(short: &OffloadGroup, long: &OffloadGroup, names: [&str; 2]) -> Option<Verdict> {
    let [long, short] = [long, short].map(|group| {
        let [on, off] = group.pair(names[0], names[1])?;
        Some(on.gain_over(off))
    });
    let evidence = Evidence::ratio(&long?, &short?, Bound::Under(1.0));
    let cause = "at the longest MTU, a superframe contains only one packet, so the rows differ only in the data path";
    let [short, long] = SENDER_MTUS.map(|(_, published)| published);
    let published = Published::new(long.ratio / short.ratio, short.source);
    let claim = "superframes gain less at the longest MTU";
    Some(evidence.verdict(claim, Unit::Times, cause).beside(published))
}

/// Judges the publication's claim that a device with TSO but without GSO is slightly slower than one with both.
fn gso_alone_off(group: &OffloadGroup) -> Option<Verdict> {
    let [alone, both] = group.pair(GSO_ALONE_OFF, SUPERFRAMES[0].0)?;
    let evidence = Evidence::ratio(
        &alone.gigabits_a_cpu_second,
        &both.gigabits_a_cpu_second,
        Bound::Under(1.0),
    );
    Some(evidence.verdict(
        "with only GSO off, the stream is slightly slower",
        Unit::Times,
        "since Linux 4.17, TCP builds superframes regardless of the device's GSO setting, and a device \
         with TSO receives them unsegmented",
    ))
}

/// Returns the title of a group: the properties that its settings have in common.
fn title(setting: &Setting) -> String {
    let Mtu { sender, receiver } = setting.layout.mtu;
    let mtu = match sender == receiver {
        true => format!("MTU {sender}"),
        false => format!("MTU {sender} to {receiver}"),
    };
    let family = match setting.layout.family {
        Family::V4 => "",
        Family::V6 => " over IPv6",
    };
    let processors = layout_words(setting.processors);
    format!("{} at {mtu}{family}, {processors}", setting.traffic)
}

/// Describes which CPUs sender, data path and receiver use.
pub(super) fn layout_words([sender, path, receiver]: [usize; 3]) -> String {
    match (sender == path, path == receiver) {
        (true, true) => "one CPU for everything".into(),
        (false, true) => "sender on one CPU, path and receiver on another".into(),
        _ => format!("sender on CPU {sender}, path on {path}, receiver on {receiver}"),
    }
}

fn coalescing(plan: &Plan<OffloadParameters>, setting: &Setting) -> [Row; 2] {
    let row = |name, coalesce| Row::new(name, setting, Carrier::grosso(coalesce, false));
    [row(ON, Some(plan.parameters.hold)), row(OFF, None)]
}

/// Possible causes of a missing gain.
const COSTLY_RECEIVE: &str = "\
each packet is copied into a userspace device, so it costs more than in the publication; or other work on the \
    CPU delays packets, so they arrive in batches even without coalescing";
/// The publication's claim that coalescing 1500-byte packets improves performance by a factor of 2.74.
const WORTH: &str = "coalescing is faster per CPU at MTU 1500";
/// Possible causes of a smaller gain from parts for consumers that read every byte.
const READ_ANYWAY: &str = "\
the copy is still in the cache when it is read, so each byte is fetched from memory only once in both cases";
const COPIED_ANYWAY: &str = "\
in both cases, every byte is copied into the shared memory and out of it";
const ON: &str = "coalescing on";
const OFF: &str = "coalescing off";
const ON_OFF: Comparison = Comparison::new("on / off", ON, OFF);

/// The kernel's own wire, without a data path between the hosts.
const KERNEL: [(&str, Carrier); 2] = [
    ("kernel GRO on", Carrier::Kernel { gro: true }),
    ("kernel GRO off", Carrier::Kernel { gro: false }),
];
const KERNEL_ON_OFF: Comparison = Comparison::new("kernel on / off", KERNEL[0].0, KERNEL[1].0);

/// Rows with and without superframes from the sender's kernel.
const SUPERFRAMES: [(&str, Carrier); 2] = [
    ("superframes on", Carrier::GrossoSends { superframes: true }),
    ("superframes off", Carrier::GrossoSends { superframes: false }),
];

/// Name of the row in which the device has TSO but not generic segmentation.
const GSO_ALONE_OFF: &str = "only GSO off";

/// Names of table R1's columns, and of the ratios to the column without coalescing.
const OWN: &str = "myri10ge";
const GENERIC: &str = "inet_lro";
const POSTED: &str = "as posted 2007";
const SOURCE_OVER_NONE: [(&str, &str); 3] =
    [(OWN, "myri10ge / none"), (GENERIC, "inet_lro / none"), (POSTED, "posted / none")];
/// Minimum ratio for two figures to count as equally fast.
const AS_FAST: f64 = 0.95;
/// Claims that compare MTU 1500 to 9000 with 1500 to 1500, each with the cause to report if it does not hold.
const SEVEN_PACKETS: (&str, &str) = (
    "MTU 1500 to 9000: inet_lro as posted is slower",
    "if each packet is expensive, superframes of seven packets already give most of the gain",
);
const OWN_IS_AS_FAST: (&str, &str) =
    ("MTU 1500 to 9000: the driver's own LRO is as fast", "other load on the machine");
const FEW_PARTS: &str = "\
a train of the posted code has at most 18 packets, and a train costs more in a userspace device than in a driver";
/// Maximum MTU of a TAP device, in bytes.
const DEVICE_MTU: u16 = 65521;
const COPIED: &str = "copied first";
const NONE: &str = "none";
const NONE_COPIED: &str = "none, copied";

/// Receive pages in table R1: the size in bytes, the name of the row, and the name of the row's ratio to no coalescing.
const PAGES: [(usize, &str, &str); 4] = [
    (4 << 10, "pages of 4 KiB", "4 KiB / none"),
    (8 << 10, "pages of 8 KiB", "8 KiB / none"),
    (16 << 10, "pages of 16 KiB", "16 KiB / none"),
    (32 << 10, "pages of 32 KiB", "32 KiB / none"),
];

/// Published ratios in table R1 for a pair of MTUs, computed from figures in Gb/s per percent of a CPU. `pages`
/// compares the driver's own coalescing with no coalescing, for each page size. `copied` compares generic coalescing
/// with no coalescing if packets are received directly into the stack's buffers.
#[derive(Clone, Copy)]
struct R1 {
    pages: [f64; 4],
    copied: f64,
    /// Ratio for generic coalescing as originally posted, with 4 KiB pages.
    posted: f64,
}

const SHORT: R1 = R1 {
    pages: [
        (8.9 / 78.0) / (3.7 / 89.0),
        (9.2 / 77.0) / (3.7 / 89.0),
        (9.4 / 73.0) / (3.8 / 89.0),
        (9.4 / 72.0) / (3.9 / 89.0),
    ],
    copied: (5.5 / 90.0) / (4.1 / 92.0),
    posted: (8.8 / 77.0) / (3.7 / 89.0),
};
const MIXED: R1 =
    R1 { copied: (4.9 / 92.0) / (4.1 / 92.0), posted: (7.3 / 79.0) / (3.7 / 89.0), ..SHORT };
const LONG: R1 = R1 {
    pages: [
        (9.9 / 63.0) / (8.3 / 71.0),
        (9.9 / 60.0) / (8.4 / 72.0),
        (9.9 / 55.0) / (8.7 / 70.0),
        (9.9 / 53.0) / (8.9 / 67.0),
    ],
    copied: (9.9 / 68.0) / (8.7 / 72.0),
    posted: (9.6 / 66.0) / (8.3 / 71.0),
};

/// The pairs of MTUs in table R1.
const MTU_PAIRS: [(Mtu, R1); 3] = [
    (Mtu { sender: 1500, receiver: 1500 }, SHORT),
    (Mtu { sender: 1500, receiver: 9000 }, MIXED),
    (Mtu { sender: 9000, receiver: 9000 }, LONG),
];

/// The MTUs in table R5. A TAP device does not support the publication's longest MTU; its maximum is 65535 minus an
/// Ethernet header.
const SENDER_MTUS: [(u16, Published); 2] = [
    (1500, Published::new(26864.51 / 18626.44, "R5, in 2014 on loopback")),
    (65521, Published::new(1.1, "R5, in 2014 on loopback")),
];

/// Numbers of connections to test, each with every hold time in [`HOLDS_US`] (in microseconds).
const CONNECTIONS: [usize; 6] = [1, 4, 16, 50, 100, 200];
const HOLDS_US: [u64; 4] = [0, 20, 50, 200];

const LRO_NOTES: &[&str] = &[
    "pages: packets stay in the page into which they were received. A page holds\n\
     several packets and is freed after the last one, as in 2007. Rows without a page\n\
     size use the smallest page that holds a packet. A packet of 9000 bytes needs a\n\
     page of 16 KiB; in 2007, it used several pages. copied first: each packet is\n\
     copied from its page into separate memory.",
    "Grosso / kernel: the kernel merges packets in place. Grosso copies every byte\n\
     into a ring and out of it, and wakes a thread. With kernel GRO on, the veth\n\
     device queues 256 packets and drops the rest. A lead over the kernel that is due\n\
     to these drops is not a gain from Grosso.",
];
const GSO_NOTES: &[&str] =
    &["superframes off: the kernel segments superframes just before the device. The two\n\
     rows therefore differ in the place of segmentation and in the number of device\n\
     calls. At the longest MTU, a datagram is one packet and is not segmented. With\n\
     root privileges, the receiver's kernel coalesces arriving packets, as in 2014."];
const MAERTS_NOTES: &[&str] =
    &["The receiver sends data through Grosso, which acts as its NIC and segments its\n\
     superframes. The coalescer processes only acknowledgments from the other host,\n\
     and merges none of them."];
const FLOWS_NOTES: &[&str] =
    &["All connections together may have as many bytes in flight as a single one. Each\n\
     of many connections therefore has only few packets in flight. With a hold time\n\
     of 0, a train ends with the first poll that returns fewer than 64 packets."];

/// Maximum number of bytes in flight. The data path's ring has enough slots for the packets in a wire's longest queue.
const UNDER_WAY_BYTES_MAX: usize = 2 << 20;

/// Warm-up time, in which TCP reaches its full speed.
const WARM_UP: Duration = Duration::from_millis(300);
