//! `virtio_net_hdr`: a header that is read and written again is unchanged, in every form and byte order.

use crate::Decisions;
use grosso_wire::virtio::{Form, Order, VirtioHeader};

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let mut decisions = Decisions::new(data);
    let form = decisions.choose(&Form::ALL);
    let order = decisions.choose(&[Order::Little, Order::Big]);
    let bytes = decisions.rest();
    let Ok((header, frame)) = VirtioHeader::parse(bytes, form, order) else {
        assert!(bytes.len() < form.len());
        return;
    };
    assert_eq!(frame.len(), bytes.len() - form.len());
    let mut written = vec![0xa5; form.len()];
    let behind = header.emit(form, order, &mut written).expect("room for the header");
    assert!(behind.is_empty());
    assert_eq!(VirtioHeader::parse(&written, form, order), Ok((header, &[][..])));
    // Padding is written as zero; everything else is unchanged.
    let is_padding = |at: usize| (18..20).contains(&at);
    let differs = |at: &usize| !is_padding(*at) && written[*at] != bytes[*at];
    assert_eq!((0..form.len()).find(differs), None);
    let _ = header.to_string();
}
