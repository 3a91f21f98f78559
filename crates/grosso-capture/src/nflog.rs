//! NFLOG headers, which Netfilter puts in front of each IP packet that it logs.
//!
//! ```text
//! +--------+--------+------------------+
//! | family |version |   resource id    |  4 bytes, the id in network byte order
//! +--------+--------+------------------+
//! | TLVs: length with these 4 bytes, type, value, padding to 4 bytes; one of type 9 holds the packet
//! +------------------------------------+
//! ```
//!
//! Lengths and types are in the byte order of the file.

use super::order::ByteOrder;

/// `LINKTYPE_NFLOG`.
pub(crate) const LINK_TYPE: u32 = 239;
/// `LINKTYPE_RAW`, the link type of packets without NFLOG headers.
pub(crate) const WITHOUT: u16 = 101;

/// Length in bytes of the fields before the TLVs.
const HEADER_BYTES: usize = 4;
/// Length in bytes of a TLV's length and type fields.
const TLV_BYTES: usize = 4;
/// Type of the TLV that contains the packet (`NFULA_PAYLOAD`).
const PAYLOAD: u16 = 9;

/// Returns the packet in a record and its original length, which is greater than the packet's if the snapshot length
/// truncated it.
///
/// A record without a packet, or with a TLV shorter than its own fields, is returned whole.
pub(crate) fn packet(order: ByteOrder, record: &[u8], original_len: u32) -> (&[u8], u32) {
    let mut at = HEADER_BYTES;
    while let Some(tlv) = record.get(at..).and_then(|rest| rest.first_chunk::<TLV_BYTES>()) {
        let length = usize::from(order.u16_at(tlv, 0));
        if length < TLV_BYTES {
            break;
        }
        if order.u16_at(tlv, 2) == PAYLOAD {
            let rest = &record[at + TLV_BYTES..];
            let bytes = length - TLV_BYTES;
            return (rest.get(..bytes).unwrap_or(rest), bytes as u32);
        }
        at += length.next_multiple_of(TLV_BYTES);
    }
    (record, original_len)
}
