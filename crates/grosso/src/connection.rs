//! Endpoints of a TCP connection, which identify it in packets of both directions.

use core::ops::Range;

use grosso_wire::{Kind, Stack, ipv4, ipv6, tcp};

/// Address and port of an endpoint.
pub(crate) type End<'a> = (&'a [u8], &'a [u8]);

/// Sender and receiver of a TCP packet, identified by the innermost addresses and ports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends<'a> {
    pub(crate) from: End<'a>,
    pub(crate) to: End<'a>,
    /// Offset of the TCP header.
    pub(crate) transport: usize,
    /// End of the TCP header, including options.
    pub(crate) header_end: usize,
}

impl<'a> Ends<'a> {
    /// Returns the endpoints of a dissected packet, or `None` if the innermost header is not a complete TCP header.
    pub(crate) fn of(packet: &'a [u8], stack: &Stack) -> Option<Self> {
        let layers = stack.layers();
        let header = layers.last().filter(|layer| layer.kind == Kind::Tcp)?;
        let ip = layers.iter().rev().find(|layer| layer.kind.is_ip())?;
        let fields = match ip.kind {
            Kind::Ipv4 => [ipv4::field::SOURCE, ipv4::field::DESTINATION],
            _ => [ipv6::field::SOURCE, ipv6::field::DESTINATION],
        };
        let [source, destination] = fields.map(|field| packet.get(ip.offset.into()..)?.get(field));
        let (transport, header_end) = (usize::from(header.offset), header.end());
        let tcp = packet.get(transport..header_end)?;
        let port = |field: Range<usize>| tcp.get(field);
        Some(Self {
            from: (source?, port(tcp::field::SOURCE_PORT)?),
            to: (destination?, port(tcp::field::DESTINATION_PORT)?),
            transport,
            header_end,
        })
    }
}
