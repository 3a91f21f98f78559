//! The common part of all commands that read a capture and write one, packet by packet.

use grosso_capture::{Entry, Packet};
use grosso_wire::LinkType;

use crate::{
    arguments::Files,
    error::{Exit, Failure},
    input::{Ending, Input, Next, Session, Unparsed},
    output::Output,
    report::{self, Place, Report},
    sources::Sources,
};

/// The work of a command on packets.
pub(crate) trait Transform {
    /// The capture that the packets go to.
    fn output(&mut self) -> &mut Output;

    /// Writes the result for one packet, whose link type can be parsed.
    fn packet(
        &mut self,
        entry: &Entry<'_>,
        packet: &Packet<'_>,
        link: LinkType,
    ) -> Result<(), Failure>;

    /// Notes a packet that cannot be parsed, before it is copied unchanged.
    fn unparsed(&mut self, _packet: &Packet<'_>) {}

    /// Notes that a section begins: interfaces are numbered anew.
    fn section(&mut self) {}

    /// The number of the last packet to take; those by which a file has grown since may be left out.
    fn last(&self) -> u64 {
        u64::MAX
    }
}

/// The result of a transformation.
pub(crate) struct Transformed {
    ending: Ending,
    unparsed: Unparsed,
    /// Bytes of all packets that came in.
    pub(crate) bytes: u64,
}

/// Opens the captures of a command.
pub(crate) fn open(
    files: &Files,
    command: &str,
    session: &mut Session,
) -> Result<(Sources, Input, Output), Failure> {
    let sources = files.captures.sources(command, &mut session.talk)?;
    let input = sources.input(files.keeps_hash(session), session)?;
    let format = files.format(input.reader.format());
    let output = Output::create(files.write.as_deref(), format, &input, session)?;
    Ok((sources, input, output))
}

/// Takes every packet from the input to the output; entries that cannot be parsed, or are no packets, are copied
/// unchanged.
pub(crate) fn transform(
    input: &mut Input,
    work: &mut impl Transform,
) -> Result<Transformed, Failure> {
    let mut unparsed = Unparsed::default();
    let mut bytes = 0;
    let links = input.links;
    let ending = input.each(|entry| {
        match entry {
            Entry::Packet(packet) if packet.number > work.last() => return Ok(Next::Stop),
            Entry::Packet(packet) => {
                bytes += packet.data.len() as u64;
                match links.of(packet) {
                    Some(link) => work.packet(entry, packet, link)?,
                    None => {
                        unparsed.count(packet);
                        work.unparsed(packet);
                        work.output().copy(entry)?;
                    }
                }
            }
            Entry::Block(block) => {
                if block.is_section_header() {
                    work.section();
                }
                if block.is_copyable() {
                    work.output().copy(entry)?;
                }
            }
        }
        Ok(Next::Go)
    })?;
    Ok(Transformed { ending, unparsed, bytes })
}

impl Transformed {
    /// Prints the report, and returns the exit code: the answer is no if `is_no` and nothing worse happened.
    pub(crate) fn conclude(
        self,
        (report, place): (&mut impl Report, Place),
        input: &Input,
        session: &mut Session,
        is_no: bool,
    ) -> Result<Exit, Failure> {
        report::print(report, &mut session.talk, place)?;
        let (packets, elapsed) = (input.reader.packets(), session.started.elapsed());
        report::remark_rate(&session.talk, packets, self.bytes, elapsed);
        let exit = self.ending.conclude(input, session, "processed and written")?;
        self.unparsed.conclude(input, "Packets pass through unchanged; ")?;
        Ok(if exit == Exit::Yes && is_no { Exit::No } else { exit })
    }
}
