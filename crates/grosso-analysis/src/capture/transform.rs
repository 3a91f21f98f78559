//! The common part of all commands that read a capture and write one, packet by packet.

use grosso_capture::{Entry, Packet};
use grosso_wire::LinkType;

use super::{
    outcome::{End, EndWords, Outcome},
    read::{Ending, Input, Next, Unparsed},
    write::Output,
};
use crate::{error::Failure, report::Place};

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
    /// Returns the result of the command: the answer is no if `is_no` and nothing worse happened.
    pub(crate) fn outcome<R>(
        self,
        (report, place): (R, Place),
        input: Input,
        is_no: bool,
    ) -> Outcome<R> {
        let end = End::new(self.ending, self.unparsed, input, EndWords::WRITTEN);
        Outcome { report, place, end: end.bytes(self.bytes).no_if(is_no) }
    }
}
