//! The receiving half of the fragmentation stage, which reassembles fragments.

use std::{collections::VecDeque, sync::LazyLock};

use grosso::{
    Frame,
    reassemble::{Outcome, Reassembler, reason::Discard},
    stats::ReassembleStats,
};

use crate::{
    buffer::{PortBuffer, Spare},
    port::{Port, PortCounter, PortError},
};

/// Reassembler for the fragments that a port receives.
#[derive(Debug)]
pub(super) struct Joining {
    pub(super) reassembler: Reassembler<PortBuffer>,
    /// Whether datagrams record the sizes of the fragments that they arrived in.
    forwards: bool,
    pub(super) spare: Spare,
    /// Buffers to return to the port after its current call has returned.
    returned: Vec<PortBuffer>,
    /// Frames beyond the number requested. They occur only with
    /// [`Virtual`](grosso::reassemble::ReassemblyMode::Virtual), where one fragment can release others.
    ready: VecDeque<Frame<PortBuffer>>,
    /// Whether the last call returned as many frames as requested, in which case the port may have more.
    more: bool,
}

impl Joining {
    pub(super) fn new(reassembler: Reassembler<PortBuffer>, forwards: bool) -> Self {
        let (returned, ready) = (Vec::new(), VecDeque::new());
        Self { reassembler, forwards, spare: Spare::default(), returned, ready, more: false }
    }

    /// Receives at most `max` complete frames, and expires old incomplete datagrams.
    pub(super) fn receive(
        &mut self,
        port: &mut impl Port,
        now_ns: u64,
        max: usize,
        each: &mut dyn FnMut(Frame<PortBuffer>),
    ) -> Result<usize, PortError> {
        let Self { reassembler, forwards, spare, returned, ready, more } = self;
        let mut given = 0;
        while given < max
            && let Some(frame) = ready.pop_front()
        {
            each(frame);
            given += 1;
        }
        let asked = max - given;
        let mut give = |frame: Frame<PortBuffer>| {
            if given < max {
                each(frame);
                given += 1;
            } else {
                ready.push_back(frame);
            }
        };
        let mut sink = |outcome: Outcome<'_, PortBuffer>| match outcome {
            Outcome::Passed { frame, .. } | Outcome::Fragment { frame, .. } => {
                give(frame);
            }
            Outcome::Datagram(mut datagram) => {
                let (mut bytes, mut meta) = (spare.take(), datagram.meta);
                meta.fragmented = datagram.fragmented().filter(|_| *forwards);
                datagram.copy_to(&mut bytes);
                while let Some(fragment) = datagram.next_fragment() {
                    returned.push(fragment.frame.buffer);
                }
                give(Frame { buffer: PortBuffer::made_whole(bytes), meta });
            }
            Outcome::Returned { frame, .. } => returned.push(frame.buffer),
            // The stage cannot send an ICMP error, because it has no address.
            _ => {}
        };
        reassembler.expire(now_ns, &mut sink);
        let result = port.receive(now_ns, asked, &mut |frame| {
            reassembler.push(frame, now_ns, &mut sink);
        });
        returned.drain(..).for_each(|buffer| port.recycle(buffer));
        *more = result? == asked;
        Ok(given)
    }

    /// Returns the time of the next expiry in nanoseconds. Returns 0 (immediately) while frames are ready or the port
    /// may have more frames, because its descriptor may not become readable again for them.
    pub(super) fn deadline(&self) -> Option<u64> {
        if self.more || !self.ready.is_empty() { Some(0) } else { self.reassembler.deadline() }
    }

    pub(super) fn has_more(&self) -> bool {
        !self.ready.is_empty()
    }
}

/// Returns the counters of a reassembler: the SNMP counters, and lost fragments by reason.
pub(super) fn counters_of_joining(
    stats: &ReassembleStats,
) -> impl Iterator<Item = (PortCounter, u64)> {
    let event = |name, sentence| PortCounter { name, is_loss: false, sentence };
    let discarded: u64 = stats.datagrams_discarded.iter().sum();
    let timeouts = stats.datagrams_discarded[Discard::Timeout.index()];
    let events = [
        (event("ip_reasm_reqds", "A fragment was received for reassembly."), stats.fragments_in),
        (event("ip_reasm_oks", "A datagram was reassembled from its fragments."), stats.datagrams),
        (event("ip_reasm_fails", "An incomplete datagram was dropped."), discarded),
        (
            event(
                "ip_reasm_timeout",
                "An incomplete datagram was dropped because the reassembly timeout expired.",
            ),
            timeouts,
        ),
        (event("reasm_duplicate", "A duplicate fragment was ignored."), stats.duplicates),
    ];
    let lost: Vec<_> = DISCARDS.iter().copied().zip(stats.fragments_discarded).collect();
    events.into_iter().chain(lost)
}

/// Counters of lost fragments, by reason.
static DISCARDS: LazyLock<Vec<PortCounter>> = LazyLock::new(|| {
    let counter = |reason: &Discard| PortCounter {
        name: format!("reasm_{}", reason.name()).leak(),
        is_loss: true,
        sentence: format!("A fragment was discarded: {}", reason.sentence()).leak(),
    };
    Discard::ALL.iter().map(counter).collect()
});
