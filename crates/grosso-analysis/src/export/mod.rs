//! `grosso export`: writes Parquet tables with a row for each wire packet, train and flow.

mod counts;
mod file;
mod merge;

use std::path::{Path, PathBuf};

use grosso_capture::{Entry, same_file};

pub use self::merge::{MergedReport, merge};
use self::{
    counts::{count_flow, count_packet, count_train},
    file::TableFile,
};
use crate::{
    capture::{
        CaptureCommand, End, EndWording, Files, Input, Next, Outcome, Session, Unparsed,
        note_others, survey,
    },
    error::Failure,
    evidence::Given,
    name::shown,
    replay::{FlowReplay, Purpose, Replay, Rules, Seen, Streams},
    report::Place,
    reports::export::{ExportReport, ExportedTable, FlowCounts, PacketCounts, TrainCounts},
    shard::Shard,
    slowdown::{Connections, FlowMark, FlowRow, SequenceEvent},
    tables::{
        FileNames, FlowColumns, FrameFinding, Packet, PacketColumns, PacketTable, TrainColumns,
        TrainRow, TrainWatcher, WireRows,
    },
};

/// Options for `grosso export`, which writes packets, trains and flows to Parquet files. A separate thread compresses
/// and writes each file.
#[derive(Clone, Debug)]
pub struct Export {
    /// File for the wire packets.
    pub parquet: Option<PathBuf>,
    /// File for the trains.
    pub trains: Option<PathBuf>,
    /// File for the flows.
    pub flows: Option<PathBuf>,
    /// Shard to export. Only rows for its flows are written.
    pub shard: Shard,
    /// Assumptions about facts that the capture does not record.
    pub given: Given,
    /// Merge rules.
    pub rules: Rules,
}

impl Export {
    /// Checks that at least one table has an output file.
    ///
    /// # Errors
    /// Fails if no table has a file.
    pub fn check(&self) -> Result<(), Failure> {
        if self.parquet.is_some() || self.trains.is_some() || self.flows.is_some() {
            return Ok(());
        }
        let hint = "grosso export FILE --parquet PACKETS.parquet --trains TRAINS.parquet";
        Err(Failure::usage("usage.output", "export: no output file").hint(hint))
    }

    /// Returns the tracker of the flows.
    fn streams(&self) -> Streams {
        let mut connections = Connections::default();
        if self.flows.is_some() {
            connections.list_all_flows();
        }
        Streams::new(connections)
    }
}

impl CaptureCommand for Export {
    type Report = ExportReport;

    fn run(self, mut files: Files, session: &Session) -> Result<Outcome<ExportReport>, Failure> {
        let options = &self;
        let mut replay = Replay::new(&options.rules, Purpose::Looks)?;
        files.captures.keep(session)?;
        let mut judge = survey(&files.captures, options.given, session)?;
        let mut input = files.input(session)?;
        refuse_one_file_for_two(options)?;
        for (_, path) in tables(options) {
            note_others(path, session);
        }
        let mut packets = PacketFile::create(options, &input)?;
        let mut trains = TrainFile::create(options, &input)?;
        let mut flows = FlowFile::create(options, &input)?;
        let mut streams = (packets.is_some() || flows.is_some()).then(|| options.streams());
        let mut take = |row: TrainRow<'_>| trains.as_mut().is_none_or(|trains| trains.take(&row));
        let mut watcher = TrainWatcher::new(FileNames::of(&input), &mut take);
        let has_trains = options.trains.is_some();
        let (mut unparsed, mut bytes, links) = (Unparsed::default(), 0, input.links);
        let ending = input.each(|entry| {
            let frame = match entry {
                Entry::Packet(frame) => frame,
                Entry::Block(block) => {
                    if has_trains && block.is_section_header() {
                        watcher.finish(&mut replay);
                    }
                    if let Some((flows, streams)) = flows.as_mut().zip(streams.as_mut())
                        && block.is_section_header()
                    {
                        flows.replay.finish(&mut streams.connections);
                    }
                    return Ok(Next::Go);
                }
            };
            bytes += frame.data.len() as u64;
            let seen = Seen::of(frame, links, Purpose::Looks, &mut judge);
            if seen.link.is_none() {
                unparsed.count(frame);
            }
            if has_trains {
                watcher.push(&mut replay, &seen);
            }
            let mut goes_on = watcher.goes_on;
            if let Some(streams) = &mut streams {
                let mark = streams.observe(frame, &seen, &judge);
                if let Some(packets) = &mut packets {
                    let event = mark.and_then(|mark| mark.event).map(SequenceEvent::name);
                    let checksum = streams.checksum();
                    let tracked = FrameFinding { checksum, event, ..FrameFinding::default() };
                    goes_on &= packets.push(&seen, tracked)?;
                }
                if let Some(flows) = &mut flows {
                    goes_on &= flows.push(&seen, mark, streams);
                }
            }
            Ok(if goes_on { Next::Go } else { Next::Stop })
        })?;
        watcher.finish(&mut replay);
        let report = ExportReport {
            input: input.facts(bytes),
            shard: options.shard,
            profile: replay.profile().name.to_string(),
            packets: packets.map(PacketFile::finish).transpose()?,
            trains: trains.map(TrainFile::finish).transpose()?,
            flows: flows.zip(streams).map(|(flows, streams)| flows.finish(streams)).transpose()?,
            elapsed_s: session.elapsed_s(),
        };
        let end = End::new(ending, unparsed, input, EndWording::TABLES).bytes(bytes);
        Ok(Outcome { report, place: Place::Standard, end })
    }
}

/// Returns the option name and file of each requested table.
fn tables(options: &Export) -> impl Iterator<Item = (&'static str, &Path)> {
    let Export { parquet, trains, flows, .. } = options;
    let all = [("--parquet", parquet), ("--trains", trains), ("--flows", flows)];
    all.into_iter().filter_map(|(option, path)| Some((option, path.as_deref()?)))
}

fn refuse_one_file_for_two(options: &Export) -> Result<(), Failure> {
    let mut before: Vec<(&str, &Path)> = Vec::new();
    for (option, path) in tables(options) {
        if let Some((other, file)) = before.iter().find(|(_, file)| leads_to_same(file, path)) {
            let message = format!("{}: {other} and {option} name the same file", shown(file));
            return Err(Failure::usage("usage.same_file", message));
        }
        before.push((option, path));
    }
    Ok(())
}

/// Returns whether two paths lead to the same file, which may not exist yet.
fn leads_to_same(one: &Path, other: &Path) -> bool {
    let is_same = |one: &Path, other: &Path| same_file(one, other).unwrap_or(false);
    let folder = |path: &Path| match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    is_same(one, other)
        || one.file_name() == other.file_name() && is_same(&folder(one), &folder(other))
}

/// Packet table.
struct PacketFile {
    file: TableFile<PacketColumns>,
    rows: WireRows,
    counts: PacketCounts,
}

impl PacketFile {
    fn create(options: &Export, input: &Input) -> Result<Option<Self>, Failure> {
        let Some(path) = &options.parquet else { return Ok(None) };
        let table = PacketTable::Wire;
        let (columns, schema) = (PacketColumns::new(table), PacketColumns::schema(table));
        let file = TableFile::create(path, "packets/1", columns, schema, input)?;
        let rows = WireRows::new(FileNames::of(input), options.shard);
        Ok(Some(Self { file, rows, counts: PacketCounts::default() }))
    }

    /// Adds the packets in a frame; returns `false` if the file accepts no more rows.
    fn push(&mut self, seen: &Seen<'_>, tracked: FrameFinding) -> Result<bool, Failure> {
        let Self { file, rows, counts } = self;
        let mut goes_on = true;
        rows.each(seen, tracked, &mut |row: Packet<'_>| {
            count_packet(counts, &row);
            goes_on = file.take(row);
        })?;
        Ok(goes_on)
    }

    fn finish(self) -> Result<ExportedTable<PacketCounts>, Failure> {
        Ok(ExportedTable { files: [self.file.finish()?], counts: self.counts })
    }
}

/// Train table.
struct TrainFile {
    file: TableFile<TrainColumns>,
    shard: Shard,
    counts: TrainCounts,
}

impl TrainFile {
    fn create(options: &Export, input: &Input) -> Result<Option<Self>, Failure> {
        let Some(path) = &options.trains else { return Ok(None) };
        let (columns, schema) = (TrainColumns::new(), TrainColumns::schema());
        let file = TableFile::create(path, "trains/1", columns, schema, input)?;
        Ok(Some(Self { file, shard: options.shard, counts: TrainCounts::default() }))
    }

    /// Adds a train; returns `false` if the file accepts no more rows.
    fn take(&mut self, row: &TrainRow<'_>) -> bool {
        if !row.headers.are_in(self.shard) {
            return true;
        }
        count_train(&mut self.counts, row);
        self.file.take(*row)
    }

    fn finish(self) -> Result<ExportedTable<TrainCounts>, Failure> {
        Ok(ExportedTable { files: [self.file.finish()?], counts: self.counts })
    }
}

/// Flow table.
struct FlowFile {
    file: TableFile<FlowColumns>,
    shard: Shard,
    counts: FlowCounts,
    replay: FlowReplay,
}

impl FlowFile {
    fn create(options: &Export, input: &Input) -> Result<Option<Self>, Failure> {
        let Some(path) = &options.flows else { return Ok(None) };
        let replay = FlowReplay::new(Replay::new(&options.rules, Purpose::Looks)?);
        let (columns, schema) = (FlowColumns::new(), FlowColumns::schema());
        let file = TableFile::create(path, "flows/1", columns, schema, input)?;
        Ok(Some(Self { file, shard: options.shard, counts: FlowCounts::default(), replay }))
    }

    /// Processes a frame of the direction `mark`; returns `false` if the file accepts no more rows.
    fn push(&mut self, seen: &Seen<'_>, mark: Option<FlowMark>, streams: &mut Streams) -> bool {
        let Self { file, shard, counts, replay } = self;
        replay.push(seen, mark, &mut streams.connections);
        streams.connections.drain_flows().all(|row| take_flow(file, *shard, counts, &row))
    }

    fn finish(self, mut streams: Streams) -> Result<ExportedTable<FlowCounts>, Failure> {
        let Self { mut file, shard, mut counts, mut replay } = self;
        replay.finish(&mut streams.connections);
        let rows = streams.conclude().flows.into_iter().flat_map(|table| table.rows);
        for row in rows {
            take_flow(&mut file, shard, &mut counts, &row);
        }
        Ok(ExportedTable { files: [file.finish()?], counts })
    }
}

/// Adds a flow that belongs to the shard; returns `false` if the file accepts no more rows.
fn take_flow(
    file: &mut TableFile<FlowColumns>,
    shard: Shard,
    counts: &mut FlowCounts,
    row: &FlowRow,
) -> bool {
    if !shard.has(Some(row.endpoints.addresses()), Some(row.endpoints.ports())) {
        return true;
    }
    count_flow(counts, row);
    file.take(row)
}
