//! Determines the segment size of a TCP frame from the strongest evidence.

use super::{
    Evidence, MTU_DEFAULT, MTU_JUMBO, SEGMENT_BYTES_MIN, Size,
    flows::{Era, Flow, Flows},
    judgment::Contradiction,
    lengths::Opinion,
    sight::Sight,
};
use crate::headers::Transport;

/// Evidence for the segment size of one TCP frame.
pub(super) struct Tcp {
    payload: usize,
    era: Era,
    /// MSS that the sender announced, minus the length of the TCP options that it sends (RFC 6691 section 2). Suggests
    /// the sender's MTU.
    own: Option<usize>,
    /// MSS that the peer announced, minus the length of the options. This is the maximum payload of a segment.
    peer: Option<usize>,
    /// Maximum payload per packet according to the path MTU, in bytes.
    path: Option<usize>,
    /// Maximum payload of a packet at an MTU of 1500: outside all tunnels, and inside the innermost tunnel.
    guesses: [usize; 2],
    /// Whether the frame may belong to a different era of the flow, with a different segment size.
    is_between_eras: bool,
    /// Whether the flow has frames that are too long for Ethernet.
    has_long: bool,
}

impl Tcp {
    pub(super) fn new(flows: &Flows, sight: &Sight<'_>, transport: &Transport) -> Self {
        let number = sight.packet.number;
        let flow = flows.get(&sight.endpoints);
        let reverse = flows.get(&sight.endpoints.reversed());
        let era = flow.map(|flow| *flow.era(number)).unwrap_or_default();
        let announced = |flow: Option<&Flow>| {
            let mss = flow.and_then(|flow| flow.announced)?;
            Some(usize::from(mss).saturating_sub(transport.options()).max(1))
        };
        let (outer, inner) = (transport.overhead(), transport.inner_overhead());
        Self {
            payload: transport.payload,
            era,
            own: announced(flow),
            peer: announced(reverse),
            path: era.path_mtu.map(|mtu| usize::from(mtu).saturating_sub(inner).max(1)),
            guesses: [outer, inner].map(|headers| MTU_DEFAULT.saturating_sub(headers).max(1)),
            is_between_eras: flow.is_some_and(|flow| flow.is_between_eras(number)),
            has_long: flow.is_some_and(|flow| flow.has_long),
        }
    }

    /// Returns the largest payload that packets of the flow may have at this time, from the strongest evidence.
    pub(super) fn size(&self) -> Size {
        let sizes = [self.by_identifications(), self.by_icmp(), self.by_syn(), self.by_plain()];
        let size = sizes.into_iter().flatten().next().unwrap_or_else(|| self.by_guess());
        Size { is_guess: size.is_guess || self.is_between_eras, ..size }
    }

    fn by_identifications(&self) -> Option<Size> {
        let [outer, inner] = self.guesses.map(Some);
        let likely =
            [self.expected(), self.path, self.peer, self.own, self.packet_max(), outer, inner];
        let told = self.era.identifications.size(&likely, |size| self.is_shown(size))?;
        if !self.may_be_by_identifications(told.bytes.into()) {
            return None;
        }
        let is_expected = self.expected() == Some(usize::from(told.bytes));
        let by = match (is_expected, self.path == self.expected()) {
            (true, true) => Evidence::Icmp,
            (true, false) => Evidence::Syn,
            (false, _) => Evidence::IpId,
        };
        Some(Size { bytes: told.bytes, by, is_guess: !told.is_sure && by != Evidence::Icmp })
    }

    /// Returns whether IP IDs alone are sufficient evidence of a size. They are never sufficient for a size smaller
    /// than an observed packet. For a size smaller than the SYNs or a common MTU allow, they are sufficient only if
    /// longer superframes are multiples of it, because packets missing from the capture may have used some of the IDs.
    fn may_be_by_identifications(&self, size: usize) -> bool {
        let usual = || self.guesses.into_iter().min().unwrap_or(0);
        let least = self.expected().unwrap_or_else(usual);
        let Era { lengths, ends, .. } = &self.era;
        let multiples =
            || lengths.multiples_beyond(least, size) + ends.multiples_beyond(least, size);
        size >= self.era.packet_max()
            && (size >= least || self.is_shown_by_lengths(size) && multiples() >= MULTIPLES_MIN)
    }

    fn by_icmp(&self) -> Option<Size> {
        let path = self.path.filter(|&path| self.expected() == Some(path))?;
        let is_guess = self.era.packet_max() > path || self.opinion(path) == Opinion::Others;
        Some(sized(path, Evidence::Icmp, is_guess))
    }

    /// Returns the size according to the announcements. The peer's MSS is an upper limit, and the sender's own MSS
    /// suggests its MTU. Only superframes made of whole segments show which of the two is in use.
    fn by_syn(&self) -> Option<Size> {
        let announced = self.announced()?;
        let is_refuted =
            |size| size < self.era.packet_max() || self.opinion(size) == Opinion::Others;
        let peer = self.peer.filter(|&peer| peer > announced && self.is_shown(peer));
        let size = match peer {
            Some(peer) if !self.is_shown(announced) && !is_refuted(peer) => peer,
            _ if is_refuted(announced) => self.peer.filter(|&peer| !is_refuted(peer))?,
            _ => announced,
        };
        Some(sized(size, Evidence::Syn, !self.is_shown(size)))
    }

    /// Returns whether frames confirm a size: one was a packet of that size, or several are multiples of it.
    fn is_shown(&self, size: usize) -> bool {
        size == self.era.packet_max() || self.is_shown_by_lengths(size)
    }

    /// Returns whether the lengths of superframes are multiples of a size.
    fn is_shown_by_lengths(&self, size: usize) -> bool {
        let multiples = self.era.lengths.multiples(size) + self.era.ends.multiples(size);
        self.opinion(size) == Opinion::Multiples
            || self.opinion(size) != Opinion::Others && multiples >= MULTIPLES_MIN
    }

    /// Returns the segment size suggested by other frames in the same direction: the size of the largest packet if it
    /// divides the lengths of the superframes, otherwise another size that divides them.
    fn by_plain(&self) -> Option<Size> {
        let packet = self.packet_max();
        if let Some(packet) = packet.filter(|&packet| self.opinion(packet) == Opinion::Multiples) {
            return Some(sized(packet, Evidence::PlainSegments, false));
        }
        let least = packet.unwrap_or(0);
        let fits = |size: &usize| *size >= least && self.opinion(*size) == Opinion::Multiples;
        if let Some(guess) = self.guesses.into_iter().find(fits) {
            return Some(sized(guess, Evidence::Mtu, true));
        }
        let divisor = self.era.lengths.divisor().filter(|size| (least..=MTU_JUMBO).contains(size));
        divisor.map(|size| sized(size, Evidence::PlainSegments, true))
    }

    fn by_guess(&self) -> Size {
        let [outer, inner] = self.guesses;
        let packet = self.packet_max().unwrap_or(0);
        if let Some(announced) = self.announced().filter(|&announced| announced >= packet) {
            return sized(announced, Evidence::Syn, true);
        }
        if packet > outer {
            return sized(packet, Evidence::PlainSegments, true);
        }
        let bytes = if self.payload <= inner { inner } else { outer };
        sized(bytes, Evidence::Mtu, true)
    }

    /// Returns the limit that no packet should exceed. ICMP messages set no limit, because they do not apply to packets
    /// sent before the sender obeyed them.
    pub(super) fn limit(&self) -> Option<Contradiction> {
        let bytes = u16::try_from(self.peer?).ok();
        Some(Contradiction { by: Evidence::Syn, bytes })
    }

    /// Returns the limit that contradicts a size supported by stronger evidence.
    pub(super) fn against(&self, size: &Size) -> Option<Contradiction> {
        self.limit().filter(|limit| limit.is_exceeded(size.bytes.into()))
    }

    /// Returns whether most frames are as long as this one and none is longer, while the length is not a multiple of a
    /// guessed size. The link then uses jumbo frames.
    pub(super) fn is_plateau(&self, size: &Size) -> bool {
        size.by == Evidence::Mtu
            && self.payload <= MTU_JUMBO
            && self.era.lengths.plateau().is_some_and(|longest| self.payload <= longest)
            && self.opinion(size.bytes.into()) == Opinion::Others
    }

    /// Returns the largest payload that counts as one packet even if the size is only a guess: one that fits an MTU of
    /// 1500, on the link or inside the tunnel. If the flow has superframes that do not consist of such packets, the
    /// limit is the longest known packet.
    pub(super) fn beyond_doubt(&self) -> usize {
        let usual = self.guesses.into_iter().max().unwrap_or(0);
        if self.has_long && !self.guesses.into_iter().any(|size| self.is_shown(size)) {
            return usual.min(self.era.packet_max().max(SEGMENT_BYTES_MIN));
        }
        usual
    }

    /// Returns whether a frame of at least this length is known to have been a single wire packet.
    pub(super) fn is_known_packet(&self) -> bool {
        self.payload <= self.era.packet_max()
    }

    fn opinion(&self, size: usize) -> Opinion {
        self.era.lengths.opinion(size)
    }

    fn announced(&self) -> Option<usize> {
        self.own.into_iter().chain(self.peer).min()
    }

    fn expected(&self) -> Option<usize> {
        self.announced().into_iter().chain(self.path).min()
    }

    fn packet_max(&self) -> Option<usize> {
        Some(self.era.packet_max()).filter(|&packet| packet >= SEGMENT_BYTES_MIN)
    }
}

fn sized(bytes: usize, by: Evidence, is_guess: bool) -> Size {
    Size { bytes: u16::try_from(bytes).unwrap_or(u16::MAX), by, is_guess }
}

/// Number of superframes that must be multiples of a size to confirm it, regardless of the other superframes. Each is a
/// multiple by chance about once in a thousand cases.
const MULTIPLES_MIN: u64 = 2;
