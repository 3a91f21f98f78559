//! Tests the checksum observer. This is a separate test binary because the observer is called from every thread of the
//! process.

use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering},
};

use grosso_checksum::{Sum, backend, copy, observe};

static SEEN: Mutex<Vec<usize>> = Mutex::new(Vec::new());
static CALLS: AtomicU64 = AtomicU64::new(0);

fn remember(bytes: usize, work: &mut dyn FnMut()) {
    CALLS.fetch_add(1, Ordering::Relaxed);
    work();
    SEEN.lock().unwrap().push(bytes);
}

#[test]
fn an_observer_sees_every_long_block_and_changes_no_sum() {
    let block: Vec<u8> = (0..5000_u32).map(|index| (index * 7) as u8).collect();
    let mut target = vec![0; block.len()];
    let chosen = backend();
    let (sum, copied) = (Sum::of(&block), copy(&block, &mut target));

    observe(Some(remember));
    assert_eq!(backend(), chosen);
    assert_eq!(Sum::of(&block).fold(), sum.fold());
    target.fill(0);
    assert_eq!(copy(&block[..1448], &mut target[..1448]).fold(), Sum::of(&block[..1448]).fold());
    assert_eq!(target[..1448], block[..1448]);
    assert_eq!(backend(), chosen);
    let _ = Sum::of(&block[..100]);
    // A header is too short to be observed.
    let _ = Sum::of(&block[..40]);
    assert_eq!(*SEEN.lock().unwrap(), [5000, 1448, 1448, 100]);

    observe(None);
    assert_eq!(Sum::of(&block).fold(), sum.fold());
    assert_eq!(copy(&block, &mut target).fold(), copied.fold());
    assert_eq!(CALLS.load(Ordering::Relaxed), 4);
}
