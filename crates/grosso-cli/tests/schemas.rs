//! Tests the JSON schemas: `grosso` prints each file in the directory `schemas`, and each command's JSON conforms to
//! its schema.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use serde_json::Value;

use crate::common::{Bench, assert_obeys, copy_captures, schema};

#[test]
fn commands_of_one_page_have_one_schema_and_it_is_the_document() {
    let list = Bench::new().ok("schema --json").json();
    let mut pages: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for entry in list["commands"].as_array().unwrap() {
        let command = entry["command"].as_str().unwrap();
        let printed = schema(command).to_string();
        pages.entry(printed).or_default().insert(command.replace(' ', "-"));
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas");
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let document: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let commands = pages.remove(&document.to_string()).unwrap_or_default();
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(commands.contains(name), "{name}: {commands:?}");
    }
    assert!(pages.is_empty(), "{:?}", pages.values());
}

#[test]
fn every_field_is_in_the_schema_and_has_its_type() {
    let bench = Bench::new();
    copy_captures(&bench.path("in"));
    fs::write(bench.path("own.toml"), "base = \"freebsd\"\nlimits.flows = 64\n").unwrap();
    for command in COMMANDS {
        let name = command.split(" IN").next().unwrap();
        for input in ["in/host.pcap", "in/fragments.pcapng", "in/vxlan.pcapng", "in"] {
            let line = format!("{} --json", command.replace("IN", input));
            let run = bench.run(&line);
            assert!(run.code < 2, "{line}: {}", run.stderr);
            assert_obeys(&name.replace(" --recursive", ""), &run.json(), &line);
        }
    }
    for line in ["explain in/host.pcap 3", "explain in/iperf3.pcapng 40", "profiles", "schema"] {
        assert_obeys(
            line.split(' ').next().unwrap(),
            &bench.ok(&(line.to_owned() + " --json")).json(),
            line,
        );
    }
    for profile in ["linux", "inet-lro", "own.toml"] {
        let shown = bench.ok(&format!("profiles show {profile} --json")).json();
        assert_obeys("profiles show", &shown, profile);
    }
}

/// Commands that read captures. `IN` stands for the captures.
const COMMANDS: [&str; 12] = [
    "inspect IN",
    "coalesce IN -w out.pcapng",
    "segment IN",
    "wire IN",
    "reassemble IN -v",
    "decap IN",
    "decap --recursive IN",
    "encap IN type ipip local 192.0.2.1 remote 192.0.2.2",
    "fragment IN --mtu 1280",
    "csum verify IN",
    "csum fix IN",
    "whatif IN",
];

#[test]
fn every_failure_has_the_form_of_failures() {
    let bench = Bench::new();
    copy_captures(&bench.path("in"));
    let whole = bench.get("in/host.pcap");
    bench.put("cut.pcap", &whole[..whole.len() - 7]);
    bench.put("own.toml", b"base = \"linux\"\nlimit.flows = 3\n");
    for (line, code) in [
        ("wire in/host.pcap --colour", 2),
        ("wire cut.pcap", 3),
        ("wire no-such.pcap", 4),
        ("coalesce in/host.pcap --profile own.toml", 3),
        ("schema wier", 2),
    ] {
        let run = bench.run(&format!("{line} --json"));
        assert_eq!(run.code, code, "{line}: {}", run.stderr);
        assert_obeys("error", &run.json_error(), line);
    }
    let said = bench.run("schema wier").stderr;
    assert!(said.contains("did you mean wire?"), "{said}");
}

#[test]
fn a_report_with_another_field_type_or_name_does_not_obey() {
    let bench = Bench::new();
    copy_captures(&bench.path("in"));
    let right = bench.ok("wire in/host.pcap --json").json();
    let change = |pointer: &str, value: Value| {
        let mut wrong = right.clone();
        *wrong.pointer_mut(pointer).unwrap() = value;
        wrong
    };
    let mut more = right.clone();
    more["superframes"]["more"] = 1.into();
    let mut less = right.clone();
    less.as_object_mut().unwrap().remove("guessed");
    for wrong in [
        change("/schema", "grosso.wire/1".into()),
        change("/input/packets", "12".into()),
        change("/superframes/split", (-1).into()),
        more,
        less,
    ] {
        assert!(!crate::common::obeys("wire", &wrong), "{wrong}");
    }
}
