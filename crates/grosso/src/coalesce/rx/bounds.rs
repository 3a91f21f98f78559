//! Limits on a train that depend on its headers.

use crate::{
    coalesce::profile::{AtLimit, Limits, Rules},
    template::shape::Shape,
};

/// Limits on a train that depend on its headers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) payload_max: usize,
    pub(crate) packets_max: u16,
    /// Whether the packet that fills a train ends it.
    pub(crate) ends_full: bool,
    /// Payload length of a full train, if the packet that fills a train ends it.
    pub(crate) payload_full: usize,
    /// Maximum payload length at which the train stays open.
    pub(crate) payload_open: usize,
}

impl Bounds {
    /// Returns the limits. A train must not be longer than any of its length fields can express, and only a TCP packet
    /// outside tunnels can be longer than 65535 bytes (rules G60 to G64, T13, U13).
    #[inline]
    pub(crate) fn of(shape: &Shape, limits: &Limits, rules: &Rules) -> Self {
        let size_bytes = limits.size_bytes as usize;
        let ends_at_limit = shape.is_tcp && rules.at_limit == AtLimit::Ends;
        // The packet that reaches the limit may exceed it, but not the maximum of the length field.
        let least = if ends_at_limit { usize::from(u16::MAX) } else { 0 };
        let mut packet_max = size_bytes.saturating_sub(1).max(least);
        if !shape.is_tcp || shape.ip_levels > 1 || shape.has_pppoe {
            // The PPPoE length includes the two bytes of the protocol field.
            packet_max =
                packet_max.min(usize::from(u16::MAX) - if shape.has_pppoe { 2 } else { 0 });
        }
        let headers = shape.header_len - shape.network;
        let mut payload_max = packet_max.saturating_sub(headers);
        if shape.is_tcp {
            payload_max = payload_max.min(limits.payload_bytes as usize);
        }
        let payload_full = match ends_at_limit {
            true => size_bytes.saturating_sub(headers).max(1),
            false => usize::MAX,
        };
        Self {
            payload_max,
            packets_max: if shape.is_tcp { limits.tcp_segments } else { limits.udp_segments },
            ends_full: ends_at_limit || !shape.is_tcp,
            payload_full,
            payload_open: payload_max.min(payload_full - 1),
        }
    }
}
