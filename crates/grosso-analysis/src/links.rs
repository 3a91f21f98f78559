//! The link type by which the headers of a packet are found.

use grosso_capture::Packet;
use grosso_wire::LinkType;

/// The rules by which packets are parsed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Links {
    /// Link type to use instead of the recorded one.
    pub forced: Option<LinkType>,
}

impl Links {
    /// The link type of a packet; `None` if the dissector does not know it.
    #[inline]
    pub fn of(self, packet: &Packet<'_>) -> Option<LinkType> {
        match self.forced {
            Some(link) => Some(link),
            None => LinkType::from_pcap(packet.description.link_type),
        }
    }
}
