//! Tests every command on packets in transit, whose final addresses are in source routes, routing headers and home
//! address options.

use grosso_capture::Format;
use grosso_testkit::Packet;

use crate::common::{Bench, ETHERNET, capture, frames};

/// Function that adds extension headers with the final addresses.
type Headers = fn(Packet) -> Packet;

const EVERY: [(&str, Headers); 4] = [
    ("type 0", |p| p.routing(|r| r.route(0, 2, &[[3; 16], [4; 16]]))),
    ("type 2", |p| p.routing(|r| r.route(2, 1, &[[5; 16]]))),
    ("segment routing", |p| p.routing(|r| r.route(4, 1, &[[6; 16], [7; 16]]))),
    ("mobile nodes", |p| {
        let p = p.routing(|r| r.route(2, 1, &[[8; 16]]));
        p.destination_options(|d| d.home_address([9; 16]))
    }),
];

/// Returns a stream, and datagrams longer than an MTU of 1280.
fn packets(headers: Headers) -> Vec<Vec<u8>> {
    let ip = || headers(Packet::new().ethernet(|e| e).ipv6(|ip| ip));
    let stream = (0..20).map(|i| ip().tcp(|t| t.sequence(i * 1000)).payload_len(1000).build());
    let datagrams = (0..2).map(|i| ip().udp(|u| u.source_port(i)).payload_len(1300).build());
    stream.chain(datagrams).collect()
}

#[test]
fn c11_packets_with_routing_headers_join_are_cut_and_verify() {
    for (name, headers) in EVERY {
        let bench = Bench::new();
        let packets = packets(headers);
        bench.put("a.pcap", &capture(Format::Pcap, ETHERNET, &packets));
        let verify = |file: &str| bench.ok(&format!("csum verify -q -r {file}"));
        verify("a.pcap");
        bench.ok("coalesce -q -r a.pcap -w b.pcapng");
        assert_eq!(frames(&bench.get("b.pcapng")).len(), 3, "{name}");
        for command in ["segment", "wire"] {
            bench.ok(&format!("{command} -q -r b.pcapng -w c.pcap -F pcap --strict"));
            assert_eq!(frames(&bench.get("c.pcap")), packets, "{name}: {command}");
        }
        bench.ok("fragment -q -r a.pcap -w d.pcap --mtu 1280");
        bench.ok("reassemble -q -r d.pcap -w e.pcap --strict");
        assert_eq!(frames(&bench.get("e.pcap")), packets, "{name}");
        let tunnel = "type vxlan id 1 local 192.0.2.1 remote 192.0.2.2 udpcsum";
        bench.ok(&format!("encap -q -r b.pcapng -w f.pcapng --strict {tunnel}"));
        bench.ok("segment -q -r f.pcapng -w g.pcap -F pcap --strict");
        verify("g.pcap");
        bench.ok("decap -q -r g.pcap -w h.pcap --strict");
        assert_eq!(frames(&bench.get("h.pcap")), packets, "{name}");
        let shown = bench.ok("explain a.pcap -n 2").stdout;
        assert!(shown.contains("MERGED") && !shown.contains("bad"), "{name}: {shown}");
    }
}

#[test]
fn c11_packets_with_source_routes_verify_as_their_last_stop_will() {
    let routes: [(u8, usize); 4] = [(131, 0), (137, 0), (131, 1), (131, 2)];
    for (kind, passed) in routes {
        let bench = Bench::new();
        let route = [[198, 51, 100, 1], [203, 0, 113, 9]];
        let ip = || {
            Packet::new().ethernet(|e| e).ipv4(|ip| ip.df(false).source_route(kind, passed, &route))
        };
        let segment = ip().tcp(|t| t).payload_len(1000).build();
        let packets = [segment, ip().udp(|u| u).payload_len(1300).build()];
        bench.put("a.pcap", &capture(Format::Pcap, ETHERNET, &packets));
        bench.ok("csum verify -q -r a.pcap");
        bench.ok("csum fix -q -r a.pcap -w b.pcap");
        assert_eq!(frames(&bench.get("b.pcap")), packets);
        bench.ok("coalesce -q -r a.pcap -w c.pcapng");
        bench.ok("wire -q -r c.pcapng -w d.pcap -F pcap --strict");
        assert_eq!(frames(&bench.get("d.pcap")), packets);
        bench.ok("fragment -q -r a.pcap -w e.pcap --mtu 600");
        bench.ok("reassemble -q -r e.pcap -w f.pcap --strict");
        assert_eq!(frames(&bench.get("f.pcap")), packets, "{kind} {passed}");
    }
}
