//! Runs the example for the crate's main type on the repository's captures.

use std::{env, path::PathBuf, process::Command};

/// Returns the path of an example program, which `cargo test` builds in the directory next to the tests.
fn example(name: &str) -> PathBuf {
    let test = env::current_exe().unwrap();
    test.parent().and_then(|deps| deps.parent()).unwrap().join("examples").join(name)
}

#[test]
fn each_capture_of_a_directory_is_the_wire_or_has_evidence() {
    let captures = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/captures");
    let output = Command::new(example("is_it_the_wire")).arg(captures).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let answer = |name: &str| {
        let line = text.lines().find(|line| line.contains(name));
        line.and_then(|line| Some(line.split_once(": ")?.1)).unwrap_or_else(|| panic!("{text}"))
    };
    assert_eq!(answer("/host.pcap"), "not the wire: superframes, partial_checksums, syn");
    for name in ["fragments", "iperf3", "ipv6", "vxlan"] {
        assert_eq!(answer(&format!("/{name}.pcap")), "the wire");
    }
    assert_eq!(text.lines().count(), 5, "README.md and make.sh are no captures: {text}");
}

#[test]
fn a_capture_in_memory_has_the_same_answer_as_its_file() {
    use grosso_analysis::Capture;

    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/captures/host.pcap");
    let bytes = grosso_sys::path::input::open(path).and_then(|mut file| {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut file, &mut bytes).map(|_| bytes)
    });
    let text = |capture: Capture| {
        let mut report = serde_json::to_value(capture.classify().unwrap()).unwrap();
        report["input"]["path"].take();
        report.to_string()
    };
    let (file, memory) = (Capture::open(path).unwrap(), Capture::from_bytes("it", bytes.unwrap()));
    assert_eq!(text(file), text(memory));
}
