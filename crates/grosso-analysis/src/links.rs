//! Link type used to parse a packet.

use grosso_capture::Packet;
use grosso_wire::LinkType;

/// Choice of the link type for parsing packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Links {
    /// Link type to use instead of the recorded one.
    pub forced: Option<LinkType>,
}

impl Links {
    /// Returns the link type of a packet; `None` if the dissector does not support that type.
    #[inline]
    pub fn of(self, packet: &Packet<'_>) -> Option<LinkType> {
        match self.forced {
            Some(link) => Some(link),
            None => LinkType::from_pcap(packet.description.link_type),
        }
    }
}
