//! `grosso wire`: make a capture of a host look like the wire.

use std::{path::Path, time::Instant};

use grosso::meta::{Cwr, Gso, IpLevels};
use grosso_io::capture::{ChecksumState, Entry, Packet, PacketMeta, Segmentation};
use grosso_wire::{LinkType, Ports, Stack, dissect};

use super::cutter::{Cutter, Uncut};
use crate::{
    arguments::{Spacing, Wire},
    checksums::{Levels, complete, is_seeded},
    error::{Exit, Failure},
    headers::Transport,
    input::{Input, Next, Session},
    meta,
    mss::{Flows, Given, Size, Source, ipv4_levels},
    output::Output,
    report::{
        self, Counts, InputFacts, Tool, units,
        wire::{SizeCounts, Superframes, WireReport},
    },
    transform::{self, Transform},
};

/// Runs the command.
pub(crate) fn run(options: &Wire, session: &mut Session) -> Result<Exit, Failure> {
    let start = Instant::now();
    let (mut input, output) = transform::open(&options.files, "wire", session)?;
    let given = Given { mss: options.mss, mtu: options.mtu };
    let (flows, is_surveyed) = survey(&options.files.read, given, session)?;
    let mut work = Work::new(output, flows, is_surveyed, options, session.strict);
    let done = transform::transform(&mut input, &mut work)?;
    note(&work, session);
    let Work { output, sizes, cutter, completed, left, .. } = work;
    let (facts, place) = output.finish(&input)?;
    let elapsed = start.elapsed();
    let mut report = WireReport {
        schema: "grosso.wire/1",
        tool: Tool::THIS,
        input: InputFacts::of(&input, done.bytes),
        output: facts,
        superframes: Superframes {
            split: cutter.cut,
            segments: cutter.segments,
            sizes: sizes.list(),
        },
        checksums_completed: completed,
        left,
        elapsed_s: elapsed.as_secs_f64(),
        warnings: Vec::new(),
    };
    report::print(&mut report, &mut session.talk, place)?;
    report::remark_rate(session, report.input.packets, done.bytes, elapsed);
    let is_refused = session.strict && !report.left.is_empty();
    done.conclude(&input, session, is_refused)
}

/// Reads a file once to learn its flows, so that a superframe is cut by what comes behind it too. A
/// pipe can be read only once. Damage is for the second reading to report.
fn survey(path: &Path, given: Given, session: &Session) -> Result<(Flows, bool), Failure> {
    let mut flows = Flows::new(given);
    if !path.is_file() {
        return Ok((flows, false));
    }
    let mut input = Input::open(path, false, session)?;
    let links = input.links;
    let _ending = input.each(|entry| {
        let Entry::Packet(packet) = entry else { return Ok(Next::Go) };
        let Some(link) = links.of(packet) else { return Ok(Next::Go) };
        let stack = dissect(packet.data, link, &Ports::ASSIGNED);
        if let Some(transport) = Transport::of(&stack, packet.data.len()).filter(Transport::is_tcp)
        {
            flows.learn(packet.data, &stack, &transport, recorded(packet));
        }
        Ok(Next::Go)
    })?;
    Ok((flows, true))
}

/// The segment size that the capture says.
fn recorded(packet: &Packet<'_>) -> Option<u16> {
    if packet.options().as_bytes().is_empty() {
        return None;
    }
    let offload = packet.meta().offload?;
    offload.gso?.to_engine()?.size()
}

/// The notes of the manual, one for each kind of packet that the wire did not see so.
fn note(work: &Work, session: &mut Session) {
    if work.udp_left > 0 {
        let frames = units::count(work.udp_left, "UDP superframe");
        let payload = work.udp_left_bytes;
        session.talk.note(format!(
            "{frames} ({payload} B payload) left whole: this file does not say where they split."
        ));
        session.talk.hint(
            "if you know the sender's segment size, add --uso-size 1200; \
             `grosso capture` records it.",
        );
    }
    if let Some((captured, original)) = work.first_cut {
        let packets = units::count(work.cut_short, "packet");
        let are = if work.cut_short == 1 { "is" } else { "are" };
        session.talk.note(format!(
            "{packets} {are} cut ({captured} of {original} bytes): left as they are"
        ));
    }
    if work.guessed_on_pipe {
        session
            .talk
            .note("a pipe is read once: segment sizes come from what was seen before each packet");
    }
    if work.flows.overflowed > 0 {
        let (packets, flows) = (work.flows.overflowed, work.flows.len());
        session.talk.note(format!(
            "more than {flows} flows: {packets} packets were split without knowing their flow"
        ));
    }
}

/// The capture on its way.
struct Work {
    output: Output,
    flows: Flows,
    /// Whether the flows are known from a reading before.
    is_surveyed: bool,
    is_strict: bool,
    uso_size: Option<u16>,
    spacing: Spacing,
    cutter: Cutter,
    sizes: SizeCounts,
    completed: u64,
    left: Counts,
    udp_left: u64,
    udp_left_bytes: u64,
    cut_short: u64,
    /// Captured and original length of the first packet that was cut short.
    first_cut: Option<(usize, u32)>,
    guessed_on_pipe: bool,
    packet: Vec<u8>,
    levels: Levels,
}

/// What a packet is, beside its bytes.
enum Kind {
    /// One packet of the wire.
    Plain,
    /// A superframe, and by what to cut it.
    Superframe(Gso, Size),
    /// A superframe that stays whole.
    Left(&'static str),
}

impl Work {
    fn new(
        output: Output,
        flows: Flows,
        is_surveyed: bool,
        options: &Wire,
        is_strict: bool,
    ) -> Self {
        Self {
            output,
            flows,
            is_surveyed,
            is_strict,
            uso_size: options.uso_size,
            spacing: options.ts,
            cutter: Cutter::default(),
            sizes: SizeCounts::default(),
            completed: 0,
            left: Counts::new(),
            udp_left: 0,
            udp_left_bytes: 0,
            cut_short: 0,
            first_cut: None,
            guessed_on_pipe: false,
            packet: Vec::new(),
            levels: Levels::default(),
        }
    }
}

impl Transform for Work {
    fn output(&mut self) -> &mut Output {
        &mut self.output
    }

    fn packet(
        &mut self,
        entry: &Entry<'_>,
        packet: &Packet<'_>,
        link: LinkType,
    ) -> Result<(), Failure> {
        let stack = dissect(packet.data, link, &Ports::ASSIGNED);
        let said = packet.meta();
        match self.classify(packet, &stack, &said) {
            Kind::Plain => self.complete(entry, packet, &stack, &said),
            Kind::Left(reason) => {
                *self.left.entry(reason).or_default() += 1;
                self.output.copy(entry)
            }
            Kind::Superframe(gso, size) => {
                let spacing = Some(self.spacing);
                match self.cutter.cut(packet, &said, gso, link, spacing, &mut self.output)? {
                    Ok(()) => {
                        self.sizes.count(size);
                        Ok(())
                    }
                    Err(Uncut::Whole) => self.complete(entry, packet, &stack, &said),
                    Err(uncut) => {
                        if uncut == Uncut::Snaplen {
                            self.count_cut(packet);
                        }
                        *self.left.entry(uncut.name()).or_default() += 1;
                        self.output.copy(entry)
                    }
                }
            }
        }
    }
}

impl Work {
    /// Whether the packet is a superframe, and how it is cut.
    fn classify(&mut self, packet: &Packet<'_>, stack: &Stack, said: &PacketMeta) -> Kind {
        let offload = said.offload.as_ref();
        let described =
            offload.and_then(|offload| offload.gso.as_ref()).and_then(Segmentation::to_engine);
        let Some(transport) = Transport::of(stack, packet.data.len()) else { return Kind::Plain };
        let recorded = described.as_ref().and_then(Gso::size);
        let size = match (transport.is_tcp(), self.is_surveyed) {
            (true, true) => self.flows.size(packet.data, stack, &transport, recorded),
            (true, false) => self.flows.learn(packet.data, stack, &transport, recorded),
            (false, _) => None,
        };
        if let Some(gso) = described {
            // What leaves is the wire, so nothing stays partial there.
            let gso = Gso { partial_members: false, ..gso };
            let size = Size { bytes: gso.size().unwrap_or(0), source: Source::Recorded };
            return Kind::Superframe(gso, size);
        }
        if !transport.is_tcp() {
            return self.classify_udp(&transport);
        }
        let Some(size) = size else { return Kind::Plain };
        if size.source.is_guess() {
            if self.is_strict {
                return Kind::Left("segment-size-unknown");
            }
            self.guessed_on_pipe |= !self.is_surveyed && size.source != Source::Given;
        }
        let Some(gso) = Gso::every(size.bytes) else { return Kind::Plain };
        let is_fixed = self.flows.has_fixed_ids(&transport.endpoints(packet.data, stack));
        let fixed_ids =
            if is_fixed { IpLevels::from_bits(ipv4_levels(stack)) } else { IpLevels::NONE };
        Kind::Superframe(Gso { fixed_ids, cwr: Cwr::First, ..gso }, size)
    }

    /// A UDP packet that is longer than the link takes is a superframe; where it splits is for its
    /// sender to know.
    fn classify_udp(&mut self, transport: &Transport) -> Kind {
        if transport.payload + transport.overhead() <= self.flows.mtu() {
            return Kind::Plain;
        }
        match self.uso_size.and_then(Gso::every) {
            Some(gso) => {
                let size = Size { bytes: gso.size().unwrap_or(0), source: Source::Given };
                Kind::Superframe(gso, size)
            }
            None => {
                self.udp_left += 1;
                self.udp_left_bytes += transport.payload as u64;
                Kind::Left("udp-size-unknown")
            }
        }
    }

    /// Writes a packet with its checksums completed, if any is partial.
    fn complete(
        &mut self,
        entry: &Entry<'_>,
        packet: &Packet<'_>,
        stack: &Stack,
        said: &PacketMeta,
    ) -> Result<(), Failure> {
        let state = said.offload.as_ref().map(|offload| offload.checksum).unwrap_or_default();
        let claim = meta::claim(said, stack);
        let is_told = matches!(state, ChecksumState::Partial { .. });
        if !is_told && !is_seeded(packet.data, stack) {
            return self.output.copy(entry);
        }
        if packet.is_cut() {
            self.count_cut(packet);
            *self.left.entry("captured-short").or_default() += 1;
            return self.output.copy(entry);
        }
        self.packet.clear();
        self.packet.extend_from_slice(packet.data);
        let fixed = complete(&mut self.packet, false, stack, claim, &mut self.levels);
        if fixed == 0 && !is_told {
            // Its checksum is right and by chance the seed as well.
            return self.output.copy(entry);
        }
        self.completed += u64::from(fixed > 0);
        let written =
            PacketMeta { original_len: packet.original_len, ..meta::of_segment(said, false) };
        self.output.write_changed(&written, &self.packet, packet)
    }

    fn count_cut(&mut self, packet: &Packet<'_>) {
        self.cut_short += 1;
        self.first_cut.get_or_insert((packet.data.len(), packet.original_len));
    }
}
