//! Tests `grosso monitor` with plain text output, and on a terminal created by `script`.

#![cfg(target_os = "linux")]

use std::{
    io::Write,
    process::{Child, Command, Stdio},
};

use rustix::process::Signal;

use crate::{
    common::report,
    network::{A, B, Hosts, connect, exchange, skip},
};

#[test]
fn once_prints_the_rates_of_an_interval() {
    let Some(hosts) = Hosts::new() else { return };
    let bridge = hosts.start("bridge e0 tap:b0");
    hosts.address("b0");
    let rates = hosts.path("rates");
    let mut command = hosts.command("monitor -b -i 0.2");
    let file = std::fs::File::create(&rates).unwrap();
    let mut monitor = command.stdout(file).stdin(Stdio::null()).spawn().unwrap();
    let ends = connect((&hosts.a, A[0]), (&hosts.b, B[0]));
    // The number of intervals that the monitor shows depends on the host's load.
    crate::network::until(|| {
        exchange(&ends, 1 << 20);
        let text = std::fs::read_to_string(&rates).unwrap();
        let of_e0 = |line: &str| {
            let cell = line.strip_prefix("e0 ").and_then(|cells| cells.split_whitespace().next());
            cell.and_then(|cell| cell.parse::<f64>().ok())
        };
        text.lines().filter_map(of_e0).any(|gigabits_a_second| gigabits_a_second > 0.0)
    });
    let number = rustix::process::Pid::from_raw(monitor.id() as i32).unwrap();
    rustix::process::kill_process(number, Signal::INT).unwrap();
    assert_eq!(monitor.wait().unwrap().code(), Some(130));

    let ended = hosts.run("monitor -b -i 0.05 -c 3");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(lines.len(), 3 * 5, "the time, two lines of headings and two devices: {ended:?}");
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{}", ended.stdout);

    let report = report(&hosts.run("monitor --once -i 0.05 --json b0").stdout);
    assert_eq!(report["schema"], "grosso.monitor/1");
    assert_eq!(report["devices"].as_array().unwrap().len(), 1);
    assert_eq!(report["devices"][0]["device"], "b0");
    bridge.stop(Signal::TERM);
}

#[test]
fn without_a_terminal_the_text_option_is_suggested() {
    let Some(hosts) = Hosts::new() else { return };
    let ended = hosts.run("monitor");
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("terminal") && ended.stderr.contains("--once"), "{ended:?}");
    assert_eq!(hosts.run("monitor --once").code, Some(4));
    assert_eq!(hosts.run("monitor --once -b").code, Some(2));
}

/// Runs `grosso monitor` on a terminal of 100 columns, and calls `then` to type keys after the first drawing. Returns
/// the output and the exit code.
fn on_a_terminal(hosts: &Hosts, then: impl FnOnce(&mut dyn Write, u32)) -> (String, Option<i32>) {
    let (mut child, shell) = start_on_a_terminal(hosts);
    then(child.stdin.as_mut().unwrap(), shell);
    let code = child.wait().unwrap().code();
    (std::fs::read_to_string(hosts.path("typescript")).unwrap(), code)
}

/// Starts `grosso monitor` on a terminal that `script` provides, and waits for the first drawing. Returns the `script`
/// process and the monitor's process ID.
fn start_on_a_terminal(hosts: &Hosts) -> (Child, u32) {
    let log = hosts.path("typescript");
    // The output of an earlier terminal must not be mistaken for the output of this one.
    let _ = std::fs::remove_file(&log);
    let mut command = Command::new("script");
    let line = format!(
        "stty cols 100 rows 30; echo $$ > shell; exec {} monitor -i 0.05",
        env!("CARGO_BIN_EXE_grosso")
    );
    command.args(["-q", "-f", "-e", "-c", &line]).arg(&log).current_dir(hosts.folder.path());
    command
        .env("RUNTIME_DIRECTORY", hosts.folder.path())
        .env("SHELL", "/bin/sh")
        .env("TERM", "xterm");
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    let child = hosts.b.host(&mut command).unwrap().spawn().unwrap();
    let drawn = || std::fs::read(&log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    crate::network::until(|| drawn().is_ok_and(|text| text.contains("process")));
    let shell = std::fs::read_to_string(hosts.path("shell")).unwrap();
    (child, shell.trim().parse().unwrap())
}

#[test]
fn it_ends_with_its_terminal() {
    let Some(hosts) = Hosts::new() else { return };
    if Command::new("script").arg("--version").output().is_err() {
        return skip("script is not installed");
    }
    let bridge = hosts.start("bridge e0 tap:b0");
    let (mut terminal, monitor) = start_on_a_terminal(&hosts);
    // A killed terminal sends no signal; its process group only gets a new parent.
    terminal.kill().unwrap();
    terminal.wait().unwrap();
    crate::network::until(|| !std::path::Path::new(&format!("/proc/{monitor}/stat")).exists());
    bridge.stop(Signal::TERM);
}

#[test]
fn the_terminal_is_as_it_was_after_a_key_and_after_a_signal() {
    let Some(hosts) = Hosts::new() else { return };
    if Command::new("script").arg("--version").output().is_err() {
        return skip("script is not installed");
    }
    let bridge = hosts.start("bridge e0 tap:b0");
    let (enter, leave) = ("\x1b[?1049h", "\x1b[?1049l");
    let (quit, code) = on_a_terminal(&hosts, |keys, _| keys.write_all(b"sd?xq").unwrap());
    assert_eq!(code, Some(0), "{quit}");
    let (ended, code) = on_a_terminal(&hosts, |_, process| {
        let process = rustix::process::Pid::from_raw(process as i32).unwrap();
        rustix::process::kill_process(process, Signal::TERM).unwrap();
    });
    assert_eq!(code, Some(130), "{ended}");
    for text in [quit, ended] {
        assert_eq!((text.matches(enter).count(), text.matches(leave).count()), (1, 1), "{text:?}");
        assert!(text.find(enter) < text.find(leave));
        assert!(text.contains("grosso monitor") && text.contains("process"), "{text:?}");
    }
    bridge.stop(Signal::TERM);
}
