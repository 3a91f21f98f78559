//! Tests counters from the packets that they count to their printed form, and the server with well-behaved and
//! misbehaving clients.

use std::{
    collections::{HashMap, HashSet},
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use grosso::{
    Meta,
    checksum::Checksum,
    features::{Device, Features},
};
use grosso_io::{
    Port,
    memory::wire,
    path::{Direction, PathOptions},
    runner::Snapshot,
};
use grosso_testkit::Packet;
use grosso_wire::LinkType;
use serde_json::Value;

use super::{
    Missing, PathReading, Service,
    control::{Answers, Ask, ask_all},
    prometheus,
    reading::{DeviceReading, devices},
    server::{ASK_BYTES_MAX, ClientBounds},
    table::{COUNTERS, Label},
    text,
};
use crate::acceptor::CLIENTS_MAX;

/// Returns the counters of a path from `eth0` to `tap0` after packets with every possible outcome have passed in one
/// direction.
fn sample() -> PathReading {
    let takes = Features::SCATTER_GATHER
        | Features::CHECKSUM_GENERIC
        | Features::TCP_SEGMENTATION
        | Features::TCP6_SEGMENTATION
        | Features::TCP_MANGLEID_SEGMENTATION;
    let (mut source, mut outside) = wire(LinkType::Ethernet, Device::new(Features::NONE), 10_000);
    let (mut inside, _target) = wire(LinkType::Ethernet, Device::new(takes), 10_000);
    let mut direction = Direction::new(PathOptions::new(7), LinkType::Ethernet, inside.device());
    let mut id = 0_u16;
    let mut send = |packet: Packet| {
        id += 1;
        let frame = packet.build();
        let verified = Checksum::Unnecessary { levels: 0 };
        let meta = Meta {
            checksum: if id.is_multiple_of(3) { verified } else { Checksum::None },
            ..Meta::default()
        };
        let _ = source.transmit(&[&frame], &meta).unwrap();
    };
    let tcp = |i: u32| {
        Packet::new()
            .ethernet(|e| e)
            .ipv4(move |ip| ip.id(i as u16))
            .tcp(move |t| t.sequence(i * 1000))
    };
    // Trains end at the end of the poll, at a gap, or when the window changes. Some packets are not part of a train.
    (0..40).for_each(|i| send(tcp(i).payload_len(1000)));
    (60..70).for_each(|i| send(tcp(i).payload_len(1000)));
    let window = |i: u32| {
        let packet = Packet::new().ethernet(|e| e).ipv4(move |ip| ip.id(i as u16));
        packet.tcp(move |t| t.sequence(i * 1000).window(77)).payload_len(1000)
    };
    (70..75).for_each(|i| send(window(i)));
    send(tcp(75));
    let tcp6 =
        |i: u32| Packet::new().ethernet(|e| e).ipv6(|ip| ip).tcp(move |t| t.sequence(i * 500));
    (0..5).for_each(|i| send(tcp6(i).payload_len(500)));
    while direction.poll(&mut outside, &mut inside, 0).unwrap() > 0 {}
    direction.finish(&mut outside, &mut inside).unwrap();
    let mut queue = Snapshot::default();
    queue.left_to_right = *direction.stats();
    queue.coalesced_to_right = direction.coalesce_stats().cloned();
    let counters = grosso_io::impair::ImpairStats::default().counters();
    queue.left = counters.iter().map(|(counter, _)| (*counter, 3)).collect();
    PathReading {
        name: "edge".to_owned(),
        left: "eth0".to_owned(),
        right: "tap0".to_owned(),
        queues: vec![queue],
        stuck: None,
    }
}

fn of<'a>(readings: &'a [DeviceReading], device: &str) -> &'a DeviceReading {
    readings.iter().find(|reading| reading.device == device).unwrap()
}

/// Adds up the counters whose names start with `start`.
fn sum(reading: &DeviceReading, start: &str) -> u64 {
    let counters = COUNTERS.iter().zip(reading.counters.in_order());
    let counters = counters.filter(|(counter, _)| counter.name.starts_with(start));
    counters.map(|(_, value)| value.unwrap_or(0)).sum()
}

#[test]
fn names_forge_no_lines_and_no_labels() {
    let mut path = sample();
    path.name = "a\u{1b}[2J\n    rx_packets: 7\nb".to_owned();
    path.left = "eth0 (path x, to y)\n    rx_packets: 9".to_owned();
    path.right = "tap\"} 1\ngrosso_forged{device=\"\\".to_owned();
    path.stuck = Some(Duration::from_secs(1));
    let readings = devices(std::slice::from_ref(&path), false);
    let text = text::print(&readings, false);
    let first = text.lines().next().unwrap();
    let name = "a\\x1b[2J\\x0a    rx_packets: 7\\x0ab";
    assert!(first.contains(name) && first.contains("eth0 (path x, to y)\\x0a"), "{first:?}");
    assert!(!text.contains('\u{1b}') && !text.contains("\n    rx_packets: 7"), "{text}");
    assert!(!text.contains("\n    rx_packets: 9\n"), "{text}");
    let page = prometheus::page(&readings);
    assert!(page.lines().all(|line| line.starts_with(['#', 'g'])), "{page}");
    assert!(!page.contains("\ngrosso_forged"), "{page}");
}

#[test]
fn every_packet_and_train_is_counted_at_the_device_that_it_came_from() {
    let path = sample();
    let readings = devices(std::slice::from_ref(&path), false);
    let (eth, tap) = (of(&readings, "eth0"), of(&readings, "tap0"));
    let value = |name: &str| eth.counters.value(name);
    assert_eq!(value("rx_packets"), 61);
    assert_eq!(tap.counters.value("tx_packets"), 61);
    assert_eq!(tap.counters.value("tx_bytes"), value("rx_bytes"));
    assert_eq!((value("tx_packets"), tap.counters.value("rx_packets")), (0, 0));
    assert_eq!(value("rx_csum_none") + value("rx_csum_unnecessary"), 61);
    assert_eq!(
        value("rx_gro_packets_tcp4") + value("rx_gro_packets_tcp6"),
        value("rx_gro_packets")
    );
    assert_eq!(value("rx_gro_packets_tcp6"), 1);
    assert_eq!(value("rx_gro_wire_packets_tcp6"), 5);

    // Each train was flushed for exactly one reason, and each packet outside trains passed through for exactly one.
    let stats = path.queues[0].coalesced_to_right.as_ref().unwrap();
    let closed: u64 = stats.closed.iter().sum();
    assert!(closed > 3 && value("rx_gro_flush_tcp_sequence_ahead") > 0);
    assert!(value("rx_gro_flush_tcp_window") > 0 && value("rx_gro_flush_poll_end") > 0);
    assert_eq!(sum(eth, "rx_gro_flush_"), closed);
    assert_eq!(sum(eth, "rx_gro_pass_"), 1);
    let frames: u64 = sum(eth, "rx_gro_segs_") - value("rx_gro_segs_sum");
    assert_eq!(frames, tap.counters.value("tx_frames"));
    assert_eq!(value("rx_gro_segs_sum"), 61);

    // A port's losses count only for its own device.
    assert_eq!((sum(eth, "drop_"), sum(eth, "event_")), (6, 9));
    assert_eq!(sum(tap, "drop_"), 0);
}

#[test]
fn queues_are_added_up_unless_each_is_wanted() {
    let mut path = sample();
    path.queues.push(path.queues[0].clone());
    let (whole, each) = (devices(std::slice::from_ref(&path), false), devices(&[path], true));
    assert_eq!(of(&whole, "eth0").counters.value("rx_packets"), 122);
    let eth: Vec<_> = each.iter().filter(|reading| reading.device == "eth0").collect();
    assert_eq!(eth.iter().map(|reading| reading.queue).collect::<Vec<_>>(), [Some(0), Some(1)]);
    assert!(eth.iter().all(|reading| reading.counters.value("rx_packets") == 61));
}

#[test]
fn text_fits_and_is_as_ethtool_prints_it() {
    let readings = devices(&[sample()], false);
    let all = text::print(&readings, true);
    let few = text::print(&readings, false);
    assert!(all.lines().all(|line| line.chars().count() <= 80), "{all}");
    assert!(
        few.starts_with("eth0 (path edge, to tap0)\n    rx_packets: 61\n    rx_bytes: "),
        "{few}"
    );
    assert!(
        few.contains("\n    rx_gro_flush_tcp_window: 1\n") && !few.contains("rx_gro_flush_fin")
    );
    assert!(all.contains("\n    rx_gro_flush_fin: 0\n"));
    assert!(!few.contains(": 0\n"), "zero counters need -v: {few}");
    assert!(!all.contains("drop_rx_ring_full"), "the port has no ring");
}

/// Checks a page against the Prometheus text format, version 0.0.4:
/// https://prometheus.io/docs/instrumenting/exposition_formats/.
fn assert_prometheus(page: &str) -> HashMap<String, f64> {
    let (mut kinds, mut helps) = (HashMap::new(), HashSet::new());
    let (mut series, mut closed): (HashMap<String, f64>, HashSet<String>) = Default::default();
    let mut open = String::new();
    let is_name = |name: &str| {
        !name.is_empty()
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    assert!(page.ends_with('\n'));
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(is_name(name) && !help.is_empty() && helps.insert(name.to_owned()), "{line}");
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(kinds.insert(name.to_owned(), kind.to_owned()).is_none(), "{line}");
            assert!(helps.contains(name), "{line}");
            // All lines of a metric must be contiguous.
            assert!(closed.insert(name.to_owned()), "{line}");
            open = name.to_owned();
            continue;
        }
        assert!(!line.starts_with('#') && !line.is_empty(), "{line}");
        let (id, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = match id.split_once('{') {
            Some((name, labels)) => (name, labels.strip_suffix('}').unwrap()),
            None => (id, ""),
        };
        let family = match kinds.get(&open).map(String::as_str) {
            Some("histogram") => {
                let ends = ["_bucket", "_sum", "_count"];
                ends.iter().find_map(|end| name.strip_suffix(end)).unwrap()
            }
            Some("counter") => {
                assert!(name.ends_with("_total"), "{line}");
                name
            }
            _ => name,
        };
        assert_eq!(family, open, "{line}");
        for label in labels.split("\",") {
            let (label, value) = label.split_once("=\"").unwrap();
            assert!(is_name(label) && !value.contains('\n'), "{line}");
        }
        let value: f64 = value.parse().unwrap();
        assert!(series.insert(id.to_owned(), value).is_none(), "twice: {line}");
    }
    series
}

#[test]
fn the_page_for_prometheus_obeys_its_grammar() {
    let mut second = sample();
    second.name = "other \"path\"\\\n".to_owned();
    let page = prometheus::page(&devices(&[sample(), second], false));
    let series = assert_prometheus(&page);
    let of = |id: &str| *series.get(id).unwrap_or_else(|| panic!("{id} in\n{page}"));
    // Tunnels on two different paths may have the same name.
    for path in ["edge", r#"other \"path\"\\\n"#] {
        let of = |name: &str, label: &str| {
            of(&format!("grosso_{name}{{device=\"eth0\",path=\"{path}\"{label}}}"))
        };
        assert_eq!(of("rx_packets_total", ""), 61.0);
        assert_eq!(of("rx_gro_packets_total", ",proto=\"tcp6\""), 1.0);
        assert_eq!(of("drops_total", ",reason=\"wire_loss\""), 3.0);
        assert_eq!(of("rx_csum_total", ",result=\"bad\""), 0.0);
        let bounds = ["1", "2", "4", "8", "16", "32", "45", "64", "128", "+Inf"];
        let buckets = bounds.map(|le| of("rx_gro_segments_bucket", &format!(",le=\"{le}\"")));
        assert!(buckets.is_sorted() && buckets[9] > buckets[0]);
        assert_eq!(buckets[9], of("rx_gro_segments_count", ""));
        assert_eq!(of("rx_gro_segments_sum", ""), 61.0);
    }
}

#[test]
fn names_of_devices_cannot_break_the_page() {
    let mut path = sample();
    path.left = "a\"} 1\n\\".to_owned();
    let page = prometheus::page(&devices(&[path], false));
    assert!(
        page.contains(r#"grosso_rx_packets_total{device="a\"} 1\n\\",path="edge"} 61"#),
        "{page}"
    );
}

#[test]
fn the_document_lists_every_counter() {
    let row = |counter: &super::table::Counter| {
        let series = match &counter.series {
            None => "(the sum of the next)".to_owned(),
            Some(series) => match &series.label {
                Label::Alone => format!("`{}`", series.metric),
                Label::Value(label, value) => format!("`{}{{{label}=\"{value}\"}}`", series.metric),
                Label::Bucket(Some(le)) => format!("`{}_bucket{{le=\"{le}\"}}`", series.metric),
                Label::Bucket(None) => format!("`{}_bucket{{le=\"+Inf\"}}`", series.metric),
                Label::Sum => format!("`{}_sum`", series.metric),
            },
        };
        format!("| `{}` | {} | {series} | {} |\n", counter.name, counter.unit, counter.help)
    };
    let rows: String = COUNTERS.iter().map(row).collect();
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/counters.md");
    let document = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = document.split_once("|---|---|---|---|\n").unwrap();
    let after = rest.split_once("\n\n").map_or("", |(_, after)| after);
    let right = format!("{before}|---|---|---|---|\n{rows}\n{after}");
    if std::env::var_os("GROSSO_WRITE_DOCUMENTS").is_some() {
        std::fs::write(&path, &right).unwrap();
    }
    assert!(document == right, "regenerate it: GROSSO_WRITE_DOCUMENTS=1 cargo test -p grosso-cli");
}

/// Starts a service in a new directory. Also returns the number of times that it has read the paths' counters.
fn service(bounds: ClientBounds, metrics: bool) -> (tempfile::TempDir, Service, Arc<AtomicUsize>) {
    let folder = tempfile::tempdir().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let address = metrics.then(|| SocketAddr::from(([127, 0, 0, 1], 0)));
    let places = [folder.path().join("run")];
    let service = Service::start_in(&places, bounds, address, move || {
        count.fetch_add(1, Ordering::Relaxed);
        vec![sample()]
    });
    (folder, service.unwrap(), asked)
}

fn ask(service: &Service) -> Answers {
    ask_all(
        &[service.socket().unwrap().parent().unwrap().to_owned()],
        &Ask::Counters { per_queue: false },
    )
}

const FOREVER: ClientBounds =
    ClientBounds { client_time: Duration::from_secs(3600), fresh: Duration::from_secs(3600) };

#[test]
fn a_client_receives_the_counters() {
    let (_folder, service, asked) = service(FOREVER, false);
    let mode =
        |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(service.socket().unwrap()), 0o600);
    assert_eq!(mode(service.socket().unwrap().parent().unwrap()), 0o700);
    for _ in 0..100 {
        let Answers { answers, silent, forbidden } = ask(&service);
        assert_eq!((silent.len(), forbidden.len(), answers.len()), (0, 0, 1));
        assert_eq!(answers[0].devices, devices(&[sample()], false));
    }
    assert_eq!(asked.load(Ordering::Relaxed), 1, "a fresh reading is reused");
    let socket = service.socket().unwrap().to_owned();
    drop(service);
    assert!(!socket.exists());
}

#[test]
fn sockets_of_programs_that_were_killed_are_removed_and_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    let places = [folder.path().to_owned()];
    let mine = folder.path().join(format!("{}.sock", std::process::id()));
    for path in [&mine, &folder.path().join("4.sock")] {
        // The socket file remains after the listener is dropped.
        drop(std::os::unix::net::UnixListener::bind(path).unwrap());
    }
    let start = || Service::start_in(&places, FOREVER, None, || vec![sample()]).unwrap();
    let (first, second) = (start(), start());
    assert_eq!(first.socket().unwrap(), mine);
    assert_ne!(second.socket().unwrap(), mine, "another program listens on the socket");
    let answers = ask(&first);
    assert_eq!((answers.answers.len(), answers.silent.len()), (2, 0));
    assert!(!folder.path().join("4.sock").exists());
}

#[test]
fn folders_in_which_others_can_write_are_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let open = folder.path().join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(folder.path(), &link).unwrap();
    for bad in [&open, &link] {
        let started = Service::start_in(std::slice::from_ref(bad), FOREVER, None, Vec::new);
        let started = started.unwrap();
        let [Missing::Socket(error)] = started.missing() else { panic!("{started:?}") };
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
        assert_eq!(started.socket(), None);
    }
    let good = folder.path().join("good");
    let service = Service::start_in(&[open, good.clone()], FOREVER, None, Vec::new).unwrap();
    assert_eq!(service.socket().unwrap().parent().unwrap(), good);
}

#[test]
fn nonsense_is_answered_and_does_no_harm() {
    let (_folder, service, _) = service(FOREVER, false);
    for nonsense in [&b"\n"[..], b"{\"ask\":\"everything\"}\n", &[0xff; 9000], b"[[[[[[[[\n"] {
        let mut stream = UnixStream::connect(service.socket().unwrap()).unwrap();
        stream.write_all(nonsense).unwrap();
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).unwrap();
        let reply: Value = serde_json::from_slice(&reply).unwrap();
        assert_eq!(reply["code"], "usage.ask");
    }
    assert_eq!(ask(&service).answers.len(), 1);
}

#[test]
fn requests_that_are_too_long_are_answered_and_read_up_to_a_bound() {
    let (_folder, service, _) = service(FOREVER, true);
    let cookie = "a".repeat(4 * ASK_BYTES_MAX);
    let request = format!("GET /metrics HTTP/1.1\r\nCookie: {cookie}\r\n\r\n");
    let (head, body) = get(&service, &request);
    assert!(head.starts_with("HTTP/1.1 431 ") && body.contains("too long"), "{head}{body}");
    let request = format!("POST /metrics HTTP/1.1\r\n\r\n{cookie}");
    assert!(get(&service, &request).0.starts_with("HTTP/1.1 405 "));
    let mut stream = UnixStream::connect(service.socket().unwrap()).unwrap();
    stream.write_all(cookie.as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.contains("invalid request: the line is longer than 8192 bytes"), "{reply}");
    // The server must close this connection.
    let mut endless = TcpStream::connect(service.metrics().unwrap()).unwrap();
    while endless.write_all(cookie.as_bytes()).is_ok() {}
    assert_eq!(ask(&service).answers.len(), 1);
}

#[test]
fn clients_that_stall_are_cut_and_those_that_ask_are_answered() {
    let bounds = ClientBounds { client_time: Duration::from_secs(2), ..FOREVER };
    let (_folder, service, _) = service(bounds, true);
    let mut slow = TcpStream::connect(service.metrics().unwrap()).unwrap();
    slow.write_all(b"GET /met").unwrap();
    let mut nothing = Vec::new();
    // The server must close this connection.
    let _ = slow.read_to_end(&mut nothing);
    assert!(nothing.is_empty());
    assert_eq!(ask(&service).answers.len(), 1);
}

#[test]
fn metrics_are_served_where_there_is_no_socket_and_the_socket_where_there_are_no_metrics() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let places = [folder.path().join("run")];
    let service = Service::start_in(&places, FOREVER, Some(address), || vec![sample()]).unwrap();
    assert!(matches!(service.missing(), [Missing::Metrics(at, _)] if *at == address));
    assert_eq!((ask(&service).answers.len(), service.metrics()), (1, None));
    let places = [PathBuf::from("/proc/nowhere")];
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let service = Service::start_in(&places, FOREVER, Some(any), || vec![sample()]).unwrap();
    assert!(matches!(service.missing(), [Missing::Socket(_)]));
    assert!(get(&service, "GET /healthz HTTP/1.1\r\n\r\n").1.contains("ok"));
}

/// Tests that each listener has its own client limit: stalled clients of one listener do not push out a client of the
/// other.
#[test]
fn stalled_clients_of_metrics_leave_one_at_the_socket_in_its_place() {
    let (_folder, service, _) = service(FOREVER, true);
    let mut early = UnixStream::connect(service.socket().unwrap()).unwrap();
    early.write_all(b"{\"ask\":").unwrap();
    for _ in 0..3 {
        let flood = |_| TcpStream::connect(service.metrics().unwrap()).unwrap();
        let _idle: Vec<TcpStream> = (0..CLIENTS_MAX).map(flood).collect();
        // When the server sends this response, it has accepted all connections of the flood.
        assert!(get(&service, "GET /healthz HTTP/1.1\r\n\r\n").1.contains("ok"));
    }
    early.write_all(b"\"counters\"}\n").unwrap();
    let mut answer = String::new();
    early.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("grosso."), "{answer}");
}

#[test]
fn a_flood_of_clients_does_not_exclude_others() {
    let (_folder, service, _) = service(FOREVER, true);
    let flood = |_| TcpStream::connect(service.metrics().unwrap()).unwrap();
    let _idle: Vec<TcpStream> = (0..3 * CLIENTS_MAX).map(flood).collect();
    assert_eq!(ask(&service).answers.len(), 1);
    assert!(get(&service, "GET /healthz HTTP/1.1\r\n\r\n").1.contains("ok"));
}

/// Returns the head and the body of an HTTP response.
fn get(service: &Service, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(service.metrics().unwrap()).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

#[test]
fn prometheus_gets_its_page() {
    let (_folder, service, _) = service(FOREVER, true);
    let (head, body) = get(&service, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())));
    assert_prometheus(&body);
    let (head_only, none) = get(&service, "HEAD /metrics HTTP/1.1\r\n\r\n");
    assert_eq!((head_only, none.as_str()), (head, ""));
    let (head, body) = get(&service, "GET / HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 404 ") && !body.is_empty());
    assert_eq!(get(&service, "HEAD / HTTP/1.1\r\n\r\n"), (head, String::new()));
    let (head, _) = get(&service, "POST /metrics HTTP/1.1\r\nContent-Length: 0\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 405 ") && head.contains("Allow: GET, HEAD"));
}

#[test]
fn a_program_without_paths_is_not_healthy() {
    let folder = tempfile::tempdir().unwrap();
    let address = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    let service = Service::start_in(&[folder.path().into()], FOREVER, address, Vec::new).unwrap();
    assert!(get(&service, "GET /healthz HTTP/1.1\r\n\r\n").0.starts_with("HTTP/1.1 503 "));
}
