//! Tables and reports, on a capture of the repository.

use super::*;

const CAPTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/captures/iperf3.pcapng");

/// Counter of rows up to a limit.
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
        // A reason is set for a packet that is never merged, and for one that did not merge with its train.
        assert_eq!(row.why.is_some(), matches!(row.closed, "never" | "no_merge"), "{row:?}");
        self.take(row.numbers.len() as u64)
    }
}

fn words(command: &str) -> Vec<String> {
    let words = command.split(' ').map(|word| if word == "CAPTURE" { CAPTURE } else { word });
    words.map(str::to_owned).collect()
}

fn free() -> Arc<AtomicBool> {
    Arc::default()
}

#[test]
fn a_report_is_the_json_of_the_command() {
    let json = report(&words("coalesce CAPTURE"), &free()).unwrap();
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["schema"], "grosso.coalesce/1");
    assert_eq!((&value["superframes"], &value["superframe_packets"]), (&16.into(), &182.into()));
}

#[test]
fn every_packet_is_in_one_row_and_in_one_train() {
    let mut all = Count::up_to(u64::MAX);
    packets(&words("inspect CAPTURE"), &free(), &mut all).unwrap();
    assert_eq!((all.opened, all.rows), (1, 250));
    let mut all = Count::up_to(u64::MAX);
    trains(&words("coalesce CAPTURE"), &free(), &mut all).unwrap();
    assert_eq!((all.opened, all.rows, all.packets), (1, 84, 250));
}

#[test]
fn a_reading_ends_when_the_caller_has_enough() {
    let mut few = Count::up_to(3);
    packets(&words("inspect CAPTURE"), &free(), &mut few).unwrap();
    assert_eq!(few.rows, 3);
    let mut few = Count::up_to(3);
    trains(&words("coalesce CAPTURE"), &free(), &mut few).unwrap();
    assert_eq!(few.rows, 3);
}

#[test]
fn failures_have_code_message_hint_and_exit() {
    for (command, code, exit) in [
        ("inspect", "usage.input", 2),
        ("inspect CAPTURE --no-such-option", "usage", 2),
        ("inspect /nowhere/x.pcap", "environment.read", 4),
        ("wire CAPTURE -w /nowhere/x.pcap", "environment.write", 4),
        ("whatif CAPTURE --profile /nowhere/x.toml", "environment.read", 4),
    ] {
        let error = report(&words(command), &free()).unwrap_err();
        let value: serde_json::Value = serde_json::from_str(&error.json()).unwrap();
        assert_eq!((&value["code"], &value["exit"]), (&code.into(), &exit.into()), "{value}");
        assert!(value["message"].as_str().is_some_and(|text| !text.is_empty()));
        let missing = command.split(' ').find(|word| word.starts_with("/nowhere"));
        assert_eq!(value.get("filename").and_then(serde_json::Value::as_str), missing, "{value}");
    }
    let error = packets(&words("inspect"), &free(), &mut Count::up_to(1)).unwrap_err();
    assert!(error.to_string().contains("; hint: "), "{error}");
    let error = report(&words("inspect CAPTURE --no-such-option"), &free()).unwrap_err();
    let said = "unexpected argument '--no-such-option' found\n\nhint: ";
    assert!(error.to_string().starts_with(said), "not the text of the command: {error}");
}

#[test]
fn a_flag_ends_a_reading_with_a_failure() {
    let set = Arc::new(AtomicBool::new(true));
    let error = packets(&words("inspect CAPTURE"), &set, &mut Count::up_to(1)).unwrap_err();
    assert!(error.json().contains("\"exit\":130"), "{}", error.json());
}
