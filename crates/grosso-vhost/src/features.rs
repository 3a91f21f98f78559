//! Feature bits of a network device (virtio 1.3 sections 5.1.3 and 6) and of the vhost-user protocol.

/// The device completes partial checksums.
pub const CSUM: u64 = 1 << 0;
/// The guest accepts partial checksums.
pub const GUEST_CSUM: u64 = 1 << 1;
/// The guest accepts TCP superframes over IPv4.
pub const GUEST_TSO4: u64 = 1 << 7;
/// The guest accepts TCP superframes over IPv6.
pub const GUEST_TSO6: u64 = 1 << 8;
/// The guest accepts TCP superframes with CWR.
pub const GUEST_ECN: u64 = 1 << 9;
/// The device accepts TCP superframes over IPv4.
pub const HOST_TSO4: u64 = 1 << 11;
/// The device accepts TCP superframes over IPv6.
pub const HOST_TSO6: u64 = 1 << 12;
/// The device accepts TCP superframes with CWR.
pub const HOST_ECN: u64 = 1 << 13;
/// A frame to the guest may span several of its buffers.
pub const MRG_RXBUF: u64 = 1 << 15;
/// The guest announces itself after live migration.
pub const GUEST_ANNOUNCE: u64 = 1 << 21;
/// The device has several queue pairs.
pub const MQ: u64 = 1 << 22;
/// While this feature is negotiated, the device logs the pages that it writes.
pub const LOG_ALL: u64 = 1 << 26;
/// Headers and frames may use descriptors of any length, for guests before virtio 1.
pub const ANY_LAYOUT: u64 = 1 << 27;
/// The ring supports indirect descriptor tables.
pub const INDIRECT: u64 = 1 << 28;
/// Each side uses an event index to suppress notifications.
pub const EVENT_INDEX: u64 = 1 << 29;
/// The front end supports protocol features, which means that a ring must be enabled before use.
pub const PROTOCOL_FEATURES: u64 = 1 << 30;
/// The device conforms to virtio 1.
pub const VERSION_1: u64 = 1 << 32;
/// The ring is a packed virtqueue.
pub const RING_PACKED: u64 = 1 << 34;
/// The guest accepts UDP superframes over IPv4.
pub const GUEST_USO4: u64 = 1 << 54;
/// The guest accepts UDP superframes over IPv6.
pub const GUEST_USO6: u64 = 1 << 55;
/// The device accepts UDP superframes.
pub const HOST_USO: u64 = 1 << 56;

/// Ring features, which are offered to every guest.
pub const OF_RINGS: u64 = MRG_RXBUF
    | MQ
    | ANY_LAYOUT
    | INDIRECT
    | EVENT_INDEX
    | PROTOCOL_FEATURES
    | VERSION_1
    | RING_PACKED;

/// Features for live migration.
pub const OF_MOVES: u64 = GUEST_ANNOUNCE | LOG_ALL;

/// Returns the subset of `features` that a driver may use together: superframes require partial checksums, and CWR
/// requires TCP superframes (virtio 1.3 section 5.1.3.1).
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

/// Features that depend on others, in the order of the dependencies. Each feature needs at least one feature from the
/// set beside it.
const NEEDS: [(u64, u64); 4] = [
    (GUEST_TSO4 | GUEST_TSO6 | GUEST_USO4 | GUEST_USO6, GUEST_CSUM),
    (GUEST_ECN, GUEST_TSO4 | GUEST_TSO6),
    (HOST_TSO4 | HOST_TSO6 | HOST_USO, CSUM),
    (HOST_ECN, HOST_TSO4 | HOST_TSO6),
];

/// Protocol feature: several queue pairs.
pub const PROTOCOL_MQ: u64 = 1 << 0;
/// Protocol feature: the dirty log is in shared memory.
pub const PROTOCOL_LOG_SHMFD: u64 = 1 << 1;
/// Protocol feature: the front end may request a reply to any message.
pub const PROTOCOL_REPLY_ACK: u64 = 1 << 3;
