//! What takes part: Grosso, or a peer, doing one kind of work on one workload.

use std::time::{Duration, Instant};

use grosso_benches::{Cache, Step};

/// Who does the work, in the order of the tables.
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
    /// No peer but the machine: what reading the bytes alone costs.
    Machine,
}

impl Peer {
    /// Those that can be left out, by name.
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

/// What is said about a contender beside its figures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About {
    pub(crate) peer: Peer,
    /// Tells two contenders of one peer apart; may be empty.
    pub(crate) variant: &'static str,
    /// What is inside the timing: parse, verify, copy, sums.
    pub(crate) inside: &'static str,
    /// Whether it leaves out checksums that the row is about, so that nobody need be faster.
    pub(crate) does_less: bool,
}

impl About {
    pub(crate) const fn new(peer: Peer, variant: &'static str, inside: &'static str) -> Self {
        Self { peer, variant, inside, does_less: false }
    }

    /// The same of a contender that leaves out checksums that the row is about.
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
    /// Nanoseconds of work; filling, touching and freeing buffers are not in it.
    pub(crate) ns: u64,
    /// Packets, fragments, segments or sums that the work was about.
    pub(crate) packets: u64,
}

impl Round {
    pub(crate) fn ns_a_packet(self) -> f64 {
        self.ns as f64 / self.packets.max(1) as f64
    }
}

/// One peer with one workload.
pub(crate) trait Contender {
    fn about(&self) -> About;

    /// Does the whole workload once. An error ends the contender's part in the run.
    fn round(&mut self) -> Result<Round, String>;

    /// The Ethernet frames that come out, to be checked; of a checksum, its two bytes.
    fn output(&mut self) -> Result<Vec<Vec<u8>>, String>;
}

/// A contender of any kind.
pub(crate) type Boxed<'a> = Box<dyn Contender + 'a>;

/// Work in turns, each with what is to be done before and not timed.
pub(crate) trait Turns {
    /// Makes ready what the next turn reads.
    fn prepare(&mut self);

    /// Does one turn. Gives the packets that it was about.
    fn turn(&mut self) -> usize;
}

/// A step of the benches, whose frames are touched before if that is wanted.
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
    /// Packets of one pass.
    packets: usize,
    output: Box<dyn Fn() -> Vec<Vec<u8>> + 'a>,
}

impl<'a> Local<'a> {
    /// A contender that does `packets` in a pass.
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
