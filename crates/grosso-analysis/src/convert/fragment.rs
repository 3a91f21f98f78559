//! `grosso fragment`: splits packets longer than an MTU into IP fragments.

use grosso::{
    Meta,
    checksum::Checksum,
    segment::{FragmentOptions, Fragments, NoFragments},
};
use grosso_capture::{Packet, PacketMeta, flag};
use grosso_wire::Stack;

use crate::{
    capture::{
        CaptureCommand, Files, Frame, Outcome, Output, Session, Transform, survey, transform,
    },
    checksums::is_left_to_device,
    error::Failure,
    evidence::{Given, Judge, Judgment, Nature, Sight, Tally},
    meta,
    report::Counts,
    reports::fragment::FragmentReport,
    units,
};

/// Options for `grosso fragment`, which splits packets longer than an MTU into IP fragments.
#[derive(Clone, Debug)]
pub struct Fragment {
    /// Assumptions about facts that the capture does not record.
    pub given: Given,
    /// Maximum packet length in bytes, counted from the IP header.
    pub mtu: u16,
    /// Whether to fragment IPv4 packets that have DF set.
    pub ignores_df: bool,
    /// Random seed for the IDs of IPv6 fragments.
    pub seed: u64,
}

impl CaptureCommand for Fragment {
    type Report = FragmentReport;

    fn run(self, files: Files, session: &Session) -> Result<Outcome<FragmentReport>, Failure> {
        let (mut input, output) = files.open(session)?;
        let judge = survey(&files.captures, self.given, session)?;
        let mut work = FragmentWork::new(output, judge, &self, session.strict);
        let done = transform(&mut input, &mut work)?;
        let FragmentWork { output, cut, fragments, left, tally, .. } = work;
        let (facts, place) = output.finish(&input)?;
        tally.notes().for_each(|note| session.note(note));
        note(&left, session);
        let report = FragmentReport {
            input: input.facts(done.bytes),
            output: facts,
            mtu: self.mtu,
            cut,
            fragments,
            guessed: tally.guessed,
            contradictions: tally.contradictions(),
            left,
            elapsed_s: session.elapsed_s(),
        };
        let is_certain =
            report.left.is_empty() && report.guessed == 0 && report.contradictions == 0;
        let is_refused = session.strict && !is_certain;
        Ok(done.outcome((report, place), input, is_refused))
    }
}

/// Tells the user why packets are still longer than the MTU, and how to avoid it.
fn note(left: &Counts, session: &Session) {
    if let Some(&count) = left.get(DONT_FRAGMENT) {
        let packets = units::count(count, "packet");
        session.note(format!(
            "{packets} longer than the MTU not fragmented: DF forbids fragmentation"
        ));
        session.hint("to fragment such packets anyway, pass --ignore-df");
    }
    if let Some(&count) = left.get(SUPERFRAME) {
        let frames = units::count(count, "superframe");
        session.note(format!("{frames} not fragmented: a superframe consists of several packets"));
        session.hint("to split superframes into packets first, run `grosso wire`");
    }
}

/// State of the command while it reads the capture.
struct FragmentWork {
    output: Output,
    judge: Judge,
    tally: Tally,
    is_strict: bool,
    mtu: u16,
    ignores_df: bool,
    random: fastrand::Rng,
    fragment: Vec<u8>,
    cut: u64,
    fragments: u64,
    left: Counts,
}

impl FragmentWork {
    fn new(output: Output, judge: Judge, options: &Fragment, is_strict: bool) -> Self {
        Self {
            output,
            judge,
            tally: Tally::default(),
            is_strict,
            mtu: options.mtu,
            ignores_df: options.ignores_df,
            random: fastrand::Rng::with_seed(options.seed),
            fragment: Vec::new(),
            cut: 0,
            fragments: 0,
            left: Counts::new(),
        }
    }
}

impl Transform for FragmentWork {
    fn output(&mut self) -> &mut Output {
        &mut self.output
    }

    fn packet(&mut self, frame: Frame<'_>) -> Result<(), Failure> {
        let Frame { entry, packet, link } = frame;
        let (said, ports, stack) = self.judge.parse(packet, link);
        let judgment = self.judge.judge(&Sight::new(packet, &said, &stack, link, ports));
        if bytes_on_link(packet, &stack) <= usize::from(self.mtu) {
            return self.output.copy(entry);
        }
        if self.is_strict && judgment.is_guess && judgment.nature == Nature::Packet {
            *self.left.entry("perhaps_superframe").or_default() += 1;
            return self.output.copy(entry);
        }
        self.tally.count(&judgment);
        if is_superframe(&judgment, &said) {
            *self.left.entry(SUPERFRAME).or_default() += 1;
            return self.output.copy(entry);
        }
        let slices = [packet.data];
        let meta = Meta { checksum: checksum(packet, &stack, &said), ..Meta::default() };
        let mut options = FragmentOptions::new(self.mtu, self.random.u32(..));
        options.ignore_dont_fragment = self.ignores_df;
        match Fragments::of_packet(&slices, &meta, link, &options) {
            Ok(fragments) => self.write(fragments, packet, &said),
            Err(refusal) => {
                if refusal != NoFragments::Whole {
                    *self.left.entry(name(refusal)).or_default() += 1;
                }
                self.output.copy(entry)
            }
        }
    }
}

impl FragmentWork {
    /// Writes the fragments. The first fragment also gets the packet's other metadata.
    fn write(
        &mut self,
        mut fragments: Fragments<'_>,
        packet: &Packet<'_>,
        said: &PacketMeta,
    ) -> Result<(), Failure> {
        self.cut += 1;
        let written = meta::of_segment(said, false);
        self.fragment.resize(fragments.packet_len_max(), 0);
        let mut is_first = true;
        while let Some(fragment) = fragments.write_next(&mut self.fragment).map_err(|error| {
            Failure::internal(format!("a fragment exceeded its size limit: {error}"))
        })? {
            let bytes = &self.fragment[..fragment.len()];
            if core::mem::take(&mut is_first) {
                self.output.write_changed(&written, bytes, packet)?;
            } else {
                self.output.write(&written, bytes)?;
            }
            self.fragments += 1;
        }
        Ok(())
    }
}

/// Returns the number of bytes after the link-layer header, including bytes that were not captured.
fn bytes_on_link(packet: &Packet<'_>, stack: &Stack) -> usize {
    let layers = stack.layers();
    let ip = layers.iter().find(|layer| layer.kind.is_ip());
    let network = ip.map_or_else(|| stack.header_len(), |ip| ip.offset.into());
    packet.data.len().max(packet.original_len as usize).saturating_sub(network)
}

/// Returns whether a frame is a superframe according to the capture or the classifier.
fn is_superframe(judgment: &Judgment, said: &PacketMeta) -> bool {
    let is_recorded = said.gso().is_some() || said.flags.unwrap_or(0) & flag::TCP_SEGMENTATION != 0;
    // Neither the length nor the checksum matters here. IP fragments any datagram that exceeds the MTU, and a wrong
    // checksum stays wrong.
    is_recorded || matches!(judgment.nature, Nature::Superframe { .. })
}

/// Returns the checksum state of a packet. A partial checksum is completed before fragmentation.
fn checksum(packet: &Packet<'_>, stack: &Stack, said: &PacketMeta) -> Checksum {
    match said.known(stack).checksum {
        partial @ Checksum::Partial { .. } => partial,
        _ if is_left_to_device(packet.data, stack) => Checksum::of_transport(stack),
        _ => Checksum::None,
    }
}

/// Returns the reason's name in reports.
fn name(refusal: NoFragments) -> &'static str {
    match refusal {
        NoFragments::Whole => "fits_mtu",
        NoFragments::DontFragment { .. } => DONT_FRAGMENT,
        NoFragments::MtuTooSmall => "mtu_too_small",
        NoFragments::NotIp => "not_ip",
        NoFragments::AlreadyFragment => "ipv6_fragment",
        NoFragments::Superframe => SUPERFRAME,
        NoFragments::HeadersSplit => "headers",
        NoFragments::HeaderTooLong => "header_too_long",
        NoFragments::BytesMissing => "captured_short",
        NoFragments::TooLong => "too_long",
        NoFragments::Ipv4Checksum => "ipv4_checksum",
        NoFragments::ChecksumOutside => "checksum_start",
        _ => "other",
    }
}

const DONT_FRAGMENT: &str = "dont_fragment";
const SUPERFRAME: &str = "superframe";
