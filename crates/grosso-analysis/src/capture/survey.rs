//! The first pass over a capture, in which the classifier (`Judge`) learns the flows.

use grosso_capture::Entry;
use grosso_wire::dissect;

use super::{
    Session,
    open::Captures,
    read::{Input, Next},
};
use crate::{
    error::Failure,
    evidence::{Given, Judge, Sight},
};

/// Reads the captures once to learn their flows, so that a frame can also be classified by later packets. Nothing is
/// learned from a pipe, because it can be read only once. Damage is reported in the second pass.
pub(crate) fn survey(
    sources: &Captures,
    given: Given,
    session: &Session,
) -> Result<Judge, Failure> {
    if !sources.can_repeat() {
        return Ok(Judge::new(given));
    }
    let mut input = sources.first_pass(session)?;
    survey_of(&mut input, given)
}

/// Works like [`survey`], but reads an input that is already open and at its start.
pub(crate) fn survey_of(input: &mut Input, given: Given) -> Result<Judge, Failure> {
    let mut judge = Judge::new(given);
    let links = input.links;
    let _ending = input.each(|entry| {
        let Entry::Packet(packet) = entry else { return Ok(Next::Go) };
        let Some(link) = links.of(packet) else { return Ok(Next::Go) };
        let said = packet.meta();
        let ports = judge.ports(&said);
        let stack = dissect(packet.data, link, &ports);
        judge.learn(&Sight::new(packet, &said, &stack, link, ports));
        Ok(Next::Go)
    })?;
    judge.is_surveyed = true;
    Ok(judge)
}
