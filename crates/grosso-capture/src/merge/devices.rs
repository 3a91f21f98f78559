//! Assignment of the interfaces in several captures to devices.
//!
//! A capture that was written in parts has an interface in each part. All of them belong to one device, because the
//! packets of a flow continue in the next part. Two captures that overlap in time belong to two devices, regardless of
//! their interface names.

use super::super::entry::Block;

/// Interfaces of several captures, indexed by interface number.
#[derive(Debug, Default)]
pub(super) struct Devices(Vec<Shown>);

/// Interface in one of the captures.
#[derive(Debug)]
struct Shown {
    /// Index of the capture that contains the interface.
    member: usize,
    link_type: u32,
    name: Name,
    /// Number of the device's first interface.
    device: u32,
    /// Whether an interface in a later capture continues this one.
    is_continued: bool,
}

/// Name or other property that tells the interfaces of a capture apart.
#[derive(Debug, PartialEq, Eq)]
enum Name {
    Text(Vec<u8>),
    Position(usize),
}

impl Devices {
    /// Adds the interface with the next number.
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

    /// Finds the earlier interface that each interface of a capture continues. The earlier interface's capture must
    /// have ended. Call this function at the first packet of the capture. If several interfaces match, none is
    /// continued.
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

    /// Returns the number of the device's first interface.
    pub(super) fn of(&self, interface: u32) -> u32 {
        self.0.get(interface as usize).map_or(interface, |shown| shown.device)
    }
}

/// Code of the `if_name` option.
const INTERFACE_NAME: u16 = 2;
