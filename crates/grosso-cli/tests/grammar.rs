//! Tests the syntax that all commands on captures share, and reading several captures as one.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use grosso_capture::{
    Block, CaptureReader, CaptureWriter, Entry, Interface, WriterOptions, options::code,
};
use serde_json::Value;

use crate::common::{Bench, has};

/// Every command that reads captures. `IN` stands for the captures.
const COMMANDS: &[&str] = &[
    "inspect IN",
    "coalesce IN",
    "segment IN",
    "wire IN",
    "reassemble IN",
    "decap IN",
    "decap --recursive IN",
    "encap IN type ipip local 192.0.2.1 remote 192.0.2.2",
    "fragment --mtu 1500 IN",
    "csum verify IN",
    "csum fix IN",
    "whatif IN",
    "export IN --parquet /dev/null",
];

/// Commands that read no capture.
const OTHERS: &[&str] = &[
    "bridge", "capture", "config", "conform", "dev", "doctor", "extcap", "help", "lab", "merge",
    "monitor", "profiles", "run", "schema", "stats",
];

fn bench() -> Bench {
    let bench = Bench::new();
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures");
    fs::create_dir(bench.path("folder")).unwrap();
    for (from, to) in [("host.pcap", "a.pcap"), ("ipv6.pcap", "b.pcap")] {
        fs::copy(captures.join(from), bench.path(to)).unwrap();
        fs::copy(captures.join(from), bench.path("folder").join(to)).unwrap();
    }
    bench.put("folder/notes.txt", b"none of the captures, and longer than a header of one");
    bench
}

fn packets(report: &Value) -> u64 {
    report["input"]["packets"].as_u64().unwrap()
}

#[test]
fn no_command_on_captures_is_left_out_here() {
    let help = Bench::new().ok("--help").stdout;
    let list = help.split("Commands:").nth(1).unwrap().split("Options:").next().unwrap();
    let names = list.lines().filter_map(|line| line.strip_prefix("  "));
    let names = names.filter(|line| !line.starts_with(' '));
    let listed: BTreeSet<&str> = names.filter_map(|line| line.split(' ').next()).collect();
    let here = COMMANDS.iter().filter_map(|command| command.split(' ').next());
    let others = OTHERS.iter().copied().chain(["explain", "tunnel"]);
    assert_eq!(listed, here.chain(others).collect());
}

#[test]
fn every_command_reports_the_same_for_a_file_an_option_and_a_pipe() {
    let bench = bench();
    let bytes = bench.get("a.pcap");
    for command in COMMANDS {
        let line = |input: &str| command.replace("IN", input) + " --json";
        let plain = bench.run(&line("a.pcap"));
        assert!(plain.code < 2, "{command}: {}", plain.stderr);
        let all = packets(&plain.json());
        assert_eq!(packets(&bench.run(&line("-r a.pcap")).json()), all, "{command}");
        assert_eq!(packets(&bench.pipe(&line("-"), &bytes).json()), all, "{command}");
        assert_eq!(packets(&bench.pipe(&line("-r -"), &bytes).json()), all, "{command}");
    }
}

#[test]
fn every_command_prints_the_report_alone_without_an_output() {
    let bench = bench();
    let before = fs::read_dir(bench.path(".")).unwrap().count();
    for command in COMMANDS {
        let run = bench.run(&command.replace("IN", "a.pcap"));
        assert!(run.code < 2 && !run.stdout.is_empty(), "{command}: {}", run.stderr);
        let report = bench.run(&(command.replace("IN", "a.pcap") + " --json")).json();
        if let Some(output) = report.get("output") {
            assert_eq!(output["path"], Value::Null, "{command}");
        }
    }
    assert_eq!(fs::read_dir(bench.path(".")).unwrap().count(), before);
}

#[test]
fn every_command_reads_several_captures_and_folders_as_one() {
    let bench = bench();
    let count = |input: &str| packets(&bench.run(&format!("inspect {input} --json")).json());
    let all = count("a.pcap") + count("b.pcap");
    for command in COMMANDS {
        for input in ["a.pcap b.pcap", "folder"] {
            let run = bench.run(&command.replace("IN", &format!("{input} -H --json")));
            assert!(run.code < 2, "{command} {input}: {}", run.stderr);
            let report = run.json();
            assert_eq!(packets(&report), all, "{command} {input}");
            let files = report["input"]["files"].as_array().unwrap();
            let paths: Vec<&str> =
                files.iter().map(|file| file["path"].as_str().unwrap()).collect();
            assert!(paths[0].ends_with("a.pcap") && paths[1].ends_with("b.pcap"), "{paths:?}");
            assert!(files.iter().all(|file| file["sha256"].as_str().unwrap().len() == 64));
        }
    }
}

#[test]
fn every_command_takes_a_filter_as_an_option_and_behind_the_file_of_r() {
    if !has("tcpdump") {
        println!("skipped: no tcpdump, so perhaps no libpcap");
        return;
    }
    let bench = bench();
    for command in COMMANDS {
        let ask = |input: &str| {
            let run = bench.run(&(command.replace("IN", input) + " --json"));
            assert!(run.code < 2, "{command} {input}: {}", run.stderr);
            packets(&run.json())
        };
        let (all, tcp) = (ask("a.pcap"), ask("a.pcap -f tcp"));
        assert_eq!(ask("-r a.pcap tcp"), tcp, "{command}");
        assert_eq!(ask("a.pcap --filter tcp"), tcp, "{command}");
        assert_eq!(ask("-r a.pcap not tcp"), all - tcp, "{command}");
    }
}

#[test]
fn every_command_reports_input_errors() {
    let bench = bench();
    for command in COMMANDS {
        for (input, code, said) in [
            ("", 2, "no input file"),
            (
                "-r a.pcap -f tcp udp",
                2,
                "use either -r FILE EXPRESSION or FILE... -f EXPRESSION, not both",
            ),
            ("a.pcap tcp", 4, "pass the filter with -f"),
            ("- -", 2, "standard input can be read only once"),
            ("a.pcap -f tcp,port", 2, "filter 'tcp,port'"),
            ("missing.pcap", 4, "missing.pcap"),
        ] {
            let run = bench.run(&command.replace("IN", input));
            assert_eq!(run.code, code, "{command} {input}: {}", run.stderr);
            assert!(run.stderr.contains(said), "{command} {input}: {}", run.stderr);
        }
    }
}

#[test]
fn explain_takes_the_packet_behind_its_captures_or_as_an_option() {
    let bench = bench();
    let text = bench.ok("explain a.pcap 3").stdout;
    for line in ["explain a.pcap -n 3", "explain -r a.pcap -n 3", "explain -r a.pcap 3"] {
        assert_eq!(bench.ok(line).stdout, text, "{line}");
    }
    bench.ok("explain a.pcap b.pcap 3");
    assert_eq!(bench.run("explain a.pcap").code, 2);
    assert_eq!(bench.run("explain a.pcap 0").code, 2);
}

/// Timestamp, length and bytes of a packet, and its interface's comments.
type Record = (Option<u64>, u32, Vec<u8>, Vec<String>);

fn merged(path: &Path) -> Vec<Record> {
    let mut reader = CaptureReader::open(path).unwrap();
    let (mut interfaces, mut packets) = (Vec::new(), Vec::new());
    while let Some(entry) = reader.next().unwrap() {
        match entry {
            Entry::Packet(packet) => packets.push((
                packet.timestamp_ns,
                packet.original_len,
                packet.data.to_vec(),
                interfaces.get(packet.interface as usize).cloned().unwrap_or_default(),
            )),
            Entry::Block(block) if block.interface.is_some() => {
                let options = block.options();
                let comments = options.iter().flatten().filter(|one| one.code == code::COMMENT);
                let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
                interfaces.push(comments.map(|one| text(one.value)).collect::<Vec<_>>());
            }
            Entry::Block(_) => {}
        }
    }
    packets
}

#[test]
fn packets_of_several_captures_come_in_the_order_of_mergecap_and_name_their_origin() {
    if !has("mergecap") {
        println!("skipped: no mergecap");
        return;
    }
    let bench = Bench::new();
    // Timestamps that interleave, that are equal, and that go backwards within a capture.
    let times: [&[u64]; 3] = [&[1, 4, 4, 9, 3, 10], &[2, 4, 5, 5, 11], &[4, 1, 12]];
    for (index, (times, name)) in times.iter().zip(["a.pcap", "b.pcapng", "c.pcap"]).enumerate() {
        let packet = |(place, time): (usize, &u64)| {
            (1_700_000_000_000_000_000 + time * 1000, vec![index as u8, place as u8, 0, 0])
        };
        let packets: Vec<crate::common::Timed> = times.iter().enumerate().map(packet).collect();
        let format = if name.ends_with("ng") {
            grosso_capture::Format::Pcapng
        } else {
            grosso_capture::Format::Pcap
        };
        bench.put(name, &crate::common::capture_of(format, 101, &packets));
    }
    let names = ["a.pcap", "b.pcapng", "c.pcap"];
    let paths = names.map(|name| bench.path(name));
    let done = Command::new("mergecap").arg("-w").arg(bench.path("want")).args(&paths).status();
    assert!(done.unwrap().success());
    bench.ok("segment a.pcap b.pcapng c.pcap -w is.pcapng");
    let (want, is) = (merged(&bench.path("want")), merged(&bench.path("is.pcapng")));
    let plain = |packets: &[Record]| {
        packets.iter().map(|(time, len, data, _)| (*time, *len, data.clone())).collect::<Vec<_>>()
    };
    assert_eq!(plain(&is), plain(&want));
    for (_, _, data, comments) in &is {
        assert_eq!(comments, &[format!("from {}", names[usize::from(data[0])])]);
    }
}

#[test]
fn the_output_is_never_one_of_several_captures() {
    let bench = bench();
    for line in ["wire a.pcap b.pcap -w b.pcap", "wire folder -w folder/b.pcap"] {
        let run = bench.run(line);
        assert_eq!(run.code, 2, "{line}: {}", run.stderr);
    }
}

#[test]
fn damage_of_one_of_several_captures_is_named_and_the_others_are_read() {
    let bench = bench();
    let whole = bench.get("a.pcap");
    bench.put("cut.pcap", &whole[..whole.len() - 7]);
    let others = packets(&bench.run("inspect b.pcap --json").json());
    let cut = packets(&bench.run("inspect cut.pcap --json").json());
    let run = bench.run("inspect cut.pcap b.pcap --json");
    assert_eq!(run.code, 3, "{}", run.stderr);
    assert_eq!(packets(&run.json()), cut + others);
    let error = run.json_error();
    assert!(error["message"].as_str().unwrap().starts_with("cut.pcap: "), "{error}");
}

/// Returns a capture split at these packets.
fn parts(bytes: &[u8], cuts: &[usize]) -> Vec<Vec<u8>> {
    let mut reader = CaptureReader::new(bytes).unwrap();
    let options = || WriterOptions::like(&CaptureReader::new(bytes).unwrap());
    let mut parts = Vec::new();
    let mut writer = CaptureWriter::new(Vec::new(), options());
    let mut interfaces = Vec::new();
    while let Some(entry) = reader.next().unwrap() {
        match entry {
            Entry::Block(block) if block.interface.is_some() => {
                interfaces.push(block.raw.to_vec());
                writer.copy(&entry).unwrap();
            }
            Entry::Packet(packet) => {
                if cuts.contains(&(packet.number as usize - 1)) {
                    let mut next = CaptureWriter::new(Vec::new(), options());
                    for (raw, description) in interfaces.iter().zip(reader_interfaces(bytes)) {
                        let (kind, order) = (1, packet.order());
                        let block = Block { kind, raw, order, interface: Some(description) };
                        next.copy(&Entry::Block(block)).unwrap();
                    }
                    parts.push(core::mem::replace(&mut writer, next).finish().unwrap());
                }
                writer.copy(&entry).unwrap();
            }
            Entry::Block(_) => {}
        }
    }
    parts.push(writer.finish().unwrap());
    parts
}

/// Returns the interfaces of a capture.
fn reader_interfaces(bytes: &[u8]) -> Vec<Interface> {
    let mut reader = CaptureReader::new(bytes).unwrap();
    while reader.next().unwrap().is_some() {}
    reader.interfaces().to_vec()
}

/// Returns a report without the fields that name its input.
fn findings(mut report: Value) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(map) => {
                // A table has the file name in every row, so its length differs.
                for key in ["input", "path", "elapsed_s", "command", "files"] {
                    map.remove(key);
                }
                map.values_mut().for_each(strip);
            }
            Value::Array(list) => {
                // Several captures are read as pcapng, regardless of their formats.
                list.retain(|one| {
                    !one.as_str().is_some_and(|text| text.starts_with("writing pcapng"))
                });
                list.iter_mut().for_each(strip);
            }
            _ => {}
        }
    }
    strip(&mut report);
    report
}

#[test]
fn borders_of_files_change_no_answer_and_no_packet() {
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures");
    let mut random = fastrand::Rng::with_seed(19);
    for name in ["host.pcap", "iperf3.pcapng", "ipv6.pcap", "vxlan.pcapng", "fragments.pcapng"] {
        let bench = Bench::new();
        let bytes = fs::read(captures.join(name)).unwrap();
        let packets = crate::common::packets(&bytes).len();
        bench.put("whole", &bytes);
        let ask = |command: &str, input: &str| {
            let line = command.replace("IN", input);
            let run = bench.run(&format!("{line} --json -w {input}.out -F pcapng"));
            let run = if run.code == 2 { bench.run(&format!("{line} --json")) } else { run };
            assert!(run.code < 2, "{command} {name}: {}", run.stderr);
            let written = fs::read(bench.path(&format!("{input}.out"))).map(|out| plain(&out));
            (findings(run.json()), written.unwrap_or_default())
        };
        let whole: Vec<_> = COMMANDS.iter().map(|command| ask(command, "whole")).collect();
        // The second round splits the capture into more files than a replay has lanes, and their names sort in a
        // different order.
        for (round, count) in [3, 25].into_iter().enumerate() {
            let mut cuts: Vec<usize> = (0..count).map(|_| random.usize(1..packets)).collect();
            cuts.sort_unstable();
            let folder = format!("parts{round}");
            fs::create_dir(bench.path(&folder)).unwrap();
            for (index, part) in parts(&bytes, &cuts).iter().enumerate() {
                bench.put(&format!("{folder}/{index}"), part);
            }
            for (command, (report, written)) in COMMANDS.iter().zip(&whole) {
                let (cut_report, cut_written) = ask(command, &folder);
                assert_eq!(cut_report, *report, "{command} {name} cut at {cuts:?}");
                assert!(cut_written == *written, "{command} {name} cut at {cuts:?}");
            }
        }
    }
}

#[test]
fn a_capture_that_begins_when_another_ends_comes_after_it() {
    let bench = Bench::new();
    // Packets with equal timestamps are in several files, whose names sort in a different order.
    let times: [&[u64]; 5] = [&[1, 4, 4], &[4], &[4, 4], &[4, 5], &[5, 6]];
    let names = ["a9", "a1", "a10", "b", "a2"];
    let mut want = Vec::new();
    fs::create_dir(bench.path("parts")).unwrap();
    for (part, name) in names.into_iter().enumerate() {
        let packet = |(place, time): (usize, &u64)| {
            (1_700_000_000_000_000_000 + time * 1000, vec![part as u8, place as u8, 0, 0])
        };
        let packets: Vec<_> = times[part].iter().enumerate().map(packet).collect();
        want.extend(packets.iter().map(|(time, data)| (Some(*time), 4, data.clone())));
        let bytes = crate::common::capture_of(grosso_capture::Format::Pcap, 101, &packets);
        bench.put(&format!("parts/{name}"), &bytes);
    }
    bench.ok("segment parts -w is.pcapng");
    assert_eq!(plain(&bench.get("is.pcapng")), want);
}

/// Returns the timestamp, length and bytes of each packet in a capture.
fn plain(bytes: &[u8]) -> Vec<(Option<u64>, u32, Vec<u8>)> {
    let mut found = Vec::new();
    crate::common::each(bytes, |packet| {
        found.push((packet.timestamp_ns, packet.original_len, packet.data.to_vec()));
    });
    found
}
