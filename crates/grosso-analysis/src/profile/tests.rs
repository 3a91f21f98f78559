use std::fs;

use grosso::coalesce::{Acknowledgments, Batch, BucketChoice, Vary};

use super::*;

/// Parses an invalid profile and returns the error message.
fn wrong(text: &str) -> String {
    parse(text, "mine".into()).unwrap_err().to_string()
}

#[test]
fn what_is_written_of_a_built_in_profile_gives_exactly_it() {
    for profile in Profile::all() {
        let text = write(&profile);
        assert_eq!(parse(&text, "file".into()), Ok(profile), "{text}");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }
}

#[test]
fn a_file_overrides_its_base() {
    let text = r#"
base = "freebsd"
udp = true
batch.by-flow = 7
rules.window = "first"
rules.flags-alone = ["cwr", "fin", "cwr"]

[limits]
flows = 0x40
hold-ns = 16_000

[table]
choice = "device"
buckets = 16
"#;
    let profile = parse(text, "mine".into()).unwrap();
    let mut expected = Profile::freebsd();
    expected.name = "mine".into();
    expected.udp = true;
    expected.rules.window = Vary::First;
    expected.rules.flags_alone = 0x81;
    expected.limits.flows = 64;
    expected.limits.hold_ns = 16_000;
    expected.batch = Batch::ByFlow { packets: 7 };
    expected.table.buckets = 16;
    expected.table.choice = BucketChoice::Device;
    assert_eq!(profile, expected);
    assert_eq!(profile.rules.acknowledgments, Acknowledgments::Join);
}

#[test]
fn an_empty_file_is_the_default_under_its_own_name() {
    let mut expected = Profile::linux();
    expected.name = "mine".into();
    assert_eq!(parse("", "mine".into()), Ok(expected));
}

#[test]
fn errors_have_line_column_and_expected_values() {
    for (text, expected) in [
        ("bsae = \"linux\"\n", "1:1: no key \"bsae\"; did you mean base?"),
        (
            "colour = 1\n",
            "1:1: no key \"colour\"; known keys: tcp, udp, extension-headers, tunnels-max",
        ),
        (
            "udp = true\n[rules]\nwindov = \"first\"\n",
            "3:1: no key \"windov\"; did you mean window?",
        ),
        ("[limits]\nxyz = 1\n", "2:1: no key \"xyz\"; known keys: flows, parts,"),
        (
            "batch = { by-flow = 0 }\n",
            "1:9: batch: expected as-it-came or { by-flow = 1 to 16384 }",
        ),
        ("batch = \"by-flow\"\n", "1:9: batch: expected"),
        ("base = \"freebds\"\n", "1:8: no profile \"freebds\"; did you mean freebsd?"),
        ("base = 1\n", "1:8: base must be a string in quotes"),
        ("rules = 1\n", "1:9: rules must be a table: [rules]"),
        ("[rules]\nwindow = \"newest\"\n", "2:10: rules.window: expected equal, first or latest"),
        ("[rules]\nwindow = 1\n", "2:10: rules.window: expected equal, first or latest"),
        ("[rules.window]\nx = 1\n", "1:1: rules.window: expected equal, first or latest"),
        (
            "[rules]\nflags-alone = [\"syn\"]\n",
            "2:15: rules.flags-alone: expected a list of fin, psh, ece or cwr",
        ),
        ("udp = \"yes\"\n", "1:7: udp: expected true or false"),
        ("tunnels-max = 16\n", "1:15: tunnels-max: expected 0 to 15"),
        ("[limits]\nflows = 0\n", "2:9: limits.flows: expected 1 to 1048576"),
        ("[limits]\nflows = -1\n", "2:9: limits.flows: expected 1 to 1048576"),
        ("[limits]\nsize-bytes = 524281\n", "2:14: limits.size-bytes: expected 1 to 524280"),
        ("[limits]\ntcp-segments = 65536\n", "2:16: limits.tcp-segments: expected 1 to 65535"),
        ("[limits]\nhold-ns = 9999999999999999999999\n", "2:11: limits.hold-ns: expected 0 to"),
        ("[limits]\nflows = 1.0\n", "2:9: limits.flows: expected"),
        ("[limits\nflows = 1\n", "1:8: "),
        ("name = \"\"\n", "1:8: a name must have 1 to 64 printable bytes"),
        ("name = \"a\\u0007\"\n", "1:8: a name must have 1 to 64 printable bytes"),
        (
            "name = \"linux\"\nudp = false\n",
            "1:8: \"linux\" is the name of a built-in profile; use another one: name = \
             \"my-linux\"",
        ),
    ] {
        let said = wrong(text);
        assert!(said.starts_with(expected), "{text}: {said}");
    }
}

#[test]
fn a_name_with_a_dot_or_a_slash_is_a_file() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("mine.toml"), "base = \"inet-lro\"\n").unwrap();
    let mut expected = Profile::inet_lro();
    expected.name = "mine".into();
    assert_eq!(find("mine.toml", folder.path()).unwrap(), expected);
    assert_eq!(find("inet-lro", folder.path()).unwrap(), Profile::inet_lro());
    let mut at_1500 = Profile::inet_lro_2007(1500);
    at_1500.name = "inet-lro-2007:1500".into();
    assert_eq!(find("inet-lro-2007:1500", folder.path()).unwrap(), at_1500);
    for wrong in ["inet-lro-2007:67", "inet-lro-2007:65536", "inet-lro-2007:", "inet-lro-2007:x"] {
        let said = find(wrong, folder.path()).unwrap_err().message;
        assert_eq!(said, format!("{wrong}: an MTU must be from 68 to 65535 bytes"));
    }
    assert_eq!(find("inet-lro:1500", folder.path()).unwrap_err().code, "usage.profile");
    let missing = find("./other", folder.path()).unwrap_err();
    assert_eq!(missing.code, "environment.read");
    fs::write(folder.path().join("long.toml"), "#".repeat(65537)).unwrap();
    assert_eq!(find("long.toml", folder.path()).unwrap_err().code, "input.profile");
    assert_eq!(find("windows", folder.path()).unwrap_err().code, "usage.profile");
}
