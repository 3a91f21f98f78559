//! Contenders: Grosso or a peer that does one kind of work on one workload.

use std::time::{Duration, Instant};

use grosso_benches::{Cache, Step};

/// Program to which a contender belongs. The variants are in table order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Grosso,
    Dpdk,
    TunRs,
    WireguardGo,
    Tailscale,
    Gvisor,
    Smoltcp,
    Etherparse,
    InternetChecksum,
    /// No program: the machine only reads the bytes.
    Machine,
}

impl Peer {
    /// Peers that can be skipped with `--without`.
    pub(crate) const OTHERS: [Self; 8] = [
        Self::Dpdk,
        Self::TunRs,
        Self::WireguardGo,
        Self::Tailscale,
        Self::Gvisor,
        Self::Smoltcp,
        Self::Etherparse,
        Self::InternetChecksum,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Grosso => "grosso",
            Self::Dpdk => "dpdk",
            Self::TunRs => "tun-rs",
            Self::WireguardGo => "wireguard-go",
            Self::Tailscale => "tailscale",
            Self::Gvisor => "gvisor",
            Self::Smoltcp => "smoltcp",
            Self::Etherparse => "etherparse",
            Self::InternetChecksum => "internet-checksum",
            Self::Machine => "the machine",
        }
    }
}

/// Description of a contender, which is shown with its figures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About {
    pub(crate) peer: Peer,
    /// Name that distinguishes a peer's contenders; may be empty.
    pub(crate) variant: &'static str,
    /// Work that is included in the timed part, such as parsing, verification, copying and checksums.
    pub(crate) inside: &'static str,
    /// Whether the contender omits checksums that belong to the row's work. If so, it is not compared with the other
    /// contenders.
    pub(crate) does_less: bool,
}

impl About {
    pub(crate) const fn new(peer: Peer, variant: &'static str, inside: &'static str) -> Self {
        Self { peer, variant, inside, does_less: false }
    }

    /// Marks the contender as one that omits checksums that belong to the row's work.
    pub(crate) const fn doing_less(self) -> Self {
        Self { does_less: true, ..self }
    }

    pub(crate) fn name(&self) -> String {
        match self.variant {
            "" => self.peer.name().to_owned(),
            variant => format!("{}, {variant}", self.peer.name()),
        }
    }
}

/// One pass over a workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Round {
    /// Duration of the work in nanoseconds, excluding the time spent filling, touching and freeing buffers.
    pub(crate) ns: u64,
    /// Number of packets, fragments, segments or sums that the pass processed.
    pub(crate) packets: u64,
}

impl Round {
    pub(crate) fn ns_a_packet(self) -> f64 {
        self.ns as f64 / self.packets.max(1) as f64
    }
}

/// One peer on one workload.
pub(crate) trait Contender {
    fn about(&self) -> About;

    /// Processes the whole workload once. After an error, the contender runs no more rounds.
    fn round(&mut self) -> Result<Round, String>;

    /// Returns the output to check, as Ethernet frames. If the work is a checksum, returns its two bytes.
    fn output(&mut self) -> Result<Vec<Vec<u8>>, String>;
}

/// A contender of any kind.
pub(crate) type Boxed<'a> = Box<dyn Contender + 'a>;

/// Work that is split into timed parts, each after an untimed preparation.
pub(crate) trait Turns {
    /// Prepares the input of the next part.
    fn prepare(&mut self);

    /// Processes one part and returns the number of packets.
    fn turn(&mut self) -> usize;
}

/// A step of the benches. If requested, its frames are read into the cache before the step is timed.
pub(crate) struct Stepped<S> {
    pub(crate) step: S,
    pub(crate) cache: Cache,
}

impl<S: Step> Turns for Stepped<S> {
    fn prepare(&mut self) {
        if self.cache == Cache::Hot {
            self.step.touch();
        }
    }

    fn turn(&mut self) -> usize {
        self.step.step()
    }
}

/// A contender inside this process.
pub(crate) struct Local<'a> {
    about: About,
    turns: Box<dyn Turns + 'a>,
    /// Number of packets in one pass.
    packets: usize,
    output: Box<dyn Fn() -> Vec<Vec<u8>> + 'a>,
}

impl<'a> Local<'a> {
    /// Creates a contender that processes `packets` packets in a pass.
    pub(crate) fn boxed(
        about: About,
        turns: impl Turns + 'a,
        packets: usize,
        output: impl Fn() -> Vec<Vec<u8>> + 'a,
    ) -> Boxed<'a> {
        Box::new(Self { about, turns: Box::new(turns), packets, output: Box::new(output) })
    }
}

impl Contender for Local<'_> {
    fn about(&self) -> About {
        self.about
    }

    fn round(&mut self) -> Result<Round, String> {
        let (mut packets, mut elapsed) = (0, Duration::ZERO);
        while packets < self.packets {
            self.turns.prepare();
            let start = Instant::now();
            packets += self.turns.turn();
            elapsed += start.elapsed();
        }
        Ok(Round { ns: elapsed.as_nanos() as u64, packets: packets as u64 })
    }

    fn output(&mut self) -> Result<Vec<Vec<u8>>, String> {
        Ok((self.output)())
    }
}
