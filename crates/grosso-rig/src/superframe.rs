//! Superframes as senders pass them to a device.

use grosso::{
    Meta,
    checksum::Checksum,
    meta::{Cwr, Gso, GsoSize},
    segment::{NoSegments, Outgoing},
};
use grosso_testkit::{
    Packet,
    oracle::{Description, Link, segment},
};
use grosso_wire::LinkType;

use crate::engine::cut;

/// A superframe: its bytes and its metadata.
#[derive(Clone, Debug)]
pub struct Superframe {
    /// The bytes of the superframe.
    pub bytes: Vec<u8>,
    /// The metadata of the superframe, which describes its segments.
    pub meta: Meta,
}

impl Superframe {
    /// Creates a superframe with a partial checksum whose segments have `size` bytes of payload.
    ///
    /// # Panics
    /// Panics if `size` is zero or the packet has no TCP or UDP header.
    #[must_use]
    pub fn new(packet: &Packet, size: u16) -> Self {
        let (bytes, start, offset) = packet.build_superframe();
        let checksum = Checksum::Partial { start: start as u16, offset: offset as u16 };
        let gso = Some(Gso::every(size).expect("a segment size"));
        Self { bytes, meta: Meta { checksum, gso, ..Meta::default() } }
    }

    /// Changes the metadata that describes the segments.
    #[must_use]
    pub fn gso(mut self, change: impl FnMut(&mut Gso)) -> Self {
        self.meta.gso.iter_mut().for_each(change);
        self
    }

    /// Segments the superframe for a device, and returns the packets with their metadata.
    ///
    /// # Errors
    /// Fails with the engine's reason for refusing to segment the superframe.
    pub fn cut(&self, outgoing: Outgoing) -> Result<Vec<(Vec<u8>, Meta)>, NoSegments> {
        cut(&[&self.bytes], &self.meta, LinkType::Ethernet, outgoing)
    }

    /// Segments the superframe, checks the packets against the oracle, and returns them.
    ///
    /// # Panics
    /// Panics if the engine refuses to segment the superframe, or produces other packets than the oracle.
    #[must_use]
    #[track_caller]
    pub fn packets(&self) -> Vec<Vec<u8>> {
        let cut = self.cut(Outgoing::default()).expect("a superframe");
        assert!(cut.iter().all(|(_, meta)| meta.checksum == Checksum::None && meta.gso.is_none()));
        let packets: Vec<_> = cut.into_iter().map(|(bytes, _)| bytes).collect();
        assert_eq!(Ok(&packets), segment(&self.bytes, Link::Ethernet, self.description()).as_ref());
        packets
    }

    /// Returns the engine's reason for refusing to segment the superframe.
    ///
    /// # Panics
    /// Panics if the engine segments the superframe.
    #[must_use]
    #[track_caller]
    pub fn refusal(&self) -> NoSegments {
        self.cut(Outgoing::default()).expect_err("no superframe")
    }

    fn description(&self) -> Description {
        let gso = self.meta.gso.expect("a superframe");
        let GsoSize::Every(size) = gso.size else { panic!("the oracle knows only equal segments") };
        Description {
            gso_size: usize::from(size.get()),
            fixed_ids: u32::from(gso.fixed_ids.bits()),
            cwr_on_all: gso.cwr == Cwr::Every,
        }
    }
}

/// Returns the payload length of each packet, whose headers are `header_len` bytes long.
#[must_use]
pub fn lengths_behind(header_len: usize, packets: &[Vec<u8>]) -> Vec<usize> {
    packets.iter().map(|packet| packet.len() - header_len).collect()
}
