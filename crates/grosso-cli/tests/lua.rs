//! Tests that the Wireshark dissector shows the contents of Grosso's capture option.

use std::process::Command;

use grosso_testkit::Packet;

use crate::common::{Bench, copy_captures, has};

/// Returns whether tshark is installed and can run a Lua dissector; prints a message if not.
fn has_lua() -> bool {
    if !has("tshark") {
        return false;
    }
    let version = Command::new("tshark").arg("--version").output().unwrap().stdout;
    let is_built_in = String::from_utf8_lossy(&version).contains("with Lua");
    if !is_built_in {
        println!("skipped: a tshark with Lua is not installed");
    }
    is_built_in
}

/// Returns these fields of each packet. Multiple values of one field are separated by commas.
fn fields(bench: &Bench, file: &str, fields: &[&str], words: &[&str]) -> Vec<Vec<String>> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/wireshark/grosso.lua");
    let mut command = Command::new("tshark");
    command.args(["-X", &format!("lua_script:{script}"), "-r", file, "-T", "fields"]).args(words);
    for field in fields {
        command.args(["-e", field]);
    }
    command.env("HOME", bench.path(".")).current_dir(bench.path("."));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("Lua"), "{said}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

/// Byte order of the encoded numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    Big,
    Little,
}

impl Order {
    fn short(self, number: u16) -> [u8; 2] {
        if self == Self::Big { number.to_be_bytes() } else { number.to_le_bytes() }
    }

    fn long(self, number: u32) -> [u8; 4] {
        if self == Self::Big { number.to_be_bytes() } else { number.to_le_bytes() }
    }

    /// Encodes a pcapng block.
    fn block(self, kind: u32, body: &[u8]) -> Vec<u8> {
        let body = [body, &vec![0; body.len().next_multiple_of(4) - body.len()]].concat();
        let len = self.long(body.len() as u32 + 12);
        [&self.long(kind)[..], &len, &body, &len].concat()
    }

    /// Encodes a block option.
    fn option(self, code: u16, value: &[u8]) -> Vec<u8> {
        let pad = vec![0; value.len().next_multiple_of(4) - value.len()];
        [&self.short(code)[..], &self.short(value.len() as u16), value, &pad].concat()
    }
}

/// Returns a capture of three packets, the second of which has a custom option with this value. The capture is encoded
/// here, because Grosso's capture writer would replace the option with its own.
fn capture_with(option: &[u8], order: Order) -> Vec<u8> {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|udp| udp).payload_len(3).build();
    let section = [&order.long(0x1a2b_3c4d)[..], &order.short(1), &[0; 2], &[0xff; 8]].concat();
    let interface = [&order.short(1)[..], &[0; 2], &order.long(0)].concat();
    let mut capture = [order.block(0x0a0d_0d0a, &section), order.block(1, &interface)].concat();
    for place in 0..3 {
        let len = packet.len() as u32;
        let mut body = [0, 0, 1000 + place, len, len].map(|number| order.long(number)).concat();
        body.extend(&packet);
        body.resize(body.len().next_multiple_of(4), 0);
        if place == 1 {
            body.extend(order.option(1, b"a comment before it"));
            body.extend(order.option(2989, option));
            body.extend(order.option(0, &[]));
        }
        capture.extend(order.block(6, &body));
    }
    capture
}

#[test]
fn the_example_of_the_format_is_shown_field_by_field() {
    if !has_lua() {
        return;
    }
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/pcapng-option.md");
    let document = std::fs::read_to_string(document).unwrap();
    let example = document.split("0b ad 00 30").nth(1).unwrap().split("```").next().unwrap();
    let words = example.lines().skip(1).flat_map(|line| line.get(..11).unwrap_or(line).split(' '));
    let bytes: Vec<u8> = words.filter_map(|word| u8::from_str_radix(word, 16).ok()).collect();
    assert_eq!(bytes.len(), 48);
    let names = ["checksum", "start", "offset", "cut", "size", "segments", "transport", "gap_ns"];
    let names = names.map(|name| format!("grosso.{name}"));
    let names = names.each_ref().map(String::as_str);
    for order in [Order::Big, Order::Little] {
        let mut option = bytes.clone();
        if order == Order::Little {
            option[..4].reverse();
        }
        let bench = Bench::new();
        bench.put("x.pcapng", &capture_with(&option, order));
        let shown = fields(&bench, "x.pcapng", &names, &["-o", "grosso.file:x.pcapng"]);
        let none = vec![""; 8];
        let right = vec!["3", "34", "6", "1", "1200", "3", "2", "1000,2000"];
        assert_eq!(shown, [none.clone(), right, none], "{order:?}");
        // Another version, another owner, and a truncated body are not recognized.
        for place in [11, 2] {
            let mut other = option.clone();
            other[place] ^= 1;
            bench.put("x.pcapng", &capture_with(&other, order));
            let shown = fields(&bench, "x.pcapng", &names[..1], &["-o", "grosso.file:x.pcapng"]);
            assert_eq!(shown, [[""], [""], [""]]);
        }
        bench.put("x.pcapng", &capture_with(&option[..30], order));
        let shown = fields(&bench, "x.pcapng", &names[..1], &["-o", "grosso.file:x.pcapng"]);
        assert_eq!(shown, [[""], [""], [""]]);
    }
}

#[test]
fn superframes_have_their_sizes_and_without_the_file_their_flags() {
    if !has_lua() {
        return;
    }
    let bench = Bench::new();
    copy_captures(&bench.path("in"));
    bench.ok("wire in/host.pcap -w wire.pcapng");
    let report = bench.ok("coalesce wire.pcapng -w super.pcapng --hold 1ms --json").json();
    let (names, words) = (["grosso.size", "grosso.tso"], ["-Y", "grosso.segments > 1"]);
    let file = ["-o", "grosso.file:super.pcapng"];
    let shown = fields(&bench, "super.pcapng", &names, &[&file[..], &words].concat());
    assert_eq!(report["superframes"], shown.len());
    assert!(shown.iter().all(|packet| packet[1] == "1"), "{shown:?}");
    let sizes = bench.ok("segment super.pcapng --json").json();
    assert_eq!(sizes["cut"], shown.len(), "{sizes}");
    let plain = fields(&bench, "super.pcapng", &names, &["-Y", "grosso.tso == 1"]);
    assert_eq!(plain.len(), shown.len());
    assert!(plain.iter().all(|packet| packet[0].is_empty()));
}
