//! Passes the same frames to the kernel and to the engine, and compares their deliveries.

use std::collections::BTreeMap;

use grosso::Profile;
use grosso::checksum::Checksum;
use grosso::meta::Meta;
use grosso_rig::engine::{Engine, Out, PORTS};
use grosso_rig::kernel::{Delivered, GroOracle, VirtioHeader};
use grosso_testkit::oracle::{Lengths, Link, parse};
use grosso_wire::LinkType;

use super::known::flow;

/// Metadata of a superframe, in the fields of a virtio header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Offload {
    pub(crate) gso_type: u8,
    pub(crate) gso_size: u16,
    pub(crate) checksum_start: u16,
    pub(crate) checksum_offset: u16,
}

/// One delivered frame.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Item {
    pub(crate) bytes: Vec<u8>,
    /// Metadata of a superframe; `None` for an unchanged packet.
    pub(crate) offload: Option<Offload>,
}

/// Deliveries of either the kernel or the engine, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) items: Vec<Item>,
    /// The packets delivered unmerged, and whether the checksums of each are marked as verified.
    pub(crate) verified: BTreeMap<Vec<u8>, bool>,
    /// Number of superframes whose GRE checksum is not zero.
    pub(crate) gre_words: usize,
}

/// Differences between the kernel and the engine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Difference {
    pub(crate) kernel: Vec<Item>,
    pub(crate) engine: Vec<Item>,
    /// Flows whose frames are equal but in a different order.
    pub(crate) reordered: Vec<String>,
}

impl Difference {
    pub(crate) fn is_none(&self) -> bool {
        self.kernel.is_empty() && self.engine.is_empty() && self.reordered.is_empty()
    }
}

/// The kernel and the engine with the same settings.
pub(crate) struct Both {
    pub(crate) kernel: GroOracle,
    pub(crate) profile: Profile,
}

impl Both {
    /// Returns the kernel's deliveries.
    pub(crate) fn kernel(&mut self, frames: &[Vec<u8>]) -> Answer {
        let delivered = self.kernel.coalesce(frames).unwrap_or_else(|error| panic!("{error}"));
        delivered.into_iter().fold(Answer::default(), Answer::with_delivered)
    }

    /// Returns the deliveries of the engine, [checked](grosso_rig::engine::Engine::checked).
    pub(crate) fn engine(&self, frames: &[Vec<u8>]) -> Answer {
        let mut engine = Engine::with(self.profile.clone(), LinkType::Ethernet, PORTS, ENGINE_SEED);
        frames.iter().for_each(|frame| _ = engine.push(frame));
        engine.poll_end(0);
        engine.checked(frames).into_iter().fold(Answer::default(), Answer::with_out)
    }
}

impl Answer {
    fn with_delivered(self, delivered: Delivered) -> Self {
        let header = delivered.virtio;
        let is_superframe =
            header.flags & VirtioHeader::NEEDS_CHECKSUM != 0 || header.gso_type != 0;
        let offload = is_superframe.then_some(Offload {
            gso_type: header.gso_type,
            gso_size: header.gso_size,
            checksum_start: header.checksum_start,
            checksum_offset: header.checksum_offset,
        });
        let verified = header.flags & VirtioHeader::DATA_VALID != 0;
        self.with(Item { bytes: delivered.bytes, offload }, verified)
    }

    fn with_out(self, out: Out) -> Self {
        let verified = matches!(out.meta.checksum, Checksum::Unnecessary { .. });
        let offload = out.joined.then(|| offload_of(&out.bytes, &out.meta));
        self.with(Item { bytes: out.bytes, offload }, verified)
    }

    fn with(mut self, mut item: Item, verified: bool) -> Self {
        if item.offload.is_some() {
            self.gre_words += usize::from(clear_gre_words(&mut item.bytes));
        } else {
            self.verified.insert(item.bytes.clone(), verified);
        }
        self.items.push(item);
        self
    }

    /// Returns the superframes and packets of each flow, in order.
    fn by_flow(&self) -> BTreeMap<String, Vec<&Item>> {
        let mut flows: BTreeMap<String, Vec<&Item>> = BTreeMap::new();
        for item in &self.items {
            if let Some(flow) = flow(&item.bytes) {
                flows.entry(flow).or_default().push(item);
            }
        }
        flows
    }
}

/// Returns the frames that only the kernel or only the engine delivers, and the flows whose order differs.
pub(crate) fn difference(kernel: &Answer, engine: &Answer) -> Difference {
    let mut only_engine = engine.items.clone();
    let mut only_kernel = kernel.items.clone();
    only_kernel.retain(|item| {
        let place = only_engine.iter().position(|other| other == item);
        place.map(|place| only_engine.swap_remove(place)).is_none()
    });
    let (before, after) = (kernel.by_flow(), engine.by_flow());
    let is_reordered = |(flow, items): (String, Vec<&Item>)| {
        let others = before.get(&flow)?;
        let sorted = |items: &[&Item]| {
            let mut items: Vec<Item> = items.iter().map(|&item| item.clone()).collect();
            items.sort();
            items
        };
        (sorted(others) == sorted(&items) && *others != items).then_some(flow)
    };
    let reordered = after.into_iter().filter_map(is_reordered).collect();
    Difference { kernel: only_kernel, engine: only_engine, reordered }
}

/// Converts the metadata of the engine's superframe to the fields of a virtio header.
fn offload_of(bytes: &[u8], meta: &Meta) -> Offload {
    let Checksum::Partial { start, offset } = meta.checksum else {
        panic!("a superframe has a partial checksum: {meta:?}");
    };
    let parsed = parse(bytes, Link::Ethernet, Lengths::Whole);
    let network = parsed.network_of(parsed.layers.len()).map_or("", |layer| layer.name);
    let gso_type = match (parsed.last().map_or("", |layer| layer.name), network) {
        ("udp", _) => VirtioHeader::UDP_SEGMENTS,
        (_, "ipv6") => VirtioHeader::TCP_IPV6,
        _ => VirtioHeader::TCP_IPV4,
    };
    let gso_size = meta.gso.and_then(|gso| gso.size()).unwrap_or(0);
    Offload { gso_type, gso_size, checksum_start: start, checksum_offset: offset }
}

/// Clears the checksums in a superframe's GRE headers. Linux leaves the first packet's checksums there, but they are
/// irrelevant, because segmentation recomputes them (rule S43).
fn clear_gre_words(bytes: &mut [u8]) -> bool {
    let mut cleared = false;
    for layer in parse(bytes, Link::Ethernet, Lengths::Whole).layers {
        if layer.name == "gre" && layer.fields.contains_key("checksum") {
            cleared |= layer.number("checksum") != 0;
            bytes[layer.offset + 4..layer.offset + 6].fill(0);
        }
    }
    cleared
}

/// Seed of the engine's flow hash: any number with many bits set.
const ENGINE_SEED: u64 = 0x9e37_79b9_7f4a_7c15;
