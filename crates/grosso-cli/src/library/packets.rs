//! The table of packets: one row for each packet, as captured.

use std::sync::{Arc, atomic::AtomicBool};

use grosso_capture::{Entry, Offload};
use grosso_wire::{Stack, dissect_into};

use super::{Error, Visit, begin, conclude, no_table, unless_interrupted};
use crate::{
    arguments::Command,
    commands::tables::{
        FileNames, Headers, StackNames,
        packets::{FrameFinding, Packet, row},
    },
    error::Failure,
    input::Next,
    meta,
};

/// Visits the packets of captures; the arguments are those of `grosso inspect`.
///
/// # Errors
///
/// Fails if the arguments are wrong, or if a capture is missing or damaged.
pub fn packets(
    words: &[String],
    interrupted: &Arc<AtomicBool>,
    visit: &mut dyn for<'a> Visit<Packet<'a>>,
) -> Result<(), Error> {
    table(words, interrupted, visit).map_err(|failure| unless_interrupted(failure, interrupted))
}

fn table(
    words: &[String],
    interrupted: &Arc<AtomicBool>,
    visit: &mut dyn for<'a> Visit<Packet<'a>>,
) -> Result<(), Failure> {
    let (arguments, mut session) = begin(words, interrupted)?;
    let Command::Inspect(options) = &arguments.command else {
        return Err(no_table(&arguments.command, "packets"));
    };
    let given = options.known.given()?;
    let mut input =
        options.captures.sources("inspect", &mut session.talk)?.input(false, &session)?;
    if !visit.open() {
        return Ok(());
    }
    let (links, mut names, mut stack) = (input.links, StackNames::default(), Stack::new(0));
    let files = FileNames::of(&input);
    let ending = input.each(|entry| {
        let Entry::Packet(packet) = entry else { return Ok(Next::Go) };
        let said = packet.meta();
        let headers = match links.of(packet) {
            Some(link) => {
                let ports = meta::ports(&said, given.ports);
                dissect_into(packet.data, link, &ports, &mut stack);
                names.headers(packet.data, packet.original_len as usize, &stack)
            }
            None => Headers::default(),
        };
        let gso = said.offload.as_ref().and_then(|offload| offload.meta.gso);
        let row = Packet {
            segment_size: gso.and_then(|gso| gso.size()),
            packets: said.offload.as_ref().and_then(|offload| count(offload, headers.payload)),
            ..row(packet, headers, FrameFinding::default(), &files)
        };
        Ok(if visit.row(row) { Next::Go } else { Next::Stop })
    })?;
    conclude(ending, &input, &mut session)
}

/// Returns the number of wire packets in a superframe: the number that arrived, or the number that its size gives.
fn count(offload: &Offload, payload: Option<u32>) -> Option<u32> {
    let size = offload.meta.gso?.size().map(u32::from);
    match (offload.arrivals_ns.len(), offload.parts.len()) {
        (0, 0) => Some(payload?.div_ceil(size?)),
        (0, parts) => Some(parts as u32),
        (arrivals, _) => Some(arrivals as u32 + 1),
    }
}
