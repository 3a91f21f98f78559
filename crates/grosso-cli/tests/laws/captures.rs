//! Generates captures of several flows, as files that the program reads.

use grosso_capture::{
    CaptureReader, CaptureWriter, Entry, Format, Interface, PacketMeta, WriterOptions,
};
use grosso_testkit::{oracle::Link, random::Random};
use proptest::prelude::*;

use super::flows::Medium;
use crate::common::START_NS;

/// Parameters from which a capture is generated.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    /// One seed for each flow.
    pub(crate) seeds: Vec<u64>,
    pub(crate) medium: Medium,
    pub(crate) is_pcapng: bool,
}

/// Generates a capture of up to six flows.
pub(crate) fn recipe() -> impl Strategy<Value = Recipe> {
    let seeds = proptest::collection::vec(any::<u64>().no_shrink(), 1..=6);
    // Half of the cases use a common MTU, from the 576 bytes in RFC 791 to jumbo frames.
    let usual = proptest::sample::select(vec![576_usize, 1280, 1500, 9000, 9216]);
    let mtu = prop_oneof![usual, 576..=9216_usize];
    let link = proptest::sample::select(vec![Link::Ethernet, Link::Ethernet, Link::Ip]);
    (seeds, mtu, link, any::<bool>()).prop_map(|(seeds, mtu, link, is_pcapng)| Recipe {
        seeds,
        medium: Medium { link, mtu },
        is_pcapng,
    })
}

impl Recipe {
    /// Returns the packets of the flows, interleaved in bursts as on a shared link.
    pub(crate) fn frames(&self, flow: impl Fn(u64, u16, Medium) -> Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let flows = self.seeds.iter().zip(0..);
        let flows: Vec<Vec<Vec<u8>>> =
            flows.map(|(&seed, number)| flow(seed, number, self.medium)).collect();
        interleave(flows, &mut self.random())
    }

    /// Returns a random number generator whose seed depends on the seeds of all flows.
    pub(crate) fn random(&self) -> Random {
        Random::new(self.seeds.iter().fold(0, |mixed, seed| mixed ^ seed))
    }

    pub(crate) fn format(&self) -> Format {
        if self.is_pcapng { Format::Pcapng } else { Format::Pcap }
    }

    /// Returns `pcap` or `pcapng`.
    pub(crate) fn extension(&self) -> &'static str {
        if self.is_pcapng { "pcapng" } else { "pcap" }
    }

    /// Returns the link type number that capture files use.
    pub(crate) fn link_type(&self) -> u32 {
        number_of(self.medium.link)
    }
}

/// Returns the number that capture files use for a link type.
pub(crate) fn number_of(link: Link) -> u32 {
    match link {
        Link::Ethernet => 1,
        Link::Ip => 101,
    }
}

/// Returns the packets of several flows, interleaved in bursts. The packets of each flow stay in order.
pub(crate) fn interleave<T>(flows: Vec<Vec<T>>, random: &mut Random) -> Vec<T> {
    let mut flows: Vec<_> = flows.into_iter().map(Vec::into_iter).collect();
    let mut frames = Vec::new();
    while !flows.is_empty() {
        let index = random.below(flows.len());
        let burst = random.geometric(6);
        frames.extend(flows[index].by_ref().take(burst));
        if flows[index].len() == 0 {
            drop(flows.remove(index));
        }
    }
    frames
}

/// A packet of a capture.
#[derive(Clone, Debug)]
pub(crate) struct Captured {
    pub(crate) link_type: u32,
    pub(crate) data: Vec<u8>,
    /// Length on the link, in bytes.
    pub(crate) original_len: usize,
}

impl Captured {
    /// Returns a complete frame.
    pub(crate) fn whole(link_type: u32, data: Vec<u8>) -> Self {
        Self { link_type, original_len: data.len(), data }
    }
}

/// Returns a capture of these packets, one per microsecond, with an interface for each link type; classic pcap supports
/// only one.
pub(crate) fn capture(format: Format, packets: &[Captured]) -> Vec<u8> {
    let mut link_types: Vec<u32> = packets.iter().map(|packet| packet.link_type).collect();
    link_types.sort_unstable();
    link_types.dedup();
    let mut options = WriterOptions::new(format);
    options.interface = Interface::new(link_types.first().copied().unwrap_or(1));
    let mut writer = CaptureWriter::new(Vec::new(), options);
    let numbers: Vec<u32> = match format {
        Format::Pcap => vec![0; link_types.len()],
        Format::Pcapng => {
            let add = |link_type: &u32| writer.add_interface(&Interface::new(*link_type)).unwrap();
            link_types.iter().map(add).collect()
        }
    };
    for (packet, index) in packets.iter().zip(0..) {
        let interface = numbers[link_types.binary_search(&packet.link_type).unwrap()];
        let meta = PacketMeta {
            timestamp_ns: Some(START_NS + index * 1000),
            interface,
            original_len: packet.original_len as u32,
            ..PacketMeta::default()
        };
        writer.write_packet(&meta, &packet.data).unwrap();
    }
    writer.finish().unwrap()
}

/// Returns the packets of a capture.
pub(crate) fn read(bytes: &[u8]) -> Vec<Captured> {
    let mut reader = CaptureReader::new(bytes).unwrap();
    let mut found = Vec::new();
    while let Some(entry) = reader.next().unwrap() {
        if let Entry::Packet(packet) = entry {
            found.push(Captured {
                link_type: packet.description.link_type,
                data: packet.data.to_vec(),
                original_len: packet.original_len as usize,
            });
        }
    }
    found
}
