//! What the fuzz targets share: how bytes are read as decisions.

use grosso_testkit::{
    oracle::{Lengths, Link, State, parse, verify},
    random::Random,
    stack::Stack,
};

/// Decisions taken from the fuzzer's bytes, one after the other; zero when there are no more.
#[derive(Debug)]
pub struct Decisions<'a> {
    bytes: &'a [u8],
}

impl<'a> Decisions<'a> {
    /// Decisions from these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Whether there are no more.
    pub fn is_over(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        *first
    }

    /// The next two bytes.
    pub fn word(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    /// One of `choices`, which are not empty.
    pub fn choose<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::from(self.byte()) % choices.len()]
    }

    /// A generator whose seed is the next two bytes: few enough that the fuzzer finds its way.
    pub fn random(&mut self) -> Random {
        Random::new(self.word().into())
    }

    /// The bytes that are left.
    pub fn rest(self) -> &'a [u8] {
        self.bytes
    }
}

/// A stack of at most two tunnels over this link.
pub fn stack(decisions: &mut Decisions<'_>, link: Link) -> Stack {
    Stack::random(&mut decisions.random(), link)
}

/// Makes every checksum of a frame right that can be read, from the inside out.
pub fn complete(frame: &mut [u8], link: Link) {
    let layers = parse(frame, link, Lengths::Declared).layers;
    for (index, layer) in layers.iter().enumerate().rev() {
        let field = match layer.name {
            "ipv4" => 10,
            "tcp" => 16,
            "udp" => 6,
            "gre" => 4,
            _ => continue,
        };
        let verdicts = verify(frame, link);
        let wrong = |verdict: &&grosso_testkit::oracle::Verdict| {
            verdict.layer == index && verdict.state == State::Wrong
        };
        if let Some(verdict) = verdicts.iter().find(wrong) {
            let at = layer.offset + field;
            frame[at..at + 2].copy_from_slice(&verdict.expected.to_be_bytes());
        }
    }
}
