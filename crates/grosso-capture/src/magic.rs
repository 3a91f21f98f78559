//! Detection of capture formats from the first bytes of a file.

use super::error::{CONVERT, CaptureError};
use super::format::Resolution;
use super::order::ByteOrder;

/// Format indicated by the first four bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Magic {
    Pcap { order: ByteOrder, resolution: Resolution },
    Pcapng,
}

impl Magic {
    /// Detects the format from the first bytes of a capture. The caller must pass at least 16 bytes unless the file is
    /// shorter.
    ///
    /// # Errors
    /// Returns `NotACapture`, or `UnsupportedFormat` for formats related to pcap with a different record layout.
    pub(crate) fn detect(bytes: &[u8]) -> Result<Self, CaptureError> {
        let Some(&magic) = bytes.first_chunk::<4>() else {
            return Err(CaptureError::not_a_capture(bytes));
        };
        if magic == SECTION_HEADER_TYPE {
            return Ok(Self::Pcapng);
        }
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let resolution = match order.u32_from(magic) {
                0xa1b2_c3d4 => Resolution::MICROSECONDS,
                0xa1b2_3c4d => Resolution::NANOSECONDS,
                0xa1b2_cd34 => return Err(unsupported("modified pcap (Kuznetzov's patch)")),
                0xa1e2_cb12 => {
                    return Err(unsupported("pcap from AIX, or from a vendor's modified libpcap"));
                }
                0x1c00_01ac | 0x1c00_01ad => return Err(unsupported("IXIA lcap")),
                _ => continue,
            };
            return Ok(Self::Pcap { order, resolution });
        }
        Err(CaptureError::not_a_capture(bytes))
    }
}

fn unsupported(what: &str) -> CaptureError {
    CaptureError::UnsupportedFormat { what: what.into(), remedy: CONVERT }
}

/// The first four bytes of a pcapng file, the same in both byte orders.
const SECTION_HEADER_TYPE: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pcap_relatives_are_refused_by_name() {
        for magic in [0xa1b2_cd34_u32, 0x1c00_01ac] {
            for bytes in [magic.to_le_bytes(), magic.to_be_bytes()] {
                let refused = Magic::detect(&bytes);
                assert!(matches!(refused, Err(CaptureError::UnsupportedFormat { .. })));
            }
        }
    }
}
