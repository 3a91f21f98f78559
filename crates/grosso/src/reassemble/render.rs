//! Construction of a whole datagram's headers from those of its first fragment.

use grosso_checksum::Sum;
use grosso_wire::{Ends, Kind, Layer, LinkType, Ports, ipv4, ipv6, ipv6_fragment, udp};

use crate::{
    bytes::{put_u16, u16_at},
    meta::{Cwr, IpLevels},
    reassemble::{delivery::Transport, identity::Flow, latest::LatestHeaders, reason::Discard},
    template::{
        HEADER_BYTES_MAX,
        render::{Checksums, Portion, Template},
    },
};

/// Input for building the headers of a whole datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whole<'a> {
    /// Headers of the first fragment.
    pub(crate) first: &'a [u8],
    /// Offset of the IP header.
    pub(crate) ip: usize,
    pub(crate) is_ipv6: bool,
    pub(crate) ecn: u8,
    pub(crate) dont_fragment: bool,
    /// Number of bytes after the headers.
    pub(crate) data_len: usize,
}

/// Headers that were written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rendered {
    pub(crate) len: usize,
    /// Offset of the outermost IP header.
    pub(crate) network: usize,
    /// Whether headers around the datagram have checksums of their own.
    pub(crate) is_covered: bool,
}

/// Writes the headers of a whole datagram (rules F20, F22). `sum` returns the sum of the data; it is called only if a
/// checksum in a header around the datagram covers the data.
pub(crate) fn render(
    whole: &Whole<'_>,
    (link, ports): (LinkType, &Ports),
    latest: &mut LatestHeaders,
    out: &mut [u8; HEADER_BYTES_MAX],
    sum: impl FnOnce() -> Sum,
) -> Result<Rendered, Discard> {
    let len = if whole.is_ipv6 { without_fragment_header(whole, out) } else { ipv4(whole, out) };
    let shape = latest.shape(out, len, link, ports);
    let end = len + whole.data_len;
    if shape.lengths.iter().any(|length| end - usize::from(length.from) > usize::from(u16::MAX)) {
        return Err(Discard::Oversize);
    }
    let is_covered = !shape.covers.is_empty();
    let sum = if is_covered { sum() } else { Sum::ZERO };
    // The template reads only the headers of the first fragment.
    let first = *out;
    let template = Template {
        shape,
        header: first.get(..len).unwrap_or_default(),
        fixed_ids: IpLevels::ALL,
        cwr: Cwr::First,
        checksum_wanted: false,
    };
    let portion = Portion { index: 0, before: 0, payload: whole.data_len, last: true };
    let header = out.get_mut(..len).unwrap_or_default();
    template.render(portion, Checksums::Complete(sum), header);
    Ok(Rendered { len, network: shape.network, is_covered })
}

fn ipv4(whole: &Whole<'_>, out: &mut [u8]) -> usize {
    let len = copy(whole.first, out);
    let word = if whole.dont_fragment { ipv4::DONT_FRAGMENT } else { 0 };
    put_u16(out, whole.ip + ipv4::field::FRAGMENT.start, word);
    if let Some(tos) = out.get_mut(whole.ip + ipv4::field::TOS.start) {
        *tos = *tos & !3 | whole.ecn;
    }
    len
}

/// Removes the fragment header, which is the last one, and stores the payload protocol in the header before it.
fn without_fragment_header(whole: &Whole<'_>, out: &mut [u8]) -> usize {
    let len = whole.first.len().saturating_sub(ipv6_fragment::HEADER_LEN);
    let (before, fragment) = whole.first.split_at(len);
    copy(before, out);
    let mut next_header = whole.ip + ipv6::field::NEXT_HEADER.start;
    let mut at = whole.ip + ipv6::HEADER_LEN;
    while at < len {
        next_header = at;
        at += (before.get(at + 1).map_or(0, |&units| usize::from(units)) + 1) * 8;
    }
    if let (Some(field), Some(&value)) = (out.get_mut(next_header), fragment.first()) {
        *field = value;
    }
    if let Some(class) = out.get_mut(whole.ip + 1) {
        *class = *class & !0x30 | whole.ecn << 4;
    }
    len
}

fn copy(from: &[u8], to: &mut [u8]) -> usize {
    match to.get_mut(..from.len()) {
        Some(place) => {
            place.copy_from_slice(from);
            from.len()
        }
        None => 0,
    }
}

/// Verifies the transport checksum of a whole datagram. `header` contains the headers of the datagram, starting with
/// the IP header, `data` contains the first bytes after them, and `sum` is the sum of all data.
pub(crate) fn verify(
    header: &[u8],
    kind: Kind,
    flow: &Flow,
    data: &[u8],
    data_len: usize,
    sum: Sum,
) -> Transport {
    let at = usize::from(flow.transport);
    let (Some(before), Some(transport)) = (data.get(..at), data.get(at..)) else {
        return Transport::Unknown;
    };
    let len = data_len - at;
    let sum = if before.is_empty() { sum } else { sum.subtract(Sum::of(before)) };
    if flow.protocol == ipv4::PROTOCOL_UDP {
        if transport.len() < udp::HEADER_LEN
            || usize::from(u16_at(transport, udp::field::LENGTH.start)) != len
        {
            return Transport::Unknown;
        }
        if u16_at(transport, udp::field::CHECKSUM.start) == 0 {
            return Transport::Absent;
        }
    }
    let pseudo = match flow.protocol {
        ipv4::PROTOCOL_ICMP if kind == Kind::Ipv4 => Some(Sum::ZERO),
        ipv6::NEXT_ICMP if kind == Kind::Ipv4 => None,
        ipv4::PROTOCOL_TCP | ipv4::PROTOCOL_UDP | ipv6::NEXT_ICMP => {
            pseudo(header, before, kind, flow.protocol, len)
        }
        _ => None,
    };
    match pseudo {
        Some(pseudo) if (sum + pseudo).is_valid() => Transport::Right,
        Some(_) => Transport::Wrong,
        None => Transport::Unknown,
    }
}

/// Returns the pseudo-header sum. `before` contains the extension headers in the data, after the fragment header.
/// Returns `None` if there are too many of them.
fn pseudo(header: &[u8], before: &[u8], kind: Kind, protocol: u8, len: usize) -> Option<Sum> {
    let ip = Layer { kind, offset: 0, len: header.len() as u16 };
    if before.is_empty() {
        return Some(Ends::of(header, &ip).pseudo(header, protocol, len));
    }
    let mut together = [0; HEADER_BYTES_MAX];
    let (front, rest) = together.split_at_mut_checked(header.len())?;
    front.copy_from_slice(header);
    rest.get_mut(..before.len())?.copy_from_slice(before);
    let together = together.get(..header.len() + before.len())?;
    Some(Ends::of(together, &ip).pseudo(together, protocol, len))
}
