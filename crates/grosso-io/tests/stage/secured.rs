//! ESP as a stage.

use grosso_io::Transmitted;
use grosso_testkit::Packet;

use crate::ends::{counter, hosts, receive, send};

#[test]
fn datagrams_pass_encrypted_and_in_fragments_both_ways() {
    let (mut left, mut right) = hosts(64);
    let v4 = Packet::new().ethernet(|e| e).ipv4(|ip| ip.df(false)).udp(|u| u);
    let v6 = Packet::new().ethernet(|e| e).ipv6(|ip| ip).udp(|u| u);
    for frame in [v4.payload_len(8000).build(), v6.payload_len(60_000).build()] {
        assert_eq!(send(&mut left, &frame), Transmitted::Taken);
        let received = receive(&mut right, 1);
        assert_eq!(received.len(), 1);
        assert!(received[0].0 == frame);
        assert_eq!(send(&mut right, &frame), Transmitted::Taken);
        assert!(receive(&mut left, 1)[0].0 == frame);
    }
    for host in [&mut left, &mut right] {
        assert_eq!((counter(host, "ip-frag-oks"), counter(host, "ip-reasm-oks")), (2, 2));
        assert_eq!((counter(host, "esp-out-packets"), counter(host, "esp-in-packets")), (2, 2));
    }
}
