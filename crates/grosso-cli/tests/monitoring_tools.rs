//! Feeds tcpflow, softflowd, Argus and pmacct from `grosso capture --to` on a device with its offloads on. They must
//! report the streams, packets and bytes on the wire.

#![cfg(target_os = "linux")]

use std::{
    collections::BTreeMap,
    fs,
    io::Read,
    net::UdpSocket,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::json;

use crate::{
    common::{Bench, Timed, report},
    network::{Running, STALLED, skip},
    tap::{signal, start, until},
    vantage::{BYTES, Chain, IPV4, Way, ip, is_over, set},
};

/// Environment variable that sets for how many seconds to repeat connections. If it is not set, there is only one
/// connection.
const SECONDS: &str = "GROSSO_MONITOR_SECONDS";
/// Pause between two connections, so that the captures of ten minutes fit on a disk.
const PAUSE: Duration = Duration::from_millis(500);

/// Source and destination port for one direction of a connection.
type Ports = (u16, u16);

/// Packets and bytes of one direction of a connection.
type Counted = BTreeMap<Ports, (u64, u64)>;

/// Test setup: a sender with its offloads on, and a device on which monitors receive the wire packets.
struct Watched {
    chain: Chain,
    bench: Bench,
    capture: Child,
}

impl Watched {
    fn new(tools: &[&str]) -> Option<Self> {
        if let Some(tool) = tools.iter().find(|tool| Command::new(tool).arg("-h").output().is_err())
        {
            skip(&format!("{tool} is not installed"));
            return None;
        }
        let chain = Chain::new(Way { mtu: 1500, behind: None })?;
        ip(&chain.sender, "link set lo up");
        set(&chain.sender, "s0", "rx-gro", true);
        let bench = Bench::new();
        // The ring has room for all packets of a stream and of later traffic, even on a busy host.
        let line = "capture -i s0 --json --ring 256M -F pcap -w x.pcap --to tap:mon0";
        let mut command = bench.command(line);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let capture = start(&chain.sender, command, &bench.path("x.pcap"));
        Some(Self { chain, bench, capture })
    }

    /// Starts a monitor, and waits until it prints `said`, which means that it is listening.
    fn monitor(&self, line: &str, said: &str) -> Running {
        let mut words = line.split(' ');
        let mut command = Command::new(words.next().unwrap());
        command.args(words).current_dir(self.bench.path("."));
        let running = Running::spawn(self.chain.sender.host(&mut command).unwrap());
        running.wait_for_line(said);
        running
    }

    /// Sends one stream, or consecutive streams for as long as [`SECONDS`] says. Returns the wire packets of both
    /// directions, once all of them have reached the monitors' device.
    fn stream(&self) -> Vec<Timed> {
        self.streams(std::env::var(SECONDS).map_or(0, |seconds| seconds.parse().unwrap()))
    }

    /// Sends one or more consecutive streams for this many seconds, and returns the wire packets of both directions.
    fn streams(&self, seconds: u64) -> Vec<Timed> {
        let (begun, length) = (Instant::now(), Duration::from_secs(seconds));
        let ends = self.chain.ends(IPV4);
        let mut seen = self.chain.record(&[(&self.chain.receiver, "d0")], IPV4, || {
            self.chain.stream(ends, BYTES);
            while begun.elapsed() < length {
                thread::sleep(PAUSE);
                self.chain.stream(ends, BYTES);
            }
            // A monitor may receive a block of packets only when the kernel has filled it.
            self.chain.datagrams(ends, 1200, &[30; 3000]);
        });
        until(|| is_over(&self.bench.path("x.pcap")));
        let mut packets = seen.remove(0);
        packets.retain(|(_, frame)| frame[12..14] == [8, 0] && frame[23] == 6);
        assert!(packets.len() > BYTES / 1448, "{}", packets.len());
        packets
    }

    /// Ends the capture, and asserts that it lost nothing, left no superframe unsegmented, and passed no wrong checksum
    /// to a monitor.
    fn end(mut self) {
        signal(&self.capture, "TERM");
        let mut said = String::new();
        self.capture.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(self.capture.wait().unwrap().success());
        let report = report(&said);
        let monitor = &report["outputs"][1];
        assert_eq!((&report["drops"], &monitor["lost"]), (&0.into(), &json!({})), "{report}");
        assert_eq!(report["wire"]["left"], json!({}), "{report}");
        let sums = self.bench.run("csum verify x.pcap --json").json()["checksums"].clone();
        assert_eq!((&sums["bad"], &sums["partial"]), (&0.into(), &0.into()), "{sums}");
        println!(
            "to the monitor: {} packets, lost 0, checksums {sums}; {} superframes were split",
            monitor["packets"], report["wire"]["superframes"]
        );
    }
}

/// Prints a monitor's counts with and without Grosso, next to the counts on the wire.
fn print_counts(monitor: &str, wire: &Counted, behind: &Counted, beside: &Counted) {
    let sum = |counted: &Counted| {
        let (packets, bytes) =
            counted.values().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        format!("{packets} packets, {bytes} bytes")
    };
    let (flows, wire, behind, beside) = (wire.len() / 2, sum(wire), sum(behind), sum(beside));
    println!(
        "{monitor}, {flows} connections: wire {wire}; behind Grosso {behind}; without {beside}"
    );
}

fn ports(frame: &[u8]) -> Ports {
    let port = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    (port(34), port(36))
}

fn ip_bytes(frame: &[u8]) -> usize {
    usize::from(u16::from_be_bytes([frame[16], frame[17]]))
}

/// Returns the number of packets and bytes in each direction; `bytes` determines whether a frame's IP packet or the
/// whole frame counts.
fn counted(packets: &[Timed], bytes: impl Fn(&[u8]) -> usize) -> Counted {
    let mut counted = Counted::new();
    for (_, frame) in packets {
        let count = counted.entry(ports(frame)).or_default();
        *count = (count.0 + 1, count.1 + bytes(frame) as u64);
    }
    counted
}

#[test]
#[ignore = "other monitors drop packets on a busy machine: bash .ci/run experiments"]
fn tcpflow_writes_the_very_streams() {
    let Some(watched) = Watched::new(&["tcpflow"]) else { return };
    let tcpflow = watched.monitor("tcpflow -i mon0 -o streams", "listening on mon0");
    let mut streams: BTreeMap<Ports, (u32, Vec<u8>)> = BTreeMap::new();
    for (_, frame) in watched.stream() {
        let payload = &frame[34 + usize::from(frame[46] >> 4) * 4..14 + ip_bytes(&frame)];
        let sequence = u32::from_be_bytes(frame[38..42].try_into().unwrap());
        // The first packet of a direction is its SYN.
        let begin = (sequence.wrapping_add(1), Vec::new());
        let (begin, bytes) = streams.entry(ports(&frame)).or_insert(begin);
        if !payload.is_empty() {
            // A retransmission has the position of the original.
            let place = sequence.wrapping_sub(*begin) as usize;
            bytes.resize(bytes.len().max(place + payload.len()), 0);
            bytes[place..place + payload.len()].copy_from_slice(payload);
        }
    }
    streams.retain(|_, (_, bytes)| !bytes.is_empty());
    let file = |(source, destination): &Ports| {
        let ends = format!("010.009.000.001.{source:05}-010.009.000.002.{destination:05}");
        watched.bench.path(&format!("streams/{ends}"))
    };
    for (ports, (_, sent)) in &streams {
        assert_eq!(sent.len(), BYTES);
        let is_whole = |metadata: fs::Metadata| metadata.len() >= BYTES as u64;
        until(|| fs::metadata(file(ports)).is_ok_and(is_whole));
    }
    assert_eq!(tcpflow.stop(Signal::INT).code, Some(0));
    for (ports, (_, sent)) in &streams {
        assert!(fs::read(file(ports)).unwrap() == *sent, "{:?}", file(ports));
    }
    println!("tcpflow, {} streams: all {BYTES} bytes of each are those of the wire", streams.len());
    watched.end();
}

#[test]
#[ignore = "other monitors drop packets on a busy machine: bash .ci/run experiments"]
fn softflowd_counts_the_packets_and_bytes_of_the_wire() {
    let Some(watched) = Watched::new(&["softflowd", "softflowctl"]) else { return };
    let listen = |port: u16| {
        let socket = watched.chain.sender.run(|| UdpSocket::bind(("127.0.0.1", port)));
        let socket = socket.unwrap().unwrap();
        socket.set_read_timeout(Some(STALLED)).unwrap();
        socket
    };
    let start = |device: &str, collector: &UdpSocket| {
        let address = collector.local_addr().unwrap();
        let line =
            format!("softflowd -i {device} -n {address} -v 5 -d -c {device}.ctl -p {device}.pid");
        watched.monitor(&line, "Exporting flows")
    };
    let collectors = [listen(0), listen(0)];
    let meters = [start("mon0", &collectors[0]), start("s0", &collectors[1])];
    let wire = counted(&watched.stream(), ip_bytes);
    let [behind, beside] = ["mon0", "s0"].map(|device| {
        let mut command = Command::new("softflowctl");
        command.args(["-c", &format!("{device}.ctl"), "shutdown"]);
        command.current_dir(watched.bench.path(".")).stdout(Stdio::null());
        assert!(watched.chain.sender.host(&mut command).unwrap().status().unwrap().success());
        let collector = &collectors[usize::from(device == "s0")];
        flows(collector, &wire)
    });
    print_counts("softflowd", &wire, &behind, &beside);
    assert_eq!(behind, wire);
    let packets = |counted: &Counted| counted.values().map(|(packets, _)| packets).sum::<u64>();
    assert!(packets(&beside) < packets(&wire), "without Grosso: {beside:?}");
    meters.into_iter().for_each(|meter| drop(meter.end()));
    watched.end();
}

/// Returns the requested flows that a collector receives (NetFlow version 5).
fn flows(collector: &UdpSocket, asked: &Counted) -> Counted {
    let (mut found, mut datagram) = (Counted::new(), [0; 2048]);
    while found.len() < asked.len() {
        let len = collector.recv(&mut datagram).expect("all flows are reported");
        let short = |at: usize| u16::from_be_bytes([datagram[at], datagram[at + 1]]);
        let long = |at: usize| u64::from(short(at)) << 16 | u64::from(short(at + 2));
        for record in (24..len).step_by(48) {
            let ports = (short(record + 32), short(record + 34));
            if asked.contains_key(&ports) {
                found.insert(ports, (long(record + 16), long(record + 20)));
            }
        }
    }
    found
}

#[test]
#[ignore = "other monitors drop packets on a busy machine: bash .ci/run experiments"]
fn argus_counts_the_packets_and_bytes_of_the_wire() {
    let Some(watched) = Watched::new(&["argus", "ra"]) else { return };
    let start = |device: &str| {
        let line = format!("argus -i {device} -S 1 -w {device}.argus");
        watched.monitor(&line, &format!("interface {device} is up"))
    };
    let meters = ["mon0", "s0"].map(start);
    let wire = counted(&watched.stream(), <[u8]>::len);
    until(|| records(&watched.bench, "mon0") == wire);
    meters.into_iter().for_each(|meter| drop(meter.stop(Signal::INT)));
    let beside = records(&watched.bench, "s0");
    print_counts("Argus", &wire, &records(&watched.bench, "mon0"), &beside);
    let packets = |counted: &Counted| counted.values().map(|(packets, _)| packets).sum::<u64>();
    assert!(packets(&beside) < packets(&wire), "without Grosso: {beside:?}");
    watched.end();
}

/// Returns the TCP connections that Argus has recorded so far.
fn records(bench: &Bench, device: &str) -> Counted {
    let mut command = Command::new("ra");
    let columns = "-c , -s sport dport spkts dpkts sbytes dbytes - tcp";
    command.args(format!("-n -r {device}.argus {columns}").split(' '));
    let output = command.current_dir(bench.path(".")).output().unwrap();
    let mut found = Counted::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let numbers: Result<Vec<u64>, _> = line.split(',').map(str::parse).collect();
        let Ok([source, destination, there, back, bytes_there, bytes_back]) =
            numbers.as_deref().map(|numbers| <[u64; 6]>::try_from(numbers).unwrap())
        else {
            continue;
        };
        let (source, destination) = (source as u16, destination as u16);
        for (ports, packets, bytes) in
            [((source, destination), there, bytes_there), ((destination, source), back, bytes_back)]
        {
            let count = found.entry(ports).or_default();
            *count = (count.0 + packets, count.1 + bytes);
        }
    }
    found
}

#[test]
#[ignore = "other monitors drop packets on a busy machine: bash .ci/run experiments"]
fn pmacctd_counts_the_packets_and_bytes_of_the_wire() {
    let Some(watched) = Watched::new(&["pmacctd"]) else { return };
    let start = |device: &str| {
        let file = watched.bench.path(&format!("{device}.csv"));
        // The program prints its counts every second, so they have to be added up.
        let config = format!(
            "daemonize: false\npcap_interface: {device}\nplugins: print\n\
             aggregate: src_port, dst_port, proto\nprint_output: csv\n\
             print_output_file: {}\nprint_output_file_append: true\nprint_refresh_time: 1\n\
             pmacctd_pipe_size: 67108864\nplugin_pipe_size: 67108864\nplugin_buffer_size: 65536\n",
            file.display()
        );
        watched.bench.put(&format!("{device}.conf"), config.as_bytes());
        watched.monitor(&format!("pmacctd -f {device}.conf"), "link type is")
    };
    let meters = ["mon0", "s0"].map(start);
    // If pmacctd prints every second, it reports more packets than its device carried for two of a thousand
    // connections.
    let wire = counted(&watched.streams(0), ip_bytes);
    until(|| printed(&watched.bench, "mon0") == wire);
    meters.into_iter().for_each(|meter| drop(meter.stop(Signal::INT)));
    let beside = printed(&watched.bench, "s0");
    print_counts("pmacctd", &wire, &printed(&watched.bench, "mon0"), &beside);
    let packets = |counted: &Counted| counted.values().map(|(packets, _)| packets).sum::<u64>();
    assert!(packets(&beside) < packets(&wire), "without Grosso: {beside:?}");
    watched.end();
}

/// Returns the TCP connections that pmacctd has printed so far.
fn printed(bench: &Bench, device: &str) -> Counted {
    let text = fs::read_to_string(bench.path(&format!("{device}.csv"))).unwrap_or_default();
    let mut found = Counted::new();
    for line in text.lines() {
        let [source, destination, "tcp", packets, bytes] = line.split(',').collect::<Vec<_>>()[..]
        else {
            continue;
        };
        let numbers = (packets.parse::<u64>(), bytes.parse::<u64>());
        let (Ok(packets), Ok(bytes)) = numbers else { continue };
        let ports = (source.parse().unwrap(), destination.parse().unwrap());
        let count = found.entry(ports).or_default();
        *count = (count.0 + packets, count.1 + bytes);
    }
    found
}
