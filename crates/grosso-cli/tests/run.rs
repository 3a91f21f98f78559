//! Tests the commands `grosso run` and `grosso config`: configuration files, signals, and messages to a service
//! manager.

#![cfg(target_os = "linux")]

use std::{
    fs,
    os::unix::{fs::PermissionsExt, net::UnixDatagram},
    path::Path,
    process::Command,
};

use rustix::process::Signal;

use crate::{
    common::report,
    network::{A, B, Hosts, Running, connect, exchange, skip, until},
};

const EDGE: &str = "[[path]]\nname = \"edge\"\nleft = \"e0\"\nright = \"tap:b0\"\n";
const CORE: &str = "[[path]]\nname = \"core\"\nleft = \"e1\"\nright = \"tap:b1\"\n";

/// Creates the hosts with two wires, and runs a file with a path for each.
fn two_paths() -> Option<(Hosts, Running)> {
    let hosts = Hosts::new()?;
    hosts.add_wire("a1", "e1");
    write(&hosts, &format!("{EDGE}{CORE}"));
    let running = Running::spawn(&mut hosts.command("run -c paths.toml"));
    running.wait_for_line("edge: e0 <-> b0, 1 queue");
    running.wait_for_line("core: e1 <-> b1, 1 queue");
    Some((hosts, running))
}

fn write(hosts: &Hosts, text: &str) {
    fs::write(hosts.path("paths.toml"), text).unwrap();
}

/// Returns the thread ID of a path's first queue.
fn thread(running: &Running, path: &str) -> Option<String> {
    let threads = running.threads();
    threads.into_iter().find(|(name, _)| *name == format!("{path}/0")).map(|(_, number)| number)
}

/// Waits until the thread has set its name, which happens after the path is reported as running, and returns its ID.
fn started(running: &Running, path: &str) -> String {
    until(|| thread(running, path).is_some());
    thread(running, path).unwrap()
}

#[test]
fn reloading_leaves_unchanged_paths_running_and_starts_changed_ones_anew() {
    let Some((hosts, running)) = two_paths() else { return };
    hosts.address("b0");
    let ends = connect((&hosts.a, A[0]), (&hosts.b, B[0]));
    exchange(&ends, 1 << 20);
    let (edge, core) = (started(&running, "edge"), started(&running, "core"));

    write(&hosts, &format!("{EDGE}{CORE}rx-usecs = 20\n"));
    running.signal(Signal::HUP);
    running.wait_for_line("run: core stopped");
    running.wait_for_line("run: core started");
    assert_eq!(started(&running, "edge"), edge, "the unchanged path keeps running");
    assert_ne!(started(&running, "core"), core, "the changed path was restarted");
    exchange(&ends, 1 << 20);

    let core = started(&running, "core");
    write(&hosts, &format!("{EDGE}{CORE}rx-usec = 20\n"));
    running.signal(Signal::HUP);
    running.wait_for_line("paths.toml:9:1: no key \"rx-usec\"; did you mean rx-usecs?");
    running.wait_for_line("no path was changed");
    assert_eq!((started(&running, "edge"), started(&running, "core")), (edge.clone(), core));

    write(&hosts, &format!("{EDGE}{}", CORE.replace("e1", "e7")));
    running.signal(Signal::HUP);
    running.wait_for_line("run: no interface \"e7\"");
    running.wait_for_line("run: core unchanged");
    assert_eq!(started(&running, "edge"), edge);
    started(&running, "core");

    write(&hosts, &format!("{EDGE}{}", CORE.replace("core", "spine").replace("e1", "e7")));
    running.signal(Signal::HUP);
    running.wait_for_line("run: no interface \"e7\"");
    running.wait_for_line("run: core unchanged");
    started(&running, "core");

    write(&hosts, EDGE);
    running.signal(Signal::HUP);
    running.wait_for_line("run: core stopped");
    until(|| thread(&running, "core").is_none());
    exchange(&ends, 1 << 20);
    let ended = running.stop(Signal::TERM);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("edge") && ended.stdout.contains("core"), "{ended:?}");
}

#[test]
fn a_path_that_breaks_leaves_the_others_running_and_the_last_one_ends_all() {
    let Some((hosts, running)) = two_paths() else { return };
    hosts.remove("e1");
    running.wait_for_line("grosso: run: path core: e1: the device was removed");
    started(&running, "edge");
    // A failed path is retried when the file is reloaded.
    hosts.add_wire("a1", "e1");
    running.signal(Signal::HUP);
    running.wait_for_line("run: core started");
    hosts.remove("e1");
    running.wait_for_line("run: path core: e1: the device was removed");
    hosts.remove("e0");
    let ended = running.end();
    assert_eq!(ended.code, Some(4), "{ended:?}");
    assert!(ended.stderr.contains("run: path edge: e0: the device was removed"), "{ended:?}");
}

#[test]
fn streams_pass_over_af_xdp() {
    let Some(hosts) = Hosts::new() else { return };
    // The other host's checksum offload is on, which AF_XDP cannot indicate.
    let left = "left = { port = \"xdp:e0\", partial-checksums = true }";
    write(&hosts, &EDGE.replace("left = \"e0\"", left));
    let running = Running::spawn(&mut hosts.command("run -c paths.toml"));
    running.wait_for_line("edge: e0 <-> b0");
    hosts.address("b0");
    for (a, b) in A.into_iter().zip(B) {
        exchange(&connect((&hosts.a, a), (&hosts.b, b)), 1 << 20);
    }
    assert_eq!(running.stop(Signal::TERM).code, Some(0));
}

#[test]
fn a_service_manager_is_notified_of_start_reload_and_end() {
    let Some(hosts) = Hosts::new() else { return };
    write(&hosts, EDGE);
    let manager = UnixDatagram::bind(hosts.path("notify")).unwrap();
    manager.set_read_timeout(Some(crate::network::STALLED)).unwrap();
    let heard = |text: &str| {
        let mut seen = Vec::new();
        let mut buffer = [0; 1000];
        while let Ok(len) = manager.recv(&mut buffer) {
            let message = String::from_utf8_lossy(&buffer[..len]).into_owned();
            if message.contains(text) {
                return message;
            }
            seen.push(message);
        }
        panic!("never printed {text:?}, but {seen:?}");
    };
    let mut command = hosts.command("run -c paths.toml");
    let running = Running::spawn(command.env("NOTIFY_SOCKET", hosts.path("notify")));
    assert!(heard("READY=1").contains("STATUS=1 paths running"));
    running.signal(Signal::HUP);
    assert!(heard("RELOADING=1").contains("MONOTONIC_USEC="));
    heard("READY=1");
    running.signal(Signal::INT);
    heard("STOPPING=1");
    assert_eq!(running.end().code, Some(130));
}

#[test]
fn associations_of_the_kernel_become_a_table_and_a_file_that_only_its_owner_reads() {
    let Some(hosts) = Hosts::new() else { return };
    let line = |from: &str, to: &str, spi: &str, digit: &str| {
        let key = digit.repeat(40);
        let aead = format!("aead rfc4106(gcm(aes)) 0x{key} 128");
        format!(
            "src {from} dst {to}\n\tproto esp spi {spi} mode transport\n\treplay-window 32\n\t{aead}\n"
        )
    };
    let printed =
        line("10.9.0.1", "10.9.0.2", "0x1001", "a") + &line("10.9.0.2", "10.9.0.1", "0x1002", "b");
    fs::write(hosts.path("xfrm"), &printed).unwrap();
    let command = "config esp xfrm --here 10.9.0.2 --key-file edge.key";
    let made = hosts.run(command);
    assert_eq!(made.code, Some(0), "{made:?}");
    assert!(!made.stdout.contains("aaaa"), "{made:?}");
    assert_eq!(fs::metadata(hosts.path("edge.key")).unwrap().permissions().mode() & 0o777, 0o600);
    write(
        &hosts,
        &format!("[[path]]\nright = \"tap:b0\"\n[path.left]\nport = \"e0\"\n{}", made.stdout),
    );
    let checked = hosts.run("config check paths.toml");
    assert_eq!(checked.code, Some(0), "{checked:?}");
    // No key is overwritten, none is used in both directions without consent, and the exit codes are the same as for
    // other commands.
    let again = hosts.run(command);
    assert_eq!(
        (again.code, again.stderr.contains("choose a new file name")),
        (Some(4), true),
        "{again:?}"
    );
    fs::write(hosts.path("xfrm"), printed.replace('b', "a")).unwrap();
    let one = hosts.run("config esp xfrm --here 10.9.0.2 --key-file one.key");
    assert_eq!(
        (one.code, one.stderr.contains("must be different keys")),
        (Some(3), true),
        "{one:?}"
    );
    assert!(!hosts.path("one.key").exists());
    // If both directions have one key, the command requires `--shared-key`, and the table requires `shared-key`.
    let policy =
        "ip xfrm policy add src 10.9.0.1 dst 10.9.0.2 dir in tmpl proto esp mode transport\n";
    fs::write(hosts.path("xfrm"), printed.replace('b', "a") + policy).unwrap();
    let one = hosts.run("config esp xfrm --here 10.9.0.2 --key-file one.key --shared-key");
    assert!(one.code == Some(0) && one.stderr.contains("note: 1 policy skipped"), "{one:?}");
    let table = format!("[[path]]\nright = \"tap:b0\"\n[path.left]\nport = \"e0\"\n{}", one.stdout);
    write(&hosts, &table);
    assert_eq!(hosts.run("config check paths.toml").code, Some(0), "{table}");
    write(&hosts, &table.replace("shared-key = true\n", ""));
    let refused = hosts.run("config check paths.toml");
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.stderr.contains("one.key: esp: in and out must be different"), "{refused:?}");
    let absent = hosts.run("config esp absent --here 10.9.0.2 --key-file one.key");
    assert_eq!(absent.code, Some(4), "{absent:?}");
    assert_eq!(hosts.run("config esp xfrm --key-file one.key").code, Some(2));
}

#[test]
fn a_file_that_cannot_be_run_is_refused_with_its_place() {
    let Some(hosts) = Hosts::new() else { return };
    write(&hosts, "[[path]]\nleft = \"e0\"\nrigth = \"tap:b0\"\n");
    for line in ["run -c paths.toml", "config check paths.toml"] {
        let ended = hosts.run(line);
        assert_eq!(ended.code, Some(3), "{ended:?}");
        let message = "grosso: paths.toml:3:1: no key \"rigth\"; did you mean right?\nhint: ";
        assert!(ended.stderr.starts_with(message), "{}", ended.stderr);
    }
    let ended = hosts.run("config check paths.toml --json");
    let failure = report(&ended.stderr);
    assert_eq!((&failure["code"], &failure["line"]), (&"input.config".into(), &3.into()));
    assert_eq!(failure["column"], 1);
    for (line, code) in
        [("run -c absent.toml", 4), ("config check absent.toml", 4), ("run", 2), ("config", 2)]
    {
        assert_eq!(hosts.run(line).code, Some(code), "{line}");
    }
    write(&hosts, &format!("{EDGE}{CORE}queues = 2\n"));
    let ended = hosts.run("config check paths.toml");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let lines = "  edge: e0 <-> tap:b0, 1 queue\n  core: e1 <-> tap:b1, 2 queues\n";
    assert_eq!(ended.stdout, format!("paths.toml: 2 paths\n{lines}"));
    let checked = report(&hosts.run("config check paths.toml --json").stdout);
    assert_eq!(
        (&checked["schema"], &checked["paths"][1]["queues"]),
        (&"grosso.config/1".into(), &2.into())
    );
    let features = "[[path]]\nleft = { port = \"e0\", features = { sg = false } }\n";
    fs::write(hosts.path("features.toml"), format!("{features}right = \"tap:b0\"\n")).unwrap();
    let ended = hosts.run("config check features.toml");
    let lost = "note: e0: these features are also disabled, because they depend on disabled features: \
                tx-generic-segmentation, tx-tcp-segmentation,";
    assert!(ended.code == Some(0) && ended.stderr.contains(lost), "{ended:?}");
    let running = Running::spawn(&mut hosts.command("run -c features.toml"));
    running.wait_for_line(
        "note: e0: these features are also disabled, because they depend on disabled features: ",
    );
    running.stop(Signal::TERM);
    let ended = hosts.run("run -c paths.toml");
    assert_eq!(ended.code, Some(4), "all paths or none: {ended:?}");
    assert!(ended.stderr.contains("run: no interface \"e1\""), "{}", ended.stderr);
}

#[test]
fn metrics_are_served_at_the_configured_address() {
    use std::io::{Read, Write};
    let Some(hosts) = Hosts::new() else { return };
    hosts
        .b
        .run(|| {
            let control = grosso_sys::interface::Control::new().unwrap();
            control.set_up(&crate::network::name("lo"), true).unwrap();
        })
        .unwrap();
    write(&hosts, &format!("metrics = \"127.0.0.1:0\"\n{EDGE}"));
    let running = Running::spawn(&mut hosts.command("run -c paths.toml"));
    let line = running.wait_for_line("metrics: http://");
    let address =
        line.split("http://").nth(1).unwrap().split("/metrics").next().unwrap().to_owned();
    let page = hosts.b.run(|| {
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        page
    });
    let page = page.unwrap();
    assert!(page.contains("grosso_rx_packets_total{device=\"b0\",path=\"edge\"}"), "{page}");
    running.stop(Signal::TERM);
}

/// Another process may have created a file at the path of the `grosso stats` socket, or bound the metrics port.
#[test]
fn unavailable_counters_stop_no_path_and_public_metrics_are_noted() {
    for is_taken in [true, false] {
        let Some(hosts) = Hosts::new() else { return };
        fs::write(hosts.path("taken"), "no directory").unwrap();
        let port = || std::net::TcpListener::bind("0.0.0.0:0").unwrap();
        let listener = hosts.b.run(port).unwrap();
        let taken = listener.local_addr().unwrap();
        let address = if is_taken { taken.to_string() } else { "0.0.0.0:0".to_owned() };
        let note = match is_taken {
            true => format!("cannot serve metrics on {taken}: "),
            false => "can be reached from other hosts".to_owned(),
        };
        write(&hosts, &format!("metrics = \"{address}\"\n{EDGE}"));
        let mut command = hosts.command("run -c paths.toml");
        let running = Running::spawn(command.env("RUNTIME_DIRECTORY", hosts.path("taken")));
        until(|| thread(&running, "edge").is_some());
        hosts.address("b0");
        exchange(&connect((&hosts.a, A[0]), (&hosts.b, B[0])), 1 << 16);
        drop(listener);
        let mut said = Vec::new();
        if is_taken {
            // The file is unchanged. The port becomes free once no program that another test starts still holds a copy
            // of the listener.
            loop {
                running.signal(Signal::HUP);
                let (before, line) = running.wait_for_line_and_earlier("metrics");
                said.extend(before);
                let is_served = line.contains("metrics: http://");
                said.push(line);
                if is_served {
                    break;
                }
            }
        }
        let mut ended = running.stop(Signal::TERM);
        ended.stderr.insert_str(0, &said.join("\n"));
        assert_eq!(ended.code, Some(0), "{ended:?}");
        for note in ["control socket unavailable, so grosso stats does not work: ", &note] {
            assert!(ended.stderr.contains(note), "{note}: {ended:?}");
        }
    }
}

/// Returns the state of every thread: name, effective capabilities, `NoNewPrivs`, and `Seccomp`.
fn confinement(running: &Running) -> Vec<(String, u64, u32, u32)> {
    let tasks = fs::read_dir(format!("/proc/{}/task", running.id())).unwrap();
    let state = |task: std::io::Result<fs::DirEntry>| {
        let text = fs::read_to_string(task.ok()?.path().join("status")).ok()?;
        let value =
            |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).unwrap().trim();
        let capabilities = u64::from_str_radix(value("CapEff:"), 16).unwrap();
        let numbers = ["NoNewPrivs:", "Seccomp:"].map(|key| value(key).parse().unwrap());
        Some((value("Name:").to_owned(), capabilities, numbers[0], numbers[1]))
    };
    let mut states: Vec<_> = tasks.filter_map(state).collect();
    states.sort();
    states
}

/// Returns the state of every thread, as reported by `grosso stats`.
fn shown(hosts: &Hosts, running: &Running) -> Vec<(String, u64, u32, u32)> {
    let stats = report(&hosts.run("stats --json").stdout);
    let [process] = &stats["processes"].as_array().unwrap()[..] else { panic!("{stats}") };
    assert_eq!(process["pid"], running.id());
    let state = |thread: &serde_json::Value| {
        let capabilities = u64::from_str_radix(thread["cap_eff"].as_str().unwrap(), 16).unwrap();
        let is = |key: &str| u32::from(thread[key].as_bool().unwrap());
        // The kernel shows a system call filter as mode 2.
        let name = thread["name"].as_str().unwrap().to_owned();
        (name, capabilities, is("no_new_privs"), 2 * is("seccomp"))
    };
    let mut states: Vec<_> = process["threads"].as_array().unwrap().iter().map(state).collect();
    states.sort();
    states
}

/// Capabilities for low ports, devices, packet sockets, AF_XDP memory and the XDP program, which a reload may need.
const OPENER: u64 = 1 << 10 | 1 << 12 | 1 << 13 | 1 << 14 | 1 << 39;

#[test]
fn every_thread_is_confined_from_the_start_and_after_a_reload() {
    let Some((hosts, running)) = two_paths() else { return };
    let check = |threads: &[&str]| {
        until(|| confinement(&running).iter().all(|(.., filtered)| *filtered == 2));
        let states = confinement(&running);
        let names: Vec<&str> = states.iter().map(|(name, ..)| &**name).collect();
        assert_eq!(names, threads);
        for (name, capabilities, no_new_privs, seccomp) in &states {
            let kept = if name == "grosso" { OPENER } else { 0 };
            assert_eq!(capabilities & !kept, 0, "{name}: {capabilities:x}");
            assert_eq!((*no_new_privs, *seccomp), (1, 2), "{name}");
        }
        let main = states.iter().find(|(name, ..)| name == "grosso").unwrap();
        assert_ne!(main.1 & (1 << 12), 0, "a reload needs CAP_NET_ADMIN");
    };
    check(&["closer", "core/0", "edge/0", "grosso", "grosso-observe", "signals"]);
    assert_eq!(
        shown(&hosts, &running),
        confinement(&running),
        "stats reports what the kernel reports"
    );
    hosts.add_wire("a2", "e2");
    let more = "[[path]]\nname = \"more\"\nleft = \"xdp:e2\"\nright = \"tap:b2\"\n";
    write(&hosts, &format!("{EDGE}{more}"));
    running.signal(Signal::HUP);
    running.wait_for_line("run: core stopped");
    running.wait_for_line("run: more started");
    until(|| thread(&running, "core").is_none() && thread(&running, "more").is_some());
    check(&["closer", "edge/0", "grosso", "grosso-observe", "more/0", "signals"]);
    assert_eq!(shown(&hosts, &running), confinement(&running), "after a reload too");
    let doctor = hosts.run("doctor").stdout;
    let line = "more/0: uid 0, CapEff 0000000000000000, NoNewPrivs 1, Seccomp 2";
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words(&doctor).contains(line), "{doctor}");
    let verbose = hosts.run("stats --verbose").stdout;
    assert!(words(&verbose).contains("more/0: uid 0, CapEff 0000000000000000"), "{verbose}");
    assert_eq!(running.stop(Signal::TERM).code, Some(0));
}

#[test]
fn another_user_s_program_opens_devices_at_its_start_and_at_a_reload() {
    use std::os::unix::fs::chown;
    let Some(hosts) = Hosts::new() else { return };
    const NOBODY: u32 = 65534;
    if let Err(error) = chown(hosts.path("."), Some(NOBODY), None) {
        return skip(&format!("no other user can be had: {error}"));
    }
    hosts.add_wire("a1", "e1");
    write(&hosts, &format!("user = \"nobody\"\n{EDGE}"));
    fs::set_permissions(hosts.path("paths.toml"), PermissionsExt::from_mode(0o644)).unwrap();
    let running = Running::spawn(&mut hosts.command_with_open_tun("run -c paths.toml"));
    running.wait_for_line("edge: e0 <-> b0");
    fs::write(hosts.path("paths.toml"), format!("user = \"nobody\"\n{EDGE}{CORE}")).unwrap();
    until(|| confinement(&running).iter().all(|(.., filtered)| *filtered == 2));
    running.signal(Signal::HUP);
    running.wait_for_line("run: core started");
    hosts.address("b0");
    exchange(&connect((&hosts.a, A[0]), (&hosts.b, B[0])), 1 << 20);
    for task in fs::read_dir(format!("/proc/{}/task", running.id())).unwrap() {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let value = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        let uids: Vec<&str> = value("Uid:").split_whitespace().collect();
        assert_eq!(uids, ["65534"; 4], "{status}");
        assert_eq!(value("Groups:").trim(), "", "{status}");
    }
    assert_eq!(running.stop(Signal::TERM).code, Some(0));
    let ended = hosts.run("bridge e0 tap:b0 --user nosuchuser");
    assert_eq!(ended.code, Some(4), "{ended:?}");
    assert!(ended.stderr.contains("bridge: user nosuchuser: no such user"), "{ended:?}");
}

/// Starts two paths and injects a fault into one of them, given by its kind, its thread, and the number of repetitions.
fn faulty(fault: &str) -> Option<(Hosts, Running)> {
    let hosts = Hosts::new()?;
    hosts.add_wire("a1", "e1");
    write(&hosts, &format!("{EDGE}{CORE}"));
    let mut command = hosts.command("run -c paths.toml");
    let running = Running::spawn(command.env("GROSSO_FAULT", fault).env("RUST_BACKTRACE", "1"));
    Some((hosts, running))
}

#[test]
fn a_defect_of_one_path_starts_it_again_and_the_other_runs_on() {
    let Some((hosts, running)) = faulty("panic core/0 1") else { return };
    running.wait_for_line(
        "grosso: run: path core: thread core/0 panicked: a panic that a test requested",
    );
    running.wait_for_line("run: core restarted");
    hosts.address("b0");
    exchange(&connect((&hosts.a, A[0]), (&hosts.b, B[0])), 1 << 20);
    until(|| thread(&running, "core").is_some() && thread(&running, "edge").is_some());
    assert_eq!(running.stop(Signal::TERM).code, Some(0));
}

#[test]
fn a_path_that_meets_its_defect_again_and_again_ends_by_name_and_no_other() {
    let Some((hosts, running)) = faulty("panic core/0 1000") else { return };
    running.wait_for_line("restarted 3 times within a minute");
    hosts.address("b0");
    exchange(&connect((&hosts.a, A[0]), (&hosts.b, B[0])), 1 << 20);
    assert_eq!(thread(&running, "core"), None);
    hosts.remove("e0");
    assert_eq!(running.end().code, Some(4), "the last path ended for another reason");
}

#[test]
fn a_defect_of_the_only_path_ends_the_program_with_its_own_exit_code() {
    let Some(hosts) = Hosts::new() else { return };
    let mut command = hosts.command("bridge e0 tap:b0 --name edge");
    let ended = Running::spawn(command.env("GROSSO_FAULT", "panic edge/0 1")).end();
    assert_eq!(ended.code, Some(5), "{ended:?}");
    assert!(
        ended.stderr.contains("bridge: thread edge/0 panicked: a panic that a test requested"),
        "{ended:?}"
    );
}

#[test]
fn a_system_call_that_is_no_path_s_business_ends_the_program_by_name() {
    let Some((_hosts, running)) = faulty("call core/0 1") else { return };
    let ended = running.end();
    assert_eq!(ended.code, Some(5), "{ended:?}");
    let line = "grosso: thread core/0 made the system call socket, which is not on its allowlist";
    assert!(ended.stderr.contains(line), "{ended:?}");
}

#[test]
fn the_unit_is_sound_and_little_exposed() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/grosso@.service");
    let mut command = Command::new("systemd-analyze");
    command.args(["security", "--offline=true", "--threshold=19"]).arg(&unit);
    match command.output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            // The threshold is in tenths: an exposure of 2.0 is a failure.
            assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        }
        Err(error) => skip(&format!("no systemd-analyze: {error}")),
    }
}

/// Checks the unit for two harmful settings. One makes /run/grosso a symbolic link, and the program refuses to start.
/// The other drops the UDP packets between tunnel endpoints.
#[test]
fn the_unit_asks_for_nothing_that_the_program_refuses() {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    let unit = fs::read_to_string(packaging.join("grosso@.service")).unwrap();
    let sets = |setting: &str| unit.lines().find_map(|line| line.strip_prefix(setting));
    let is_preserved = sets("RuntimeDirectoryPreserve=").is_some_and(|value| value != "no");
    let is_dynamic = sets("DynamicUser=").is_some_and(|value| value != "no");
    assert!(!(is_preserved && is_dynamic), "/run/grosso is a link to /run/private");
    assert_eq!(sets("IPAddressDeny="), None, "UDP of tunnels");
    let user = sets("User=").unwrap();
    let users = fs::read_to_string(packaging.join("grosso.sysusers")).unwrap();
    assert!(users.lines().any(|line| line.starts_with(&format!("u {user} "))), "{users}");
}
