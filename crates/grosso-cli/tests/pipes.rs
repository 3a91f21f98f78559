//! Tests pipes for input and output: output is written without waiting for further input.
#![cfg(unix)]

use std::{
    io::{Read, Write},
    process::Stdio,
};

use grosso_capture::Format;
use grosso_testkit::Packet;

use crate::common::{Bench, ETHERNET, capture, finished};

/// Tests commands that read their input twice. They first copy a pipe to a file, so they would never process an endless
/// pipe.
#[test]
fn a_pipe_without_end_that_is_no_capture_is_refused_by_its_first_bytes() {
    let bench = Bench::new();
    for line in ["inspect -", "reassemble -r - -w b", "decap --recursive -r - -w b"] {
        let mut command = bench.command(line);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let mut written = 0;
        // A command that keeps reading gets more data than a pipe and a buffer can hold, and then EOF.
        while written < 64 << 20 && stdin.write_all(&[b'y'; 1 << 16]).is_ok() {
            written += 1 << 16;
        }
        drop(stdin);
        let run = finished(child.wait_with_output().unwrap());
        assert!(written < 64 << 20, "{line} read the whole input");
        assert_eq!(run.code, 3, "{line}: {}", run.stderr);
        assert!(
            run.stderr.contains("standard input: not a capture (starts with \"yyyy"),
            "{}",
            run.stderr
        );
    }
}

#[test]
fn packets_go_out_while_the_input_is_idle() {
    let bench = Bench::new();
    let packet = |id: u16| {
        let packet = Packet::new().ethernet(|e| e).ipv4(move |ip| ip.id(id));
        packet.udp(|u| u).payload_len(300).build()
    };
    let frames: Vec<_> = (0..100).map(packet).collect();
    let input = capture(Format::Pcap, ETHERNET, &frames);
    let merged = capture(Format::Pcapng, ETHERNET, &frames);
    // Commands that reassemble fragments read a pipe to its end first.
    for (line, input) in [
        ("wire -r - -w -", &input),
        ("wire -r - -f udp -w -", &merged),
        ("segment -r - -w -", &input),
        ("decap -r - -w -", &input),
        ("fragment --mtu 1500 -r - -w -", &input),
        ("csum fix -r - -w -", &input),
        ("encap -r - -w - type ipip local 192.0.2.1 remote 192.0.2.2", &input),
        // The output does not contain the trains that are still held.
        ("coalesce -r - -w -", &input),
    ] {
        let mut command = bench.command(line);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        stdin.write_all(input).unwrap();
        // By now, a command that changes nothing has written nearly its whole input. A command that adds headers or
        // builds trains has written at least a part of it.
        let is_copied = !line.starts_with("encap") && !line.starts_with("coalesce");
        let bytes = if is_copied { input.len() - input.len() / 100 } else { 4000 };
        let mut out = vec![0; bytes];
        stdout.read_exact(&mut out).unwrap_or_else(|error| panic!("{line}: {error}"));
        drop(stdin);
        std::io::copy(&mut stdout, &mut std::io::sink()).unwrap();
        assert!(child.wait().unwrap().code().is_some_and(|code| code <= 1), "{line}");
    }
}
