//! Fragments joined and made, as a port.

use std::io;

use grosso::{
    Frame, Meta,
    reassemble::{Mode, Reassembler, Rules},
    stats::ReassembleStats,
};
use grosso_wire::Ports;

use super::{
    StageBuffer,
    cutting::{Cutting, CuttingStats},
    joining::{Joining, counters_of_joining},
};
use crate::{
    delegate_port,
    port::{Port, PortCounter, PortError, Transmitted},
};

/// How fragments are joined and made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FragmentationOptions {
    /// Most bytes of a packet to send, from its IP header on, as `ip link` counts; `None` sends any
    /// length whole.
    pub mtu: Option<u16>,
    /// Whether IPv4 packets that forbid fragments are made into some all the same. They get another
    /// identification, and their fragments do not forbid it any more.
    pub ignore_df: bool,
    /// How fragments are joined; `None` lets them pass. With [`Mode::KeepGeometry`] the port's
    /// buffers are held until the datagram is whole, which then is delivered in one piece; with
    /// [`Mode::Coalesce`] each goes back to the port as soon as its receive call is over.
    pub rules: Option<Rules>,
    /// The UDP ports that mean a tunnel.
    pub ports: Ports,
    /// Keys hashes and identifications; should be random.
    pub seed: u64,
}

impl FragmentationOptions {
    /// Fragments are joined by [`Mode::Coalesce`], and none are made.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            mtu: None,
            ignore_df: false,
            rules: Some(Rules::new(Mode::Coalesce)),
            ports: Ports::ASSIGNED,
            seed,
        }
    }
}

/// A port that joins the fragments that it receives and makes fragments of what it sends.
///
/// A packet longer than the MTU that cannot be made into fragments, or forbids it, is dropped and
/// counted by reason, as a router drops it; the ICMP error of RFC 1812 section 4.3.3.3 is not sent,
/// for the stage has no address to send it from. Who sends IPv4 with DF over it needs an MTU that
/// fits, or [`ignore_df`](FragmentationOptions::ignore_df). Frames without an IP header pass,
/// whatever their length. A superframe passes as long as each of its packets fits, else it is cut.
///
/// Once the port behind has no room in the middle of a packet, the rest of its fragments waits here
/// and nothing more is taken until they are gone: no fragment is lost or sent twice.
#[derive(Debug)]
pub struct Fragmentation<P: Port> {
    port: P,
    joining: Option<Joining<P::Buffer>>,
    cutting: Option<Cutting>,
}

/// What became of fragments and of what was longer than the MTU.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct FragmentationStats {
    /// What was joined.
    pub joined: ReassembleStats,
    /// What was cut.
    pub cut: CuttingStats,
}

impl FragmentationStats {
    /// Every counter with what it is; the names of SNMP where it has them, for IPv4 and IPv6
    /// together.
    pub fn counters(&self) -> impl Iterator<Item = (PortCounter, u64)> {
        counters_of_joining(&self.joined).chain(self.cut.counters())
    }
}

impl<P: Port> Fragmentation<P> {
    /// Puts the stage in front of a port.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] when the rules contradict themselves, or the MTU is below the
    /// 68 bytes of RFC 791.
    pub fn new(port: P, options: &FragmentationOptions) -> io::Result<Self> {
        let FragmentationOptions { mtu, ignore_df, ref rules, ports, seed } = *options;
        let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
        if let Some(mtu) = mtu
            && mtu < MTU_MIN
        {
            return Err(invalid(format!("an MTU of {mtu} is less than {MTU_MIN} bytes")));
        }
        let link = port.link();
        let joining = match rules {
            Some(rules) => {
                let reassembler = Reassembler::new(rules.clone(), link, ports, seed);
                Some(Joining::new(reassembler.map_err(|error| invalid(error.to_string()))?))
            }
            None => None,
        };
        let cutting = mtu.map(|mtu| Cutting::new(link, ports, mtu, ignore_df, seed));
        Ok(Self { port, joining, cutting })
    }

    /// The port behind.
    #[must_use]
    pub fn inner(&self) -> &P {
        &self.port
    }

    /// The port behind, to be changed.
    pub fn inner_mut(&mut self) -> &mut P {
        &mut self.port
    }

    /// Takes the port out of the stage, and drops what the stage holds.
    pub fn into_inner(self) -> P {
        self.port
    }

    /// What was done so far.
    #[must_use]
    pub fn stats(&self) -> FragmentationStats {
        FragmentationStats {
            joined: self.reassemble_stats().cloned().unwrap_or_default(),
            cut: self.cutting.as_ref().map(|cutting| cutting.stats).unwrap_or_default(),
        }
    }

    /// What was joined so far; `None` where fragments pass.
    #[must_use]
    pub fn reassemble_stats(&self) -> Option<&ReassembleStats> {
        self.joining.as_ref().map(|joining| joining.reassembler.stats())
    }

    /// Memory that incomplete datagrams take now, in bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.joining.as_ref().map_or(0, |joining| joining.reassembler.held_bytes())
    }

    /// Incomplete datagrams now.
    #[must_use]
    pub fn held_datagrams(&self) -> usize {
        self.joining.as_ref().map_or(0, |joining| joining.reassembler.held_datagrams())
    }

    /// Fragments of incomplete datagrams now; with [`Mode::KeepGeometry`] each holds a buffer of the
    /// port.
    #[must_use]
    pub fn held_fragments(&self) -> usize {
        self.joining.as_ref().map_or(0, |joining| joining.reassembler.held_fragments())
    }
}

impl<P: Port> Port for Fragmentation<P> {
    type Buffer = StageBuffer<P::Buffer>;

    delegate_port!(port: link, device, descriptors, path_mtu);

    fn receive(
        &mut self,
        now_ns: u64,
        max: usize,
        each: &mut dyn FnMut(Frame<Self::Buffer>),
    ) -> Result<usize, PortError> {
        match &mut self.joining {
            Some(joining) => joining.receive(&mut self.port, now_ns, max, each),
            None => self.port.receive(now_ns, max, &mut |frame| {
                each(Frame { buffer: StageBuffer::Original(frame.buffer), meta: frame.meta });
            }),
        }
    }

    fn recycle(&mut self, buffer: Self::Buffer) {
        match (buffer, &mut self.joining) {
            (StageBuffer::Original(buffer) | StageBuffer::Part(buffer, _), _) => {
                self.port.recycle(buffer);
            }
            (StageBuffer::Made(made), Some(joining)) => joining.spare.give(made),
            (StageBuffer::Made(_), None) => {}
        }
    }

    fn transmit(&mut self, slices: &[&[u8]], meta: &Meta) -> Result<Transmitted, PortError> {
        match &mut self.cutting {
            Some(cutting) => cutting.transmit(slices, meta, &mut self.port),
            None => self.port.transmit(slices, meta),
        }
    }

    fn flush(&mut self) -> Result<Transmitted, PortError> {
        match &mut self.cutting {
            Some(cutting) => cutting.flush(&mut self.port),
            None => self.port.flush(),
        }
    }

    fn deadline(&self) -> Option<u64> {
        let joining = self.joining.as_ref().and_then(Joining::deadline);
        [self.port.deadline(), joining].into_iter().flatten().min()
    }

    fn counters(&mut self, each: &mut dyn FnMut(PortCounter, u64)) {
        self.port.counters(each);
        let stats = self.stats();
        stats.counters().for_each(|(counter, value)| each(counter, value));
    }

    fn is_finished(&self) -> bool {
        let has_more = self.joining.as_ref().is_some_and(Joining::has_more);
        self.port.is_finished() && !has_more
    }
}

/// The least MTU of IPv4 (RFC 791 section 3.2).
const MTU_MIN: u16 = 68;
