//! Tests interfaces as capture sources for Wireshark: tshark lists them, and captures wire packets from them.

#![cfg(target_os = "linux")]

use std::{
    fs,
    os::unix::fs::symlink,
    process::{Child, Command, Stdio},
};

use grosso_sys::namespace::NetworkNamespace;

use crate::{
    common::{Bench, Timed, has, packets},
    tap::{signal, until},
    twins::law::same,
    vantage::{BYTES, Chain, IPV4, Way, between, is_over},
};

/// Returns a tshark command that finds Grosso as an extcap: the manual names two extcap directories, and both contain a
/// link to it.
fn tshark(bench: &Bench, words: &str) -> Command {
    // Wireshark up to 4.0 uses the first directory, later versions the second.
    for folder in [".config/wireshark/extcap", ".local/lib/wireshark/extcap"] {
        let folder = bench.path(folder);
        fs::create_dir_all(&folder).unwrap();
        let _ = symlink(env!("CARGO_BIN_EXE_grosso"), folder.join("grosso"));
    }
    let mut command = Command::new("tshark");
    command.args(words.split(' ')).current_dir(bench.path(".")).env("HOME", bench.path("."));
    command.env("TMPDIR", bench.path(".")).env_remove("XDG_CONFIG_HOME");
    command
}

fn run(network: &NetworkNamespace, mut command: Command) -> String {
    let output = network.host(&mut command).unwrap().output().unwrap();
    // If interfaces are missing from the list, the reason follows it.
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

#[test]
fn tshark_lists_each_interface_as_a_source_and_its_link_type() {
    let Some(chain) = Chain::new(Way { mtu: 1500, behind: None }) else { return };
    if !has("tshark") {
        return;
    }
    let bench = Bench::new();
    let listed = run(&chain.sender, tshark(&bench, "-D"));
    for interface in ["s0", "lo"] {
        let line = format!("grosso-{interface} (Grosso: {interface})");
        assert!(listed.contains(&line), "{listed}");
    }
    let links = run(&chain.sender, tshark(&bench, "-i grosso-s0 -L"));
    assert!(links.contains("EN10MB"), "{links}");
    let ask = |line: &str| run(&chain.sender, bench.command(line));
    let options = ask("--extcap-interface grosso-s0 --extcap-config");
    assert!(options.contains("{call=--packets}") && options.contains("{call=--snaplen}"));
    let check = |filter: &str| {
        let mut command = bench.command("--extcap-interface=grosso-s0");
        command.args(["--extcap-capture-filter", filter]);
        chain.sender.host(&mut command).unwrap().output().unwrap()
    };
    assert!(check("tcp port 80").status.success());
    let wrong = check("tcp prot 80");
    assert!(!wrong.status.success() && !wrong.stderr.is_empty(), "{wrong:?}");
    assert!(
        !chain
            .sender
            .host(&mut bench.command("--extcap-interface grosso-no --extcap-dlts"))
            .unwrap()
            .output()
            .unwrap()
            .status
            .success()
    );
}

#[test]
fn tshark_gets_the_packets_of_the_wire_from_a_device_with_its_offloads_on() {
    let Some(chain) = Chain::new(Way { mtu: 1500, behind: None }) else { return };
    if !has("tshark") {
        return;
    }
    let bench = Bench::new();
    let start = |words: &str, file: &str| -> Child {
        let mut command = tshark(&bench, &format!("{words} -w {file}"));
        let said = bench.path(&format!("{file}.said"));
        command.stdout(Stdio::null()).stderr(fs::File::create(&said).unwrap());
        let mut child = chain.sender.host(&mut command).unwrap().spawn().unwrap();
        until(|| {
            let has_ended = child.try_wait().unwrap().is_some();
            assert!(!has_ended, "{}", fs::read_to_string(&said).unwrap());
            fs::metadata(bench.path(file)).is_ok_and(|metadata| metadata.len() > 0)
        });
        child
    };
    let mut wire = start("-i grosso-s0", "wire.pcapng");
    let mut host = start("-i s0", "host.pcapng");
    // A source may start after the file exists: packets show that it has started.
    until(|| {
        chain.datagrams(chain.ends(IPV4), 1200, &[30]);
        let len = |file| fs::metadata(bench.path(file)).unwrap().len();
        len("wire.pcapng") > 1000 && len("host.pcapng") > 1000
    });
    let stream = || chain.stream(chain.ends(IPV4), BYTES);
    let seen = chain.record(&[(&chain.receiver, "d0")], IPV4, stream);
    until(|| is_over(&bench.path("wire.pcapng")) && is_over(&bench.path("host.pcapng")));
    for child in [&mut wire, &mut host] {
        signal(child, "INT");
        child.wait().unwrap();
    }
    let tcp = |mut packets: Vec<Timed>| {
        packets.retain(|(_, frame)| frame.get(23) == Some(&6));
        packets
    };
    let was = tcp(seen.into_iter().flatten().collect());
    assert!(was.len() > BYTES / 1448, "{}", was.len());
    // Neither file has retransmissions that were sent after the marks.
    let compared = |file| same(&was, &tcp(between(&packets(&bench.get(file)))));
    compared("wire.pcapng").expect("the packets of the wire");
    assert!(compared("host.pcapng").is_err(), "Wireshark's own source has superframes");
}
