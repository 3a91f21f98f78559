//! Tests receive coalescing as in userspace libraries and NICs: DPDK, wireguard-go, and the 82599.

use super::*;

#[test]
fn dpdk_compares_neither_time_to_live_nor_window_nor_size() {
    let frames: Vec<_> = (0..4)
        .map(|i| {
            let len = [700, 100, 900, 3][i];
            let at = [0, 700, 800, 1700][i];
            marked(at, len, |ip| ip.ttl(64 - i as u8).tos(4 * i as u8), |t| t.window(i as u16))
        })
        .collect();
    let (delivered, _) = poll(Profile::dpdk(), &frames);
    assert_eq!(packets(&delivered), [4]);
    assert_eq!((number(&delivered[0], "window"), delivered[0].bytes[22]), (0, 64));
    // In DPDK, another acknowledgment number identifies another flow; here, it ends the train.
    let other = [packet(0, MSS, |t| t.ack(5)), packet(MSS, MSS, |t| t.ack(6))];
    assert_eq!(packets(&poll(Profile::dpdk(), &other).0), [1, 1]);
}

#[test]
fn wireguard_compares_time_to_live_and_sizes_but_no_identification() {
    let frames = |ip: fn(usize, Ipv4) -> Ipv4| -> Vec<_> {
        (0..4).map(|i| marked(i * MSS, MSS, |own| ip(i, own), |tcp| tcp)).collect()
    };
    let joined = |frames: &[Vec<u8>]| packets(&poll(Profile::wireguard(), frames).0);
    assert_eq!(joined(&frames(|i, ip| ip.id(77 * i as u16))), [4]);
    assert_eq!(joined(&frames(|i, ip| ip.ttl(64 - i as u8))), [1; 4]);
    let shorter = [packet(0, 100, |t| t), packet(100, 60, |t| t), packet(160, 100, |t| t)];
    assert_eq!(joined(&shorter), [2, 1]);
    assert_eq!(joined(&[packet(0, 100, |t| t), packet(100, 100, Tcp::fin)]), [1, 1]);
}

#[test]
fn dpdk_and_wireguard_join_a_neighbour_that_came_early() {
    let frames = [0, 2, 1, 3].map(|i| packet(i * MSS, MSS, |tcp| tcp));
    for profile in [Profile::dpdk(), Profile::wireguard()] {
        let (delivered, _) = poll(profile.clone(), &frames);
        assert_eq!(packets(&delivered), [4], "{}", profile.name);
    }
    assert_eq!(packets(&poll(Profile::linux(), &frames).0), [1, 1, 1, 1]);
}

#[test]
fn rsc_82599_superframes_have_as_many_bytes_as_descriptors_have_buffers() {
    for (buffer_bytes, most) in
        [(1024, 16 * 1024), (2048, 32768), (4096, 65535), (8192, 65535), (10_000, 40_000)]
    {
        let (delivered, _) = poll(Profile::rsc_82599(buffer_bytes), &data(120));
        let longest = delivered.iter().map(|out| out.bytes.len() - 14).max().unwrap();
        assert!(longest <= most && longest + 1500 > most, "{buffer_bytes}: {longest}");
    }
}

#[test]
fn rsc_82599_units_end_with_the_interrupt_throttle() {
    let mut engine = Engine::new(Profile::rsc_82599(4096));
    for frame in &data(4) {
        engine.push(frame);
    }
    engine.poll_end(0);
    assert_eq!((engine.delivered.len(), engine.deadline()), (0, Some(16_000)));
    engine.expire(15_999);
    assert_eq!(engine.delivered.len(), 0);
    engine.expire(16_000);
    assert_eq!(packets(&engine.delivered), [4]);
}
