//! Tests with tshark that the checksums in the files are as described.

use std::process::Command;

use serde_json::Value;

use super::book::{Pair, path};

/// Headers with checksums, in the order in which tshark is queried.
const HEADERS: [&str; 3] = ["ipv4", "tcp", "udp"];

/// Returns the checksum states that tshark reports for each frame of a pair: for each of [`HEADERS`], from the
/// outermost to the innermost. `None` if tshark is not installed.
fn statuses(kind: &str) -> Option<Vec<[Vec<String>; 3]>> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(path(kind, "pcap")).args(["-T", "fields", "-E", "separator=;"]);
    // The fields are in header order.
    for protocol in ["ip", "tcp", "udp"] {
        command.args(["-o", &format!("{protocol}.check_checksum:TRUE")]);
        command.args(["-e", &format!("{protocol}.checksum.status")]);
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            println!("skipped: tshark: {error}");
            assert!(std::env::var_os("GROSSO_SKIP_NOTHING").is_none(), "skipped: tshark");
            return None;
        }
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    let list = |cell: &str| cell.split(',').filter(|s| !s.is_empty()).map(str::to_owned).collect();
    let row = |line: &str| {
        let mut cells = line.split(';').map(list);
        core::array::from_fn(|_| cells.next().expect("a cell"))
    };
    Some(text.lines().map(row).collect())
}

/// Returns the word that tshark uses for a verdict.
fn word(verdict: &Value) -> &'static str {
    match verdict.as_str().expect("a verdict") {
        "right" => "1",
        "wrong" => "0",
        "absent" => "3",
        other => panic!("{other}"),
    }
}

#[test]
fn tshark_judges_every_checksum_as_the_files_do() {
    let Some(statuses) = statuses("checksum") else { return };
    let mut judged = 0;
    for vector in Pair::read("checksum").vectors {
        let Some(verify) = vector.get("verify") else { continue };
        let frame = verify["frame"].as_u64().expect("a number") as usize;
        let checksums = verify["checksums"].as_array().expect("a list");
        for (header, found) in HEADERS.iter().zip(&statuses[frame - 1]) {
            let told = checksums.iter().filter(|checksum| checksum["header"] == *header);
            let told: Vec<_> = told.map(|checksum| word(&checksum["verdict"])).collect();
            assert_eq!(found, &told, "{} {header}", vector["name"]);
            judged += told.len();
        }
    }
    assert!(judged >= 10, "{judged} checksums");
}

#[test]
fn tshark_finds_no_wrong_checksum_in_what_was_cut_or_completed() {
    let (Some(cut), Some(completed)) = (statuses("segment"), statuses("checksum")) else { return };
    let number = |value: &Value| value.as_u64().expect("a number") as usize - 1;
    let mut packets: Vec<_> = Vec::new();
    for vector in Pair::read("segment").vectors {
        packets.extend(&cut[number(&vector["out"]["first"])..=number(&vector["out"]["last"])]);
    }
    let vectors = Pair::read("checksum").vectors;
    let complete = vectors.iter().filter_map(|vector| vector.get("complete"));
    packets.extend(complete.map(|complete| &completed[number(&complete["out"])]));
    assert!(packets.len() > 70, "{} packets", packets.len());
    for packet in packets {
        assert!(packet.concat().iter().all(|status| status != "0"), "{packet:?}");
        assert!(packet.concat().iter().any(|status| status == "1"), "{packet:?}");
    }
}
