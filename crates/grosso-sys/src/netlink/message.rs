//! Netlink messages: a header, a fixed part and attributes, each padded to four bytes.

use std::io;

use crate::abi;

/// Length of `struct nlmsghdr` in bytes.
const HEADER_BYTES: usize = 16;
/// Length of `struct rtattr` in bytes, which is also the alignment of every part of a message.
const ATTRIBUTE_BYTES: usize = 4;

/// A message being built.
pub(super) struct Request {
    bytes: Vec<u8>,
}

impl Request {
    /// Creates a request of this type with its fixed part, whose length is a multiple of four.
    pub(super) fn new(kind: u16, fixed: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(fixed);
        Self { bytes }.flags(abi::NLM_F_REQUEST)
    }

    /// Adds flags to the header.
    pub(super) fn flags(mut self, flags: u16) -> Self {
        let flags = flags | u16::from_ne_bytes([self.bytes[6], self.bytes[7]]);
        self.bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        self
    }

    pub(super) fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.nested(kind, |request| request.bytes.extend_from_slice(value));
    }

    pub(super) fn number(&mut self, kind: u16, value: u32) {
        self.attribute(kind, &value.to_ne_bytes());
    }

    /// Adds a string attribute, which is zero-terminated.
    pub(super) fn text(&mut self, kind: u16, value: &str) {
        self.nested(kind, |request| {
            request.bytes.extend_from_slice(value.as_bytes());
            request.bytes.push(0);
        });
    }

    pub(super) fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; ATTRIBUTE_BYTES]);
        fill(self);
        let length = (self.bytes.len() - start) as u16;
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.bytes[start + 2..start + 4].copy_from_slice(&kind.to_ne_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(ATTRIBUTE_BYTES), 0);
    }

    /// Adds bytes without a header to a nested attribute.
    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn finish(mut self, sequence: u32) -> Vec<u8> {
        let length = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }
}

/// A message in a reply.
pub(super) struct Message<'a> {
    pub(super) kind: u16,
    pub(super) sequence: u32,
    pub(super) payload: &'a [u8],
}

impl Message<'_> {
    /// Returns the result in `NLMSG_ERROR`: a negated error, or zero.
    pub(super) fn acknowledgement(&self) -> io::Result<()> {
        match self.payload.first_chunk().copied().map(i32::from_ne_bytes) {
            Some(0) => Ok(()),
            Some(error) => Err(io::Error::from_raw_os_error(error.saturating_neg())),
            None => Err(io::Error::new(io::ErrorKind::InvalidData, "a truncated acknowledgment")),
        }
    }
}

/// Iterator over the messages in a reply; it ends at a truncated message.
pub(super) struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Messages<'a> {
    pub(super) fn new(answer: &'a [u8]) -> Self {
        Self { rest: answer }
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let length = u32::from_ne_bytes(*self.rest.first_chunk()?) as usize;
        let message = self.rest.get(..length)?;
        let header: &[u8; HEADER_BYTES] = message.first_chunk()?;
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        let sequence = u32::from_ne_bytes([header[8], header[9], header[10], header[11]]);
        self.rest = self.rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Message { kind, sequence, payload: &message[HEADER_BYTES..] })
    }
}

/// Iterator over the attributes in a message, as type and value; it ends at a truncated attribute.
pub(super) struct Attributes<'a> {
    rest: &'a [u8],
}

impl<'a> Attributes<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        let header: &[u8; ATTRIBUTE_BYTES] = self.rest.first_chunk()?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        // The two upper bits mark the value as nested or big-endian.
        let kind = u16::from_ne_bytes([header[2], header[3]]) & 0x3fff;
        let value = self.rest.get(ATTRIBUTE_BYTES..length)?;
        self.rest = self.rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    }
}

/// Returns a value as a number, if it is long enough.
pub(super) fn number(value: &[u8]) -> Option<u32> {
    value.first_chunk().copied().map(u32::from_ne_bytes)
}

/// Returns a value as text, without the terminating zero.
pub(super) fn text(value: &[u8]) -> String {
    let length = value.iter().position(|&byte| byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..length]).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_nested_attribute_covers_what_is_in_it_and_is_padded() {
        let mut request = Request::new(16, &[7; 16]).flags(4);
        request.nested(18, |info| info.text(1, "vxlan"));
        let bytes = request.finish(9);
        assert_eq!(bytes.len(), 32 + 4 + 12);
        assert_eq!(bytes[..4], 48_u32.to_ne_bytes());
        assert_eq!(bytes[4..8], [16_u16.to_ne_bytes(), 5_u16.to_ne_bytes()].concat());
        assert_eq!(bytes[8..12], 9_u32.to_ne_bytes());
        assert_eq!(bytes[32..34], 16_u16.to_ne_bytes());
        assert_eq!(bytes[36..38], 10_u16.to_ne_bytes());
        assert_eq!(&bytes[40..48], b"vxlan\0\0\0");

        let message = Messages::new(&bytes).next().unwrap();
        assert_eq!((message.kind, message.sequence, &message.payload[..16]), (16, 9, &[7; 16][..]));
        let (kind, value) = Attributes::new(&message.payload[16..]).next().unwrap();
        let inner: Vec<_> =
            Attributes::new(value).map(|(kind, value)| (kind, text(value))).collect();
        assert_eq!((kind, inner), (18, vec![(1, "vxlan".to_owned())]));
    }

    #[test]
    fn an_error_in_the_acknowledgement_is_the_error() {
        let acknowledgement = |payload: &[u8]| {
            Message { kind: abi::NLMSG_ERROR, sequence: 0, payload }.acknowledgement()
        };
        assert!(acknowledgement(&[0; 20]).is_ok());
        let refused = acknowledgement(&(-libc::EPERM).to_ne_bytes()).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
        assert!(acknowledgement(&[0; 3]).is_err());
    }

    proptest! {
        #[test]
        fn whatever_comes_is_read_without_a_panic_and_ends(bytes: Vec<u8>) {
            prop_assert!(Messages::new(&bytes).count() <= bytes.len() / HEADER_BYTES + 1);
            prop_assert!(Attributes::new(&bytes).count() <= bytes.len() / ATTRIBUTE_BYTES + 1);
        }
    }
}
