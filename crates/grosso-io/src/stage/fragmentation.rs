//! A port that fragments and reassembles packets.

use std::io;

use grosso::{
    Frame, Meta,
    reassemble::{Reassembler, ReassemblyMode, ReassemblyRules},
    stats::ReassembleStats,
};
use grosso_wire::{Ports, ipv4};

use super::{
    joining::{Joining, counters_of_joining},
    segmenting::{Segmenting, SegmentingStats},
};
use crate::{
    buffer::PortBuffer,
    delegate_port,
    port::{Port, PortCounter, PortError, Transmitted},
};

/// Options of fragmentation and reassembly.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FragmentationOptions {
    /// Maximum length of a transmitted packet in bytes including the IP header, like the MTU in `ip link`. `None` sends
    /// packets of any length unfragmented, unless they arrived in fragments.
    pub mtu: Option<u16>,
    /// Whether to also fragment packets that exceed the reported path MTU ([`Port::path_hint`]). Set this for ports
    /// whose packets the kernel does not fragment, for example raw IPv6 sockets.
    pub follows_path: bool,
    /// Whether to fragment IPv4 packets even if DF is set. Such packets get a new identification, and DF is clear in
    /// their fragments.
    pub ignore_df: bool,
    /// Rules of reassembly; with `None`, fragments pass unchanged. With [`ReassemblyMode::KeepGeometry`], the port's
    /// buffers are held until the datagram is complete. With [`ReassemblyMode::Coalesce`] each buffer returns to the
    /// port after the call that received it.
    pub rules: Option<ReassemblyRules>,
    /// Whether reassembled datagrams record their fragment sizes ([`Meta::fragmented`]), so that the transmitting stage
    /// creates fragments of the same sizes again (rules S61, S62). Set this for a path that forwards packets.
    pub forwards: bool,
    /// UDP ports that identify tunnels.
    pub ports: Ports,
    /// Key for hashes and identifications. It should be random.
    pub seed: u64,
}

impl FragmentationOptions {
    /// Creates options for reassembly with [`ReassemblyMode::Coalesce`], without fragmentation.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            mtu: None,
            follows_path: false,
            ignore_df: false,
            rules: Some(ReassemblyRules::new(ReassemblyMode::Coalesce)),
            forwards: false,
            ports: Ports::ASSIGNED,
            seed,
        }
    }
}

/// A port that reassembles received fragments and fragments transmitted packets.
///
/// A packet that is longer than the MTU and has DF set or cannot be fragmented is dropped and counted by reason. The
/// ICMP error of RFC 1812 section 4.3.3.3 that a router would send is not sent, because the stage has no address to
/// send it from. Give senders of IPv4 packets with DF an MTU that fits, or set
/// [`ignore_df`](FragmentationOptions::ignore_df). Frames without an IP header pass at any length. A superframe passes
/// if each of its packets fits, and is segmented otherwise.
///
/// A stage that [forwards](FragmentationOptions::forwards) fragments a datagram as it arrived, with or without an MTU.
///
/// If the inner port runs out of room between the fragments of a packet, the remaining fragments are queued here and no
/// further frame is accepted until they are sent: no fragment is lost or sent twice.
#[derive(Debug)]
pub struct Fragmentation<P: Port> {
    port: P,
    joining: Option<Joining>,
    segmenting: Segmenting,
    /// The configured MTU, if packets must also fit a smaller path MTU.
    path_from: Option<u16>,
}

/// Counters of reassembly and fragmentation.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct FragmentationStats {
    /// Counters of reassembly.
    pub joined: ReassembleStats,
    /// Counters of fragmentation.
    pub cut: SegmentingStats,
}

impl FragmentationStats {
    /// Returns every counter with its description. Names follow SNMP where it defines them, for IPv4 and IPv6 together.
    pub fn counters(&self) -> impl Iterator<Item = (PortCounter, u64)> {
        counters_of_joining(&self.joined).chain(self.cut.counters())
    }
}

impl<P: Port> Fragmentation<P> {
    /// Wraps a port in a fragmentation stage.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::InvalidInput`] if the rules contradict each other, or the MTU is below the 68 bytes of
    /// RFC 791.
    pub fn new(port: P, options: &FragmentationOptions) -> io::Result<Self> {
        let FragmentationOptions { mtu, follows_path, ignore_df, ref rules, forwards, ports, seed } =
            *options;
        let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
        if let Some(mtu) = mtu
            && mtu < ipv4::MTU_MIN
        {
            return Err(invalid(format!(
                "an MTU of {mtu} is below the minimum of {} bytes",
                ipv4::MTU_MIN
            )));
        }
        let link = port.link();
        let joining = match rules {
            Some(rules) => {
                let reassembler = Reassembler::new(rules.clone(), link, ports, seed);
                let reassembler = reassembler.map_err(|error| invalid(error.to_string()))?;
                Some(Joining::new(reassembler, forwards))
            }
            None => None,
        };
        let path_from = follows_path.then_some(mtu.unwrap_or(u16::MAX));
        let segmenting = Segmenting::new(link, ports, mtu.or(path_from), ignore_df, seed);
        Ok(Self { port, joining, segmenting, path_from })
    }

    /// Returns the inner port.
    #[must_use]
    pub fn inner(&self) -> &P {
        &self.port
    }

    /// Returns mutable access to the inner port.
    pub fn inner_mut(&mut self) -> &mut P {
        &mut self.port
    }

    /// Returns the inner port and drops all held fragments.
    pub fn into_inner(self) -> P {
        self.port
    }

    /// Returns the counters so far.
    #[must_use]
    pub fn stats(&self) -> FragmentationStats {
        FragmentationStats {
            joined: self.reassemble_stats().cloned().unwrap_or_default(),
            cut: self.segmenting.stats,
        }
    }

    /// Returns the counters of reassembly, or `None` if fragments pass unchanged.
    #[must_use]
    pub fn reassemble_stats(&self) -> Option<&ReassembleStats> {
        self.joining.as_ref().map(|joining| joining.reassembler.stats())
    }

    /// Returns the memory held by incomplete datagrams in bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.joining.as_ref().map_or(0, |joining| joining.reassembler.held_bytes())
    }

    /// Returns the number of incomplete datagrams.
    #[must_use]
    pub fn held_datagrams(&self) -> usize {
        self.joining.as_ref().map_or(0, |joining| joining.reassembler.held_datagrams())
    }

    /// Returns the number of fragments of incomplete datagrams; with [`ReassemblyMode::KeepGeometry`] each fragment
    /// holds one of the port's buffers.
    #[must_use]
    pub fn held_fragments(&self) -> usize {
        self.joining.as_ref().map_or(0, |joining| joining.reassembler.held_fragments())
    }
}

impl<P: Port> Port for Fragmentation<P> {
    delegate_port!(port: link, device, descriptors, path_mtu);

    fn receive(
        &mut self,
        now_ns: u64,
        max: usize,
        each: &mut dyn FnMut(Frame<PortBuffer>),
    ) -> Result<usize, PortError> {
        match &mut self.joining {
            Some(joining) => joining.receive(&mut self.port, now_ns, max, each),
            None => self.port.receive(now_ns, max, each),
        }
    }

    fn recycle(&mut self, buffer: PortBuffer) {
        let left = match &mut self.joining {
            Some(joining) => joining.spare.give(buffer),
            None => Some(buffer),
        };
        if let Some(buffer) = left {
            self.port.recycle(buffer);
        }
    }

    fn transmit(&mut self, slices: &[&[u8]], meta: &Meta) -> Result<Transmitted, PortError> {
        if let Some(most) = self.path_from {
            let hint = self.port.path_hint().and_then(|hint| u16::try_from(hint).ok());
            self.segmenting.set_mtu(hint.map_or(most, |hint| hint.clamp(ipv4::MTU_MIN, most)));
        }
        self.segmenting.transmit(slices, meta, &mut self.port)
    }

    fn flush(&mut self) -> Result<Transmitted, PortError> {
        self.segmenting.flush(&mut self.port)
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
