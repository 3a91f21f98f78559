//! Checks that the bits that determine the next header do not vary within a train. Otherwise, each packet would have a
//! different shape.

use grosso_testkit::random::Random;
use grosso_wire::{Kind, Law};

#[test]
fn no_structure_has_bits_that_vary_along_a_train() {
    let mut random = Random::new(1);
    let mut checked = 0;
    for kind in Kind::ALL {
        let spec = kind.spec();
        for _ in 0..2000 {
            let bytes = random.bytes(64);
            let len = random.within(1, 60);
            let fields = spec.layout(&bytes[..len]).fields;
            for (at, bits) in spec.structure.bits(&bytes, len) {
                let Some(field) = fields.iter().find(|field| field.bytes.contains(&at)) else {
                    continue;
                };
                let offset = at - field.bytes.start;
                let varying = match field.law {
                    Law::Key { .. } | Law::Equal => 0,
                    Law::Flags => VARYING_FLAGS[offset],
                    _ => !(field.pinned >> (56 - 8 * offset)) as u8,
                };
                assert_eq!(bits & varying, 0, "{kind}: {} in byte {at}", field.name);
                checked += usize::from(field.law == Law::Flags);
            }
        }
    }
    assert!(checked > 0, "TCP's header length is in the field of its flags");
}

/// CWR, PSH and FIN.
const VARYING_FLAGS: [u8; 2] = [0, 0x89];
