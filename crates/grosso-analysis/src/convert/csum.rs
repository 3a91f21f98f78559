//! `grosso csum`: verifies and repairs checksums.

use grosso_capture::{Entry, Offload, Packet, PacketMeta, flag};
use grosso_wire::{Kind, LinkType, Stack};

use crate::{
    capture::{
        CaptureCommand, End, EndWording, Files, Frame, Next, Outcome, Output, Session, Transform,
        Unparsed, transform,
    },
    checksums::{self, Level, Levels, Verdict, judge},
    error::Failure,
    evidence::{Given, Judge, Sight},
    headers::protocol,
    report::Place,
    reports::{
        csum::{FixReport, Row, VerifyReport},
        inspect::Verdicts,
    },
    units,
};

/// Options for `grosso csum verify`, which verifies every checksum.
#[derive(Clone, Debug, Default)]
pub struct Verify {
    /// Assumptions about facts that the capture does not record.
    pub given: Given,
    /// Maximum number of checksums that the report lists.
    pub rows_max: usize,
}

impl Verify {
    /// Returns the maximum number of checksums in a JSON report.
    pub const fn rows_of_json(is_verbose: bool) -> usize {
        if is_verbose { 10_000 } else { 1000 }
    }
}

impl CaptureCommand for Verify {
    type Report = VerifyReport;

    fn run(self, files: Files, session: &Session) -> Result<Outcome<VerifyReport>, Failure> {
        let mut input = files.input(session)?;
        let judge = Judge::new(self.given);
        let mut found = Found { judge, rows_max: self.rows_max, ..Found::default() };
        let mut unparsed = Unparsed::default();
        let links = input.links;
        let ending = input.each(|entry| {
            if let Entry::Packet(packet) = entry {
                match links.of(packet) {
                    Some(link) => {
                        let (stack, _) = found.look(packet, link);
                        found.list(packet, &stack);
                    }
                    None => unparsed.count(packet),
                }
            }
            Ok(Next::Go)
        })?;
        let report = VerifyReport {
            input: input.facts(found.bytes),
            checksums: found.packets,
            levels: found.every,
            rows: core::mem::take(&mut found.rows),
            rows_omitted: found.rows_omitted,
            first_cut: found.first_cut.filter(|_| found.packets.unverifiable > 0),
        };
        let is_no = found.packets.bad > 0 || (session.strict && found.packets.unverifiable > 0);
        let end = End::new(ending, unparsed, input, EndWording::PROCESSED).no_if(is_no);
        Ok(Outcome { report, place: Place::Standard, end })
    }
}

/// Checksums that [`Fix`] sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Which {
    /// Partial checksums, which were left for a device to complete.
    #[default]
    Partial,
    /// Bad checksums.
    Bad,
    /// Partial and bad checksums.
    All,
}

/// Options for `grosso csum fix`, which repairs checksums and changes nothing else.
#[derive(Clone, Debug, Default)]
pub struct Fix {
    /// Assumptions about facts that the capture does not record.
    pub given: Given,
    /// Checksums to set.
    pub only: Which,
}

impl CaptureCommand for Fix {
    type Report = FixReport;

    fn run(self, files: Files, session: &Session) -> Result<Outcome<FixReport>, Failure> {
        let (mut input, output) = files.open(session)?;
        let judge = Judge::new(self.given);
        let found = Found { judge, ..Found::default() };
        let (packet, counts) = (Vec::new(), (0, 0));
        let mut work = FixWork { output, only: self.only, found, packet, counts };
        let done = transform(&mut input, &mut work)?;
        let FixWork { output, found, counts: (packets_fixed, checksums_fixed), .. } = work;
        let (facts, place) = output.finish(&input)?;
        note_cut(&found, session);
        let report = FixReport {
            input: input.facts(done.bytes),
            output: facts,
            checksums: found.packets,
            packets_fixed,
            checksums_fixed,
        };
        let is_no = session.strict && found.packets.unverifiable > 0;
        Ok(done.outcome((report, place), input, is_no))
    }
}

fn note_cut(found: &Found, session: &Session) {
    let Some((captured, original)) = found.first_cut else { return };
    let packets = units::count(found.cut_short, "packet");
    let are = if found.cut_short == 1 { "is" } else { "are" };
    session.note(format!(
        "{packets} {are} truncated ({captured} of {original} bytes): the checksums cannot be \
         verified and stay unchanged"
    ));
}

/// Verifier that counts the verdicts on a capture's checksums.
#[derive(Default)]
struct Found {
    judge: Judge,
    levels: Levels,
    packets: Verdicts,
    every: Verdicts,
    rows: Vec<Row>,
    rows_max: usize,
    rows_omitted: u64,
    cut_short: u64,
    first_cut: Option<(u64, u64)>,
    bytes: u64,
}

impl Found {
    /// Verifies and counts the checksums of a packet. Returns its headers, and whether it can be fixed. A frame that
    /// has the headers of its first segment cannot be fixed, because it stands for several packets and has no checksum
    /// of its own.
    fn look(&mut self, packet: &Packet<'_>, link: LinkType) -> (Stack, bool) {
        self.bytes += packet.data.len() as u64;
        let (said, ports, stack) = self.judge.parse(packet, link);
        let sight = Sight::new(packet, &said, &stack, link, ports);
        let is_repeated = self.judge.repeats_headers(&sight);
        let claim = self.judge.claim(&sight);
        let stack = &stack;
        judge(packet.data, packet.is_cut(), stack, claim, &mut self.levels);
        if let Some(verdict) = self.levels.worst() {
            self.packets.count(verdict);
            if verdict == Verdict::Unverifiable && packet.is_cut() {
                self.cut_short += 1;
                let lengths = (packet.data.len() as u64, u64::from(packet.original_len));
                self.first_cut.get_or_insert(lengths);
            }
        }
        self.levels.iter().for_each(|level| self.every.count(level.verdict));
        (*stack, !is_repeated)
    }

    /// Lists the partial and bad checksums of the most recently verified packet.
    fn list(&mut self, packet: &Packet<'_>, stack: &Stack) {
        for level in self.levels.iter() {
            if !matches!(level.verdict, Verdict::Partial | Verdict::Bad) {
                continue;
            }
            if self.rows.len() >= self.rows_max {
                // Bad checksums matter more, so they replace partial ones when the list is full.
                let partial = self.rows.iter().rposition(|row| row.verdict == Verdict::Partial);
                self.rows_omitted += 1;
                match partial.filter(|_| level.verdict == Verdict::Bad) {
                    Some(index) => drop(self.rows.remove(index)),
                    None => continue,
                }
            }
            self.rows.push(Row {
                packet: packet.number,
                proto: protocol(stack),
                level: place(level, &self.levels),
                found: level.found,
                expected: level.expected,
                verdict: level.verdict,
                why: level.why,
            });
        }
    }
}

/// Returns the position of a checksum among the headers: `inner`, `outer`, `header` (IPv4), or nothing if it is the
/// only one.
fn place(level: &Level, levels: &Levels) -> &'static str {
    let last = levels.iter().map(|level| level.depth).max().unwrap_or(0);
    match level.layer.kind {
        Kind::Ipv4 => "header",
        _ if last == 0 || levels.iter().filter(|l| l.layer.kind != Kind::Ipv4).count() < 2 => "",
        _ if level.depth == last => "inner",
        _ => "outer",
    }
}

struct FixWork {
    output: Output,
    only: Which,
    found: Found,
    packet: Vec<u8>,
    /// Number of changed packets and number of changed checksums.
    counts: (u64, u64),
}

impl Transform for FixWork {
    fn output(&mut self) -> &mut Output {
        &mut self.output
    }

    fn packet(&mut self, frame: Frame<'_>) -> Result<(), Failure> {
        let Frame { entry, packet, link } = frame;
        let (stack, is_one) = self.found.look(packet, link);
        let wanted = |level: &Level| match self.only {
            Which::Partial => level.verdict == Verdict::Partial,
            Which::Bad => level.verdict == Verdict::Bad,
            Which::All => matches!(level.verdict, Verdict::Partial | Verdict::Bad),
        };
        if !is_one || !self.found.levels.iter().any(wanted) {
            return self.output.copy(entry);
        }
        self.packet.clear();
        self.packet.extend_from_slice(packet.data);
        let levels = &mut self.found.levels;
        let is_cut = packet.is_cut();
        let fixed = checksums::fix(&mut self.packet, is_cut, &stack, levels, wanted);
        if fixed == 0 {
            return self.output.copy(entry);
        }
        self.counts.0 += 1;
        self.counts.1 += fixed as u64;
        self.output.write_changed(&completed(packet), &self.packet, packet)
    }
}

/// Returns the metadata of a packet after its checksums were completed, without the partial mark.
fn completed(packet: &Packet<'_>) -> PacketMeta {
    let said = packet.meta();
    let flags = said.flags.map(|flags| flags & !flag::CHECKSUM_NOT_READY);
    let offload = said.offload.map(Offload::completed).filter(|left| *left != Offload::default());
    PacketMeta { flags: flags.filter(|&flags| flags != 0), offload, ..said }
}
