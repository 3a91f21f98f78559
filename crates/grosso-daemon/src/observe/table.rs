//! The counters: name, unit, description, source, and Prometheus series of each.
//!
//! Text, JSON, the Prometheus page and `docs/counters.md` are generated from this table. Names follow the kernel's
//! `qstats` (Documentation/netlink/specs/netdev.yaml) without `hw`.

mod acknowledgments;

use std::{collections::HashMap, sync::LazyLock};

use grosso::{
    coalesce::reason::{Close, NoMerge, Pass, Release},
    stats::{CoalesceStats, SEGMENT_BUCKETS},
};
use grosso_io::{
    impair::ImpairStats,
    live::{LiveStats, SocketStats, UnixStats, VhostStats, XdpStatistics, kernel_counters},
    path::{DirectionStats, Protocol, RxCsum, Superframes},
    port::PortCounter,
    stage::{EspStageStats, FragmentationStats, TunnelStageStats},
};

/// One counter of a device.
#[derive(Debug)]
pub struct Counter {
    /// Unique name, made up of lower-case letters, digits and underscores.
    pub name: String,
    /// Unit of the count, for example packets.
    pub unit: &'static str,
    /// Meaning of the counter, as a sentence.
    pub help: String,
    /// Object that holds the counter in JSON reports, and its key there.
    pub group: Option<(&'static str, String)>,
    /// Prometheus series; `None` if the counter is the sum of other counters.
    pub series: Option<Series>,
    /// Whether the value is a gauge, which can decrease.
    pub is_gauge: bool,
    source: CounterSource,
}

/// The Prometheus series of a counter. One metric may comprise several counters.
#[derive(Debug)]
pub struct Series {
    /// Name of the metric.
    pub metric: String,
    /// Sentence that describes all counters of the metric.
    pub help: &'static str,
    /// Label that distinguishes the counter from the other counters of its metric.
    pub label: Label,
}

/// The label that distinguishes a counter from the other counters of its metric.
#[derive(Debug)]
pub enum Label {
    /// No label: the metric's only counter.
    Alone,
    /// A label with this name and value.
    Value(&'static str, String),
    /// A histogram bucket up to this bound, not counting the buckets below it; `None` for the unbounded bucket.
    Bucket(Option<u32>),
    /// Sum of the values that a histogram observed.
    Sum,
}

/// The counts for one device of a data path.
#[derive(Clone, Copy, Debug)]
pub struct PathSide<'a> {
    /// Counters for frames received from the device.
    pub rx: &'a DirectionStats,
    /// Counters for frames sent to the device.
    pub tx: &'a DirectionStats,
    /// Coalescing counters for packets from the device.
    pub gro: Option<&'a CoalesceStats>,
    /// Number of held trains of packets from the device.
    pub trains_held: Option<u64>,
    /// Counters of the port.
    pub port: &'a [(PortCounter, u64)],
    /// Time since the last frame from the device, in nanoseconds.
    pub idle_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum CounterSource {
    Plain(fn(&PathSide<'_>) -> u64),
    /// A count of superframes that were merged from packets of one protocol, or of all protocols for `None`.
    Joined(fn(&Superframes) -> u64, Option<usize>),
    /// Frames for which the device reported this checksum state.
    Csum(RxCsum),
    /// A count for the direction from the device.
    Received(fn(&DirectionStats, usize) -> u64, usize),
    /// Number of trains that the direction holds now, if it can hold trains.
    Held,
    /// A count of the coalescer, if the direction has a coalescer.
    Coalescer(fn(&CoalesceStats, usize) -> u64, usize),
    /// Trains that were flushed for the reason `close`, or because a packet did not fit for the reason `refused`. Both
    /// reasons have the same name.
    Flush {
        close: Option<Close>,
        refused: Option<NoMerge>,
    },
    /// A counter of the port, if the port has it.
    Port(&'static str),
}

impl Counter {
    fn new(name: impl Into<String>, unit: &'static str, help: &str, source: CounterSource) -> Self {
        let (name, help) = (name.into(), help.to_owned());
        Self { name, unit, help, group: None, series: None, is_gauge: false, source }
    }

    /// Makes the counter the only one in its metric.
    fn alone(mut self) -> Self {
        let metric = format!("grosso_{}_total", self.name);
        self.series = Some(Series { metric, help: "", label: Label::Alone });
        self
    }

    /// Makes the counter a gauge with its own metric.
    fn gauge(mut self) -> Self {
        let metric = format!("grosso_{}", self.name);
        self.series = Some(Series { metric, help: "", label: Label::Alone });
        Self { is_gauge: true, ..self }
    }

    /// Makes the counter part of a metric.
    fn of(mut self, metric: &str, help: &'static str, label: Label) -> Self {
        self.series = Some(Series { metric: format!("grosso_{metric}"), help, label });
        self
    }

    /// Places the counter in an object of the JSON reports.
    fn grouped(mut self, group: &'static str, key: impl Into<String>) -> Self {
        self.group = Some((group, key.into()));
        self
    }

    /// Returns the counter's value on one side of a path; `None` if it is not counted there.
    pub fn value(&self, side: &PathSide<'_>) -> Option<u64> {
        match self.source {
            CounterSource::Plain(read) => Some(read(side)),
            CounterSource::Joined(read, Some(protocol)) => Some(read(&side.rx.joined[protocol])),
            CounterSource::Joined(read, None) => Some(side.rx.joined.iter().map(read).sum()),
            CounterSource::Csum(state) => Some(side.rx.rx_checksums[state as usize]),
            CounterSource::Received(read, index) => Some(read(side.rx, index)),
            CounterSource::Held => side.trains_held,
            CounterSource::Coalescer(read, index) => side.gro.map(|stats| read(stats, index)),
            CounterSource::Flush { close, refused } => side.gro.map(|stats| {
                let closed = close.map_or(0, |reason| stats.closed[reason.index()]);
                closed + refused.map_or(0, |reason| stats.refused[reason.index()])
            }),
            CounterSource::Port(name) => {
                let mut counters = side.port.iter();
                counters.find(|(counter, _)| counter.name == name).map(|(_, value)| *value)
            }
        }
    }

    /// Returns whether the JSON report contains the counter even if it is zero.
    pub fn is_basic(&self) -> bool {
        matches!(
            self.source,
            CounterSource::Plain(_) | CounterSource::Joined(_, None) | CounterSource::Csum(_)
        )
    }
}

/// All counters, in output order.
pub static COUNTERS: LazyLock<Vec<Counter>> = LazyLock::new(|| {
    let tables = [
        traffic(),
        gro(),
        held(),
        gso(),
        checksums(),
        flushes(),
        passes(),
        releases(),
        lro(),
        acknowledgments::counters(),
        segments(),
        of_ports(),
    ];
    tables.into_iter().flatten().collect()
});

/// Index of each counter in [`COUNTERS`].
static PLACES: LazyLock<HashMap<&'static str, usize>> = LazyLock::new(|| {
    let counters = COUNTERS.iter().enumerate();
    counters.map(|(place, counter)| (counter.name.as_str(), place)).collect()
});

/// Returns the index of the counter with this name in [`COUNTERS`].
pub fn place(name: &str) -> Option<usize> {
    PLACES.get(name).copied()
}

fn plain(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    read: fn(&PathSide<'_>) -> u64,
) -> Counter {
    Counter::new(name, unit, help, CounterSource::Plain(read)).alone()
}

fn traffic() -> Vec<Counter> {
    vec![
        plain(
            "rx_packets",
            "packets",
            "Wire packets received from the device; each packet of a superframe is counted.",
            |side| side.rx.rx_wire.packets,
        ),
        plain(
            "rx_bytes",
            "bytes",
            "Bytes of the received wire packets, headers included.",
            |side| side.rx.rx_wire.bytes,
        ),
        plain("rx_frames", "frames", "Received frames, as delivered by the device.", |side| {
            side.rx.rx_frames
        }),
        plain(
            "tx_packets",
            "packets",
            "Wire packets queued to the device; each packet of a superframe is counted. Packets that the \
             device could not send are also counted as drops (`drop_tx_*`).",
            |side| side.tx.tx_wire.packets,
        ),
        plain("tx_bytes", "bytes", "Bytes of the sent wire packets, headers included.", |side| {
            side.tx.tx_wire.bytes
        }),
        plain("tx_frames", "frames", "Sent frames, as queued to the device.", |side| {
            side.tx.tx_frames
        }),
        plain(
            "tx_no_room",
            "times",
            "Number of times that frames waited because the device queue was full.",
            |side| side.tx.no_room,
        ),
    ]
}

fn gro() -> Vec<Counter> {
    let mut counters = measure(
        ["rx_gro_packets", "rx_gro_packets_by_proto"],
        "superframes",
        "Superframes merged from packets of the device.",
        |made| made.frames,
    );
    counters.extend(measure(
        ["rx_gro_bytes", "rx_gro_bytes_by_proto"],
        "bytes",
        "Bytes of the merged superframes.",
        |made| made.bytes,
    ));
    counters.extend(measure(
        ["rx_gro_wire_packets", "rx_gro_wire_packets_by_proto"],
        "packets",
        "Wire packets merged into superframes.",
        |made| made.wire.packets,
    ));
    counters.extend(measure(
        ["rx_gro_wire_bytes", "rx_gro_wire_bytes_by_proto"],
        "bytes",
        "Bytes of the wire packets merged into superframes.",
        |made| made.wire.bytes,
    ));
    counters
}

/// Returns the counters for one measure of superframes: the total, and one counter per protocol in the object `group`.
fn measure(
    [name, group]: [&'static str; 2],
    unit: &'static str,
    help: &'static str,
    read: fn(&Superframes) -> u64,
) -> Vec<Counter> {
    let all = Counter::new(name, unit, help, CounterSource::Joined(read, None));
    let protocols = Protocol::ALL.iter().enumerate().map(|(index, protocol)| {
        let protocol = protocol.name();
        let help_of = format!("{} ({protocol}).", help.trim_end_matches('.'));
        let source = CounterSource::Joined(read, Some(index));
        Counter::new(format!("{name}_{protocol}"), unit, &help_of, source)
            .of(&format!("{name}_total"), help, Label::Value("proto", protocol.to_owned()))
            .grouped(group, protocol)
    });
    [all].into_iter().chain(protocols).collect()
}

/// Returns the counters for the trains and packets that are held at this moment.
fn held() -> Vec<Counter> {
    let packets = CounterSource::Coalescer(|stats, _| stats.packets_held(), 0);
    vec![
        Counter::new(
            "rx_gro_held",
            "trains",
            "Trains currently held until more packets arrive from the device; trains of one packet \
             are included.",
            CounterSource::Held,
        )
        .gauge(),
        Counter::new(
            "rx_gro_held_packets",
            "packets",
            "Wire packets from the device that are currently held, in trains or for reordering.",
            packets,
        )
        .gauge(),
    ]
}

fn gso() -> Vec<Counter> {
    vec![
        plain(
            "tx_gso_packets",
            "superframes",
            "Superframes split because the device does not accept them.",
            |side| side.tx.cut,
        ),
        plain("tx_gso_bytes", "bytes", "Bytes of the split superframes.", |side| side.tx.cut_bytes),
        plain(
            "tx_gso_wire_packets",
            "packets",
            "Wire packets that resulted from splitting superframes.",
            |side| side.tx.cut_wire.packets,
        ),
        plain(
            "tx_gso_wire_bytes",
            "bytes",
            "Bytes of the wire packets that resulted from splitting superframes.",
            |side| side.tx.cut_wire.bytes,
        ),
        plain(
            "tx_gso_uncut",
            "superframes",
            "Superframes that could not be split, and were sent to the device unchanged.",
            |side| side.tx.uncut,
        ),
    ]
}

fn checksums() -> Vec<Counter> {
    let metric = "rx_csum_total";
    let help = "Received frames, by the state of their checksum; frames with bad checksums are counted twice.";
    let of = |state, name: &str, sentence| {
        let counter =
            Counter::new(format!("rx_csum_{name}"), "frames", sentence, CounterSource::Csum(state));
        counter.of(metric, help, Label::Value("result", name.to_owned())).grouped("rx_csum", name)
    };
    let bad = |stats: &CoalesceStats, _| {
        let bad = [Pass::Checksum, Pass::Ipv4Checksum];
        bad.iter().map(|reason| stats.passed[reason.index()]).sum()
    };
    let needs = "Sent frames, by the state of their checksum: partial or complete.";
    let need = |value: &str| Label::Value("need", value.to_owned());
    vec![
        of(
            RxCsum::Complete,
            "complete",
            "Received frames for which the device supplied a checksum of the whole packet.",
        ),
        of(
            RxCsum::Unnecessary,
            "unnecessary",
            "Received frames whose checksums the device verified, or that never left this host.",
        ),
        of(RxCsum::None, "none", "Received frames without checksum information from the device."),
        Counter::new(
            "rx_csum_bad",
            "frames",
            "Received frames with a wrong checksum; they are forwarded unchanged.",
            CounterSource::Coalescer(bad, 0),
        )
        .of(metric, help, Label::Value("result", "bad".to_owned()))
        .grouped("rx_csum", "bad"),
        Counter::new(
            "tx_needs_csum",
            "frames",
            "Sent frames with a partial checksum, which Grosso or the device completes.",
            CounterSource::Plain(|side| side.tx.tx_partial),
        )
        .of("tx_csum_total", needs, need("needed")),
        Counter::new(
            "tx_csum_none",
            "frames",
            "Sent frames with complete checksums.",
            CounterSource::Plain(|side| side.tx.tx_complete),
        )
        .of("tx_csum_total", needs, need("none")),
        plain(
            "tx_csum_completed",
            "frames",
            "Frames whose checksum Grosso completed, because the device cannot complete it.",
            |side| side.tx.completed,
        ),
    ]
}

/// Returns the counters of flushed trains, one for each reason. A train that was flushed because the next packet did
/// not fit is counted under the reason why that packet did not fit.
fn flushes() -> Vec<Counter> {
    let closes =
        Close::ALL.iter().filter(|reason| !matches!(reason, Close::NoMerge | Close::Never));
    let closes = closes.map(|reason| {
        let same = NoMerge::ALL.iter().find(|refused| refused.name() == reason.name());
        (reason.name(), reason.sentence(), Some(*reason), same.copied())
    });
    let is_close = |name| Close::ALL.iter().any(|reason| reason.name() == name);
    let refusals = NoMerge::ALL.iter().filter(|reason| !is_close(reason.name()));
    let refusals = refusals.map(|reason| (reason.name(), reason.sentence(), None, Some(*reason)));
    let metric = "rx_gro_flush_total";
    let all = "Flushed trains of received packets, by reason.";
    closes
        .chain(refusals)
        .map(|(name, sentence, close, refused)| {
            let help = format!("Trains flushed: {}", lower(sentence));
            let source = CounterSource::Flush { close, refused };
            Counter::new(format!("rx_gro_flush_{name}"), "trains", &help, source)
                .of(metric, all, Label::Value("reason", name.to_owned()))
                .grouped("rx_gro_flush", name)
        })
        .collect()
}

/// Returns the counters of frames that were not part of a train, by reason.
fn passes() -> Vec<Counter> {
    let all = "Frames from the device that cannot be part of a train, by reason.";
    let counter = |(index, reason): (usize, &Pass)| {
        let name = reason.name();
        let help = format!("Frames that cannot be part of a train: {}", lower(reason.sentence()));
        let source = CounterSource::Coalescer(|stats, index| stats.passed[index], index);
        Counter::new(format!("rx_gro_pass_{name}"), "frames", &help, source)
            .of("rx_gro_pass_total", all, Label::Value("reason", name.to_owned()))
            .grouped("rx_gro_pass", name)
    };
    Pass::ALL.iter().enumerate().map(counter).collect()
}

/// Returns the counters of packets that waited for reordering, by the reason why they were released.
fn releases() -> Vec<Counter> {
    let all = "Wire packets that waited for reordering and were released, by reason.";
    let counter = |(index, reason): (usize, &Release)| {
        let name = reason.name();
        let help = format!(
            "Packets that waited for reordering and were released: {}",
            lower(reason.sentence())
        );
        let source = CounterSource::Coalescer(|stats, index| stats.reorder.released[index], index);
        Counter::new(format!("rx_gro_reorder_{name}"), "packets", &help, source)
            .of("rx_gro_reorder_total", all, Label::Value("reason", name.to_owned()))
            .grouped("rx_gro_reorder", name)
    };
    Release::ALL.iter().enumerate().map(counter).collect()
}

/// Returns the counters that drivers with inet_lro reported in `ethtool -S`.
fn lro() -> Vec<Counter> {
    let counter = |name: &str, unit, help, read| {
        let source = CounterSource::Coalescer(read, 0);
        Counter::new(format!("rx_lro_{name}"), unit, help, source).alone().grouped("rx_lro", name)
    };
    vec![
        counter(
            "aggregated",
            "packets",
            "Packets added to trains, including the first packet of each train, as counted by \
             inet_lro (rule L4).",
            |stats, _| stats.lro().aggregated,
        ),
        counter(
            "flushed",
            "trains",
            "Trains flushed, including trains of one packet, as counted by inet_lro (rule L4).",
            |stats, _| stats.lro().flushed,
        ),
        counter(
            "no_desc",
            "times",
            "Number of times that no train slot was free, as counted by inet_lro (rule L4).",
            |stats, _| stats.lro().no_descriptor,
        ),
    ]
}

/// Returns the counters for the histogram of wire packets per frame.
fn segments() -> Vec<Counter> {
    let all = "Wire packets per forwarded frame.";
    let bounds = SEGMENT_BUCKETS.iter().copied().map(Some).chain([None]);
    let mut below = 0;
    let mut counters: Vec<Counter> = Vec::new();
    for (index, bound) in bounds.enumerate() {
        let (key, range) = match bound {
            Some(1) => ("1".to_owned(), "one wire packet".to_owned()),
            Some(2) => ("2".to_owned(), "two wire packets".to_owned()),
            Some(bound) => (bound.to_string(), format!("{} to {bound} wire packets", below + 1)),
            None => ("inf".to_owned(), format!("more than {below} wire packets")),
        };
        below = bound.unwrap_or(below);
        let source = CounterSource::Coalescer(|stats, index| stats.segments[index], index);
        let help = format!("Forwarded frames that contain {range}.");
        let counter = Counter::new(format!("rx_gro_segs_{key}"), "frames", &help, source)
            .of("rx_gro_segments", all, Label::Bucket(bound))
            .grouped("rx_gro_segs", key);
        counters.push(counter);
    }
    let help = "Wire packets in forwarded frames.";
    let source = CounterSource::Coalescer(|stats, _| stats.packets_out, 0);
    let sum = Counter::new("rx_gro_segs_sum", "packets", help, source);
    counters.push(sum.of("rx_gro_segments", all, Label::Sum).grouped("rx_gro_segs", "sum"));
    counters
}

/// Returns the counters of ports: lost frames, and other events.
fn of_ports() -> Vec<Counter> {
    let (live, wire) = (LiveStats::default(), ImpairStats::default().counters());
    let kernel = kernel_counters(&XdpStatistics::default());
    let (fragments, esp) = (FragmentationStats::default(), EspStageStats::default());
    let (socket, tunnel) = (SocketStats::default(), TunnelStageStats::default());
    let stages = fragments.counters().chain(esp.counters()).chain(socket.counters());
    let stages = stages.chain(tunnel.counters());
    let (unix, vhost) = (UnixStats::default(), VhostStats::default());
    // The other vhost-user counters have the same names as counters of a Unix socket.
    let is_new = |name| !unix.counters().any(|(counter, _)| counter.name == name);
    let shared = vhost.counters().filter(|(counter, _)| is_new(counter.name));
    let machines = unix.counters().chain(shared);
    let counters = live.counters().chain(machines).chain(kernel).chain(wire).chain(stages);
    let counters = counters.map(|(counter, _)| counter);
    let (lost, others): (Vec<_>, Vec<_>) = counters.partition(|counter| counter.is_loss);
    let drops = lost.iter().map(|counter| {
        of_port(counter, "drop", "frames")
            .of(
                "drops_total",
                "Frames lost at the device, by reason.",
                Label::Value("reason", counter.name.to_owned()),
            )
            .grouped("drops", counter.name)
    });
    let events = others.iter().map(|counter| {
        of_port(counter, "event", "times")
            .of(
                "events_total",
                "Other events at the device, by kind.",
                Label::Value("event", counter.name.to_owned()),
            )
            .grouped("events", counter.name)
    });
    drops.chain(events).collect()
}

fn of_port(counter: &PortCounter, family: &str, unit: &'static str) -> Counter {
    let name = format!("{family}_{}", counter.name);
    Counter::new(name, unit, counter.sentence, CounterSource::Port(counter.name))
}

/// Returns a sentence without its initial capital, for use after a colon.
fn lower(sentence: &str) -> String {
    let mut letters = sentence.chars();
    let first = letters.next().map(|first| first.to_ascii_lowercase());
    match sentence.chars().nth(1).is_some_and(char::is_uppercase) {
        // The first word is an abbreviation and keeps its capitals.
        true => sentence.to_owned(),
        false => first.into_iter().chain(letters).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{COUNTERS, Label, place};

    #[test]
    fn names_are_unique_and_of_the_letters_that_everybody_takes() {
        let mut names = HashSet::new();
        let mut series = HashSet::new();
        for counter in COUNTERS.iter() {
            let name = &counter.name;
            assert!(names.insert(name), "{name} twice");
            assert!(name.starts_with(|c: char| c.is_ascii_lowercase()), "{name}");
            let mut letters = name.chars();
            assert!(
                letters.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'),
                "{name}"
            );
            assert!(
                counter.help.ends_with('.') || counter.help.ends_with(")."),
                "{}",
                counter.help
            );
            let Some(place) = &counter.series else { continue };
            assert!(series.insert(format!("{} {:?}", place.metric, place.label)), "{name}");
            let is_histogram = matches!(place.label, Label::Bucket(_) | Label::Sum);
            let is_total = !is_histogram && !counter.is_gauge;
            assert_eq!(place.metric.ends_with("_total"), is_total, "{}", place.metric);
        }
        assert!(COUNTERS.iter().enumerate().all(|(i, counter)| place(&counter.name) == Some(i)));
    }
}
