//! Limits of one train for its headers.

use crate::{coalesce::profile::Limits, template::shape::Shape};

/// The limits of one train, which depend on its headers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) payload_max: usize,
    pub(crate) packets_max: u16,
}

impl Bounds {
    /// Returns the limits. A train may be as long as every length field can express, and only a TCP packet outside
    /// tunnels can express more than 65535 bytes (rules G60 to G64, T13, U13).
    #[inline]
    pub(crate) fn of(shape: &Shape, limits: &Limits) -> Self {
        let mut packet_max = limits.size_bytes.saturating_sub(1) as usize;
        if !shape.is_tcp || shape.ip_levels > 1 || shape.has_pppoe {
            // PPPoE also counts the two bytes of its protocol field.
            packet_max =
                packet_max.min(usize::from(u16::MAX) - if shape.has_pppoe { 2 } else { 0 });
        }
        Self {
            payload_max: packet_max.saturating_sub(shape.header_len - shape.network),
            packets_max: if shape.is_tcp { limits.tcp_segments } else { limits.udp_segments },
        }
    }
}
