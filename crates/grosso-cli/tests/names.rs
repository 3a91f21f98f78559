//! Names come from untrusted sources: printing a name must not move the cursor, change the colors of the screen or
//! forge lines.

use grosso_capture::Format;
use grosso_testkit::{Packet, Traffic};

use crate::common::{Bench, ETHERNET, capture, report};

/// A name that clears the screen, sets the title, sets colors, and forges a line.
const EVIL: &str = "a\u{1b}[2J\u{1b}]0;owned\u{7}\u{1b}[31m\u{9b}5m\ngrosso:\u{202e}x.pcapng";
const SHOWN: &str = "a\\x1b[2J\\x1b]0;owned\\x07\\x1b[31m\\x9b5m\\x0agrosso:\\u{202e}x.pcapng";

/// Runs a command in which `FILE` stands for the file with this name, and `OUT` for an output file.
fn run(bench: &Bench, line: &str) -> (String, i32) {
    let (out, none) = (EVIL.replacen('a', "b", 1), EVIL.replacen('a', "none", 1));
    let word = |word: &str| word.replace("FILE", EVIL).replace("OUT", &out).replace("NONE", &none);
    let words = line.split_whitespace().map(word);
    let output = bench.command("").args(words).output().unwrap();
    let all = [output.stdout, output.stderr].concat();
    (String::from_utf8(all).unwrap(), output.status.code().unwrap())
}

fn assert_harmless(line: &str, said: &str) {
    let odd = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert!(!said.chars().any(odd), "{line}: {said:?}");
    assert!(!said.contains("\ngrosso:\\u{202e}"), "{line}: a name forged a line: {said}");
}

#[test]
fn d16_names_of_files_are_shown_without_their_control_characters() {
    let bench = Bench::new();
    let udp = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).payload_len(4000);
    let mut frames: Vec<_> = Traffic::new(3).take(200).collect();
    frames.push(udp.build_superframe().0);
    bench.put(EVIL, &capture(Format::Pcapng, ETHERNET, &frames));
    let tunnel = "type ipip local 192.0.2.1 remote 192.0.2.2";
    for line in [
        "inspect FILE",
        "FILE",
        "coalesce -r FILE -w OUT",
        "segment -r FILE -w OUT",
        "wire -r FILE -w OUT",
        "reassemble -r FILE -w OUT",
        "decap -r FILE -w OUT",
        "decap --recursive -r FILE -w OUT",
        "fragment --mtu 1500 -r FILE -w OUT",
        &format!("encap -r FILE -w OUT {tunnel}"),
        "csum verify -r FILE",
        "csum fix -r FILE -w OUT",
        "explain FILE -n 3",
        "explain FILE -n 300",
        "whatif FILE",
        "whatif FILE --html OUT",
        // Error messages contain file names too.
        "inspect NONE",
        "wire -r NONE -w OUT",
        "wire -r FILE -w FILE",
        "wire -r FILE -w NONE/x",
        "coalesce -r FILE -w OUT --profile NONE.toml",
        "wire -r FILE -w OUT FILE",
        "csum verify FILE",
        "config check FILE",
        "profiles show FILE",
        "config check NONE",
        "config esp FILE --here 10.0.0.1 --key-file OUT",
        "config esp NONE --here 10.0.0.1 --key-file OUT",
        "no-such-command FILE",
        "inspect FILE --color=never",
    ] {
        let (said, code) = run(&bench, line);
        assert_ne!(code, 5, "{line}: {said}");
        assert_harmless(line, &said);
    }
    let (said, _) = run(&bench, "inspect FILE");
    assert!(said.starts_with(SHOWN), "{said}");
    let (said, _) = run(&bench, "inspect NONE");
    assert!(said.contains(&SHOWN[1..]), "{said}");
}

#[test]
fn colours_of_our_own_stay_and_those_of_names_do_not() {
    let bench = Bench::new();
    bench.put(
        EVIL,
        &capture(Format::Pcapng, ETHERNET, &Traffic::new(3).take(20).collect::<Vec<_>>()),
    );
    let (said, _) = run(&bench, "inspect FILE --color=always");
    assert!(said.starts_with(&format!("\u{1b}[1m{SHOWN}\u{1b}[0m:")), "{said:?}");
    assert!(!said.contains("\u{1b}[31m") && !said.contains("\u{1b}[2J"), "{said:?}");
}

#[test]
fn json_names_files_as_they_are() {
    let bench = Bench::new();
    bench.put(
        EVIL,
        &capture(Format::Pcapng, ETHERNET, &Traffic::new(3).take(20).collect::<Vec<_>>()),
    );
    let (said, _) = run(&bench, "inspect --json FILE");
    let report = report(&said);
    assert_eq!(report["input"]["path"], EVIL);
}
