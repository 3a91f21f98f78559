//! A parsed frame, as input to the classifier.

use grosso::meta::{Gso, GsoSize};
use grosso_capture::{Offload, Packet, PacketMeta};
use grosso_wire::{Kind, LinkType, Ports, Stack};

use crate::{
    checksums::{self, Levels, Verdict, Why, is_seeded, is_seeded_without_length},
    headers::{Endpoints, Transport},
    meta,
};

/// Parsed frame.
pub struct Sight<'a> {
    /// Packet as captured.
    pub packet: &'a Packet<'a>,
    /// Metadata that the capture recorded.
    pub said: &'a PacketMeta,
    /// Headers of the frame.
    pub stack: &'a Stack,
    /// Type of the outermost header.
    pub link: LinkType,
    /// UDP ports that identify tunnels.
    pub ports: Ports,
    /// Innermost transport header, if the packet has one.
    pub transport: Option<Transport>,
    /// Flow of the packet.
    pub endpoints: Endpoints,
}

impl<'a> Sight<'a> {
    /// Parses a frame. `ports` are the UDP ports that identify tunnels.
    pub fn new(
        packet: &'a Packet<'a>,
        said: &'a PacketMeta,
        stack: &'a Stack,
        link: LinkType,
        ports: Ports,
    ) -> Self {
        let transport = Transport::of(stack, packet.data.len());
        let endpoints = transport.map(|t| t.endpoints(packet.data, stack)).unwrap_or_default();
        Self { packet, said, stack, link, ports, transport, endpoints }
    }

    /// Returns the segmentation recorded in the capture.
    pub(super) fn recorded(&self) -> Option<(&Offload, Gso)> {
        let offload = self.said.offload.as_ref()?;
        Some((offload, offload.meta.gso.filter(|gso| gso.size != GsoSize::Unknown)?))
    }
}

/// State of a frame's innermost transport checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seal {
    /// The checksum is complete and valid.
    Valid,
    /// The checksum is complete but wrong.
    Wrong,
    /// The checksum is complete but valid only for the first packet of the frame. The value is an upper limit on that
    /// packet's payload in bytes.
    Prefix(u16),
    /// The field holds the pseudo-header sum.
    Seed,
    /// The checksum is valid, but also equals the pseudo-header sum. By chance, this is true of one packet in 65,536.
    Either,
    /// There is no checksum, because UDP omits it or there is no transport header.
    Absent,
    /// The field does not hold the pseudo-header sum and cannot be verified, because some of the covered bytes were not
    /// captured.
    Unread,
}

/// Returns the state of the frame's innermost transport checksum.
pub(super) fn seal(sight: &Sight<'_>, levels: &mut Levels) -> Seal {
    let Sight { packet, said, stack, .. } = sight;
    let claim = meta::claim(said, stack);
    let is_seeded = is_seeded(packet.data, stack) || is_seeded_without_length(packet.data, stack);
    checksums::judge(packet.data, packet.is_cut(), stack, claim, levels);
    let prefix = levels.prefix;
    let mut transports = levels.iter().rev().filter(|level| level.layer.kind != Kind::Ipv4);
    let Some(innermost) = transports.next() else { return Seal::Absent };
    match (innermost.verdict, innermost.why) {
        (Verdict::ZeroUdp, _) => Seal::Absent,
        (Verdict::Unverifiable, _) if is_seeded => Seal::Seed,
        (Verdict::Unverifiable | Verdict::NotVerified, _) => Seal::Unread,
        (Verdict::Partial, _) => Seal::Seed,
        (Verdict::Bad, _) => Seal::Wrong,
        (Verdict::Valid, Why::Prefix) => {
            prefix.and_then(|size| u16::try_from(size).ok()).map_or(Seal::Wrong, Seal::Prefix)
        }
        // The tunnel's checksum protects the packet (rule C54).
        (Verdict::Valid, Why::Remote)
            if transports.any(|around| around.verdict == Verdict::Valid) =>
        {
            Seal::Valid
        }
        (Verdict::Valid, Why::Remote) => Seal::Seed,
        (Verdict::Valid, _) if is_seeded => Seal::Either,
        (Verdict::Valid, _) => Seal::Valid,
    }
}
