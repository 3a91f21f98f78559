//! Tests that error messages and exit codes are as the manual describes.
//!
//! Longer than 600 lines: tables of command lines and messages.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use grosso_capture::{CaptureWriter, Format, PacketMeta, WriterOptions};
use grosso_testkit::{Packet, Traffic};
use serde_json::Value;

use crate::common::{Bench, ETHERNET, START_NS, capture, frames, has, packets};

fn plain(count: usize) -> Vec<Vec<u8>> {
    Traffic::benign(5).take(count).collect()
}

const IPIP: &str = "encap -r send.pcap -w out.pcap type ipip local 192.0.2.1 remote 192.0.2.2";

#[test]
fn truncated_file_is_processed_up_to_the_damage() {
    let bench = Bench::new();
    let whole = capture(Format::Pcap, ETHERNET, &plain(20));
    let file = &whole[..whole.len() - 7];
    bench.put("send.pcap", file);
    for (line, done) in [
        ("wire -r send.pcap -w out.pcap", "processed and written"),
        ("coalesce -r send.pcap -w out.pcap", "processed and written"),
        ("segment -r send.pcap -w out.pcap", "processed and written"),
        ("csum fix -r send.pcap -w out.pcap", "processed and written"),
        ("reassemble -r send.pcap -w out.pcap", "processed and written"),
        ("fragment --mtu 1500 -r send.pcap -w out.pcap", "processed and written"),
        ("decap -r send.pcap -w out.pcap", "processed and written"),
        (IPIP, "processed and written"),
        ("inspect send.pcap", "processed"),
        ("whatif send.pcap", "processed"),
        ("csum verify -r send.pcap", "processed"),
    ] {
        let run = bench.run(line);
        assert_eq!(run.code, 3, "{line}: {}", run.stderr);
        let message = run.stderr.lines().find(|line| line.contains("ends inside")).unwrap();
        assert!(
            message.starts_with("grosso: send.pcap: ends inside packet 20 (needs "),
            "{message}"
        );
        assert!(message.ends_with(&format!("). 19 packets were {done}.")), "{message}");
        assert!(
            run.stderr.ends_with("hint: pass --allow-truncated to exit with code 0\n"),
            "{}",
            run.stderr
        );
        assert_eq!(bench.run(&format!("{line} --allow-truncated")).code, 0);
    }
    bench.ok("csum fix -r send.pcap -w out.pcap --allow-truncated");
    assert_eq!(packets(&bench.get("out.pcap")), packets(&whole)[..19]);
    let error = bench.run("wire --json -r send.pcap -w out.pcap").json_error();
    assert_eq!(error["schema"], "grosso.error/1");
    assert_eq!(error["code"], "input.truncated");
    assert_eq!(error["packet"], 20);
    assert!(error["offset"].as_u64().unwrap() < file.len() as u64);
    assert_eq!(error["hint"], "pass --allow-truncated to exit with code 0");
}

#[test]
fn a_file_that_is_no_capture_is_reported_with_its_first_bytes_and_leaves_no_output() {
    let bench = Bench::new();
    bench.put("iperf.json", b"{\n\t\"start\": {}}");
    let run = bench.run("wire -r iperf.json -w out.pcap");
    assert_eq!(run.code, 3);
    assert_eq!(
        run.stderr,
        "grosso: iperf.json: not a capture (starts with \"{\\n\"); expected pcap or pcapng, optionally compressed\n"
    );
    assert!(!bench.path("out.pcap").exists());
    bench.put("empty", b"");
    let run = bench.run("empt --json ./empty");
    assert_eq!(run.code, 2, "a word that is neither command nor file counts as misspelled");
    let error = bench.run("./empty --json").json_error();
    assert_eq!(error["code"], "input.not_a_capture");
    assert!(error["message"].as_str().unwrap().contains("(empty)"));
}

#[test]
fn unknown_link_type_passes_through() {
    let bench = Bench::new();
    let input = capture(Format::Pcap, 147, &plain(12));
    bench.put("x.pcap", &input);
    let encap = "encap type ipip local 192.0.2.1 remote 192.0.2.2";
    for line in ["wire", "segment", "csum fix", "reassemble", "fragment --mtu 68", "decap", encap] {
        let run = bench.run(&format!("{line} -r x.pcap -w out.pcap"));
        assert_eq!(run.code, 3);
        assert!(
            run.stderr.ends_with(
                "grosso: x.pcap: link type 147 (USER0) is not supported. Packets of this \
                 type pass through unchanged; 0 of 12 were processed.\nhint: if the capture records a wrong link type, \
                 pass --linktype NAME\n"
            ),
            "{}",
            run.stderr
        );
        assert_eq!(bench.get("out.pcap"), input);
    }
    let run = bench.run("coalesce -r x.pcap -w out.pcapng");
    assert_eq!(run.code, 3);
    assert_eq!(frames(&bench.get("out.pcapng")), frames(&input));
    let report = bench.ok("--linktype ethernet coalesce --json -r x.pcap -w out.pcapng").json();
    assert!(report["superframes"].as_u64().unwrap() > 0);
    // If frames are read as Ethernet, the output's link type is Ethernet too.
    for format in ["pcap", "pcapng"] {
        bench.ok(&format!("--linktype ethernet csum fix -r x.pcap -w fixed.{format} -F {format}"));
        bench.ok(&format!("csum verify -r fixed.{format}"));
    }
}

#[test]
fn cut_packets_are_unverifiable_and_left_as_they_are() {
    let bench = Bench::new();
    let mut writer = CaptureWriter::new(Vec::new(), WriterOptions::new(Format::Pcap));
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t).payload_len(1460);
    let (seeded, ..) = packet.build_partial();
    for original in [packet.build(), seeded] {
        let meta = PacketMeta {
            timestamp_ns: Some(START_NS),
            original_len: original.len() as u32,
            ..PacketMeta::default()
        };
        writer.write_packet(&meta, &original[..96]).unwrap();
    }
    let input = writer.finish().unwrap();
    bench.put("cut.pcap", &input);
    let run = bench.ok("csum fix -r cut.pcap -w out.pcap");
    assert!(
        run.stderr.starts_with(
            "grosso: note: 2 packets are truncated (96 of 1514 bytes): the checksums cannot be \
             verified and stay unchanged\n"
        ),
        "{}",
        run.stderr
    );
    assert_eq!(bench.get("out.pcap"), input);
    assert_eq!(bench.run("csum fix --strict -r cut.pcap -w out.pcap").code, 1);
    let run = bench.ok("csum verify -r cut.pcap");
    assert_eq!(run.stdout, "0 bad, 2 unverifiable (captured 96 of 1514 bytes)\n");
    assert_eq!(bench.run("csum verify --strict -r cut.pcap").code, 1);
    let run = bench.ok("wire -r cut.pcap -w out.pcap");
    assert!(
        run.stderr.contains("note: 1 packet is truncated (96 of 1514 bytes)"),
        "{}",
        run.stderr
    );
    assert_eq!(bench.run("wire --strict -r cut.pcap -w out.pcap").code, 1);
    assert_eq!(bench.get("out.pcap"), input);
}

#[test]
fn truncated_packets_merge_only_without_an_output() {
    let bench = Bench::new();
    let options = WriterOptions::new(Format::Pcapng);
    let mut writer = CaptureWriter::new(Vec::new(), options);
    for (number, sequence) in [0, 1460].into_iter().enumerate() {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(number as u16));
        let frame = packet.tcp(|t| t.sequence(sequence)).payload_len(1460).build();
        let meta = PacketMeta {
            timestamp_ns: Some(START_NS),
            original_len: frame.len() as u32,
            ..PacketMeta::default()
        };
        writer.write_packet(&meta, &frame[..96]).unwrap();
    }
    bench.put("cut.pcapng", &writer.finish().unwrap());
    let notes = |options: &str| bench.ok(&format!("coalesce cut.pcapng {options}")).stderr;
    let counted = "grosso: note: 2 packets are truncated: these packets are merged if their \
                   headers match, and their checksums are assumed to be correct\n";
    assert_eq!(notes(""), counted);
    let apart = "grosso: note: 2 packets are truncated: these packets are not merged, so that \
                 `segment` restores the input\n";
    assert_eq!(notes("-w merged.pcapng"), apart);
}

#[test]
fn name_that_promises_compression_is_contradicted() {
    let bench = Bench::new();
    bench.put("a.pcap", &capture(Format::Pcap, ETHERNET, &plain(9)));
    for (name, program) in [("b.pcapng.gz", "gzip"), ("b.pcapng.zst", "zstd")] {
        let run = bench.ok(&format!("wire a.pcap -w {name}"));
        let said = format!(
            "grosso: note: {name} is written uncompressed, despite its name\ngrosso: hint: to \
             compress it: -w - | {program} > {name}\n"
        );
        assert_eq!(run.stderr, said);
        assert!(bench.get(name).starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]), "pcapng, by its name");
    }
}

#[test]
fn input_is_never_overwritten() {
    let bench = Bench::new();
    let input = capture(Format::Pcap, ETHERNET, &plain(9));
    bench.put("a.pcap", &input);
    std::fs::hard_link(bench.path("a.pcap"), bench.path("b.pcap")).unwrap();
    let mut link = Command::new("ln");
    let link = link.arg("-s").args(["a.pcap", "c.pcap"].map(|name| bench.path(name)));
    assert!(link.status().unwrap().success());
    for line in [
        "wire -r a.pcap -w a.pcap",
        "wire -r a.pcap -w ./b.pcap",
        "coalesce -r a.pcap -w a.pcap",
        "segment -r a.pcap -w b.pcap",
        "csum fix -r a.pcap -w a.pcap",
        "whatif a.pcap --html a.pcap",
        "whatif a.pcap --html b.pcap",
        "whatif a.pcap --html ./c.pcap",
        "export a.pcap --parquet c.pcap",
        "export a.pcap --trains b.pcap",
    ] {
        let run = bench.run(line);
        assert_eq!(run.code, 2, "{line}");
        assert!(run.stderr.contains("input and output are the same file"), "{}", run.stderr);
        assert_eq!(bench.get("a.pcap"), input);
    }
    let output = std::fs::OpenOptions::new().append(true).open(bench.path("a.pcap")).unwrap();
    let run = bench.command("wire -r a.pcap -w -").stdout(output).output().unwrap();
    assert_eq!(run.status.code(), Some(2));
    assert_eq!(bench.get("a.pcap"), input);
}

#[test]
fn two_tables_do_not_go_into_one_file() {
    let bench = Bench::new();
    bench.put("a.pcap", &capture(Format::Pcap, ETHERNET, &plain(9)));
    bench.put("old", b"");
    let link = Command::new("ln").args(["-s", "old"]).arg(bench.path("link")).status();
    assert!(link.unwrap().success());
    for (packets, trains) in [("t", "t"), ("t", "./t"), ("old", "link"), ("/dev/null", "/dev/null")]
    {
        let run = bench.run(&format!("export a.pcap --parquet {packets} --trains {trains}"));
        assert_eq!(run.code, 2, "{packets} and {trains}: {}", run.stderr);
        let said = format!("{packets}: --parquet and --trains name the same file");
        assert!(run.stderr.contains(&said), "{}", run.stderr);
        assert!(!bench.path("t").exists() && bench.get("old").is_empty());
    }
    bench.ok("export a.pcap --parquet t --trains u");
}

#[test]
fn captures_do_not_go_to_a_terminal() {
    if !has("script") {
        return;
    }
    let bench = Bench::new();
    bench.put("a.pcap", &capture(Format::Pcap, ETHERNET, &plain(9)));
    let line = format!("{} wire -r a.pcap -w -", env!("CARGO_BIN_EXE_grosso"));
    let run = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .current_dir(bench.path(""))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(run.status.code(), Some(2));
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(
        said.contains("grosso: refusing to write a capture to the terminal; use -w FILE or a pipe"),
        "{said}"
    );
}

#[test]
fn progress_is_printed_only_on_a_terminal() {
    if !has("script") {
        return;
    }
    let bench = Bench::new();
    let bytes = capture(Format::Pcap, ETHERNET, &plain(9));
    bench.put("a.pcap", &bytes);
    let speed = "grosso: 9 packets in ";
    let program = env!("CARGO_BIN_EXE_grosso");
    let on_terminal = |line: &str| {
        let mut command = Command::new("script");
        command.args(["-qec", line, "/dev/null"]).env("NO_COLOR", "1");
        let run = command.current_dir(bench.path("")).stdin(Stdio::null()).output().unwrap();
        assert!(run.status.success());
        String::from_utf8_lossy(&run.stdout).into_owned()
    };
    // The pipe stays open as long as the command should run.
    let long = format!("(cat a.pcap; sleep 1.1) | {program} segment - -w out.pcap");
    let said = on_terminal(&long);
    assert!(said.contains(speed), "{said}");
    let said = on_terminal(&format!("{long} --quiet"));
    assert!(!said.contains(speed), "{said}");
    let said = on_terminal(&format!("{program} segment a.pcap -w out.pcap"));
    assert!(!said.contains(speed), "{said}");
    let run = Command::new("sh").args(["-c", &long]).current_dir(bench.path("")).output().unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success() && !said.contains(speed), "{said}");
}

#[test]
fn wrong_arguments_are_reported_like_other_failures() {
    let bench = Bench::new();
    for (line, message, hint) in [
        ("inspect a --quite", "grosso: unexpected argument '--quite' found\n", "\nhint: "),
        ("inspect a --color purple", "grosso: invalid value 'purple' for '--color", "--help"),
        ("inspcet a --json", "{\"schema\":\"grosso.error/1\",\"code\":\"usage\"", "hint: "),
    ] {
        let run = bench.run(line);
        assert_eq!(run.code, 2, "{line}: {}", run.stderr);
        assert!(run.stderr.starts_with(message) && run.stderr.contains(hint), "{}", run.stderr);
        let lines = || run.stderr.lines().map(str::trim_start);
        assert!(!lines().any(|line| line.starts_with("error: ") || line.starts_with("tip: ")));
    }
}

#[test]
fn environment_is_at_fault_for_what_it_refuses() {
    let bench = Bench::new();
    bench.put("a.pcap", &capture(Format::Pcap, ETHERNET, &plain(400)));
    let run = bench.run("nowhere.pcap");
    assert_eq!(run.code, 4);
    assert!(run.stderr.starts_with("grosso: nowhere.pcap: No such file"), "{}", run.stderr);
    std::fs::create_dir(bench.path("empty")).unwrap();
    let run = bench.run("inspect empty");
    assert_eq!(run.code, 4);
    assert!(
        run.stderr.starts_with("grosso: empty: no captures in this directory"),
        "{}",
        run.stderr
    );
    let run = bench.run("wire -r a.pcap -w no/such/folder.pcap");
    assert_eq!(run.code, 4);
    assert!(run.stderr.starts_with("grosso: no/such/folder.pcap: "), "{}", run.stderr);
    if std::path::Path::new("/dev/full").exists() {
        let run = bench.run("wire -r a.pcap -w /dev/full");
        assert_eq!(run.code, 4);
        assert!(run.stderr.starts_with("grosso: /dev/full: No space left"), "{}", run.stderr);
        assert!(run.stderr.contains("(after packet "), "{}", run.stderr);
    }
}

#[test]
fn gone_reader_is_no_message() {
    let bench = Bench::new();
    bench.put("a.pcap", &capture(Format::Pcap, ETHERNET, &plain(2000)));
    for line in ["wire -r a.pcap -w -", "coalesce -r a.pcap -w -", "inspect a.pcap"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let run = bench.command(line).stdout(writer).output().unwrap();
        assert_eq!(run.status.code(), Some(141), "{line}");
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(said.lines().all(|line| line.contains("note:")), "{said}");
    }
}

#[test]
fn report_that_cannot_be_written_is_no_failure_to_read() {
    let bench = Bench::new();
    bench.put("a.pcap", &capture(Format::Pcap, ETHERNET, &plain(9)));
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let run = bench.command("csum verify a.pcap --json").stdout(full).output().unwrap();
    let run = crate::common::finished(run);
    assert_eq!((run.code, &run.json_error()["code"]), (4, &"environment.write".into()));
    assert!(run.stderr.contains("standard output: No space left on device\""), "{}", run.stderr);
}

#[test]
fn interrupt_writes_what_is_there_and_sums_up() {
    ["-INT", "-TERM"].into_iter().for_each(signal_writes_what_is_there_and_sums_up);
}

fn signal_writes_what_is_there_and_sums_up(signal: &str) {
    let bench = Bench::new();
    let input = capture(Format::Pcapng, ETHERNET, &plain(500));
    let mut command = bench.command("coalesce -r - -w out.pcapng");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&input).unwrap();
    stdin.flush().unwrap();
    // The pipe stays open, so the command is waiting for more packets when the signal arrives. The output file exists
    // once the command has read the first packets.
    while !bench.path("out.pcapng").exists() {
        std::thread::yield_now();
    }
    let interrupted = Command::new("kill").args([signal, &child.id().to_string()]).status();
    assert!(interrupted.unwrap().success());
    let run = child.wait_with_output().unwrap();
    drop(stdin);
    assert_eq!(run.status.code(), Some(130), "{signal}");
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(said.starts_with("out.pcapng: "), "{said}");
    // The output is a valid capture.
    packets(&bench.get("out.pcapng"));
}

#[test]
fn options_are_legal_in_any_position() {
    let bench = Bench::new();
    let input = capture(Format::Pcap, ETHERNET, &plain(9));
    bench.put("a.pcap", &input);
    for line in [
        "-r a.pcap -w b.pcap wire",
        "-q wire -w b.pcap -r a.pcap",
        "wire -r a.pcap -w b.pcap -q",
        "--read=a.pcap --color never wire --write=b.pcap --json",
        "csum -r a.pcap fix -w b.pcap",
        "-r a.pcap -w b.pcap csum --only all fix",
    ] {
        bench.ok(line);
        assert_eq!(bench.get("b.pcap"), input, "{line}");
        std::fs::remove_file(bench.path("b.pcap")).unwrap();
    }
    let whole = bench.ok("inspect a.pcap").stdout;
    for line in ["a.pcap", "--color never a.pcap", "a.pcap --color=never", "inspect a.pcap"] {
        assert_eq!(bench.ok(line).stdout, whole, "{line}");
    }
    assert_eq!(
        bench.pipe("-", &input).stdout,
        whole.replacen("a.pcap", "-", 2).replace("-r a.pcap", "-r -")
    );
}

#[test]
fn misspelled_commands_are_guessed_at() {
    let bench = Bench::new();
    let run = bench.run("inspct a.pcap");
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("inspect"), "{}", run.stderr);
    let run = bench.run("wire --json --mms 3");
    assert_eq!(run.code, 2);
    assert_eq!(run.json_error()["code"], "usage");
    let run = bench.run("coalesce -r a.pcap -w b --profile windows");
    assert_eq!(run.code, 4, "the file is opened first: {}", run.stderr);
    bench.put("a.pcap", &capture(Format::Pcap, ETHERNET, &plain(9)));
    let run = bench.run("coalesce -r a.pcap -w b --profile windows");
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("linux, linux-8x8"), "{}", run.stderr);
}

#[test]
fn help_has_examples_and_exit_codes() {
    let bench = Bench::new();
    let help = bench.ok("help").stdout;
    assert!(help.contains("Exit codes:") && help.contains("Examples:"), "{help}");
    let commands = [
        "inspect",
        "coalesce",
        "segment",
        "wire",
        "explain",
        "whatif",
        "csum verify",
        "csum fix",
        "reassemble",
        "fragment",
        "decap",
        "encap",
    ];
    for command in commands {
        for columns in [60, 80, 200] {
            let mut line = bench.command(&format!("{command} --help"));
            let help = line.env("COLUMNS", columns.to_string()).output().unwrap().stdout;
            let help = String::from_utf8(help).unwrap();
            assert!(help.contains("Example"), "{help}");
            let wrapped = help.lines().filter(|line| !line.starts_with("Usage: "));
            let longest = wrapped.map(|line| line.chars().count()).max().unwrap();
            assert!(longest <= columns, "{longest}: {help}");
            // On a wider terminal, the help uses the full width.
            assert!(command != "coalesce" || columns < 200 || longest > 100, "{longest}: {help}");
        }
    }
    let help = bench.ok("conform --help").stdout;
    assert!(help.contains("Also exit 1 if packets that may be merged were not merged\n"), "{help}");
    assert!(bench.ok("--version").stdout.starts_with("grosso "));
    assert_eq!(bench.run("").code, 2);
}

#[test]
fn colour_is_asked_for() {
    let bench = Bench::new();
    bench.put("a.pcap", &capture(Format::Pcap, ETHERNET, &plain(9)));
    let escapes = |line: &str, variable: Option<&str>| {
        let mut command = bench.command(line);
        if let Some(variable) = variable {
            command.env(variable, "1");
        }
        command.output().unwrap().stdout.contains(&0x1b)
    };
    assert!(!escapes("a.pcap", None), "a pipe is not a terminal");
    assert!(escapes("a.pcap", Some("CLICOLOR_FORCE")));
    assert!(escapes("a.pcap --color always", Some("NO_COLOR")));
    assert!(!escapes("a.pcap --color never", Some("CLICOLOR_FORCE")));
    let mut both = bench.command("a.pcap");
    let both = both.env("CLICOLOR_FORCE", "1").env("NO_COLOR", "1").output().unwrap();
    assert!(!both.stdout.contains(&0x1b));
}

#[test]
fn help_heeds_the_colour_that_was_asked_for() {
    let bench = Bench::new();
    let escapes = |line: &str| {
        let run = bench.command(line).env("CLICOLOR_FORCE", "1").output().unwrap();
        assert!(!run.stdout.is_empty(), "{line}");
        run.stdout.contains(&0x1b)
    };
    for line in ["--help", "inspect --help", "-h", "help", "help inspect", "inspect a -h"] {
        assert!(escapes(line), "{line}");
        assert!(!escapes(&format!("{line} --color never")), "{line}");
        assert!(!escapes(&format!("--color=never {line}")), "{line}");
    }
    let run = bench.run("inspect --help --color always");
    assert!(run.bytes.contains(&0x1b), "{}", run.stdout);
}

#[test]
fn reports_are_json_with_a_schema_and_text_of_eighty_columns() {
    let bench = Bench::new();
    bench.put(
        "a.pcap",
        &capture(Format::Pcap, ETHERNET, &Traffic::new(8).take(900).collect::<Vec<_>>()),
    );
    for (line, schema) in [
        ("inspect a.pcap", "grosso.inspect/2"),
        ("coalesce -r a.pcap -w b.pcapng", "grosso.coalesce/1"),
        ("segment -r b.pcapng -w c.pcapng", "grosso.segment/1"),
        ("wire -r a.pcap -w d.pcap", "grosso.wire/2"),
        ("csum verify -r a.pcap", "grosso.csum/1"),
        ("csum fix -r a.pcap -w e.pcap", "grosso.csum_fix/1"),
        ("explain a.pcap -n 17", "grosso.explain/1"),
        ("whatif a.pcap", "grosso.whatif/1"),
    ] {
        let run = bench.run(&format!("{line} --json"));
        assert!(run.code <= 1, "{line}: {}", run.stderr);
        let report = run.json();
        assert_eq!(report["schema"], schema);
        assert_eq!(report["tool"]["name"], "grosso");
        assert!(run.stderr.is_empty(), "{}", run.stderr);
        let run = bench.run(line);
        assert!(!run.stdout.is_empty());
        if !line.starts_with("csum verify") {
            let long = run.stdout.lines().find(|line| line.chars().count() > 80);
            assert_eq!(long, None, "{line}");
        }
        assert!(bench.run(&format!("{line} -q")).stderr.is_empty());
    }
    assert_eq!(bench.ok("a.pcap --json").json()["input"]["packets"], 900);
}

#[test]
fn the_input_hash_is_reported_only_on_request() {
    let bench = Bench::new();
    bench.put("a.pcap", &capture(Format::Pcap, ETHERNET, &plain(9)));
    let Ok(hash) = Command::new("sha256sum").arg(bench.path("a.pcap")).output() else {
        println!("skipped: sha256sum is not installed");
        return;
    };
    let hash = String::from_utf8_lossy(&hash.stdout).into_owned();
    let hash = hash.split_whitespace().next().unwrap();
    for command in ["inspect", "csum verify", "whatif", "wire", "coalesce -w b.pcapng"] {
        let asked = |option: &str| bench.ok(&format!("{command} -r a.pcap {option}"));
        assert_eq!(asked("--json").json()["input"]["sha256"], Value::Null, "{command}");
        assert_eq!(asked("--json --hash").json()["input"]["sha256"], hash, "{command}");
        let text = asked("-H").stdout;
        assert_eq!(text.lines().last(), Some(&*format!("  sha256  {hash}")), "{command}");
        assert!(!asked("").stdout.contains(hash), "{command}");
    }
    let two = bench.ok("inspect a.pcap a.pcap -H").stdout;
    assert_eq!(two.lines().rev().take(2).filter(|line| line.contains(hash)).count(), 2, "{two}");
    assert_eq!(
        bench.run("explain a.pcap 3 --hash").code,
        2,
        "explain stops before the end of the capture"
    );
}

#[test]
fn output_names_its_command_line_and_its_input() {
    let bench = Bench::new();
    bench.put("a.pcap", &capture(Format::Pcap, ETHERNET, &plain(9)));
    let report = bench.ok("coalesce --json -H -r a.pcap -w b.pcapng").json();
    let written = bench.get("b.pcapng");
    let has = |text: &str| written.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(has("grosso coalesce --json -H -r a.pcap -w b.pcapng"));
    assert!(has(report["input"]["sha256"].as_str().unwrap()));
}

#[test]
fn the_output_name_selects_the_format_and_an_option_overrides_it() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in.pcap");
    std::fs::write(&input, PCAP_WITHOUT_PACKETS).unwrap();
    for (name, option, magic) in [
        ("out.pcapng", None, [0x0a, 0x0d, 0x0d, 0x0a]),
        ("out.pcap", None, [0xd4, 0xc3, 0xb2, 0xa1]),
        ("out", None, [0xd4, 0xc3, 0xb2, 0xa1]),
        ("loud.pcap", Some("pcapng"), [0x0a, 0x0d, 0x0d, 0x0a]),
    ] {
        let output = folder.path().join(name);
        let mut command = Command::new(env!("CARGO_BIN_EXE_grosso"));
        command.arg("wire").arg("-r").arg(&input).arg("-w").arg(&output);
        command.args(option.map(|format| format!("-F{format}")));
        assert!(command.output().unwrap().status.success(), "{name}");
        assert_eq!(std::fs::read(&output).unwrap()[..4], magic, "{name}");
    }
}

/// A little-endian file header for Ethernet, without packets.
const PCAP_WITHOUT_PACKETS: [u8; 24] =
    [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];
