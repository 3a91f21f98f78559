//! Tests stages over an impaired link: they deliver only frames that were sent, each at most once, and the counters
//! agree.

use std::collections::HashSet;

use grosso::{Meta, tunnel::esp::EspMode};
use grosso_io::{
    Port,
    impair::{Impair, Impairment},
    stage::{EspOptions, EspStage, Fragmentation},
};
use grosso_testkit::Packet;

use super::ends::{Reluctant, association, counter, ethernet, fragments, insist, receive};

#[test]
fn counters_conserve_what_a_bad_wire_leaves() {
    let (near, far) = ethernet(256);
    let impairment: Impairment =
        "delay 50us jitter 20us loss 2% duplicate 3% corrupt 1% reorder 5% seed 11"
            .parse()
            .unwrap();
    let [out, back] = [0x101, 0x102].map(|spi| association(spi, EspMode::Transport));
    let near = Fragmentation::new(Reluctant::new(near, 0.3), &fragments(1500)).unwrap();
    let mut near = EspStage::new(near, EspOptions::new(out, back, 0)).unwrap();
    let [out, back] = [0x102, 0x101].map(|spi| association(spi, EspMode::Transport));
    let far = Fragmentation::new(Impair::new(far, impairment), &fragments(1500)).unwrap();
    let mut far = EspStage::new(far, EspOptions::new(out, back, 0)).unwrap();

    let (mut sent, mut received) = (HashSet::new(), Vec::new());
    for number in 0..2000_u32 {
        let now_ns = u64::from(number) * 20_000;
        let payload: Vec<u8> = number.to_be_bytes().repeat(1000);
        let frame =
            Packet::new().ethernet(|e| e).ipv6(|ip| ip).udp(|u| u).payload(&payload).build();
        insist(&mut near, &frame, &Meta::default());
        sent.insert(frame);
        received.extend(receive(&mut far, now_ns));
    }
    received.extend(receive(&mut far, 1_000_000_000));
    assert!(received.len() > 1000 && received.len() < 2000, "{}", received.len());
    let distinct: HashSet<&Vec<u8>> = received.iter().map(|(frame, _)| frame).collect();
    assert_eq!(distinct.len(), received.len(), "nothing comes twice");
    assert!(distinct.iter().all(|frame| sent.contains(*frame)), "and nothing that was not sent");

    let created = counter(&mut near, "ip_frag_creates");
    assert_eq!(created, near.inner().inner().sent.len() as u64);
    assert_eq!(
        (counter(&mut near, "ip_frag_oks"), counter(&mut near, "esp_out_packets")),
        (2000, 2000)
    );
    let wire = *far.inner().inner().stats();
    let joined = *far.inner().reassemble_stats().unwrap();
    assert_eq!(joined.frames_in, created - wire.lost + wire.duplicated);
    let passed: u64 = joined.passed.iter().sum();
    assert_eq!(joined.frames_in, passed + joined.fragments_in);
    assert_eq!(joined.fragments_held(), far.inner().held_fragments() as u64);
    let stats = far.stats();
    let opened = stats.decrypted.packets + stats.in_dropped.total() + stats.received_clear;
    assert_eq!(opened, joined.datagrams + passed);
    assert_eq!(stats.decrypted.packets, received.len() as u64);

    // Incomplete datagrams expire even if no frame arrives.
    assert!(far.inner().held_fragments() > 0);
    let mut now_ns = 1_000_000_000;
    while let Some(deadline) = far.deadline() {
        assert!(deadline > now_ns, "what is due is done");
        now_ns = deadline;
        assert!(receive(&mut far, now_ns).is_empty());
    }
    assert_eq!((far.inner().held_bytes(), far.inner().held_datagrams()), (0, 0));
    assert!(counter(&mut far, "ip_reasm_timeout") > 0);
    assert!(now_ns <= 1_000_000_000 + 60_000_000_000);
}
