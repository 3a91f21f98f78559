//! Tests the settings that the lab suggests below its tables: the named program must accept each of them.

use std::{path::Path, process::Command as Program};

use clap::Parser;
use grosso_lab::{
    acks::AckFindings, cost::CostFindings, custom::CustomFindings, fragments::FragmentFindings,
    nic_offloads::NicOffloadFindings, offload::OffloadFindings, report::Findings,
    tunnels::TunnelFindings,
};

use crate::{
    commands::{Arguments, Command},
    daemon::config::Config,
    profile,
    tunnel::describe,
};

/// Returns the tunables from all experiments.
fn knobs() -> Vec<&'static str> {
    let each = [
        AckFindings::KNOBS,
        CostFindings::KNOBS,
        NicOffloadFindings::KNOBS,
        FragmentFindings::KNOBS,
        OffloadFindings::KNOBS,
        CustomFindings::KNOBS,
        TunnelFindings::KNOBS,
    ];
    each.concat().iter().flat_map(|knob| knob.turn).copied().collect()
}

/// Passes the rest of each tunable that begins with `start` to `judge`. Returns the number of these tunables.
fn each(start: &str, judge: impl Fn(&str) -> Result<(), String>) -> usize {
    let of_it = knobs().into_iter().filter_map(|knob| knob.strip_prefix(start));
    let judged =
        of_it.inspect(|rest| judge(rest).unwrap_or_else(|why| panic!("{start}{rest}: {why}")));
    judged.count()
}

#[test]
fn every_setting_is_of_a_program_whose_arguments_are_tested() {
    for knob in knobs() {
        let start = |starts: &[&str]| starts.iter().any(|start| knob.starts_with(start));
        assert!(start(&OWN) || start(&OTHERS) || knob == ADVICE, "no test tries \"{knob}\"");
    }
}

#[test]
fn knobs_of_paths_are_options_that_there_are() {
    assert!(each(OWN[0], bridge) >= 5);
    assert!(bridge("--hol 100us").is_err() && bridge("--profile linus").is_err());
    assert!(bridge("--hold 100furlongs").is_err() && bridge("--expand-acks").is_err());
}

fn bridge(options: &str) -> Result<(), String> {
    let line = format!("grosso bridge eth1 tap:grosso0 {options}");
    let parsed = Arguments::try_parse_from(line.split(' ')).map_err(|error| error.to_string())?;
    let Command::Bridge(bridge) = parsed.command else { return Err("another command".into()) };
    let profile = bridge.profile.as_deref().map(|word| profile::find(word, Path::new("")));
    profile.transpose().map(drop).map_err(|failure| failure.message)
}

#[test]
fn tunnel_settings_are_keywords_of_some_tunnel() {
    assert!(each(OWN[1], tunnel) >= 3);
    assert!(tunnel("encap guo").is_err() && tunnel("remcsumty").is_err());
}

fn tunnel(words: &str) -> Result<(), String> {
    let mut why = String::new();
    for base in TUNNELS {
        let line = format!("grosso tunnel add g0 type {base} {words}");
        let parsed = Arguments::try_parse_from(line.split(' '));
        parsed.map_err(|error| error.to_string())?;
        let words: Vec<String> = format!("{base} {words}").split(' ').map(Into::into).collect();
        match describe("tunnel add", &words) {
            Ok(_) => return Ok(()),
            Err(failure) => why = failure.message,
        }
    }
    Err(why)
}

#[test]
fn knobs_of_the_file_are_keys_that_there_are() {
    assert!(each(OWN[2], configured) >= 2);
    assert!(configured("left = { ..., fragment = {} }").is_err());
    assert!(configured("fragments = { ipfrag_tim = 2 }").is_err());
}

fn configured(keys: &str) -> Result<(), String> {
    let port = "port = \"packet:eth1\"";
    let left = match keys.starts_with("left") {
        true => keys.replace("...", port),
        false => format!("left = {{ {port}, {keys} }}"),
    };
    let text = format!("[[path]]\n{left}\nright = \"tap:grosso0\"\n");
    Config::parse(&text, Path::new("/")).map(drop).map_err(|wrong| wrong.to_string())
}

#[test]
fn ethtool_settings_are_ethtool_arguments() {
    let known =
        || Program::new("ethtool").arg("--version").output().is_ok() && on_a_device("true").is_ok();
    if !known() {
        println!("skipped: no ethtool, or no network of one's own");
        return;
    }
    assert!(each(OTHERS[0], ethtool) >= 7);
    for wrong in
        ["-K DEV grow on", "-C DEV rx-usec 5", "-G DEV rxx 9", "-N DEV rx-flow-hash tcp4 q"]
    {
        assert!(ethtool(wrong).is_err(), "{wrong}");
    }
}

/// Checks that ethtool knows these options. The device need not support them.
fn ethtool(words: &str) -> Result<(), String> {
    let said = on_a_device(&format!("ethtool {words} 2>&1 || true"))?;
    let unknown = ["unknown parameter", "bad command line", "bit name not found"];
    if unknown.iter().any(|what| said.contains(what)) { Err(said) } else { Ok(()) }
}

/// Runs a shell command line, with DEV replaced by a private device, and returns its output.
fn on_a_device(line: &str) -> Result<String, String> {
    let made = format!("ip link add DEV type veth peer name PEER && {line}");
    let output = Program::new("unshare").args(["-Urn", "sh", "-c", &made]).output();
    let output = output.map_err(|error| error.to_string())?;
    let said =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    if output.status.success() { Ok(said.concat()) } else { Err(said.concat()) }
}

#[test]
fn knobs_of_the_kernel_are_files_that_it_has() {
    assert!(each(OTHERS[1], settings) >= 2);
    assert!(
        settings("net.ipv4.ipfrag_tim=2").is_err() && settings("net.ipv4.ipfrag_time").is_err()
    );
    assert!(each(OTHERS[2], written) >= 2);
    assert!(written("2 > /sys/class/net/DEV/napi_defer_hard_irq").is_err());
    if on_a_device("true").is_err() {
        println!("skipped: no network of one's own");
        return;
    }
    let link = |words: &str| {
        let words = words.replace("TUNNEL", "DEV").replace("MTU-OF-THE-PATH-LESS-HEADERS", "1400");
        on_a_device(&format!("ip link set {words}")).map(drop)
    };
    assert_eq!(each(OTHERS[3], link), 1);
    assert!(link("TUNNEL mut 1400").is_err());
}

fn settings(words: &str) -> Result<(), String> {
    for setting in words.split(' ') {
        let (name, value) = setting.split_once('=').ok_or("no value")?;
        value.parse::<u32>().map_err(|error| error.to_string())?;
        has(&format!("/proc/sys/{}", name.replace('.', "/")))?;
    }
    Ok(())
}

fn written(words: &str) -> Result<(), String> {
    let (value, file) = words.split_once(" > ").ok_or("no file")?;
    value.parse::<u32>().map_err(|error| error.to_string())?;
    has(&file.replace("DEV", "lo"))
}

fn has(file: &str) -> Result<(), String> {
    if Path::new(file).exists() { Ok(()) } else { Err(format!("no {file}")) }
}

/// Prefixes of tunables: first Grosso commands, then commands of other programs.
const OWN: [&str; 3] = ["grosso bridge ... ", "grosso tunnel add ... ", "grosso run: "];
const OTHERS: [&str; 4] = ["ethtool ", "sysctl ", "echo ", "ip link set "];
/// Advice that names no program and therefore cannot be tested.
const ADVICE: &str = "count acknowledged bytes, not acknowledgments (RFC 3465)";
/// Tunnel arguments, starting with the type, to which suggested options are added.
const TUNNELS: [&str; 3] = [
    "ipip local 192.0.2.1 remote 192.0.2.2",
    "ipip local 192.0.2.1 remote 192.0.2.2 encap gue",
    "vxlan id 1 local 192.0.2.1 remote 192.0.2.2 dstport 4789",
];
