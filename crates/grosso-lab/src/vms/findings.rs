//! Figures that the experiment measures, and verdicts on them. The figures' structure is that of the JSON report.

use schemars::JsonSchema;
use serde::Serialize;

use super::{VmCarrier, VmPlace, VmRun, VmSetting, VmStream};
use crate::{
    experiment::Series,
    publications::{PAGES_OVER_BUFFERS, nic},
    statistics::{Spread, ratio},
    verdict::{Bound, Evidence, Unit, Verdict},
};

/// Figures that the experiment measures.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct VmFindings {
    /// Results, grouped by the peer with which the guest exchanges streams. Empty if no VM can boot.
    pub groups: Vec<VmGroup>,
}

/// Results that are compared with each other.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct VmGroup {
    /// Peer with which the guest exchanges streams.
    pub place: VmPlace,
    /// Results, one for each carrier.
    pub rows: Vec<VmRow>,
}

/// The result for one setting.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct VmRow {
    /// The carrier that forwards the guest's frames.
    pub carrier: VmCarrier,
    /// Streams to the guest; between two guests, streams to the second one.
    pub to_guest: VmFigures,
    /// Streams from the guest.
    pub from_guest: VmFigures,
    /// Number of bytes that were compared one by one with those that were sent, in all runs.
    pub verified_bytes: u64,
    /// The measurements.
    pub runs: Vec<VmRun>,
}

/// Figures for the streams in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct VmFigures {
    /// Throughput in Mb/s.
    pub megabits_a_second: Spread,
    /// CPU-seconds per gigabyte for the program between the endpoints: Grosso or passt.
    pub path_s_per_gb: Spread,
    /// CPU-seconds per gigabyte for the emulated VMs.
    pub machine_s_per_gb: Spread,
    /// Instructions that the guest executes per kilobyte (1000 bytes), if QEMU counted them.
    pub guest_instructions_per_kb: Spread,
}

impl VmFindings {
    pub(super) fn new(groups: Vec<Vec<Series<VmSetting, VmRun>>>) -> Self {
        let group = |series: Vec<Series<VmSetting, VmRun>>| {
            let place = series.first()?.setting.place;
            Some(VmGroup { place, rows: series.into_iter().map(VmRow::new).collect() })
        };
        Self { groups: groups.into_iter().filter_map(group).collect() }
    }

    /// Returns the row for a carrier and a peer.
    pub(super) fn row(&self, place: VmPlace, carrier: VmCarrier) -> Option<&VmRow> {
        let group = self.groups.iter().find(|group| group.place == place)?;
        group.rows.iter().find(|row| row.carrier == carrier)
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = &VmRow> {
        self.groups.iter().flat_map(|group| &group.rows)
    }

    /// Returns the verdicts on the figures. If there are no VMs, each verdict says what a test of its claim would need.
    pub(super) fn judge(&self) -> Vec<Verdict> {
        if self.groups.is_empty() {
            let claims = CLAIMS.map(|(_, claim, _)| claim).into_iter();
            let claims = claims.chain(BUFFER_CLAIMS.map(|(claim, ..)| claim));
            return claims.map(|claim| Verdict::not_here(claim, NEEDED)).collect();
        }
        let places = CLAIMS.iter().filter_map(|claim| self.judge_place(*claim));
        let buffers = BUFFER_CLAIMS.iter().filter_map(|claim| self.judge_buffers(*claim));
        places.chain(buffers).collect()
    }

    /// Judges a claim that one kind of receive buffer takes more instructions than another.
    fn judge_buffers(&self, (claim, [over, under], cause): BufferClaim) -> Option<Verdict> {
        let counted = |carrier| {
            let row = self.row(VmPlace::ReceiveBuffers, carrier)?;
            Some(row.to_guest.guest_instructions_per_kb)
        };
        let evidence = Evidence::ratio(&counted(over)?, &counted(under)?, Bound::AtLeast(1.0));
        Some(evidence.verdict(claim, Unit::Times, cause).beside(nic(PAGES_OVER_BUFFERS)))
    }

    /// Judges whether Grosso transfers a guest's streams in both directions at least as fast as QEMU and the kernel.
    fn judge_place(&self, (place, claim, cause): Claim) -> Option<Verdict> {
        let ours = self.row(place, VmCarrier::VhostUser)?;
        let others = self.row(place, VmCarrier::Qemu)?;
        let pairs = [(ours.to_guest, others.to_guest), (ours.from_guest, others.from_guest)];
        let pairs = pairs.map(|(one, other)| (one.megabits_a_second, other.megabits_a_second));
        let words = pairs.map(|(one, other)| Evidence::ratio(&one, &other, Bound::AtLeast(EQUAL)));
        let [to, from] = pairs.map(|(one, other)| ratio(one.median, other.median));
        let both = format!("{:.2} to the guest, {:.2} from it", to?, from?);
        Some(Evidence::all(words)?.verdict(claim, Unit::Times, cause).with(both))
    }
}

impl VmRow {
    fn new(Series { setting, runs, .. }: Series<VmSetting, VmRun>) -> Self {
        Self {
            carrier: setting.carrier,
            to_guest: VmFigures::of(runs.iter().map(|run| run.to_guest)),
            from_guest: VmFigures::of(runs.iter().map(|run| run.from_guest)),
            verified_bytes: runs.iter().map(|run| run.verified_bytes).sum(),
            runs,
        }
    }
}

impl VmFigures {
    fn of(streams: impl Iterator<Item = VmStream> + Clone) -> Self {
        let over =
            |value: fn(&VmStream) -> f64| Spread::of(streams.clone().map(|stream| value(&stream)));
        Self {
            megabits_a_second: over(VmStream::megabits_a_second),
            path_s_per_gb: over(|stream| stream.path_cpu_seconds / stream.gigabytes()),
            machine_s_per_gb: over(|stream| stream.machine_cpu_seconds / stream.gigabytes()),
            guest_instructions_per_kb: over(VmStream::instructions_per_kb),
        }
    }
}

impl VmStream {
    /// Returns the throughput in Mb/s.
    #[must_use]
    pub fn megabits_a_second(&self) -> f64 {
        self.called.bytes as f64 * 8e-6 / self.called.seconds
    }

    fn gigabytes(&self) -> f64 {
        self.called.bytes as f64 * 1e-9
    }

    /// Returns NaN if the instructions were not counted.
    fn instructions_per_kb(&self) -> f64 {
        let counted = self.guest_instructions.map(|counted| counted as f64);
        counted.unwrap_or(f64::NAN) * 1e-6 / self.gigabytes()
    }
}

/// A claim about the streams with one kind of peer, and the cause to report if the claim does not hold.
type Claim = (VmPlace, &'static str, &'static str);

const CLAIMS: [Claim; 3] = [
    (VmPlace::Host, "vhost-user is as fast as QEMU's TAP", CAUSE),
    (VmPlace::Guests, "two guests: Grosso is as fast as TAPs and a bridge", OF_GUESTS),
    (VmPlace::Tunnel, "a tunnel is as fast as a TAP and the kernel's VXLAN", CAUSE),
];
/// A claim that one kind of receive buffer takes more instructions than another, and the cause to report if the claim
/// does not hold.
type BufferClaim = (&'static str, [VmCarrier; 2], &'static str);

const BUFFER_CLAIMS: [BufferClaim; 2] = [
    (
        "packets: packet buffers take more work than pages",
        [VmCarrier::PacketBuffers, VmCarrier::Pages],
        "today's virtio driver builds a packet around a packet buffer without a copy, but allocates a packet and \
         copies the headers if the data is in a page; GRO merges both by reference",
    ),
    (
        "superframes: chains take more work than pages",
        [VmCarrier::SuperframeChains, VmCarrier::SuperframePages],
        "the driver allocates a full chain for each superframe, which costs more only for short superframes, and those \
         of this run are long",
    ),
];
/// Minimum ratio for two throughputs to count as equal.
const EQUAL: f64 = 0.95;
/// Cause to report for streams between guests. On busy CPUs, the speed of 300 ms streams between the same two guests
/// varies by a factor of 14 over vhost-user, and by a factor of 17 over TAP devices.
const OF_GUESTS: &str = "\
two emulated VMs share the CPUs, so the speed of a short stream depends on which VM was running; try --time 3s";
const CAUSE: &str = "the emulated VM is slower than its network backend, and both share the CPUs";
const NEEDED: &str =
    "QEMU, and a kernel with modules for the guest; the notes list what is missing";
