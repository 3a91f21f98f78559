//! `grosso export`: a row for each packet of the wire, and for each train, as Parquet.

mod counts;
mod file;

use std::path::{Path, PathBuf};

use grosso_capture::{Entry, same_file};

use self::{
    counts::{count_packet, count_train},
    file::TableFile,
};
use super::{
    replay::{Purpose, Replay, Seen},
    tables::{
        FileNames,
        columns::{PacketColumns, PacketTable, TrainColumns},
        packets::Packet,
        trains::{TrainRow, TrainWatcher},
        wire::WireRows,
    },
};
use crate::{
    arguments::Export,
    error::{Exit, Failure},
    evidence::Judge,
    input::{Input, Next, Session, Unparsed},
    name::shown,
    output::note_others,
    report::{self, Place, Tool},
    reports::export::{ExportReport, ExportedTable, PacketCounts, TrainCounts},
    shard::Shard,
    survey::survey,
};

/// Runs the command.
pub(crate) fn run(options: &Export, session: &mut Session) -> Result<Exit, Failure> {
    if options.parquet.is_none() && options.trains.is_none() {
        let hint = "grosso export FILE --parquet PACKETS.parquet --trains TRAINS.parquet";
        return Err(Failure::usage("usage.output", "export: no output file").hint(hint));
    }
    let mut replay = Replay::new(&options.rules, Purpose::Looks)?;
    let mut sources = options.captures.sources("export", &mut session.talk)?;
    sources.keep(session)?;
    let mut judge = survey(&sources, options.known.given()?, session)?;
    let mut input = sources.input(session.names_hash, session)?;
    refuse_one_file_for_both(options)?;
    for path in [&options.parquet, &options.trains].into_iter().flatten() {
        note_others(path, &mut session.talk);
    }
    let mut packets = PacketFile::create(options, &input)?;
    let mut trains = TrainFile::create(options, &input)?;
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
        let goes_on = match &mut packets {
            Some(packets) => packets.push(&seen, &judge)?,
            None => true,
        };
        Ok(if goes_on && watcher.goes_on { Next::Go } else { Next::Stop })
    })?;
    watcher.finish(&mut replay);
    let mut report = ExportReport {
        schema: ExportReport::FORM.name,
        tool: Tool::THIS,
        input: input.facts(bytes),
        shard: options.shard,
        profile: replay.profile().name.to_string(),
        packets: packets.map(PacketFile::finish).transpose()?,
        trains: trains.map(TrainFile::finish).transpose()?,
        elapsed_s: session.elapsed_s(),
        warnings: Vec::new(),
    };
    report::print(&mut report, &mut session.talk, Place::Standard)?;
    let packets = report.input.packets;
    report::remark_rate(&session.talk, packets, bytes, session.started.elapsed());
    let exit = ending.conclude(&input, session, "processed and written")?;
    unparsed.conclude(&input, "Packets have rows without headers.\x20")?;
    Ok(exit)
}

fn refuse_one_file_for_both(options: &Export) -> Result<(), Failure> {
    match (&options.parquet, &options.trains) {
        (Some(packets), Some(trains)) if leads_to_same(packets, trains) => {
            let message = format!("{}: --parquet and --trains are the same file", shown(packets));
            Err(Failure::usage("usage.same_file", message))
        }
        _ => Ok(()),
    }
}

/// Whether two paths lead to one file, which need not be there yet.
fn leads_to_same(one: &Path, other: &Path) -> bool {
    let is_same = |one: &Path, other: &Path| same_file(one, other).unwrap_or(false);
    let folder = |path: &Path| match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    is_same(one, other)
        || one.file_name() == other.file_name() && is_same(&folder(one), &folder(other))
}

/// The table of packets.
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

    /// Takes the packets of a frame; `false` if the file takes no more.
    fn push(&mut self, seen: &Seen<'_>, judge: &Judge) -> Result<bool, Failure> {
        let Self { file, rows, counts } = self;
        let mut goes_on = true;
        rows.each(seen, judge, &mut |row: Packet<'_>| {
            count_packet(counts, &row);
            goes_on = file.take(row);
        })?;
        Ok(goes_on)
    }

    fn finish(self) -> Result<ExportedTable<PacketCounts>, Failure> {
        Ok(ExportedTable { files: [self.file.finish()?], counts: self.counts })
    }
}

/// The table of trains.
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

    /// Takes a train; `false` if the file takes no more.
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
