//! Transport headers: TCP, UDP, ICMP, SCTP, ESP.

use super::{Around, Checksum, Header, checksum_setters, setters};
use crate::oracle::{self, ESP_PORT, FOU_PORT, GENEVE_PORT, GUE_PORT, VXLAN_GPE_PORT, VXLAN_PORT};

/// TCP (RFC 9293). By default, the segment goes from port 1500 to port 8000 with sequence and acknowledgment number
/// 100, the ACK flag and window 65535.
#[derive(Clone, Debug)]
pub struct Tcp {
    pub(crate) source_port: u16,
    pub(crate) destination_port: u16,
    pub(crate) sequence: u32,
    pub(crate) ack: u32,
    pub(crate) flags: u16,
    pub(crate) window: u16,
    pub(crate) urgent_pointer: u16,
    pub(crate) options: Vec<u8>,
    pub(crate) data_offset: Option<u8>,
    pub(crate) checksum: Checksum,
}

impl Tcp {
    /// The FIN bit of [`flags`](Self::flags).
    pub const FIN: u16 = 0x001;
    /// The SYN bit.
    pub const SYN: u16 = 0x002;
    /// The RST bit.
    pub const RST: u16 = 0x004;
    /// The PSH bit.
    pub const PSH: u16 = 0x008;
    /// The ACK bit.
    pub const ACK: u16 = 0x010;
    /// The URG bit.
    pub const URG: u16 = 0x020;
    /// The ECE bit.
    pub const ECE: u16 = 0x040;
    /// The CWR bit.
    pub const CWR: u16 = 0x080;
    /// The AE bit, formerly NS.
    pub const AE: u16 = 0x100;

    pub(crate) fn new() -> Self {
        Self {
            source_port: 1500,
            destination_port: 8000,
            sequence: 100,
            ack: 100,
            flags: Self::ACK,
            window: 65535,
            urgent_pointer: 0,
            options: Vec::new(),
            data_offset: None,
            checksum: Checksum::Right,
        }
    }

    setters! {
        /// Sets the source port.
        source_port: u16;
        /// Sets the destination port.
        destination_port: u16;
        /// Sets the sequence number.
        sequence: u32;
        /// Sets the acknowledgment number.
        ack: u32;
        /// Sets all 12 bits between data offset and window: the three reserved bits and the flags AE, CWR ... FIN.
        flags: u16;
        /// Sets the window.
        window: u16;
        /// Sets the urgent pointer, but not the URG flag.
        urgent_pointer: u16;
    }

    checksum_setters!();

    /// Sets these flags in addition to those already set.
    pub fn flag(mut self, bits: u16) -> Self {
        self.flags |= bits;
        self
    }

    /// Sets FIN.
    pub fn fin(self) -> Self {
        self.flag(Self::FIN)
    }

    /// Sets SYN.
    pub fn syn(self) -> Self {
        self.flag(Self::SYN)
    }

    /// Sets RST.
    pub fn rst(self) -> Self {
        self.flag(Self::RST)
    }

    /// Sets PSH.
    pub fn psh(self) -> Self {
        self.flag(Self::PSH)
    }

    /// Sets URG.
    pub fn urg(self) -> Self {
        self.flag(Self::URG)
    }

    /// Sets ECE.
    pub fn ece(self) -> Self {
        self.flag(Self::ECE)
    }

    /// Sets CWR.
    pub fn cwr(self) -> Self {
        self.flag(Self::CWR)
    }

    /// Sets AE, formerly NS.
    pub fn ae(self) -> Self {
        self.flag(Self::AE)
    }

    /// Sets these bits in addition to the reserved bits already set. Bit 0 is the lowest of the three reserved bits.
    pub fn reserved(self, bits: u16) -> Self {
        self.flag((bits & 7) << 9)
    }

    /// Clears ACK.
    pub fn no_ack(mut self) -> Self {
        self.flags &= !Self::ACK;
        self
    }

    /// Sets the options, padded with end-of-options to a multiple of 4 bytes.
    pub fn options(mut self, options: &[u8]) -> Self {
        self.options = options.to_vec();
        self.options.resize(options.len().next_multiple_of(4), 0);
        self
    }

    /// Appends NOP, NOP and a timestamp option (RFC 7323 appendix A).
    pub fn timestamps(mut self, value: u32, echo: u32) -> Self {
        self.options.extend([1, 1, 8, 10]);
        self.options.extend(value.to_be_bytes());
        self.options.extend(echo.to_be_bytes());
        self
    }

    /// Sets the data offset (in words), regardless of the options.
    pub fn data_offset_raw(mut self, words: u8) -> Self {
        self.data_offset = Some(words);
        self
    }

    /// Leaves the pseudo-header sum in the checksum field, as senders with remote checksum offload do.
    pub fn checksum_seed(mut self) -> Self {
        self.checksum = Checksum::Seed;
        self
    }

    pub(crate) fn encode(&self, around: &Around<'_>) -> Vec<u8> {
        let words = self.data_offset.unwrap_or(((20 + self.options.len()) / 4) as u8);
        let mut bytes = self.source_port.to_be_bytes().to_vec();
        bytes.extend(self.destination_port.to_be_bytes());
        bytes.extend(self.sequence.to_be_bytes());
        bytes.extend(self.ack.to_be_bytes());
        bytes.extend((u16::from(words) << 12 | self.flags & 0x0fff).to_be_bytes());
        bytes.extend(self.window.to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(self.urgent_pointer.to_be_bytes());
        bytes.extend(&self.options);
        let checksum = around.transport(self.checksum, 6, &bytes);
        bytes[16..18].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }
}

/// UDP (RFC 768). By default, the datagram has a checksum, and goes from port 1500 to the port of the tunnel protocol
/// that follows, or else to port 8000.
#[derive(Clone, Debug)]
pub struct Udp {
    pub(crate) source_port: u16,
    pub(crate) destination_port: Option<u16>,
    pub(crate) len: Option<u16>,
    pub(crate) checksum: Checksum,
}

impl Udp {
    pub(crate) fn new() -> Self {
        Self { source_port: 1500, destination_port: None, len: None, checksum: Checksum::Right }
    }

    setters! {
        /// Sets the source port.
        source_port: u16;
    }

    checksum_setters!();

    /// Sets the destination port, regardless of the next header.
    pub fn destination_port(mut self, port: u16) -> Self {
        self.destination_port = Some(port);
        self
    }

    /// Sets the length, regardless of the contents.
    pub fn len_raw(mut self, value: u16) -> Self {
        self.len = Some(value);
        self
    }

    /// Leaves the pseudo-header sum in the checksum field, as senders with remote checksum offload do.
    pub fn checksum_seed(mut self) -> Self {
        self.checksum = Checksum::Seed;
        self
    }

    pub(crate) fn encode(&self, around: &Around<'_>) -> Vec<u8> {
        let port = self.destination_port.unwrap_or_else(|| match around.next() {
            Some(Header::Vxlan(vxlan)) if vxlan.gpe => VXLAN_GPE_PORT,
            Some(Header::Vxlan(_)) => VXLAN_PORT,
            Some(Header::Geneve(_)) => GENEVE_PORT,
            Some(Header::Gue(_)) => GUE_PORT,
            Some(Header::Esp(_)) => ESP_PORT,
            Some(Header::Ipv4(_) | Header::Ipv6(_)) => FOU_PORT,
            _ => 8000,
        });
        // A length that the field cannot hold is written as zero (RFC 2675 section 4).
        let len = u16::try_from(8 + around.inner.len()).unwrap_or(0);
        let len = self.len.unwrap_or(len);
        let mut bytes = self.source_port.to_be_bytes().to_vec();
        bytes.extend(port.to_be_bytes());
        bytes.extend(len.to_be_bytes());
        bytes.extend([0, 0]);
        let mut checksum = around.transport(self.checksum, 17, &bytes);
        // RFC 768: a checksum of zero is sent as all ones, because zero means no checksum.
        if checksum == 0 && self.checksum == Checksum::Right {
            checksum = 0xffff;
        }
        bytes[6..8].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }
}

/// ICMP (RFC 792), or ICMPv6 (RFC 4443) inside IPv6. By default, the message is an echo request.
#[derive(Clone, Debug)]
pub struct Icmp {
    pub(crate) kind: Option<u8>,
    pub(crate) code: u8,
    pub(crate) rest: [u8; 4],
    pub(crate) checksum: Checksum,
}

impl Icmp {
    pub(crate) fn new() -> Self {
        Self { kind: None, code: 0, rest: [0, 1, 0, 1], checksum: Checksum::Right }
    }

    setters! {
        /// Sets the ICMP code.
        code: u8;
        /// Sets the four bytes after the checksum.
        rest: [u8; 4];
    }

    checksum_setters!();

    /// Sets the ICMP type.
    pub fn kind(mut self, kind: u8) -> Self {
        self.kind = Some(kind);
        self
    }

    pub(crate) fn encode(&self, around: &Around<'_>) -> Vec<u8> {
        let v6 = around.addresses.filter(|addresses| addresses.is_v6());
        let kind = self.kind.unwrap_or_else(|| if v6.is_some() { 128 } else { 8 });
        let mut bytes = vec![kind, self.code, 0, 0];
        bytes.extend(self.rest);
        let seed = v6.map_or(0, |addresses| addresses.seed(58, 8 + around.inner.len()));
        let sum = oracle::sum(&[&bytes[..], around.inner].concat());
        let checksum = self.checksum.field(!oracle::add(seed, sum));
        bytes[2..4].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }
}

/// The SCTP common header (RFC 9260) with its CRC32c.
#[derive(Clone, Debug)]
pub struct Sctp {
    pub(crate) source_port: u16,
    pub(crate) destination_port: u16,
    pub(crate) tag: u32,
}

impl Sctp {
    pub(crate) fn new() -> Self {
        Self { source_port: 1500, destination_port: 8000, tag: 1 }
    }

    setters! {
        /// Sets the source port.
        source_port: u16;
        /// Sets the destination port.
        destination_port: u16;
        /// Sets the verification tag.
        tag: u32;
    }

    pub(crate) fn encode(&self, around: &Around<'_>) -> Vec<u8> {
        let mut bytes = self.source_port.to_be_bytes().to_vec();
        bytes.extend(self.destination_port.to_be_bytes());
        bytes.extend(self.tag.to_be_bytes());
        bytes.extend([0; 4]);
        let crc = crc32c(&[&bytes[..], around.inner].concat());
        // RFC 9260 appendix A: the CRC is stored with its low byte first.
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        bytes
    }
}

/// ESP (RFC 4303): the 8 bytes before the encrypted part. The packet's payload stands in for the encrypted part.
#[derive(Clone, Debug)]
pub struct Esp {
    pub(crate) spi: u32,
    pub(crate) sequence: u32,
}

impl Esp {
    pub(crate) fn new() -> Self {
        Self { spi: 0x1000, sequence: 1 }
    }

    setters! {
        /// Sets the security parameters index.
        spi: u32;
        /// Sets the sequence number.
        sequence: u32;
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        [self.spi.to_be_bytes(), self.sequence.to_be_bytes()].concat()
    }
}

/// Computes the CRC of RFC 9260 appendix A, one bit at a time.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32c_of_the_published_check_string() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }
}
