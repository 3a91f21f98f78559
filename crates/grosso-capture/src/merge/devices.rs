//! The devices that the interfaces of several captures show.
//!
//! A capture that was written in parts has an interface in each part, and all are one device: the packets of a flow go
//! on across the border. Two captures that overlap in time are of two devices, whatever their interfaces are called.

use super::super::entry::Block;

/// The interfaces of several captures in the order of their numbers.
#[derive(Debug, Default)]
pub(super) struct Devices(Vec<Shown>);

/// One interface.
#[derive(Debug)]
struct Shown {
    /// Capture that the interface belongs to.
    member: usize,
    link_type: u32,
    name: Name,
    /// Number of the first interface of the same device.
    device: u32,
    /// Whether a later capture goes on with it.
    is_continued: bool,
}

/// The property that tells the interfaces of a capture apart.
#[derive(Debug, PartialEq, Eq)]
enum Name {
    Text(Vec<u8>),
    Position(usize),
}

impl Devices {
    /// Takes in the interface of the next number.
    pub(super) fn declare(
        &mut self,
        number: u32,
        member: usize,
        link_type: u32,
        position: usize,
        block: Option<&Block<'_>>,
    ) {
        let text = block.and_then(|block| {
            let options = block.options();
            let name = options.iter().flatten().find(|option| option.code == INTERFACE_NAME)?;
            Some(name.value.to_vec())
        });
        let name = text.map_or(Name::Position(position), Name::Text);
        self.0.push(Shown { member, link_type, name, device: number, is_continued: false });
    }

    /// Finds what the interfaces of a capture go on with when its first packet comes, by which of the captures have
    /// ended. Where two could be meant, it is none.
    pub(super) fn begin(&mut self, member: usize, has_ended: &[bool]) {
        for index in 0..self.0.len() {
            let Shown { link_type, name, .. } = &self.0[index];
            if self.0[index].member != member {
                continue;
            }
            let is_before = |shown: &Shown| {
                has_ended.get(shown.member).is_some_and(|&has_ended| has_ended)
                    && !shown.is_continued
                    && shown.link_type == *link_type
                    && shown.name == *name
            };
            let mut before = (0..self.0.len()).filter(|&other| is_before(&self.0[other]));
            if let (Some(other), None) = (before.next(), before.next()) {
                self.0[index].device = self.0[other].device;
                self.0[other].is_continued = true;
            }
        }
    }

    /// Returns the number of the first interface of a device.
    pub(super) fn of(&self, interface: u32) -> u32 {
        self.0.get(interface as usize).map_or(interface, |shown| shown.device)
    }
}

/// `if_name`.
const INTERFACE_NAME: u16 = 2;
