//! Features of a network device by virtio's numbers (virtio 1.3 sections 5.1.3 and 6), and of the protocol.

/// The device fills in checksums.
pub const CSUM: u64 = 1 << 0;
/// The guest takes frames whose checksum is to be filled in.
pub const GUEST_CSUM: u64 = 1 << 1;
/// The guest takes superframes of TCP over IPv4.
pub const GUEST_TSO4: u64 = 1 << 7;
/// The guest takes superframes of TCP over IPv6.
pub const GUEST_TSO6: u64 = 1 << 8;
/// The guest takes superframes of TCP with CWR.
pub const GUEST_ECN: u64 = 1 << 9;
/// The device takes superframes of TCP over IPv4.
pub const HOST_TSO4: u64 = 1 << 11;
/// The device takes superframes of TCP over IPv6.
pub const HOST_TSO6: u64 = 1 << 12;
/// The device takes superframes of TCP with CWR.
pub const HOST_ECN: u64 = 1 << 13;
/// A frame to the guest may be in several of its buffers.
pub const MRG_RXBUF: u64 = 1 << 15;
/// The guest makes itself known when it goes on at another place.
pub const GUEST_ANNOUNCE: u64 = 1 << 21;
/// The device has several pairs of rings.
pub const MQ: u64 = 1 << 22;
/// A log of what the device writes is kept, while this is chosen.
pub const LOG_ALL: u64 = 1 << 26;
/// Headers and frames may be in descriptors of any lengths, for guests before virtio 1.
pub const ANY_LAYOUT: u64 = 1 << 27;
/// Descriptors may be in tables of their own.
pub const INDIRECT: u64 = 1 << 28;
/// Each side says by an index when it is to be told.
pub const EVENT_INDEX: u64 = 1 << 29;
/// The front end knows protocol features; a ring is used once it is enabled.
pub const PROTOCOL_FEATURES: u64 = 1 << 30;
/// Virtio 1.
pub const VERSION_1: u64 = 1 << 32;
/// Rings are packed.
pub const RING_PACKED: u64 = 1 << 34;
/// The guest takes superframes of UDP over IPv4.
pub const GUEST_USO4: u64 = 1 << 54;
/// The guest takes superframes of UDP over IPv6.
pub const GUEST_USO6: u64 = 1 << 55;
/// The device takes superframes of UDP.
pub const HOST_USO: u64 = 1 << 56;

/// Features that every guest is offered: those of rings.
pub const OF_RINGS: u64 = MRG_RXBUF
    | MQ
    | ANY_LAYOUT
    | INDIRECT
    | EVENT_INDEX
    | PROTOCOL_FEATURES
    | VERSION_1
    | RING_PACKED;

/// Features by which a guest may move to another machine while it runs.
pub const OF_MOVES: u64 = GUEST_ANNOUNCE | LOG_ALL;

/// The features of these that a driver may use together: superframes need checksums to fill in, and CWR in them
/// superframes of TCP (virtio 1.3 section 5.1.3.1).
#[must_use]
pub const fn usable(features: u64) -> u64 {
    let mut usable = features;
    let mut i = 0;
    while i < NEEDS.len() {
        let (which, needed) = NEEDS[i];
        if usable & needed == 0 {
            usable &= !which;
        }
        i += 1;
    }
    usable
}

/// Features, and those of which each of them needs one. What needs something else stands behind it.
const NEEDS: [(u64, u64); 4] = [
    (GUEST_TSO4 | GUEST_TSO6 | GUEST_USO4 | GUEST_USO6, GUEST_CSUM),
    (GUEST_ECN, GUEST_TSO4 | GUEST_TSO6),
    (HOST_TSO4 | HOST_TSO6 | HOST_USO, CSUM),
    (HOST_ECN, HOST_TSO4 | HOST_TSO6),
];

/// The protocol feature by which there may be several pairs of rings.
pub const PROTOCOL_MQ: u64 = 1 << 0;
/// The protocol feature by which the dirty log is memory of both.
pub const PROTOCOL_LOG_SHMFD: u64 = 1 << 1;
/// The protocol feature by which the front end may ask for an answer to any message.
pub const PROTOCOL_REPLY_ACK: u64 = 1 << 3;
