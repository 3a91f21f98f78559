//! Link type of a frame, and its number in capture files.

use core::fmt;

/// Format of the first header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LinkType {
    /// Ethernet II.
    Ethernet,
    /// IPv4 or IPv6 without a link-layer header, distinguished by the version field.
    Raw,
    /// BSD loopback: 4 bytes of address family, accepted in either byte order.
    Null,
    /// Linux cooked capture, as written by `tcpdump -i any`.
    LinuxSll,
    /// Linux cooked capture version 2.
    LinuxSll2,
    /// PPP, with or without the address and control fields of HDLC.
    Ppp,
    /// PPPoE session header.
    PppEther,
}

impl LinkType {
    /// Returns the link type for a `LINKTYPE_` number of a capture file, or `None` if the number is not supported.
    ///
    /// 12 and 14 are `DLT_RAW` on some systems, 108 is OpenBSD loopback (the same header in network byte order), 228
    /// and 229 are raw IPv4 and raw IPv6, and 50 is PPP that always has the HDLC fields.
    pub const fn from_pcap(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::Ethernet),
            12 | 14 | 101 | 228 | 229 => Some(Self::Raw),
            0 | 108 => Some(Self::Null),
            113 => Some(Self::LinuxSll),
            276 => Some(Self::LinuxSll2),
            9 | 50 => Some(Self::Ppp),
            51 => Some(Self::PppEther),
            _ => None,
        }
    }

    /// Returns the `LINKTYPE_` number for capture files.
    pub const fn to_pcap(self) -> u32 {
        match self {
            Self::Ethernet => 1,
            Self::Raw => 101,
            Self::Null => 0,
            Self::LinuxSll => 113,
            Self::LinuxSll2 => 276,
            Self::Ppp => 9,
            Self::PppEther => 51,
        }
    }
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ethernet => "Ethernet",
            Self::Raw => "RAW",
            Self::Null => "NULL",
            Self::LinuxSll => "LINUX_SLL",
            Self::LinuxSll2 => "LINUX_SLL2",
            Self::Ppp => "PPP",
            Self::PppEther => "PPP_ETHER",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [LinkType; 7] = [
        LinkType::Ethernet,
        LinkType::Raw,
        LinkType::Null,
        LinkType::LinuxSll,
        LinkType::LinuxSll2,
        LinkType::Ppp,
        LinkType::PppEther,
    ];

    #[test]
    fn numbers_are_those_of_the_tcpdump_group() {
        assert_eq!(ALL.map(LinkType::to_pcap), [1, 101, 0, 113, 276, 9, 51]);
        assert_eq!(ALL.map(|link| LinkType::from_pcap(link.to_pcap())), ALL.map(Some));
    }

    #[test]
    fn other_numbers_of_the_same_header() {
        for number in [12, 14, 228, 229] {
            assert_eq!(LinkType::from_pcap(number), Some(LinkType::Raw));
        }
        assert_eq!(LinkType::from_pcap(108), Some(LinkType::Null));
        assert_eq!(LinkType::from_pcap(50), Some(LinkType::Ppp));
        assert_eq!(LinkType::from_pcap(105), None);
    }
}
