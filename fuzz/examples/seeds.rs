//! Writes the initial corpus of every fuzz target: `seeds DIRECTORY`. The test kit generates packets and captures. Text
//! inputs come from the documents, and their words form the target's dictionary, `DIRECTORY/TARGET.dict`.

use std::{collections::BTreeSet, fs, io, path::Path};

use grosso::meta::{Gso, Meta};
use grosso_capture::{CaptureWriter, Format, Offload, PacketMeta, WriterOptions};
use grosso_cli::fuzzing;
use grosso_testkit::{
    Traffic,
    oracle::{Link, Rules, join, trains},
    random::Random,
    stack::{Place, Stack},
};

/// Number of inputs for each target.
const SEEDS: u64 = 200;

fn main() -> io::Result<()> {
    let directory = std::env::args_os().nth(1).ok_or(io::ErrorKind::InvalidInput)?;
    let directory = Path::new(&directory);
    for seed in 0..SEEDS {
        let mut random = Random::new(seed);
        write(directory, "dissect", seed, &dissect(seed, &mut random))?;
        write(directory, "capture", seed, &capture(seed, &mut random))?;
        write(directory, "coalesce", seed, &coalesce(&mut random))?;
        write(directory, "reassemble", seed, &random.bytes(120))?;
        write(directory, "decapsulate", seed, &random.bytes(30))?;
        write(directory, "esp", seed, &random.bytes(60))?;
        write(directory, "segment", seed, &random.bytes(40))?;
        write(directory, "virtio", seed, &random.bytes(40))?;
        write(directory, "expand", seed, &actions(&mut random, 8, 80))?;
        write(directory, "path", seed, &actions(&mut random, 6, 60))?;
        write(directory, "path_mtu", seed, &random.bytes(12))?;
        write(directory, "probing", seed, &probes(&mut random))?;
        write(directory, "stages", seed, &actions(&mut random, 12, 60))?;
        write(directory, "judge", seed, &judge(seed, &mut random))?;
    }
    let documents = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let configuration = fs::read_to_string(documents.join("configuration.md"))?;
    let paths = PATHS.map(|words| format!("[[path]]\n{words}\n"));
    texts(directory, "configuration", &[&paths[..], &blocks(&configuration)].concat())?;
    texts(directory, "profile", &fuzzing::profiles())?;
    let tunnels = [&TUNNELS[..], &ASSOCIATIONS[..]].concat();
    texts(directory, "tunnel_words", &tunnels.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    texts(directory, "request", &REQUESTS.map(str::to_owned))?;
    texts(directory, "files", &FILES.map(str::to_owned))?;
    write(directory, "files", FILES.len() as u64, &records())?;
    texts(directory, "impair", &WIRES.map(|words| format!("{words}\0{}", "@@@@".repeat(40))))
}

/// Writes texts, and the dictionary of their words.
fn texts(directory: &Path, target: &str, texts: &[String]) -> io::Result<()> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    let mut words = BTreeSet::new();
    for (seed, text) in (0..).zip(texts) {
        write(directory, target, seed, text.as_bytes())?;
        words.extend(text.split(|c| !is_word(c)).filter(|word| word.len() > 1));
    }
    let entries = words.iter().map(|word| format!("\"{word}\"\n"));
    fs::write(directory.join(format!("{target}.dict")), entries.collect::<String>())
}

/// Returns the TOML blocks of a document.
fn blocks(document: &str) -> Vec<String> {
    let parts = document.split("```toml\n").skip(1);
    parts.filter_map(|part| Some(part.split_once("```")?.0.to_owned())).collect()
}

fn write(directory: &Path, target: &str, seed: u64, bytes: &[u8]) -> io::Result<()> {
    let directory = directory.join(target);
    fs::create_dir_all(&directory)?;
    fs::write(directory.join(format!("seed-{seed}")), bytes)
}

/// Returns fuzz input with a link type, ports, and a frame with a random header stack.
fn dissect(seed: u64, random: &mut Random) -> Vec<u8> {
    let stacks = Stack::all();
    let stack = &stacks[seed as usize * 7 % stacks.len()];
    let raw = u8::from(stack.link() == Link::Ip);
    let payload = random.below(64);
    let frame = stack.packet(&Place::default()).payload_len(payload).build();
    [&[raw, 0][..], &frame].concat()
}

/// Returns a small capture in one of the two formats, with superframes.
fn capture(seed: u64, random: &mut Random) -> Vec<u8> {
    let format = if seed.is_multiple_of(2) { Format::Pcap } else { Format::Pcapng };
    let mut writer = CaptureWriter::new(Vec::new(), WriterOptions::new(format));
    for frame in Traffic::new(seed).take(random.within(1, 4)) {
        let gso = Gso::every(100).filter(|_| random.one_in(2));
        let offload = Some(Offload::new(&Meta { gso, ..Meta::default() }));
        let meta =
            PacketMeta { timestamp_ns: Some(random.bits() >> 3), offload, ..PacketMeta::default() };
        // Packets are short, so that the fuzzer finds the headers more easily.
        let frame = &frame[..frame.len().min(120)];
        writer.write_packet(&meta, frame).expect("writing to memory succeeds");
    }
    writer.finish().expect("writing to memory succeeds")
}

/// Returns a capture of packets and superframes, and the sizes to pass to the classifier, which are often unknown.
fn judge(seed: u64, random: &mut Random) -> Vec<u8> {
    let format = if seed.is_multiple_of(2) { Format::Pcap } else { Format::Pcapng };
    let mut writer = CaptureWriter::new(Vec::new(), WriterOptions::new(format));
    let mut given = random.bytes(4);
    if random.percent(70) {
        given[0] = 0;
    }
    let frames: Vec<_> = Traffic::new(seed).take(random.within(4, 16)).collect();
    for train in trains(&frames, Link::Ethernet, Rules::default()) {
        let packets: Vec<_> = train.packets.iter().map(|number| frames[*number].clone()).collect();
        // The classifier has to find out whether the frame is a packet from a wire.
        let frame = match packets.len() {
            1 => packets[0].clone(),
            _ => join(&packets, Link::Ethernet).0,
        };
        let meta = PacketMeta { timestamp_ns: Some(seed), ..PacketMeta::default() };
        writer.write_packet(&meta, &frame).expect("writing to memory succeeds");
    }
    [given, writer.finish().expect("writing to memory succeeds")].concat()
}

/// Returns choices and a list of actions. Most actions have number 0, the common one.
fn actions(random: &mut Random, choices: usize, count: usize) -> Vec<u8> {
    let mut bytes = random.bytes(choices);
    for _ in 0..random.within(4, count) {
        bytes.push(if random.percent(70) { 0 } else { random.bits() as u8 });
    }
    bytes
}

/// Returns events on a path with an MTU of 1500 bytes and a separate loss rate for long packets. The prober is polled
/// every second, or as often as possible while messages report a smaller MTU.
fn probes(random: &mut Random) -> Vec<u8> {
    let [hear, lose, answer, poll, long_packets] = [0, 3, 4, 6, 1];
    let step = if random.percent(50) { 64 } else { 1 };
    let losses = random.within(0, 100);
    let mut bytes = vec![2];
    for _ in 0..random.within(20, 60) {
        bytes.extend([0, hear, 5, 100, step, poll, long_packets, 0, answer, 0]);
        bytes.push(if random.percent(losses) { lose } else { answer });
    }
    bytes
}

/// Paths with as few keys as possible.
const PATHS: [&str; 6] = [
    "left = \"a\"\nright = \"tap:b\"",
    "left = \"a\"\nright = { port = \"tun:b\", mtu = 68, terminates = true }\ngro = false",
    "left = \"xdp:a:0\"\nright = \"fd:3\"\nqueues = 2\ncpus = [0, 1]\nrx-usecs = 20",
    "left = { port = \"a\", fragments = { mtu = 1500 } }\nright = \"b\"\nimpair = \"loss 1%\"",
    "left = \"tun:a\"\n[path.right.tunnel]\ntype = \"sit\"\nlocal = \"192.0.2.1\"\nremote = \"192.0.2.2\"",
    "left = \"a\"\nright = \"b\"\nprofile = \"vector\"\nadaptive-rx = true",
];

/// Pairs of security associations: once as `ip xfrm` prints them, and once as it accepts them.
const ASSOCIATIONS: [&str; 2] = [
    "src 10.0.0.1 dst 10.0.0.2\n\tproto esp spi 0x00001001 reqid 1 mode tunnel\n\treplay-window 0 seq 0x00000000 \
     flag esn\n\taead rfc4106(gcm(aes)) 0x000102030405060708090a0b0c0d0e0fdeadbeef 96\n\tanti-replay esn context:\n\t \
     seq-hi 0x0, seq 0x0, oseq-hi 0x0, oseq 0x0\n\t replay_window 64, bitmap-length 2\n\t 00000000 00000000\n\tsel src \
     10.1.0.0/16 dst 10.2.0.0/16\nsrc 10.0.0.2 dst 10.0.0.1\n\tproto esp spi 0x00001002 reqid 1 mode tunnel\n\t\
     replay-window 32 flag esn\n\taead rfc4106(gcm(aes)) 0xf00102030405060708090a0b0c0d0e0fdeadbeef 96\n\tsel src \
     10.2.0.0/16 dst 10.1.0.0/16\n",
    "ip xfrm state add src 10.0.0.1 dst 10.0.0.2 proto esp spi 300 mode transport replay-window 32 encap espinudp 4500 \
     4501 0.0.0.0 aead 'rfc4106(gcm(aes))' 0x000102030405060708090a0b0c0d0e0fdeadbeef 128\nip x s a src 10.0.0.2 dst \
     10.0.0.1 proto esp spi 301 encap espinudp 4501 4500 0.0.0.0 aead 'rfc4106(gcm(aes))' \
     0xf00102030405060708090a0b0c0d0e0fdeadbeef 128\n",
];

/// Tunnels with the arguments of `ip link`.
const TUNNELS: [&str; 10] = [
    "vxlan id 42 local 192.0.2.1 remote 192.0.2.2 dstport 4789 srcport 49152 65535 udpcsum df inherit ttl 64",
    "vxlan id 7 local 2001:db8::1 remote 2001:db8::2 udp6zerocsumtx udp6zerocsumrx gbp flowlabel 7 mtu-min 1280",
    "vxlan id 1 local 192.0.2.1 remote 192.0.2.2 remote 192.0.2.3 learning ageing 300 maxaddress 99",
    "geneve id 42 local 192.0.2.1 remote 192.0.2.2 innerprotoinherit tos inherit noudpcsum noprobe",
    "gre local 192.0.2.1 remote 192.0.2.2 key 9 csum seq nopmtudisc ignore-df ttl inherit",
    "gretap local 192.0.2.1 remote 192.0.2.2 encap gue encap-sport auto encap-dport 6080 encap-csum encap-remcsum",
    "ipip local 192.0.2.1 remote 192.0.2.2 mode any encap fou encap-dport 5555 noencap-csum",
    "sit local 192.0.2.1 remote 192.0.2.2 encap gue encap-variant 1 tos 8",
    "ip6tnl local 2001:db8::1 remote 2001:db8::2 encaplimit none mode any",
    "ip6gre local 2001:db8::1 remote 2001:db8::2 encaplimit 4 key 1.2.3.4 encap gue encap-csum6",
];

/// Requests for counters, each preceded by a protocol number: 0 for a plain line, 1 for HTTP.
const REQUESTS: [&str; 6] = [
    "\u{0}{\"ask\":\"counters\"}\n",
    "\u{0}{\"ask\":\"counters\",\"per_queue\":true}\n",
    "\u{1}GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n",
    "\u{1}HEAD /healthz HTTP/1.0\r\n\r\n",
    "\u{1}POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
    "\u{1}OPTIONS * HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
];

/// Returns the output of a program under test for one poll: a packet, and a superframe of two packets.
fn records() -> Vec<u8> {
    let packets: Vec<_> = Traffic::new(1).take(1).collect();
    let mut bytes = vec![2];
    for header in [[0; 10], [0, 1, 54, 0, 100, 0, 0, 0, 0, 0]] {
        bytes.extend((header.len() as u32 + packets[0].len() as u32).to_le_bytes());
        bytes.extend(header);
        bytes.extend(&packets[0]);
    }
    bytes.extend([0; 4]);
    bytes
}

/// Files with keys and sequence numbers, and a reply with counters. Each is preceded by the number of its kind.
const FILES: [&str; 5] = [
    "\u{0}in 000102030405060708090a0b0c0d0e0fdeadbeef\nout 0xf00102030405060708090a0b0c0d0e0fdeadbeef\n",
    "\u{0}# 256 bits\nin 000102030405060708090a0b0c0d0e0f000102030405060708090a0b0c0d0e0fdeadbeef\nout f0\n",
    "\u{3}grosso-esp-sequences/2\nkeys 0000000000000000000000000000feed\nout 00000000000001048576\nin \
     00000000000000000007\n",
    "\u{1}{\"schema\":\"grosso.counters/1\",\"pid\":7,\"ts_ns\":1,\"devices\":[{\"path\":\"edge\",\"device\":\"a\",\
     \"peer\":\"b\",\"queue\":0,\"idle_ns\":5,\"counters\":{\"rx_frames\":1,\"drop_rx_ring_full\":2}}]}\n",
    "\u{1}{\"schema\":\"grosso.counters/1\",\"pid\":7,\"ts_ns\":1,\"devices\":[],\"confinement\":{}}\n",
];

/// Arguments that describe impaired links.
const WIRES: [&str; 4] = [
    "delay 5ms jitter 1ms loss 10% reorder 20% seed 7",
    "rate 10G duplicate 20% corrupt 20% limit 9",
    "delay 10us skew 40us rate 100M limit 1000",
    "delay 1000s jitter 2000s loss 0.1% corrupt 100% seed 18446744073709551615",
];

/// Returns wide limits and a list of actions. Most of the actions continue a train.
fn coalesce(random: &mut Random) -> Vec<u8> {
    let mut bytes = random.bytes(7);
    bytes[1] |= 1;
    for _ in 0..random.within(4, 60) {
        // Action 0 sends the next segment of the first flow.
        let action = if random.percent(70) { 0 } else { random.bits() as u8 };
        bytes.push(action);
    }
    bytes
}
