//! Tests tables and reports on one of the repository's captures.

use serde_json::Value;

use super::*;

const CAPTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/captures/iperf3.pcapng");

/// Counter that stops after a number of rows.
struct Count {
    opened: u32,
    rows: u64,
    packets: u64,
    most: u64,
}

impl Count {
    fn up_to(most: u64) -> Self {
        Self { opened: 0, rows: 0, packets: 0, most }
    }

    fn take(&mut self, packets: u64) -> bool {
        self.rows += 1;
        self.packets += packets;
        self.rows < self.most
    }
}

impl Visit<Packet<'_>> for Count {
    fn open(&mut self) -> bool {
        self.opened += 1;
        true
    }

    fn row(&mut self, row: Packet<'_>) -> bool {
        assert_eq!(row.number, self.rows + 1);
        assert_eq!((row.origin.file, row.origin.frame), (CAPTURE, row.number));
        self.take(1)
    }
}

impl Visit<TrainRow<'_>> for Count {
    fn open(&mut self) -> bool {
        self.opened += 1;
        true
    }

    fn row(&mut self, row: TrainRow<'_>) -> bool {
        assert_eq!((row.train, row.origin.frame), (self.rows + 1, row.numbers[0]));
        // `why` is set only for a packet that can never merge, and for one that did not merge with its train.
        assert_eq!(row.why.is_some(), matches!(row.closed, "never" | "no_merge"), "{row:?}");
        self.take(row.numbers.len() as u64)
    }
}

/// Builds a call of a command. Each option has the form `name` or `name=value`.
fn call(command: &str, files: &[&str], options: &[&str]) -> Call {
    let options = options.iter().map(|option| match option.split_once('=') {
        Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
        None => ((*option).to_owned(), None),
    });
    Call {
        command: command.into(),
        files: files.iter().map(Into::into).collect(),
        options: options.collect(),
        ..Call::default()
    }
}

fn of(report: Result<String, Failure>) -> Value {
    serde_json::from_str(&report.unwrap()).unwrap()
}

#[test]
fn a_report_is_the_json_of_the_command() {
    let report = of(call("coalesce", &[CAPTURE], &[]).report());
    assert_eq!(report["schema"], "grosso.coalesce/1");
    assert_eq!((&report["superframes"], &report["superframe_packets"]), (&16.into(), &182.into()));
    assert!(report["elapsed_s"].as_f64().is_some_and(|seconds| seconds > 0.0));
}

#[test]
fn every_command_runs_with_its_defaults() {
    for (command, options, schema) in [
        ("inspect", &[][..], "grosso.inspect/"),
        ("segment", &[], "grosso.segment/"),
        ("wire", &[], "grosso.wire/"),
        ("reassemble", &[], "grosso.reassemble/"),
        ("decap", &[], "grosso.decap/"),
        ("fragment", &["mtu=1280"], "grosso.fragment/"),
        ("csum verify", &[], "grosso.csum"),
        ("csum fix", &[], "grosso.csum"),
        ("explain", &["number=20"], "grosso.explain/"),
        ("whatif", &[], "grosso.whatif/"),
    ] {
        let report = of(call(command, &[CAPTURE], options).report());
        assert!(report["schema"].as_str().unwrap().starts_with(schema), "{command}: {report}");
    }
    let profiles = of(call("profiles", &[], &[]).report());
    assert_eq!(profiles["profiles"][0]["name"], "linux");
    let explained = of(call("explain", &[CAPTURE, "20"], &[]).report());
    assert_eq!(explained["packet"]["number"], 20);
}

#[test]
fn options_reach_their_command() {
    let first = |name: &str, report: &Value| report["settings"][0][name].clone();
    let options = ["profile=freebsd", "profile=linux,dpdk", "hold=0,20us"];
    let report = of(call("whatif", &[CAPTURE], &options).report());
    assert_eq!(report["settings"].as_array().unwrap().len(), 6);
    assert_eq!(first("profile", &report), "freebsd");
    let merged = |options: &[&str]| {
        of(call("coalesce", &[CAPTURE], options).report())["superframes"].as_u64().unwrap()
    };
    assert!(merged(&["max-segs=2"]) > merged(&[]));
    assert!(merged(&["filter=udp"]) == 0);
    let flows = |options: &[&str]| {
        let report = of(call("inspect", &[CAPTURE], options).report());
        report["slowdown"]["flows"]["rows"].as_array().map(Vec::len)
    };
    assert_eq!((flows(&[]), flows(&["flows=1"])), (None, Some(1)));
    assert!(flows(&["flows", "sort=packets"]).is_some_and(|rows| rows > 1));
    let hash = |options: &[&str]| {
        of(call("inspect", &[CAPTURE], options).report())["input"]["sha256"].is_string()
    };
    assert!(hash(&["hash"]) && !hash(&[]));
}

#[test]
fn every_packet_is_in_one_row_and_in_one_train() {
    let mut all = Count::up_to(u64::MAX);
    call("inspect", &[CAPTURE], &[]).packets(&mut all).unwrap();
    assert_eq!((all.opened, all.rows), (1, 250));
    let mut all = Count::up_to(u64::MAX);
    call("coalesce", &[CAPTURE], &[]).trains(&mut all).unwrap();
    assert_eq!((all.opened, all.rows, all.packets), (1, 84, 250));
}

#[test]
fn a_reading_ends_when_the_caller_has_enough() {
    let mut few = Count::up_to(3);
    call("inspect", &[CAPTURE], &[]).packets(&mut few).unwrap();
    assert_eq!(few.rows, 3);
    let mut few = Count::up_to(3);
    call("coalesce", &[CAPTURE], &[]).trains(&mut few).unwrap();
    assert_eq!(few.rows, 3);
}

#[test]
fn failures_have_code_message_hint_and_exit() {
    let (capture, table) = ("/nowhere/x.pcap", "write=/nowhere/x.pcap");
    for (command, files, options, code, exit) in [
        ("inspect", &[][..], &[][..], "usage.input", 2),
        ("inspect", &[CAPTURE], &["no-such-option"], "usage", 2),
        ("inspect", &[CAPTURE], &["mtu=1"], "usage", 2),
        ("inspect", &[CAPTURE], &["sort=packets"], "usage", 2),
        ("coalesce", &[CAPTURE], &["format=pcap"], "usage", 2),
        ("inspect", &[CAPTURE], &["mtu=1500", "mss=1500"], "usage.contradiction", 2),
        ("fragment", &[CAPTURE], &[], "usage", 2),
        ("explain", &[CAPTURE], &[], "usage.packet", 2),
        ("bridge", &[CAPTURE], &[], "usage", 2),
        ("inspect", &[capture], &[], "environment.read", 4),
        ("wire", &[CAPTURE], &[table], "environment.write", 4),
        ("whatif", &[CAPTURE], &["profile=/nowhere/x.toml"], "environment.read", 4),
    ] {
        let failure = call(command, files, options).report().unwrap_err();
        let value: Value = serde_json::from_str(&failure.json()).unwrap();
        assert_eq!((&value["code"], &value["exit"]), (&code.into(), &exit.into()), "{value}");
        assert!(value["message"].as_str().is_some_and(|text| !text.is_empty()));
        let mut words = files.iter().chain(options).flat_map(|word| word.split('='));
        let missing = words.find(|word| word.starts_with("/nowhere"));
        assert_eq!(value.get("filename").and_then(Value::as_str), missing, "{value}");
    }
    let failure = call("inspect", &[], &[]).packets(&mut Count::up_to(1)).unwrap_err();
    assert!(failure.to_string().contains("; hint: "), "{failure}");
}

#[test]
fn a_flag_ends_a_reading_with_a_failure() {
    let interrupted = Arc::new(AtomicBool::new(true));
    let set = Call { interrupted, ..call("inspect", &[CAPTURE], &[]) };
    let failure = set.packets(&mut Count::up_to(1)).unwrap_err();
    assert!(failure.json().contains("\"exit\":130"), "{}", failure.json());
    assert_eq!(set.report().unwrap_err().code, "interrupted");
}
