//! CRC32c, the checksum used by SCTP (RFC 9260 appendix A).

use core::ops::Range;

use crc::{CRC_32_ISCSI, Crc, Table};

const CRC32C: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);

/// Returns the CRC32c of a packet, with zeros in place of the checksum at `field`.
pub(super) fn crc32c(packet: &[u8], field: Range<usize>) -> u32 {
    let mut digest = CRC32C.digest();
    digest.update(packet.get(..field.start).unwrap_or_default());
    digest.update(&[0; 4][..field.len().min(4)]);
    digest.update(packet.get(field.end..).unwrap_or_default());
    digest.finalize()
}
