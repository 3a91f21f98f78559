//! Byte order of a file, or of one of its sections.

/// Byte order of the numbers in a capture.
///
/// Capture tools write both formats in the native byte order of their host; readers adapt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

impl ByteOrder {
    /// Byte order of this host.
    pub const NATIVE: Self = if cfg!(target_endian = "big") { Self::Big } else { Self::Little };

    /// Encodes a 16-bit number.
    #[inline]
    #[must_use]
    pub const fn u16_bytes(self, value: u16) -> [u8; 2] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }

    /// Encodes a 32-bit number.
    #[inline]
    #[must_use]
    pub const fn u32_bytes(self, value: u32) -> [u8; 4] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }

    /// Encodes a 64-bit number.
    #[inline]
    #[must_use]
    pub const fn u64_bytes(self, value: u64) -> [u8; 8] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }

    /// Decodes a 16-bit number.
    #[inline]
    #[must_use]
    pub const fn u16_from(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }

    /// Decodes a 32-bit number.
    #[inline]
    #[must_use]
    pub const fn u32_from(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    /// Decodes a 64-bit number.
    #[inline]
    #[must_use]
    pub const fn u64_from(self, bytes: [u8; 8]) -> u64 {
        match self {
            Self::Little => u64::from_le_bytes(bytes),
            Self::Big => u64::from_be_bytes(bytes),
        }
    }

    /// Returns the 16-bit number at a constant offset in a header of known size.
    #[inline]
    pub(crate) fn u16_at<const N: usize>(self, header: &[u8; N], at: usize) -> u16 {
        self.u16_from([header[at], header[at + 1]])
    }

    /// Returns the 32-bit number at a constant offset in a header of known size.
    #[inline]
    pub(crate) fn u32_at<const N: usize>(self, header: &[u8; N], at: usize) -> u32 {
        self.u32_from([header[at], header[at + 1], header[at + 2], header[at + 3]])
    }
}
