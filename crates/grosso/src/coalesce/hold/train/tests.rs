use core::cell::Cell;
use std::vec::Vec;

use super::{Examined, TrainId, Trains};
use crate::{
    coalesce::{rx::examine::Candidate, slots::shape_id::ShapeId},
    flow::{FlowHash, Place},
    frame::Frame,
    meta::IpLevels,
};

/// Returns a one-byte packet. The byte stands for its addresses.
fn examined(addresses: u8) -> Examined<Vec<u8>> {
    let candidate = Candidate {
        payload_len: 1,
        flags: 0,
        packets: 1,
        size: 1,
        short_tail: false,
        partial: false,
        fixed_ids: IpLevels::NONE,
    };
    let (frame, flow) = (Frame::new([addresses].into()), FlowHash::NONE);
    let (known, now_ns, resembles) = (ShapeId::default(), 0, false);
    Examined { frame, candidate, known, flow, now_ns, resembles }
}

#[test]
fn addresses_of_a_train_are_asked_for_once_and_only_by_a_barrier() {
    let mut trains = Trains::new(8);
    let asked = Cell::new(0);
    let between = |trains: &mut Trains<Vec<u8>>, addresses: u32| {
        trains.between(addresses, |train| {
            asked.set(asked.get() + 1);
            u32::from(train.first.buffer[0])
        })
    };
    let slots: Vec<TrainId> =
        [1, 2, 1].map(|pair| trains.insert(examined(pair), Place::default())).into();
    trains.remove(slots[0]);
    assert_eq!(asked.get(), 0);
    assert_eq!(between(&mut trains, 1), Some(slots[2]));
    assert_eq!((between(&mut trains, 2), between(&mut trains, 3)), (Some(slots[1]), None));
    assert_eq!(asked.get(), 2);
    // The slot of the train that was removed first is reused for other addresses.
    let newest = trains.insert(examined(3), Place::default());
    assert_eq!(newest, slots[0]);
    assert_eq!((between(&mut trains, 3), asked.get()), (Some(newest), 3));
    for slot in [newest, slots[1], slots[2]] {
        trains.remove(slot);
    }
    assert!([1, 2, 3].iter().all(|pair| between(&mut trains, *pair).is_none()));
    assert_eq!(asked.get(), 3);
}
