//! A wrapper that runs a reassembler with numbered buffers, and checks that every buffer is returned.

use std::ops::Range;

use grosso::{
    Frame, Meta,
    meta::Fragmented,
    reassemble::{
        Flow, IcmpError, Outcome, Reassembler, ReassemblyMode, ReassemblyRules, ReassemblyVerdict,
        Returned, Transport,
        reason::{Discard, Pass},
    },
    stats::ReassembleStats,
};
use grosso_wire::LinkType;

use crate::{engine::PORTS, session::Numbered};

/// A delivered datagram.
#[derive(Clone, Debug)]
pub struct Whole {
    /// The bytes of the datagram.
    pub bytes: Vec<u8>,
    /// The metadata of the datagram.
    pub meta: Meta,
    /// The flow of the datagram.
    pub flow: Flow,
    /// State of the transport checksum.
    pub transport: Transport,
    /// Number of fragments.
    pub fragments: u16,
    /// Length of the longest fragment.
    pub fragment_bytes_max: u16,
    /// Whether the longest fragment had DF set, so that fragments of that length must not be split.
    pub dont_fragment: bool,
    /// Description of the fragments for a forwarder.
    pub fragmented: Option<Fragmented>,
    /// The fragments and the numbers of their buffers, in a mode that preserves fragment boundaries.
    pub frames: Vec<(usize, Vec<u8>, Meta)>,
}

/// A run of one reassembler. Every push checks that nothing is lost and that no limit is exceeded.
#[derive(Debug)]
pub struct Rig {
    reassembler: Reassembler<Numbered>,
    pushed: usize,
    /// Number of times that each buffer was returned.
    back: Vec<u32>,
    /// The current time in nanoseconds.
    pub now_ns: u64,
    /// Delivered datagrams.
    pub whole: Vec<Whole>,
    /// Frames that passed through unchanged, and the reason for each.
    pub passed: Vec<(Vec<u8>, Pass)>,
    /// Forwarded fragments with the numbers of their buffers.
    pub forwarded: Vec<(usize, Vec<u8>, Flow)>,
    /// Reasons why datagrams were discarded, and the byte ranges that were missing.
    pub discarded: Vec<(Discard, Vec<Range<u32>>)>,
    /// ICMP errors to be sent, with the packets that they quote.
    pub problems: Vec<(IcmpError, Vec<u8>)>,
    /// Numbers of the returned buffers, and why they were returned.
    pub returned: Vec<(usize, Returned)>,
}

impl Rig {
    /// Creates a run for Ethernet frames.
    pub fn new(rules: ReassemblyRules) -> Self {
        Self::on(rules, LinkType::Ethernet)
    }

    /// Creates a run for frames with this link type.
    pub fn on(rules: ReassemblyRules, link: LinkType) -> Self {
        let reassembler = Reassembler::new(rules, link, PORTS, 0x5eed);
        Self {
            reassembler: reassembler.expect("rules without contradictions"),
            pushed: 0,
            back: Vec::new(),
            now_ns: 0,
            whole: Vec::new(),
            passed: Vec::new(),
            forwarded: Vec::new(),
            discarded: Vec::new(),
            problems: Vec::new(),
            returned: Vec::new(),
        }
    }

    /// Pushes a frame without metadata.
    pub fn push(&mut self, bytes: &[u8]) -> ReassemblyVerdict {
        self.push_frame(bytes, Meta::default())
    }

    /// Pushes a frame.
    pub fn push_frame(&mut self, bytes: &[u8], meta: Meta) -> ReassemblyVerdict {
        let buffer = Numbered { number: self.pushed, bytes: bytes.to_vec() };
        self.pushed += 1;
        self.back.push(0);
        let now_ns = self.now_ns;
        let verdict =
            self.run(|reassembler, sink| reassembler.push(Frame { buffer, meta }, now_ns, sink));
        self.check();
        verdict
    }

    /// Expires datagrams that are due at the current time.
    pub fn expire(&mut self) {
        let now_ns = self.now_ns;
        self.run(|reassembler, sink| reassembler.expire(now_ns, sink));
        self.check();
    }

    /// Ends the run, so that every buffer is returned.
    pub fn finish(&mut self) {
        self.run(|reassembler, sink| reassembler.finish(sink));
        self.check();
        assert_eq!((self.held_bytes(), self.reassembler.held_datagrams()), (0, 0));
        assert_eq!(self.reassembler.deadline(), None);
        assert!(self.back.iter().all(|&times| times == 1), "a buffer was lost: {:?}", self.back);
    }

    /// Returns the counters of the reassembler.
    pub fn stats(&self) -> &ReassembleStats {
        self.reassembler.stats()
    }

    /// Returns the time of the reassembler's next deadline.
    pub fn deadline(&self) -> Option<u64> {
        self.reassembler.deadline()
    }

    /// Returns how many bytes of memory the reassembler holds.
    pub fn held_bytes(&self) -> usize {
        self.reassembler.held_bytes()
    }

    /// Returns the number of datagrams that the reassembler holds.
    pub fn held_datagrams(&self) -> usize {
        self.reassembler.held_datagrams()
    }

    /// Takes the bytes of the delivered datagrams, and leaves the list empty.
    pub fn take_whole(&mut self) -> Vec<Vec<u8>> {
        self.whole.drain(..).map(|whole| whole.bytes).collect()
    }

    fn run<R>(
        &mut self,
        act: impl FnOnce(&mut Reassembler<Numbered>, &mut dyn FnMut(Outcome<'_, Numbered>)) -> R,
    ) -> R {
        let mut back = |buffer: Numbered| {
            self.back[buffer.number] += 1;
            (buffer.number, buffer.bytes)
        };
        let mut sink = |outcome: Outcome<'_, Numbered>| match outcome {
            Outcome::Passed { frame, reason } => self.passed.push((back(frame.buffer).1, reason)),
            Outcome::Datagram(mut datagram) => {
                let mut bytes = Vec::new();
                datagram.copy_to(&mut bytes);
                assert_eq!(bytes.len(), datagram.len);
                assert!(bytes.starts_with(datagram.header()));
                let mut frames = Vec::new();
                while let Some(fragment) = datagram.next_fragment() {
                    let meta = fragment.frame.meta;
                    let (number, bytes) = back(fragment.frame.buffer);
                    frames.push((number, bytes, meta));
                }
                self.whole.push(Whole {
                    bytes,
                    meta: datagram.meta,
                    flow: datagram.flow,
                    transport: datagram.transport,
                    fragments: datagram.fragments,
                    fragment_bytes_max: datagram.fragment_bytes_max,
                    dont_fragment: datagram.dont_fragment,
                    fragmented: datagram.fragmented(),
                    frames,
                });
            }
            Outcome::Fragment { frame, flow } => {
                let (number, bytes) = back(frame.buffer);
                self.forwarded.push((number, bytes, flow));
            }
            Outcome::Discarded(discarded) => {
                self.discarded.push((discarded.reason, discarded.missing().collect()));
            }
            Outcome::Problem { error, quote } => self.problems.push((error, quote.to_vec())),
            Outcome::Returned { frame, why } => {
                self.returned.push((back(frame.buffer).0, why));
            }
            other => panic!("{other:?}"),
        };
        act(&mut self.reassembler, &mut sink)
    }

    fn check(&self) {
        let reassembler = &self.reassembler;
        let limits = reassembler.rules().limits;
        assert_eq!(reassembler.stats().fragments_held(), reassembler.held_fragments() as u64);
        assert!(reassembler.held_bytes() <= limits.memory_bytes);
        assert!(reassembler.held_datagrams() <= limits.datagrams);
        let outstanding = self.back.iter().filter(|&&times| times == 0).count();
        let expected = match reassembler.rules().mode {
            ReassemblyMode::Coalesce => 0,
            ReassemblyMode::KeepGeometry | ReassemblyMode::Virtual => reassembler.held_fragments(),
        };
        assert_eq!(outstanding, expected, "buffers");
        assert!(self.back.iter().all(|&times| times <= 1), "a buffer was returned twice");
    }
}
