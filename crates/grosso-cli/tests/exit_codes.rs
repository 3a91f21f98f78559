//! Every command exits with the codes that `grosso --help` lists: scripts depend on them.

use std::process::Stdio;

use grosso_capture::{CaptureWriter, Format, PacketMeta, WriterOptions};
use grosso_testkit::Packet;

use crate::common::{Bench, ETHERNET, capture, finished};

/// Creates files on which every command can run.
fn bench() -> Bench {
    let bench = Bench::new();
    let plain = |id: u16| {
        let packet = Packet::new().ethernet(|e| e).ipv4(move |ip| ip.id(id));
        packet.udp(|u| u).payload_len(200).build()
    };
    let plain: Vec<_> = (0..2000).map(plain).collect();
    bench.put("wire", &capture(Format::Pcapng, ETHERNET, &plain));
    let mut cut = capture(Format::Pcapng, ETHERNET, &plain[..20]);
    cut.truncate(cut.len() - 7);
    bench.put("cut", &cut);
    let mut damaged = capture(Format::Pcap, ETHERNET, &plain[..20]);
    let second = 24 + 16 + plain[0].len();
    damaged[second + 8..second + 12].copy_from_slice(&[0xff; 4]);
    bench.put("damaged", &damaged);
    bench.put("text", b"this is no capture");
    bench.put("usb", &capture(Format::Pcap, 189, &plain[..3]));
    let mut bad = plain[..3].to_vec();
    bad[1][40] ^= 1;
    bench.put("bad", &capture(Format::Pcap, ETHERNET, &bad));
    let tcp = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t);
    let superframe = tcp.payload_len(20_000).build_superframe().0;
    bench.put("super", &capture(Format::Pcap, ETHERNET, &[superframe]));
    let udp = Packet::new().ethernet(|e| e).ipv4(|ip| ip.df(true)).udp(|u| u);
    let udp = udp.payload_len(8000);
    bench.put("long", &capture(Format::Pcap, ETHERNET, &[udp.build()]));
    bench.put("datagrams", &capture(Format::Pcap, ETHERNET, &[udp.build_superframe().0]));
    let piece = Packet::new().ethernet(|e| e);
    let piece = piece.ipv4(|ip| ip.df(false).more_fragments(true).protocol(17)).payload(&[1; 80]);
    bench.put("fragment", &capture(Format::Pcap, ETHERNET, &[piece.build()]));
    bench.put("short", &short(&plain[..3]));
    bench
}

/// Returns a capture whose packets are all truncated.
fn short(frames: &[Vec<u8>]) -> Vec<u8> {
    let options = WriterOptions::new(Format::Pcap);
    let mut writer = CaptureWriter::new(Vec::new(), options);
    for frame in frames {
        let meta = PacketMeta { original_len: frame.len() as u32, ..PacketMeta::default() };
        writer.write_packet(&meta, &frame[..100]).unwrap();
    }
    writer.finish().unwrap()
}

/// Every command that reads captures. `IN` stands for the captures, and `OUT` for the capture to write.
const COMMANDS: &[&str] = &[
    "inspect IN",
    "coalesce -r IN -w OUT",
    "segment -r IN -w OUT",
    "wire -r IN -w OUT",
    "reassemble -r IN -w OUT",
    "decap -r IN -w OUT",
    "decap --recursive -r IN -w OUT",
    "encap -r IN -w OUT type ipip local 192.0.2.1 remote 192.0.2.2",
    "fragment --mtu 1500 -r IN -w OUT",
    "csum verify -r IN",
    "csum fix -r IN -w OUT",
    "explain IN -n 1",
    "whatif IN",
    "export IN --parquet OUT",
];

fn line(command: &str, input: &str, output: &str) -> String {
    command.replace("IN", input).replace("OUT", output)
}

#[test]
fn every_command_ends_with_0_when_it_did_what_was_asked() {
    let bench = bench();
    for command in COMMANDS {
        bench.ok(&line(command, "wire", "out"));
        // These commands have no option `--strict`, because they never have to leave packets unchanged.
        let never_leaves = ["inspect", "coalesce", "explain", "whatif", "export"];
        let name = command.split(' ').next().unwrap();
        let code = if never_leaves.contains(&name) { 2 } else { 0 };
        assert_eq!(
            bench.run(&(line(command, "wire", "out") + " --strict")).code,
            code,
            "{command}"
        );
    }
    for line in ["--help", "--version", "help wire", "profiles", "profiles show linux", "schema"] {
        bench.ok(line);
    }
}

#[test]
fn commands_that_are_asked_end_with_1_when_the_answer_is_no() {
    let bench = bench();
    for (line, code) in [
        ("csum verify -r wire", 0),
        ("csum verify -r bad", 1),
        ("csum verify -r short", 0),
        ("csum verify -r short --strict", 1),
        ("csum fix -r short -w out --strict", 1),
        ("wire -r short -w out", 0),
        ("wire -r super -w out", 0),
        ("wire -r super -w out --strict", 1),
        ("wire -r datagrams -w out", 0),
        ("wire -r datagrams -w out --strict", 1),
        ("fragment --mtu 1500 -r long -w out", 0),
        ("fragment --mtu 1500 -r long -w out --strict", 1),
        ("fragment --mtu 1500 -r long -w out --strict --ignore-df", 0),
        ("reassemble -r fragment -w out", 0),
        ("reassemble -r fragment -w out --strict", 1),
        ("decap -r fragment -w out", 0),
        ("decap -r fragment -w out --strict", 1),
        ("decap --recursive -r fragment -w out --strict", 1),
    ] {
        let run = bench.run(line);
        assert_eq!(run.code, code, "{line}: {}{}", run.stdout, run.stderr);
    }
}

#[test]
fn every_command_ends_with_2_when_the_command_line_is_wrong() {
    let bench = bench();
    for command in COMMANDS {
        for wrong in [" --no-such-option", " --color=purple"] {
            // Options after tunnel arguments would be parsed as tunnel arguments.
            let (name, rest) = command.split_once(' ').unwrap();
            let (name, rest) = match name {
                "csum" => {
                    let (action, rest) = rest.split_once(' ').unwrap();
                    (format!("csum {action}"), rest)
                }
                name => (name.to_string(), rest),
            };
            let run = bench.run(&line(&format!("{name}{wrong} {rest}"), "wire", "out"));
            assert_eq!(run.code, 2, "{command}{wrong}: {}", run.stderr);
        }
    }
    for command in COMMANDS.iter().filter(|command| command.contains("OUT")) {
        let run = bench.run(&line(command, "wire", "wire"));
        assert_eq!(run.code, 2, "{command} onto itself: {}", run.stderr);
    }
    for line in [
        "",
        "no-such-command",
        "explain wire -n 2001",
        "explain wire -n 0",
        "whatif",
        "schema no such command",
        "schema --no-such-option",
    ] {
        assert_eq!(bench.run(line).code, 2, "{line}");
    }
}

#[test]
fn every_command_ends_with_3_when_the_input_is_at_fault() {
    let bench = bench();
    for command in COMMANDS {
        for input in ["cut", "damaged", "text"] {
            // `explain` can explain the first packet of a damaged file.
            if command.starts_with("explain") && input != "text" {
                continue;
            }
            let run = bench.run(&line(command, input, "out"));
            assert_eq!(run.code, 3, "{command} of {input}: {}", run.stderr);
        }
        let run = bench.run(&format!("{} --allow-truncated", line(command, "cut", "out")));
        assert_eq!(run.code, 0, "{command}: {}", run.stderr);
        if !command.starts_with("explain") {
            let run = bench.run(&line(command, "usb", "out"));
            assert_eq!(run.code, 3, "{command} of USB: {}", run.stderr);
        }
    }
    for number in [20, 21] {
        assert_eq!(bench.run(&format!("explain cut -n {number}")).code, 3, "packet {number}");
    }
}

#[test]
fn every_command_ends_with_4_when_the_system_refuses() {
    let bench = bench();
    std::fs::create_dir(bench.path("empty")).unwrap();
    for command in COMMANDS {
        for input in ["nowhere", "empty"] {
            let run = bench.run(&line(command, input, "out"));
            assert_eq!(run.code, 4, "{command} of {input}: {}", run.stderr);
        }
        if command.contains("OUT") {
            let run = bench.run(&line(command, "wire", "no/such/folder"));
            assert_eq!(run.code, 4, "{command}: {}", run.stderr);
        }
    }
}

/// The exit code is 128 plus the number of SIGPIPE, as in shells.
#[test]
fn every_command_ends_with_141_when_nobody_reads_what_it_writes() {
    let bench = bench();
    for command in COMMANDS {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        // A table cannot be written to a pipe, but the report can.
        let output = if command.starts_with("export") { "out" } else { "-" };
        let mut command_line = bench.command(&line(command, "wire", output));
        let run = command_line.stdout(writer).stdin(Stdio::null()).output().unwrap();
        assert_eq!(run.status.code(), Some(141), "{command}");
    }
}

/// Help and version are written like reports: a full disk gives a different exit code from a closed pipe.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_exits_with_4_and_help_to_a_closed_pipe_with_141() {
    let bench = bench();
    for line in ["--help", "inspect --help", "--version", "inspect wire", "profiles"] {
        let full = std::fs::File::create("/dev/full").unwrap();
        let mut command = bench.command(line);
        let run = finished(command.stdout(full).stdin(Stdio::null()).output().unwrap());
        assert_eq!(run.code, 4, "{line}: {}", run.stderr);
        assert_eq!(run.stderr, "grosso: standard output: No space left on device\n", "{line}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = bench.command(line);
        let run = finished(command.stdout(writer).stdin(Stdio::null()).output().unwrap());
        assert_eq!((run.code, &*run.stderr), (141, ""), "{line}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_source_of_wireshark_ends_with_the_codes_of_every_command() {
    let bench = bench();
    bench.ok("--extcap-interfaces");
    for (line, code) in [
        ("extcap", 2),
        ("--extcap-interfaces --no-such-option", 2),
        ("--extcap-interface grosso-lo --capture", 2),
        ("--extcap-interface grosso-no --extcap-dlts", 4),
        ("--extcap-interface grosso-lo --capture --fifo no/such/pipe", 4),
    ] {
        let run = bench.run(line);
        assert_eq!(run.code, code, "{line}: {}", run.stderr);
    }
}

#[test]
fn reports_of_shares_are_merged_with_the_codes_of_every_command() {
    let bench = bench();
    for share in ["1/2", "2/2"] {
        let report = bench.ok(&format!("export wire --parquet out --shard {share} --json"));
        bench.put(&share.replace('/', "-"), &report.bytes);
    }
    bench.put("other", &bench.ok("inspect wire --json").bytes);
    bench.ok("merge 1-2 2-2");
    assert_eq!(bench.ok("merge 2-2 1-2 --json").json()["packets"]["counts"]["rows"], 2000);
    for (line, code) in [
        ("merge", 2),
        ("merge 1-2", 2),
        ("merge 1-2 1-2", 2),
        ("merge 1-2 2-2 --no-such-option", 2),
        ("merge 1-2 other", 3),
        ("merge 1-2 text", 3),
        ("merge 1-2 nowhere", 4),
    ] {
        let run = bench.run(line);
        assert_eq!(run.code, code, "{line}: {}", run.stderr);
    }
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let run = bench.command("merge 1-2 2-2").stdout(writer).output().unwrap();
    assert_eq!(run.status.code(), Some(141));
}

/// A pipe without a writer or an endless device must not block a command. If it does, this test hangs.
#[cfg(target_os = "linux")]
#[test]
fn reports_that_are_pipes_devices_or_longer_than_the_bound_are_refused_by_merge() {
    let bench = bench();
    let made = std::process::Command::new("mkfifo").arg(bench.path("pipe")).status().unwrap();
    assert!(made.success());
    let long = std::fs::File::create(bench.path("long")).unwrap();
    long.set_len((64 << 20) + 1).unwrap();
    for (line, why) in [
        ("merge pipe pipe", "pipe: not a regular file"),
        ("merge /dev/zero", "/dev/zero: not a regular file"),
        ("merge long", "long: more than 67108864 bytes"),
    ] {
        let run = bench.run(line);
        assert_eq!(run.code, 4, "{line}: {}", run.stderr);
        assert!(run.stderr.contains(why), "{line}: {}", run.stderr);
    }
}

#[test]
fn the_help_lists_the_codes() {
    let bench = bench();
    let help = bench.ok("--help").stdout;
    let codes: Vec<_> = help.split_once("Exit codes:").unwrap().1.split_whitespace().collect();
    let codes = codes.join(" ");
    for code in
        ["0 success", "1 the command worked", "2 usage", "3 input", "4 system error", "5 internal"]
    {
        assert!(codes.contains(code), "{codes}");
    }
    let words: Vec<&str> = codes.split_whitespace().collect();
    let codes = words.join(" ");
    for code in ["130 interrupted", "141 output pipe closed"] {
        assert!(codes.contains(code), "{codes}");
    }
}
