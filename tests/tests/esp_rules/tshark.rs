//! Tests that tshark can decrypt the packets that Grosso encrypts.

use std::{fmt::Write, fs, process::Command};

use grosso::tunnel::esp::EspMode;
use grosso_testkit::{
    Packet,
    stack::{Front, NETWORKS, Network, Place, Stack, Transport},
};

use super::association::{KEY, Recipe, encrypt};

/// Encodes Ethernet frames as a classic pcap file, all at time zero.
fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    file.extend(262_144_u32.to_le_bytes());
    file.extend(1_u32.to_le_bytes());
    for frame in frames {
        let len = (frame.len() as u32).to_le_bytes();
        file.extend([[0; 4], [0; 4], len, len].concat());
        file.extend(frame);
    }
    file
}

/// Formats the association as tshark's table of keys.
fn keys(recipe: &Recipe) -> [String; 2] {
    let (spi, icv) = (recipe.spi, recipe.icv.bytes());
    let mut key = String::new();
    for byte in &KEY[..recipe.key_bytes + 4] {
        let _ = write!(key, "{byte:02x}");
    }
    ["IPv4", "IPv6"].map(|version| {
        format!(
            "uat:esp_sa:\"{version}\",\"*\",\"*\",\"{spi:#010x}\",\
                 \"AES-GCM with {icv} octet ICV [RFC4106]\",\"0x{key}\",\"NULL\",\"\""
        )
    })
}

/// Reads tshark's values of these fields for each frame; `None` if tshark is not installed.
fn read(
    name: &str,
    recipes: &[Recipe],
    frames: &[Vec<u8>],
    fields: &[&str],
) -> Option<Vec<Vec<String>>> {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join(name);
    fs::write(&path, capture(frames)).expect("the directory can be written");
    let mut command = Command::new("tshark");
    command.arg("-r").arg(&path).args(["-T", "fields", "-E", "separator=;", "-E", "occurrence=a"]);
    for preference in ["enable_encryption_decode", "enable_authentication_check"] {
        command.args(["-o", &format!("esp.{preference}:TRUE")]);
    }
    command.args(["-o", "tcp.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"]);
    for line in recipes.iter().flat_map(keys) {
        command.args(["-o", &line]);
    }
    for field in fields {
        command.args(["-e", field]);
    }
    let Ok(output) = command.output() else {
        println!("skipped: tshark is not installed");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("fields are text");
    let lines: Vec<Vec<String>> =
        text.lines().map(|line| line.split(';').map(str::to_owned).collect()).collect();
    assert_eq!(lines.len(), frames.len(), "a line for each frame");
    Some(lines)
}

/// Tests every network and transport in every mode with every key: tshark verifies the ICV, and finds the original
/// packet with its transport checksum in the plaintext.
#[test]
fn tshark_decrypts_what_is_encrypted() {
    let mut recipes = Recipe::all();
    recipes.retain(|recipe| !recipe.extended);
    let (mut wires, mut expected) = (Vec::new(), Vec::new());
    for recipe in &recipes {
        let mut encryptor = recipe.encryptor(41);
        for (frame, protocol, payload) in plaintexts() {
            let (wire, sent) = encrypt(&mut encryptor, &frame).expect("the packet is encrypted");
            let in_esp = match recipe.mode {
                EspMode::Transport => protocol,
                EspMode::Tunnel(_) if frame[12..14] == [8, 0] => 4,
                EspMode::Tunnel(_) => 41,
            };
            wires.push(wire);
            expected.push((recipe, sent.sequence, in_esp, payload));
        }
    }
    assert_eq!(wires.len(), 36 * 18);
    let Some(lines) = read("esp.pcap", &recipes, &wires, FIELDS) else { return };
    for (line, (recipe, sequence, protocol, payload)) in lines.iter().zip(expected) {
        let case = format!("{recipe:?} {line:?}");
        assert_eq!(line[..2], ["1", "0"], "{case}");
        assert_eq!(line[2], sequence.to_string(), "{case}");
        assert_eq!(line[3], format!("{protocol:#04x}"), "{case}");
        assert_eq!(line[4].starts_with("4501,4500"), recipe.udp, "{case}");
        assert!(line[5..7].iter().any(|text| text.ends_with(&payload)), "{case}");
        // 0 is bad, 1 is good, 2 is not verified, 3 is absent.
        let states = line[7..].join(",");
        assert!(!states.contains('0') && states.contains('1'), "{case}");
    }
}

/// Fields that tshark prints: the ICV and the numbers, the payload, and the states of checksums.
const FIELDS: &[&str] = &[
    "esp.icv_good",
    "esp.icv_bad",
    "esp.sequence",
    "esp.protocol",
    "udp.port",
    "tcp.payload",
    "data.data",
    "ip.checksum.status",
    "tcp.checksum.status",
    "udp.checksum.status",
    "icmp.checksum.status",
    "icmpv6.checksum.status",
];

/// Returns frames, each with the protocol after the unencrypted headers, and the payload as tshark prints it.
fn plaintexts() -> Vec<(Vec<u8>, u8, String)> {
    let mut plaintexts = Vec::new();
    // If there is a routing header, the home address option after it is encrypted, so tshark cannot apply it.
    for network in NETWORKS.iter().filter(|network| **network != Network::Ipv6Mobile) {
        let transports = [(Transport::Tcp, 6), (Transport::Udp, 17), (Transport::Icmp, 1)];
        for (transport, protocol) in transports {
            let stack = Stack::plain(Front::Ethernet, *network, transport);
            let payload_len = 60 + plaintexts.len();
            let frame = stack.packet(&Place::default()).payload_len(payload_len).build();
            let is_v6 = frame[12..14] != [8, 0];
            let protocol = if is_v6 && protocol == 1 { 58 } else { protocol };
            let payload = hex(&frame[frame.len() - 40..]);
            plaintexts.push((frame, protocol, payload));
        }
    }
    plaintexts
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Tests that tshark detects one wrong bit and a wrong key, which shows that comparisons with tshark can fail.
#[test]
fn tshark_distinguishes_right_from_wrong() {
    let recipe = Recipe::new(EspMode::Transport);
    let frame = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t).payload_len(50).build();
    let good = recipe.encrypted(1, &frame);
    let mut flipped = good.clone();
    flipped[60] ^= 1;
    let longer = Recipe { key_bytes: 32, ..recipe }.encrypted(1, &frame);
    let fields = ["esp.icv_good", "esp.icv_bad"];
    let wires = [good, flipped, longer];
    let Some(lines) = read("wrong.pcap", &[recipe], &wires, &fields) else { return };
    assert_eq!(lines, [["1", "0"], ["0", "1"], ["0", "1"]]);
}
