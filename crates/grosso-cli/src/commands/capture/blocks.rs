//! Writes pcapng blocks about an interface: its properties, and its packet counts.

use grosso_capture::{
    Block, ByteOrder, Interface,
    options::{code, push_end, push_option},
};

/// Properties of an interface that are recorded in a capture file.
pub(super) struct DeviceFacts {
    pub(super) kind: Option<String>,
    pub(super) hardware_address: Option<[u8; 6]>,
    /// Speed in bits per second, if the driver reports it.
    pub(super) speed: Option<u64>,
    pub(super) offloads: String,
}

/// Returns the description of an interface: identity, speed and offloads. If the interface no longer exists, only its
/// name is known.
pub(super) fn description(
    name: &str,
    facts: Option<&DeviceFacts>,
    interface: &Interface,
) -> Vec<u8> {
    let mut options = Vec::new();
    let mut push = |code, value: &[u8]| push_option(&mut options, ORDER, code, value);
    push(NAME, name.as_bytes());
    if let Some(kind) = facts.and_then(|facts| facts.kind.as_ref()) {
        push(DESCRIPTION, kind.as_bytes());
    }
    if let Some(address) = facts.and_then(|facts| facts.hardware_address) {
        push(HARDWARE_ADDRESS, &address);
    }
    if let Some(speed) = facts.and_then(|facts| facts.speed) {
        push(SPEED, &ORDER.u64_bytes(speed));
    }
    push(code::INTERFACE_RESOLUTION, &[interface.resolution.to_byte()]);
    push(OPERATING_SYSTEM, format!("Linux {}", super::kernel_release()).as_bytes());
    if let Some(facts) = facts {
        push(code::COMMENT, facts.offloads.as_bytes());
    }
    push_end(&mut options, ORDER);
    // Link types of interfaces fit in 16 bits.
    let link_type = interface.link_type as u16;
    let fixed = [&ORDER.u16_bytes(link_type)[..], &[0; 2], &ORDER.u32_bytes(interface.snaplen)];
    block(INTERFACE_DESCRIPTION, &fixed.concat(), &options)
}

/// Packet counts for an interface in a file, and the period that they cover, in nanoseconds since the epoch.
pub(super) struct Statistics {
    /// Number of the interface in the file.
    pub(super) number: u32,
    pub(super) between: [u64; 2],
    /// Packets that reached the socket, and packets that the kernel dropped; `None` if they were counted for several
    /// interfaces together.
    pub(super) kernel: Option<KernelCounts>,
    pub(super) written: u64,
}

/// Packet counts reported by the kernel.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KernelCounts {
    pub(super) seen: u64,
    pub(super) drops: u64,
}

impl KernelCounts {
    /// Returns the difference from an earlier reading.
    pub(super) const fn since(self, earlier: Self) -> Self {
        Self { seen: self.seen - earlier.seen, drops: self.drops - earlier.drops }
    }
}

pub(super) fn statistics(counted: &Statistics, comment: Option<&str>) -> Vec<u8> {
    let [start, end] = counted.between;
    let mut options = Vec::new();
    let halves = |value: u64| {
        [ORDER.u32_bytes((value >> 32) as u32), ORDER.u32_bytes(value as u32)].concat()
    };
    let mut push = |code, value: &[u8]| push_option(&mut options, ORDER, code, value);
    push(START, &halves(start));
    push(END, &halves(end));
    if let Some(kernel) = counted.kernel {
        push(RECEIVED, &ORDER.u64_bytes(kernel.seen));
        push(DROPPED_BY_SYSTEM, &ORDER.u64_bytes(kernel.drops));
    }
    push(DELIVERED, &ORDER.u64_bytes(counted.written));
    if let Some(comment) = comment {
        push(code::COMMENT, comment.as_bytes());
    }
    push_end(&mut options, ORDER);
    let fixed = [&ORDER.u32_bytes(counted.number)[..], &halves(end)].concat();
    block(INTERFACE_STATISTICS, &fixed, &options)
}

/// Returns a block in the form in which it would be read from a file, so that the writer can copy it.
pub(super) fn copied(kind: u32, raw: &[u8], interface: Option<Interface>) -> Block<'_> {
    Block { kind, raw, order: ORDER, interface }
}

fn block(kind: u32, fixed: &[u8], options: &[u8]) -> Vec<u8> {
    let length = (AROUND_BYTES + fixed.len() + options.len()) as u32;
    let length = ORDER.u32_bytes(length);
    [&ORDER.u32_bytes(kind), &length, fixed, options, &length].concat()
}

const ORDER: ByteOrder = ByteOrder::NATIVE;
/// Number of bytes around the body of a block: the type and the length before it, and the length again after it.
const AROUND_BYTES: usize = 12;

// Block types and option codes from draft-ietf-opsawg-pcapng sections 4.2 and 4.6.
pub(super) const INTERFACE_DESCRIPTION: u32 = 1;
pub(super) const INTERFACE_STATISTICS: u32 = 5;
const NAME: u16 = 2;
const DESCRIPTION: u16 = 3;
const HARDWARE_ADDRESS: u16 = 6;
const SPEED: u16 = 8;
const OPERATING_SYSTEM: u16 = 12;
const START: u16 = 2;
const END: u16 = 3;
const RECEIVED: u16 = 4;
const DROPPED_BY_SYSTEM: u16 = 7;
const DELIVERED: u16 = 8;
