//! The table of trains: what a receiving host would make of a capture. Every packet is in one row.

use std::sync::{Arc, atomic::AtomicBool};

use grosso::{Delivery, Sink};
use grosso_io::capture::Entry;
use grosso_wire::{LinkType, Ports, Stack, dissect_into};

use super::{Error, Headers, Visit, Words, begin, conclude, no_table, unless_interrupted};
use crate::{
    arguments::Command,
    commands::replay::{Fate, Purpose, Receiver, Replay, Seen},
    error::Failure,
    evidence::Judge,
    input::Next,
};

/// Packets that leave a coalescer as one.
#[derive(Clone, Copy, Debug)]
pub struct Train<'a> {
    /// The places of its packets in the capture, counted from 1.
    pub numbers: &'a [u64],
    /// The times of its first and last packet, if all have one.
    pub times_ns: Option<(u64, u64)>,
    /// The number of their interface.
    pub interface: u32,
    /// Packets of the wire in it: more than it has numbers if the capture holds superframes.
    pub packets: u32,
    /// Bytes of the frame that leaves.
    pub length: u64,
    /// The payload of all its packets but the last, if there are several of one size.
    pub segment_size: Option<u16>,
    /// The headers of its first packet; its payload is that of the train.
    pub headers: Headers<'a>,
    /// The reason for which it left, as `grosso coalesce` names it: `never` for a packet that passes through alone,
    /// and a name of its own for one that stays outside of the engine.
    pub closed: &'static str,
}

/// Visits the trains of captures; the words are those of `grosso coalesce`.
///
/// # Errors
///
/// Wrong words, captures that are not there, damage.
pub fn trains(
    words: &[String],
    interrupted: &Arc<AtomicBool>,
    visit: &mut dyn for<'a> Visit<Train<'a>>,
) -> Result<(), Error> {
    table(words, interrupted, visit).map_err(|failure| unless_interrupted(failure, interrupted))
}

fn table(
    words: &[String],
    interrupted: &Arc<AtomicBool>,
    visit: &mut dyn for<'a> Visit<Train<'a>>,
) -> Result<(), Failure> {
    let (arguments, mut session) = begin(words, interrupted)?;
    let Command::Coalesce(options) = &arguments.command else {
        return Err(no_table(&arguments.command, "trains"));
    };
    let sources = options.files.captures.sources("coalesce")?;
    let mut replay = Replay::new(&options.rules, Purpose::Looks)?;
    let mut judge = Judge::survey(&sources, options.known.given()?, &session)?;
    let mut input = sources.input(false, &session)?;
    if !visit.open() {
        return Ok(());
    }
    let (links, mut watcher) = (input.links, Watcher::new(visit));
    let ending = input.each(|entry| {
        match entry {
            Entry::Packet(packet) => {
                let seen = Seen::of(packet, links, Purpose::Looks, &mut judge);
                if let Fate::Aside(aside) = replay.push(&seen, &mut watcher) {
                    watcher.alone(&seen, aside.name());
                }
            }
            Entry::Block(block) if block.is_section_header() => replay.finish(&mut watcher),
            Entry::Block(_) => {}
        }
        Ok(if watcher.goes_on { Next::Go } else { Next::Stop })
    })?;
    replay.finish(&mut watcher);
    conclude(ending, &input, &mut session)
}

/// A packet on its way, with what its row wants of it.
#[derive(Debug, Default)]
struct Kept {
    data: Vec<u8>,
    number: u64,
    time_ns: u64,
    interface: u32,
    link: Option<LinkType>,
    ports: Ports,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

/// Makes rows of deliveries.
struct Watcher<'v> {
    visit: &'v mut dyn for<'a> Visit<Train<'a>>,
    goes_on: bool,
    numbers: Vec<u64>,
    words: Words,
    stack: Stack,
    free: Vec<Kept>,
}

impl<'v> Watcher<'v> {
    fn new(visit: &'v mut dyn for<'a> Visit<Train<'a>>) -> Self {
        Self {
            visit,
            goes_on: true,
            numbers: Vec::new(),
            words: Words::default(),
            stack: Stack::new(0),
            free: Vec::new(),
        }
    }

    /// Makes the row of a packet that stays outside of the engine.
    fn alone(&mut self, seen: &Seen<'_>, closed: &'static str) {
        let Self { visit, words, stack, .. } = self;
        let (packet, data) = (seen.packet, &seen.data);
        let headers = match seen.link {
            Some(link) => {
                dissect_into(data, link, &seen.ports, stack);
                words.headers(data, packet.original_len as usize, stack)
            }
            None => Headers::default(),
        };
        let row = Train {
            numbers: &[packet.number],
            times_ns: packet.timestamp_ns.map(|time| (time, time)),
            interface: packet.interface,
            packets: 1,
            length: packet.original_len.into(),
            segment_size: None,
            headers,
            closed,
        };
        self.goes_on = self.goes_on && visit.row(row);
    }
}

impl Sink<Kept> for Watcher<'_> {
    fn deliver(&mut self, mut delivery: Delivery<'_, Kept>) {
        let Self { visit, words, stack, numbers, .. } = self;
        numbers.clear();
        numbers.extend(delivery.parts().map(|part| part.buffer.number));
        let joined: usize = delivery.parts().map(|part| part.range().len()).sum();
        let ends = delivery.parts().next().zip(delivery.parts().last());
        if let Some((first, last)) = ends.map(|(first, last)| (&first.buffer, &last.buffer)) {
            let mut headers = match first.link {
                Some(link) => {
                    dissect_into(&first.data, link, &first.ports, stack);
                    words.headers(&first.data, first.data.len(), stack)
                }
                None => Headers::default(),
            };
            if delivery.is_joined() {
                headers.payload = Some(joined as u32);
            }
            let row = Train {
                numbers,
                times_ns: Some((first.time_ns, last.time_ns)),
                interface: first.interface,
                packets: delivery.packets,
                length: delivery.len as u64,
                segment_size: delivery.meta.gso.and_then(|gso| gso.size()),
                headers,
                closed: delivery.closed.name(),
            };
            self.goes_on = self.goes_on && visit.row(row);
        }
        while let Some(part) = delivery.next_part() {
            self.free.push(part.buffer);
        }
    }
}

impl Receiver<Kept> for Watcher<'_> {
    fn keep(&mut self, seen: &Seen<'_>) -> Kept {
        let mut kept = self.free.pop().unwrap_or_default();
        kept.data.clear();
        kept.data.extend_from_slice(&seen.data);
        kept.number = seen.packet.number;
        kept.time_ns = seen.time.unwrap_or(0);
        kept.interface = seen.packet.interface;
        (kept.link, kept.ports) = (seen.link, seen.ports);
        kept
    }
}
