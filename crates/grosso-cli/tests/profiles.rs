//! Tests profiles as a user sees them: the list of profiles, their files, their comparison, and their names in reports.

use grosso_capture::Format;
use grosso_testkit::{Packet, headers::Tcp};
use serde_json::{Value, json};

use crate::common::{Bench, ETHERNET, capture};

/// Returns the names of all built-in profiles, in the listed order.
fn names(bench: &Bench) -> Vec<String> {
    let list = bench.ok("profiles --json").json();
    let name = |profile: &Value| profile["name"].as_str().unwrap().to_owned();
    list["profiles"].as_array().unwrap().iter().map(name).collect()
}

#[test]
fn every_profile_is_listed_with_what_it_is_and_whether_it_can_be_undone() {
    let bench = Bench::new();
    let list = bench.ok("profiles --json").json();
    assert_eq!(list["schema"], "grosso.profiles/1");
    let profiles = list["profiles"].as_array().unwrap();
    let text = bench.ok("profiles").stdout;
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("profile        invertible description"));
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    for (line, profile) in lines.by_ref().zip(profiles) {
        let invertible = if profile["invertible"].as_bool().unwrap() { "yes" } else { "no" };
        let name = profile["name"].as_str().unwrap();
        let about = profile["about"].as_str().unwrap();
        assert_eq!(line, format!("{name:<14} {invertible:<10} {about}"));
    }
    assert_eq!(lines.next(), None);
    for (name, is_invertible) in [("linux", true), ("ndis-uro", true), ("freebsd", false)] {
        let profile = profiles.iter().find(|profile| profile["name"] == name).unwrap();
        assert_eq!(profile["invertible"], is_invertible, "{name}");
    }
}

#[test]
fn what_is_shown_of_a_profile_is_a_file_that_gives_it() {
    let bench = Bench::new();
    for name in names(&bench) {
        let shown = bench.ok(&format!("profiles show {name}"));
        assert!(shown.stdout.starts_with("# "), "{}", shown.stdout);
        bench.put("it.toml", &shown.bytes);
        let [built_in, file] = [&*name, "it.toml"].map(|word| {
            let report = bench.ok(&format!("profiles show {word} --json")).json();
            assert_eq!(report["schema"], "grosso.profile/1");
            (report["name"].clone(), report["invertible"].clone(), report["profile"].clone())
        });
        assert_eq!(built_in, file);
        assert_eq!(built_in.0, *name);
    }
}

#[test]
fn a_file_overrides_its_base_and_reports_have_its_name() {
    let bench = Bench::new();
    bench.put("mine.toml", b"base = \"freebsd\"\n[limits]\nflows = 64\n");
    let shown = bench.ok("profiles show mine.toml --json").json();
    assert_eq!((&shown["name"], &shown["about"]), (&json!("mine"), &Value::Null));
    assert_eq!(shown["profile"]["limits"]["flows"], 64);
    let base = bench.ok("profiles show freebsd --json").json();
    assert_eq!(shown["profile"]["rules"], base["profile"]["rules"]);
    assert_eq!(base["profile"]["limits"]["flows"], 8);
    bench.put("a", &capture(Format::Pcapng, ETHERNET, &[segment(1, 0)]));
    let report = bench.ok("coalesce --json -r a -w b --profile mine.toml").json();
    assert_eq!(report["profile"], "mine");
}

/// An error in a profile is reported, no matter which option names the profile, with line and column and the likely
/// correction.
#[test]
fn a_wrong_key_is_shown_with_its_position_and_a_suggestion() {
    let bench = Bench::new();
    bench.put("a", &capture(Format::Pcapng, ETHERNET, &[segment(1, 0)]));
    bench.put("mine.toml", b"udp = false\n\n[rules]\n  windov = \"first\"\n");
    for line in [
        "profiles show mine.toml",
        "coalesce -r a -w b --profile mine.toml",
        "whatif a --profile linux,mine.toml",
        "explain a -n 1 --profile mine.toml",
        "lab profiles --profile mine.toml",
    ] {
        let run = bench.run(line);
        let wrong = "grosso: mine.toml:4:3: no key \"windov\"; did you mean window?\n";
        assert_eq!((run.code, run.stdout.as_str()), (3, ""), "{line}: {}", run.stderr);
        assert!(run.stderr.contains(wrong), "{line}: {}", run.stderr);
        assert!(run.stderr.contains("hint: grosso profiles show linux prints"), "{}", run.stderr);
    }
    let error = bench.run("profiles show mine.toml --json").json_error();
    assert_eq!((&error["code"], &error["line"]), (&json!("input.profile"), &json!(4)), "{error}");
    assert_eq!(error["column"], 3);
    // An invalid value, an unknown base, and text that is not TOML at all.
    for (text, wrong) in [
        ("limits.flows = 0\n", "1:16: limits.flows: expected 1 to 1048576"),
        ("base = \"linus\"\n", "1:8: no profile \"linus\"; did you mean linux?"),
        ("[limits\n", "1:8: "),
    ] {
        bench.put("mine.toml", text.as_bytes());
        let run = bench.run("profiles show mine.toml");
        assert_eq!(run.code, 3, "{text}");
        assert!(run.stderr.contains(&format!("mine.toml:{wrong}")), "{}", run.stderr);
    }
}

#[test]
fn a_name_that_there_is_not_brings_the_one_that_was_meant() {
    let bench = Bench::new();
    let run = bench.run("profiles show inet-lr");
    assert_eq!(run.code, 2);
    assert!(
        run.stderr.contains("no profile \"inet-lr\"; did you mean inet-lro?"),
        "{}",
        run.stderr
    );
    assert!(run.stderr.contains("hint: grosso profiles lists"), "{}", run.stderr);
    let run = bench.run("profiles show nothing.toml");
    assert_eq!(run.code, 4);
    assert!(run.stderr.contains("nothing.toml: "), "{}", run.stderr);
    assert_eq!(bench.run("profiles list").code, 2);
}

#[test]
fn lab_profiles_has_a_row_for_every_profile_and_for_those_of_the_user() {
    let bench = Bench::new();
    bench.put("alone.toml", b"tcp = false\nudp = false\n");
    let report = bench.ok("lab profiles --json --profile alone.toml").json();
    assert_eq!(report["schema"], "grosso.lab-profiles/1");
    assert_eq!(report["tool"]["name"], "grosso");
    assert!(report["elapsed_s"].as_f64().unwrap() > 0.0);
    let rows = report["rows"].as_array().unwrap();
    let of_row: Vec<_> = rows.iter().map(|row| row["profile"].as_str().unwrap()).collect();
    let mut expected = names(&bench);
    expected.push("alone".into());
    assert_eq!(of_row, expected);
    let number = |value: &Value| value.as_u64().unwrap();
    for row in rows {
        assert!(number(&row["frames"]) <= number(&report["packets"]), "{row}");
        assert!(number(&row["segments_p50"]) <= number(&row["segments_p99"]), "{row}");
        assert!(row["ns_per_packet"].as_f64().unwrap() > 0.0, "{row}");
        // Exactly the profiles that are not invertible merge packets irreversibly.
        let name = row["profile"].as_str().unwrap();
        let is_invertible = name.starts_with("linux") || ["ndis-uro", "alone"].contains(&name);
        assert_eq!(number(&row["melted"]) == 0, is_invertible, "{row}");
    }
    let alone = rows.last().unwrap();
    assert_eq!((&alone["frames"], &alone["superframes"]), (&report["packets"], &json!(0)));
    let text = bench.ok("lab profiles").stdout;
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    for name in names(&bench) {
        assert!(text.contains(&format!("\n{name} ")), "{name}: {text}");
    }
}

/// Returns a full segment of a connection.
fn segment(port: u16, number: u32) -> Vec<u8> {
    segment_as(port, number, |tcp| tcp)
}

fn segment_as(port: u16, number: u32, change: fn(Tcp) -> Tcp) -> Vec<u8> {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(number as u16));
    let tcp = |tcp: Tcp| change(tcp.source_port(port).sequence(number * 100));
    packet.tcp(tcp).payload_len(100).build()
}

/// Returns ten connections; the first has three segments. In a table with eight entries, two of the connections get
/// none. A packet with ECE never merges.
fn ten_connections() -> Vec<Vec<u8>> {
    let first = (0..3).map(|number| segment(1, number));
    let others = (2..=10).map(|port| segment(port, 0));
    let marked = segment_as(11, 0, |tcp| tcp.ece());
    first.chain(others).chain([marked]).collect()
}

// Rules: L4
#[test]
fn l04_coalesce_shows_what_the_original_counts() {
    let bench = Bench::new();
    bench.put("a", &capture(Format::Pcapng, ETHERNET, &ten_connections()));
    bench.put("mine.toml", b"base = \"inet-lro\"\nlimits.flows = 9\n");
    // Ten packets in eight trains. One train has three packets; the other packets did not fit, or are not in a train.
    for (profile, expected, line) in [
        (
            "inet-lro",
            json!({ "aggregated": 10, "flushed": 8, "no_desc": 2 }),
            "  original counts  aggregated 10, flushed 8, no_desc 2\n",
        ),
        (
            "inet-lro-2007",
            json!({ "aggregated": 10, "flushed": 8, "no_desc": 2 }),
            "  original counts  aggregated 10, flushed 8, no_desc 2\n",
        ),
        (
            "myri10ge",
            json!({ "aggregated": 10, "flushed": 8, "no_desc": 2 }),
            "  original counts  aggregated 10, flushed 8, no_desc 2\n",
        ),
        (
            "mine.toml",
            json!({ "aggregated": 11, "flushed": 9, "no_desc": 1 }),
            "  original counts  aggregated 11, flushed 9, no_desc 1\n",
        ),
        (
            "freebsd-2011",
            json!({ "lro_queued": 10, "lro_flushed": 8 }),
            "  original counts  lro_flushed 8, lro_queued 10\n",
        ),
        // Profiles that sort their batches also count refused packets.
        (
            "freebsd",
            json!({ "lro_queued": 13, "lro_flushed": 11 }),
            "  original counts  lro_flushed 11, lro_queued 13\n",
        ),
        (
            "rsc-82599",
            json!({ "hw_rsc_aggregated": 3, "hw_rsc_flushed": 1 }),
            "  original counts  hw_rsc_aggregated 3, hw_rsc_flushed 1\n",
        ),
    ] {
        let command = format!("coalesce -r a -w b --profile {profile}");
        let report = bench.ok(&format!("{command} --json")).json();
        assert_eq!(report["original"], expected, "{profile}");
        let text = bench.ok(&command).stdout;
        assert!(text.contains(line), "{profile}: {text}");
    }
    // The original programs of these profiles counted nothing, or counted differently.
    for profile in ["linux", "linux-8x8", "linux-6.12", "ndis-rsc", "ndis-uro", "dpdk", "wireguard"]
    {
        let command = format!("coalesce -r a -w b --profile {profile}");
        assert_eq!(bench.ok(&format!("{command} --json")).json()["original"], Value::Null);
        assert!(!bench.ok(&command).stdout.contains("original"), "{profile}");
    }
}
