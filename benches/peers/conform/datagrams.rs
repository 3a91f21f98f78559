//! Rebuilds whole frames for reassemblers that return only the payload of a datagram.

use std::collections::HashMap;

use crate::frames::link_bytes;

const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const FRAGMENT_HEADER_BYTES: usize = 8;
/// IPv6 next-header values of the extension headers that may precede the fragment header, and of the fragment header.
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

/// First fragment of each datagram, keyed by addresses, identification and protocol.
#[derive(Default)]
pub(crate) struct Firsts(HashMap<Vec<u8>, Vec<u8>>);

/// The parts of a fragment.
struct Parts {
    /// Start of the IP header.
    ip: usize,
    /// Start of the payload.
    payload: usize,
    /// Offset of the next-header field that announces the IPv6 fragment header.
    next_header: Option<usize>,
    /// Addresses, identification and protocol.
    key: Vec<u8>,
    is_first: bool,
}

impl Firsts {
    /// Keeps a frame if it is the first fragment of its datagram.
    pub(crate) fn keep(&mut self, frame: &[u8]) {
        if let Some(parts) = parts(frame)
            && parts.is_first
        {
            self.0.insert(parts.key, frame.to_vec());
        }
    }

    /// Returns a frame with the complete datagram that `fragment` is part of: the headers of its first fragment,
    /// followed by `payload`.
    pub(crate) fn datagram(&self, fragment: &[u8], payload: &[u8]) -> Option<Vec<u8>> {
        let first = self.0.get(&parts(fragment)?.key)?;
        let Parts { ip, payload: end, next_header, .. } = parts(first)?;
        let mut frame = first[..end].to_vec();
        if let Some(at) = next_header {
            let header = end - FRAGMENT_HEADER_BYTES;
            frame[at] = frame[header];
            frame.truncate(header);
            let bytes = frame.len() - ip - IPV6_BYTES + payload.len();
            frame[ip + 4..ip + 6].copy_from_slice(&(bytes as u16).to_be_bytes());
        } else {
            let bytes = end - ip + payload.len();
            let header = &mut frame[ip..];
            header[2..4].copy_from_slice(&(bytes as u16).to_be_bytes());
            header[6] &= 0xc0;
            header[7] = 0;
            header[10..12].fill(0);
            let sum = internet_checksum::checksum(header);
            header[10..12].copy_from_slice(&sum);
        }
        frame.extend_from_slice(payload);
        Some(frame)
    }
}

/// Returns the parts of a fragment, or `None` for other frames.
fn parts(frame: &[u8]) -> Option<Parts> {
    let ip = link_bytes(frame);
    let header = frame.get(ip..)?;
    match header.first()? >> 4 {
        4 => {
            let fixed = header.get(..IPV4_BYTES)?;
            let offset = u16::from_be_bytes([fixed[6], fixed[7]]);
            (offset & 0x3fff != 0).then(|| Parts {
                ip,
                payload: ip + usize::from(fixed[0] & 15) * 4,
                next_header: None,
                key: [&fixed[12..20], &fixed[4..6], &fixed[9..10]].concat(),
                is_first: offset & 0x1fff == 0,
            })
        }
        6 => {
            let (mut next_header, mut at) = (ip + 6, ip + IPV6_BYTES);
            loop {
                match *frame.get(next_header)? {
                    FRAGMENT => break,
                    HOP_BY_HOP | ROUTING | DESTINATION => {
                        next_header = at;
                        at += (usize::from(*frame.get(at + 1)?) + 1) * 8;
                    }
                    _ => return None,
                }
            }
            let fragment = frame.get(at..at + FRAGMENT_HEADER_BYTES)?;
            Some(Parts {
                ip,
                payload: at + FRAGMENT_HEADER_BYTES,
                next_header: Some(next_header),
                key: [header.get(8..40)?, &fragment[4..]].concat(),
                is_first: u16::from_be_bytes([fragment[2], fragment[3]]) & 0xfff8 == 0,
            })
        }
        _ => None,
    }
}
