//! Tests the command `grosso lab`: its output, its files and its errors.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead, BufReader},
    process::Stdio,
    thread,
    time::Duration,
};

use grosso_sys::scheduling::allowed_processors;

use crate::{
    another_kernel::boot,
    common::{Bench, Run, finished},
};

#[test]
fn lab_measures_and_reports() {
    let bench = Bench::new();
    let run = bench.run("lab --runs 1 --time 200ms --congestion reno --html page.html --json");
    if !is_allowed(&run) {
        return;
    }
    assert_eq!(run.code, 0, "{}", run.stderr);
    let report = run.json();
    assert_eq!(report["schema"], "grosso.lab/3");
    assert_eq!(report["experiment"], "");
    assert_eq!(report["environment"]["congestion"], "reno");
    assert_eq!(report["groups"][0]["processors"], 1);
    let rows = report["groups"][0]["rows"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["coalescing on", "coalescing off"]);
    for row in rows {
        assert_eq!(row["runs"].as_array().unwrap().len(), 1, "{row}");
    }
    let page = bench.get("page.html");
    assert!(page.starts_with(b"<!doctype html>"));
    assert!(String::from_utf8(page).unwrap().contains("lab --runs 1"), "how to repeat it");
}

#[test]
fn figures_are_printed_without_their_page() {
    let bench = Bench::new();
    let run = bench.run("lab --runs 1 --time 100ms --html no/such/page.html");
    if !run.stderr.contains("no/such/page.html") {
        assert!(!is_allowed(&run), "{}", run.stdout);
        return;
    }
    assert_eq!(run.code, 4, "{}", run.stderr);
    assert!(run.stdout.contains(" of 1 run of 0.1 s"), "{}", run.stdout);
}

#[test]
fn lab_runs_sender_path_and_receiver_on_the_cpus_that_were_chosen() {
    let allowed = allowed_processors().unwrap();
    let [.., one, other] = allowed[..] else {
        println!("skipped: one CPU is no choice");
        return;
    };
    let bench = Bench::new();
    let run = bench.run(&format!("lab --cpus {one},{},{one} --no-html", other + 1));
    assert!(
        run.code == 2 && run.stderr.contains(&format!("the lab cannot run on CPU {}", other + 1)),
        "{}",
        run.stderr
    );
    for cpus in [[one, other, one], [one, one, other]] {
        let chosen = cpus.map(|cpu| cpu.to_string());
        let words =
            format!("lab --cpus {} --runs 1 --time 300ms --no-html --json", chosen.join(","));
        let (run, seen) = threads_of(&bench, &words, |_| false);
        if !is_allowed(&run) {
            return;
        }
        assert_eq!(run.code, 0, "{}", run.stderr);
        let report = run.json();
        assert_eq!(report["environment"]["cpus"], serde_json::json!(cpus), "{report}");
        assert_eq!(report["groups"].as_array().unwrap().len(), 1, "one layout is measured");
        for (name, cpu) in ["sender", "path", "receiver"].into_iter().zip(chosen) {
            assert_eq!(seen.get(name), Some(&BTreeSet::from([cpu])), "{name}: {seen:?}");
        }
    }
}

#[test]
fn every_experiment_with_a_layout_of_cpus_takes_it() {
    let allowed = allowed_processors().unwrap();
    let [.., one, other] = allowed[..] else {
        println!("skipped: one CPU is no choice");
        return;
    };
    let bench = Bench::new();
    let of_one_path = vec!["sender", "path", "receiver"];
    let of_two_paths = vec!["sender", "path a", "path b", "receiver"];
    for (experiment, names) in [
        ("acks --senders userspace --no-html", &of_one_path),
        ("run two-hosts", &of_one_path),
        ("cost --no-html", &of_two_paths),
        ("fragments --no-html", &of_two_paths),
        ("tunnels --no-html", &of_two_paths),
    ] {
        let missing = bench.run(&format!("lab {experiment} --cpus {one},{one},4096"));
        let said = "lab: --cpus: the lab cannot run on CPU 4096";
        assert!(missing.code == 2 && missing.stderr.contains(said), "{}", missing.stderr);
        for [sender, path, receiver] in [[one, other, one], [one, one, other]] {
            let words = format!("lab {experiment} --cpus {sender},{path},{receiver}");
            let Some(seen) = settled(&bench, &words, names) else { return };
            for name in names {
                let cpu = match *name {
                    "sender" | "path a" => sender,
                    "receiver" => receiver,
                    _ => path,
                };
                let on = BTreeSet::from([cpu.to_string()]);
                assert_eq!(seen.get(*name), Some(&on), "{words}: {name}: {seen:?}");
            }
        }
    }
}

#[test]
fn page_does_not_take_the_place_of_the_file() {
    let bench = Bench::new();
    example(&bench, "lro-in-the-middle.toml");
    let file = bench.get("lro-in-the-middle.toml");
    std::os::unix::fs::symlink("lro-in-the-middle.toml", bench.path("link")).unwrap();
    for page in ["lro-in-the-middle.toml", "link"] {
        let line = "lab run --config lro-in-the-middle.toml --runs 1 --time 300ms --html";
        let run = bench.run(&format!("{line} {page}"));
        let said = format!("grosso: {page}: input and output are the same file\n");
        assert!(run.code == 2 && run.stderr.starts_with(&said), "{}", run.stderr);
        assert_eq!(bench.get("lro-in-the-middle.toml"), file);
    }
}

#[test]
fn hosts_of_a_file_run_on_its_cpus() {
    let allowed = allowed_processors().unwrap();
    let [.., one, other] = allowed[..] else {
        println!("skipped: one CPU is no choice");
        return;
    };
    let bench = Bench::new();
    example(&bench, "lro-in-the-middle.toml");
    let file = String::from_utf8(bench.get("lro-in-the-middle.toml")).unwrap();
    let put = |cpus: [usize; 2]| {
        let layout = format!("[measure]\ncpus = {cpus:?}\n");
        bench.put("own.toml", file.replace("[measure]\n", &layout).as_bytes());
    };
    put([one, 4096]);
    let missing = bench.run("lab run --config own.toml");
    let said = "lab: cpus of [measure]: the lab cannot run on CPU 4096";
    assert!(missing.code == 2 && missing.stderr.contains(said), "{}", missing.stderr);
    // A CPU number is not a count of CPUs.
    let there = allowed.iter().map(|cpu| format!("CPU {cpu}")).collect::<Vec<_>>().join(", ");
    let hint = format!("hint: this process may use {there}; a CPU can be listed more than once\n");
    assert!(missing.stderr.ends_with(&hint), "{}", missing.stderr);
    let names = ["sender", "receiver"];
    for cpus in [[one, one], [other, one]] {
        put(cpus);
        let words = "lab run --config own.toml --no-html";
        let Some(seen) = settled(&bench, words, &names) else { return };
        for (name, cpu) in names.into_iter().zip(cpus) {
            assert_eq!(seen.get(name), Some(&BTreeSet::from([cpu.to_string()])), "{seen:?}");
        }
    }
}

/// Waits until all named threads of a command exist, and returns the CPUs of each. Then ends the command. `None` if the
/// user is not permitted to run it.
fn settled(bench: &Bench, words: &str, names: &[&str]) -> Option<ThreadCpus> {
    let are_there = |seen: &ThreadCpus| names.iter().all(|name| seen.contains_key(*name));
    let (run, seen) = threads_of(bench, words, are_there);
    if !are_there(&seen) {
        assert!(!is_allowed(&run), "{words}: ended without {names:?}: {}", run.stderr);
        return None;
    }
    Some(seen)
}

/// The CPUs on which threads may run, by thread name.
type ThreadCpus = BTreeMap<String, BTreeSet<String>>;

/// Runs a command, and records the CPU affinity of its threads until `is_enough` returns true or the command ends.
/// Threads that still have the calling thread's affinity have not been pinned yet, and are omitted.
fn threads_of(
    bench: &Bench,
    words: &str,
    is_enough: impl Fn(&ThreadCpus) -> bool,
) -> (Run, ThreadCpus) {
    let mut command = bench.command(words);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let value = |status: &str, name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().trim().to_owned()
    };
    let allowed = |status: &str| value(status, "Cpus_allowed_list:");
    let everywhere = allowed(&fs::read_to_string("/proc/thread-self/status").unwrap());
    let mut seen = ThreadCpus::new();
    while child.try_wait().unwrap().is_none() {
        if is_enough(&seen) {
            child.kill().unwrap();
            break;
        }
        // Threads start and exit while they are inspected.
        for task in
            fs::read_dir(format!("/proc/{}/task", child.id())).into_iter().flatten().flatten()
        {
            let Ok(status) = fs::read_to_string(task.path().join("status")) else { continue };
            let cpus = allowed(&status);
            if cpus != everywhere {
                seen.entry(value(&status, "Name:")).or_default().insert(cpus);
            }
        }
        thread::sleep(Duration::from_millis(5));
    }
    (finished(child.wait_with_output().unwrap()), seen)
}

#[test]
fn lab_vm_reports_missing_programs() {
    let bench = Bench::new();
    let run = bench.run("lab vm --kernel nowhere --no-html --json");
    if !is_allowed(&run) {
        return;
    }
    assert_eq!(run.code, 0, "{}", run.stderr);
    let report = run.json();
    assert_eq!(report["schema"], "grosso.lab-vm/2");
    assert_eq!(report["groups"].as_array().unwrap().len(), 0, "{report}");
    for verdict in report["verdicts"].as_array().unwrap() {
        assert_eq!(verdict["verdict"], "cannot_be_shown_here", "{verdict}");
    }
    let note = report["notes"][0].as_str().unwrap();
    if boot::missing(&["ip"]).is_some() {
        assert!(note.contains("Cannot boot VMs on this host"), "{report}");
    } else {
        assert!(note.contains("nowhere/boot/vmlinuz"), "{report}");
    }
}

mod night {
    use super::*;

    #[test]
    #[ignore = "boots VMs for minutes: .ci/night guests"]
    fn lab_vm_has_every_carrier_that_is_here() {
        let bench = Bench::new();
        if let Some(why) = boot::missing(&["ip"]) {
            println!("skipped: {why}");
            return;
        }
        let kernel = boot::kernel();
        let options = format!("--runs 1 --time 1s --kernel {}", kernel.display());
        let run = bench.run(&format!("lab vm {options} --html page.html --json"));
        assert_eq!(run.code, 0, "{}", run.stderr);
        let report = run.json();
        let groups = report["groups"].as_array().unwrap();
        let places: Vec<_> = groups.iter().map(|group| group["place"].as_str().unwrap()).collect();
        assert_eq!(places, ["host", "guests", "tunnel", "receive_buffers"]);
        let rows = || groups.iter().flat_map(|group| group["rows"].as_array().unwrap());
        // Without passt or the kernel's VXLAN, the table has fewer rows.
        assert!((10..=12).contains(&rows().count()), "{report}");
        for row in rows().filter(|row| row["runs"][0]["is_reset"] != true) {
            assert!(row["verified_bytes"].as_u64().unwrap() > 8 << 20, "{row}");
            for way in ["to_guest", "from_guest"] {
                assert!(row[way]["megabits_a_second"]["median"].as_f64().unwrap() > 0.0, "{row}");
                let path = row[way]["path_s_per_gb"]["median"].as_f64().unwrap();
                assert_eq!(path > 0.0, row["carrier"] != "qemu", "{row}");
            }
        }
        for row in groups[3]["rows"].as_array().unwrap() {
            let counted = row["to_guest"]["guest_instructions_per_kb"]["median"].as_f64();
            assert!((100.0..100_000.0).contains(&counted.unwrap()), "{row}");
        }
        let page = String::from_utf8(bench.get("page.html")).unwrap();
        assert!(page.contains("lab vm --runs 1"), "how to repeat it");
    }
}

#[test]
fn lab_run_ends_as_its_command_and_passes_the_location() {
    let bench = Bench::new();
    let script = "echo $GROSSO_HOST $GROSSO_A $GROSSO_B $GROSSO_A6 $GROSSO_B6 >&2; exit 7";
    let mut command = bench.command("lab run two-hosts --json --on b");
    command.args(["sleep 1000", "--", "sh", "-c", script]);
    let run = finished(command.output().unwrap());
    if !is_allowed(&run) {
        return;
    }
    assert_eq!((run.code, run.stdout.as_str()), (7, ""), "{}", run.stderr);
    let (addresses, report) = run.stderr.trim().rsplit_once('\n').unwrap();
    assert_eq!(addresses, "a 10.93.0.1 10.93.0.2 fd93::1 fd93::2");
    let report = crate::common::report(report);
    assert_eq!((&report["schema"], &report["exit_code"]), (&"grosso.lab-run/1".into(), &7.into()));
    let missing = bench.run("lab run two-hosts -- no-such-program");
    assert_eq!(missing.code, 4, "{}", missing.stderr);
    assert!(missing.stderr.contains("lab: no-such-program: "), "{}", missing.stderr);
}

#[test]
fn lab_run_without_a_command_streams_over_a_bad_wire() {
    let bench = Bench::new();
    let mut command = bench.command("lab run two-hosts --time 300ms --json --impair");
    command.arg("delay 1ms loss 1% duplicate 1% corrupt 1% seed 7");
    let run = finished(command.output().unwrap());
    if !is_allowed(&run) {
        return;
    }
    assert_eq!(run.code, 0, "{}", run.stderr);
    let report = run.json();
    let there = &report["wire"]["a_to_b"];
    for fault in ["lost", "duplicated", "corrupted"] {
        assert!(there[fault].as_u64().unwrap() > 0, "{fault}: {report}");
    }
    assert!(report["stream"]["retransmits"].as_u64().unwrap() > 0, "{report}");
    assert!(report["stream"]["bytes"].as_u64().unwrap() > 0, "{report}");
}

#[test]
fn nothing_outlives_a_lab_that_is_killed() {
    let bench = Bench::new();
    let script = "setsid sh -c 'sleep 3; echo survived' & echo started; wait";
    let mut command = bench.command("lab run two-hosts -- sh -c");
    command.arg(script).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut lab = command.spawn().unwrap();
    let mut lines = BufReader::new(lab.stdout.take().unwrap()).lines();
    let Some(line) = lines.next() else {
        let run = finished(lab.wait_with_output().unwrap());
        assert!(!is_allowed(&run), "{}", run.stderr);
        return;
    };
    assert_eq!(line.unwrap(), "started");
    lab.kill().unwrap();
    lab.wait().unwrap();
    // A process that is left running would hold the pipe open, and print.
    assert_eq!(lines.next().map(Result::unwrap), None);
}

/// Returns whether a lab can run here; prints a message if it cannot. If even root may not run one, checks the error
/// message.
fn is_allowed(run: &Run) -> bool {
    if run.code != 4 {
        return true;
    }
    println!("skipped: {}", run.stderr);
    assert!(run.stderr.contains("hint"), "{}", run.stderr);
    assert!(std::env::var_os("GROSSO_SKIP_NOTHING").is_none(), "{}", run.stderr);
    false
}

#[test]
fn lab_run_has_tunnels_and_impaired_wires() {
    let bench = Bench::new();
    example(&bench, "far-tunnel.toml");
    // Data that the tunnels send in one call crosses the path unsegmented, as it would between VMs.
    let far = String::from_utf8(bench.get("far-tunnel.toml")).unwrap();
    let near = far.replace("impair = \"delay 1ms seed 7\"\n", "");
    let near = near.replace("]\n\n[[wire]]", "]\noffloads = true\n\n[[wire]]");
    let near = near.replace("\"ub\"]\n", "\"ub\"]\noffloads = true\n");
    assert_eq!(near.matches("offloads = true").count(), 2);
    bench.put("near-tunnel.toml", near.as_bytes());
    for file in ["far-tunnel.toml", "near-tunnel.toml"] {
        let line = format!("lab run --config {file} --runs 1 --time 300ms --no-html --json");
        let run = bench.run(&line);
        if !is_allowed(&run) {
            return;
        }
        assert_eq!(run.code, 0, "{}", run.stderr);
        assert_tunnels_carry(&run.json());
    }
}

fn assert_tunnels_carry(report: &serde_json::Value) {
    let rows = report["rows"].as_array().unwrap();
    for row in rows {
        assert!(row["gbps"]["median"].as_f64().unwrap() > 0.0, "{row}");
        let paths = row["runs"][0]["paths"].as_array().unwrap();
        let names: Vec<&str> = paths.iter().map(|path| path["path"].as_str().unwrap()).collect();
        assert_eq!(names, ["far", "vx-a", "vx-b"]);
        assert!(paths.iter().all(|path| path["left_to_right"][0].as_u64() > Some(0)), "{row}");
        assert!(row["runs"][0]["cpu_seconds"]["path"].as_f64() > Some(0.0), "{row}");
        let refused = row.to_string().contains("vnet_type_mismatch");
        assert!(!refused, "a path refuses what the kernel shows it: {row}");
    }
    assert_eq!(rows.len(), 2);
}

#[test]
fn lab_run_encrypts_and_fragments() {
    let bench = Bench::new();
    let esp = |side: &str, peer: &str, keys: [&str; 2]| {
        let [inward, outward] = keys.map(|digit| digit.repeat(40));
        bench.put(&format!("{side}.key"), format!("in {inward}\nout {outward}\n").as_bytes());
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(bench.path(&format!("{side}.key")), private).unwrap();
        let spis = if side < peer {
            "spi-in = 0x1001, spi-out = 0x1002"
        } else {
            "spi-in = 0x1002, spi-out = 0x1001"
        };
        format!(
            "[[path]]\nname = \"{side}\"\nleft = {{ port = \"tap:{side}0\", fragments = {{}} }}\n\
             right = {{ port = \"e{side}\", fragments = {{ mtu = 1500 }}, esp = {{ {spis}, \
             key-file = \"{side}.key\", sequence-file = \"{side}.sequence\" }} }}\n"
        )
    };
    let config = format!(
        "[[host]]\nname = \"a\"\ndevices = {{ a0 = [\"10.1.0.1/24\", \"fd93::1/64\"] }}\n\
         [[host]]\nname = \"b\"\ndevices = {{ b0 = [\"10.1.0.2/24\", \"fd93::2/64\"] }}\n\
         [[wire]]\nends = [\"ea\", \"eb\"]\n{}{}\
         [measure]\nfrom = \"a\"\nto = \"b\"\nto-address = \"fd93::2\"\nruns = 2\ntime = \"200ms\"\n",
        esp("a", "b", ["1", "2"]),
        esp("b", "a", ["2", "1"]),
    );
    bench.put("esp.toml", config.as_bytes());
    let run = bench.run("lab run --config esp.toml --no-html --json");
    if !is_allowed(&run) {
        return;
    }
    assert_eq!(run.code, 0, "{}", run.stderr);
    let report = run.json();
    assert_eq!(report["rows"][0]["setting"], "as it is");
    assert!(report["rows"][0]["gbps"]["median"].as_f64().unwrap() > 0.0, "{report}");
}

/// Copies a file from `examples/lab` into the test's directory.
fn example(bench: &Bench, name: &str) {
    let path =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/lab").join(name);
    bench.put(name, &fs::read(path).unwrap());
}

#[test]
fn lab_run_refuses_a_file_that_is_wrong() {
    let bench = Bench::new();
    bench.put("wrong.toml", b"[[host]]\nname = \"a\"\ndevices = {}\n[mesure]\n");
    let run = bench.run("lab run --config wrong.toml");
    assert_eq!(run.code, 3, "{}", run.stderr);
    assert!(
        run.stderr.contains("wrong.toml:4:2: no key \"mesure\"; did you mean measure?"),
        "{}",
        run.stderr
    );
    assert_eq!(bench.run("lab run --config absent.toml").code, 4);
}

#[test]
fn lab_refuses_what_cannot_be_measured() {
    let bench = Bench::new();
    let lines = [
        "lab --runs 0",
        "lab --time 1ms",
        "lab --time 5",
        "lab tso",
        "lab --hold fast",
        "lab --no-html --html page.html",
        "lab run",
        "lab run three-hosts",
        "lab run two-hosts --config lab.toml",
        "lab run --config lab.toml --mtu 1400",
        "lab run --config lab.toml -- true",
        "lab run two-hosts --runs 3",
        "lab run two-hosts --html page.html",
        "lab run two-hosts --impair loss",
        "lab run two-hosts --on c true",
        "lab gso --tool iperf3",
        "lab fragments --rate fast",
        "lab fragments --rate 1.5",
        "lab fragments --loss 0.1",
        "lab fragments --timeout 60",
        "lab fragments --tool iperf3",
        "lab acks --hold 16us",
        "lab cost --streams 4",
        "lab acks --time 5",
    ];
    for line in lines {
        let run = bench.run(line);
        assert_eq!(run.code, 2, "{line}: {}", run.stderr);
    }
}
