//! The loop shared by all commands that convert one capture to another, packet by packet.

use grosso_capture::{Entry, Packet};
use grosso_wire::LinkType;

use super::{
    outcome::{End, EndWording, Outcome},
    read::{Ending, Input, Next, Unparsed},
    write::Output,
};
use crate::{error::Failure, report::Place};

/// Packet with a supported link type.
#[derive(Clone, Copy)]
pub(crate) struct Frame<'a> {
    /// The packet's entry in the capture, for copying it unchanged.
    pub(crate) entry: &'a Entry<'a>,
    pub(crate) packet: &'a Packet<'a>,
    pub(crate) link: LinkType,
}

/// Command that converts a capture one packet at a time.
pub(crate) trait Transform {
    /// Returns the output capture.
    fn output(&mut self) -> &mut Output;

    /// Writes the result for one packet with a supported link type.
    fn packet(&mut self, frame: Frame<'_>) -> Result<(), Failure>;

    /// Handles a packet that cannot be parsed, before it is copied unchanged.
    fn unparsed(&mut self, _packet: &Packet<'_>) {}

    /// Handles the start of a section, in which interface numbers start over at 0.
    fn section(&mut self) {}

    /// Returns the number of the last packet to process. Packets that were appended to the file after the first pass
    /// may be ignored.
    fn last(&self) -> u64 {
        u64::MAX
    }
}

/// Result of a transformation.
pub(crate) struct Transformed {
    ending: Ending,
    unparsed: Unparsed,
    /// Total length of all input packets in bytes.
    pub(crate) bytes: u64,
}

/// Processes every packet of the input. Packets that cannot be parsed, and entries that are not packets, are copied
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
                    Some(link) => work.packet(Frame { entry, packet, link })?,
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
    /// Returns the command's result. The exit status is "no" if `is_no` is set and reading did not fail.
    pub(crate) fn outcome<R>(
        self,
        (report, place): (R, Place),
        input: Input,
        is_no: bool,
    ) -> Outcome<R> {
        let end = End::new(self.ending, self.unparsed, input, EndWording::WRITTEN);
        Outcome { report, place, end: end.bytes(self.bytes).no_if(is_no) }
    }
}
