//! Blocks of pcapng that hold what all packets of an interface have in common.

use grosso_io::capture::{
    Block, ByteOrder, Interface,
    options::{code, push_end, push_option},
};

use super::source::CapturedInterface;

/// The description of the interface: its identity, its speed, and its offloads.
pub(super) fn description(source: &CapturedInterface, interface: &Interface) -> Vec<u8> {
    let link = &source.link;
    let mut options = Vec::new();
    let mut push = |code, value: &[u8]| push_option(&mut options, ORDER, code, value);
    push(NAME, link.name.as_str().as_bytes());
    let kind = link.kind.clone().or_else(|| source.driver());
    if let Some(kind) = kind {
        push(DESCRIPTION, kind.as_bytes());
    }
    if let Some(address) = link.hardware_address {
        push(HARDWARE_ADDRESS, &address);
    }
    if let Some(speed) = source.speed() {
        push(SPEED, &ORDER.u64_bytes(speed));
    }
    push(code::INTERFACE_RESOLUTION, &[interface.resolution.to_byte()]);
    push(OPERATING_SYSTEM, format!("Linux {}", super::kernel_release()).as_bytes());
    push(code::COMMENT, source.offloads().as_bytes());
    push_end(&mut options, ORDER);
    // The link types of interfaces are all small numbers.
    let link_type = interface.link_type as u16;
    let fixed = [&ORDER.u16_bytes(link_type)[..], &[0; 2], &ORDER.u32_bytes(interface.snaplen)];
    block(INTERFACE_DESCRIPTION, &fixed.concat(), &options)
}

/// The statistics of the time between two points, in nanoseconds since the epoch.
pub(super) fn statistics(
    source: &CapturedInterface,
    written: u64,
    [start, end]: [u64; 2],
) -> Vec<u8> {
    let mut options = Vec::new();
    let halves = |value: u64| {
        [ORDER.u32_bytes((value >> 32) as u32), ORDER.u32_bytes(value as u32)].concat()
    };
    let mut push = |code, value: &[u8]| push_option(&mut options, ORDER, code, value);
    push(START, &halves(start));
    push(END, &halves(end));
    push(RECEIVED, &ORDER.u64_bytes(source.seen));
    push(DROPPED_BY_SYSTEM, &ORDER.u64_bytes(source.drops));
    push(DELIVERED, &ORDER.u64_bytes(written));
    push_end(&mut options, ORDER);
    let fixed = [&ORDER.u32_bytes(0)[..], &halves(end)].concat();
    block(INTERFACE_STATISTICS, &fixed, &options)
}

/// A block in the form that the writer copies.
pub(super) fn copied(kind: u32, raw: &[u8], interface: Option<Interface>) -> Block<'_> {
    Block { kind, raw, order: ORDER, interface }
}

fn block(kind: u32, fixed: &[u8], options: &[u8]) -> Vec<u8> {
    let length = (AROUND_BYTES + fixed.len() + options.len()) as u32;
    let length = ORDER.u32_bytes(length);
    [&ORDER.u32_bytes(kind), &length, fixed, options, &length].concat()
}

const ORDER: ByteOrder = ByteOrder::NATIVE;
/// The type and the length of a block, and the length once more at its end.
const AROUND_BYTES: usize = 12;

// Types and options of draft-ietf-opsawg-pcapng sections 4.2 and 4.6.
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
