//! Compares `grosso doctor` with what other programs report about this host, and runs it on hosts that lack a feature.

#![cfg(target_os = "linux")]

use std::process::{Command, Output};

use serde_json::Value;

use crate::common::{Bench, has, report};

/// Returns the findings by name, from a run with `--json`.
fn checks(output: &Output) -> impl Fn(&str) -> Value + use<> {
    let stdout = String::from_utf8(output.stdout.clone()).unwrap();
    let report = report(&stdout);
    assert_eq!(report["schema"], "grosso.doctor/2");
    let all = report["checks"].as_array().unwrap().clone();
    let count = |state: &str| all.iter().filter(|check| check["state"] == state).count();
    assert_eq!(
        [&report["ok"], &report["warn"], &report["fail"]],
        [count("ok"), count("warn"), count("fail")]
    );
    assert_eq!(output.status.code(), Some(i32::from(count("fail") > 0)));
    move |name: &str| {
        let found = all.iter().find(|check| check["name"] == name);
        found.unwrap_or_else(|| panic!("no {name} in {all:?}")).clone()
    }
}

/// Runs a shell script in new namespaces, with the program as `$G`.
fn inside(unshare: &[&str], script: &str) -> Output {
    let mut command = Command::new("unshare");
    command.args(unshare).args(["sh", "-ec", script]).env("G", env!("CARGO_BIN_EXE_grosso"));
    command.output().unwrap()
}

/// Returns whether this process is permitted to run the tests; prints a message if it is not.
fn may(unshare: &[&str], script: &str) -> bool {
    let output = inside(unshare, script);
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        println!("skipped: {why}");
        assert!(std::env::var_os("GROSSO_SKIP_NOTHING").is_none(), "{why}");
    }
    output.status.success()
}

fn stdout(program: &str, words: &[&str]) -> String {
    String::from_utf8(Command::new(program).args(words).output().unwrap().stdout).unwrap()
}

#[test]
fn every_finding_is_reported_and_nothing_changes() {
    let bench = Bench::new();
    let before = has("ip").then(|| stdout("ip", &["-o", "link"]));
    let output = bench.command("doctor --json").output().unwrap();
    let check = checks(&output);
    for name in ["kernel", "tun", "rootless", "udp gso/gro", "packet sockets", "af_xdp"] {
        let found = check(name);
        assert!(!found["what"].as_str().unwrap().is_empty(), "{name}");
        assert!(found["state"] != "fail" || found["fix"].is_string(), "{found}");
    }
    for name in ["kernel tunnels", "capture", "devices"] {
        check(name);
    }
    if let Some(before) = before {
        assert_eq!(stdout("ip", &["-o", "link"]), before, "the devices are unchanged");
    }
}

#[test]
fn findings_agree_with_ethtool_and_ip() {
    if !["ip", "ethtool"].iter().all(|tool| has(tool)) || !may(&["-n"], "true") {
        return;
    }
    let check = checks(&Bench::new().command("doctor --json").output().unwrap());
    let links: Value = serde_json::from_str(&stdout("ip", &["-j", "-d", "link"])).unwrap();
    for link in links.as_array().unwrap() {
        let name = link["ifname"].as_str().unwrap();
        if link["link_type"] != "ether" || link["linkinfo"]["info_kind"].is_string() {
            continue;
        }
        let features = stdout("ethtool", &["-k", name]);
        let merges = ["rx-gro-hw: on", "large-receive-offload: on"];
        let merges = merges.iter().any(|line| features.contains(line));
        assert_eq!(check(name)["state"], if merges { "warn" } else { "ok" }, "{features}");
    }
    let tunnels = check("kernel tunnels")["what"].as_str().unwrap().to_owned();
    for (kind, words) in
        [("vxlan", "id 1 dstport 4789"), ("ipip", ""), ("geneve", "id 1 remote 10.0.0.1")]
    {
        let added = inside(&["-n"], &format!("ip link add probe type {kind} {words}"));
        let present = tunnels.split(';').find(|part| part.contains("present")).unwrap_or_default();
        assert_eq!(present.contains(kind), added.status.success(), "{kind}: {tunnels}");
    }
}

#[test]
fn a_host_without_tun_devices_gets_the_remedy() {
    let hide = "mount -t tmpfs none /dev/net";
    if !may(&["-m"], hide) {
        return;
    }
    let asked = |uses: &str| inside(&["-m"], &format!("{hide}; exec $G doctor --json {uses}"));
    let check = checks(&asked("bridge"));
    let tun = check("tun");
    assert_eq!(
        (&tun["state"], &tun["what"]),
        (&"fail".into(), &"/dev/net/tun: no such device".into())
    );
    assert_eq!(check("packet sockets")["state"], "ok", "packet sockets need no device");
    // Commands on captures need no device.
    for uses in ["", "capture"] {
        let check = checks(&asked(uses));
        let tun = check("tun");
        assert_eq!(
            (&tun["state"], tun["fix"].is_string()),
            (&"warn".into(), true),
            "{uses}: {tun}"
        );
    }
    let script = format!("{hide}; KUBERNETES_SERVICE_HOST=10.0.0.1 exec $G doctor --json");
    let fix = checks(&inside(&["-m"], &script))("tun")["fix"].as_str().unwrap().to_owned();
    assert!(fix.contains("securityContext"), "{fix}");
    let script = format!("{hide}; : > /dev/net/tun; chmod 0 /dev/net/tun; exec $G doctor lab");
    let text = inside(&["-m"], &script);
    assert_eq!(text.status.code(), Some(1));
}

#[test]
fn a_process_without_capabilities_probes_in_a_user_namespace() {
    if !has("setpriv") || !may(&["-n"], "unshare -Ur true") {
        return;
    }
    // Only a process with CAP_SETFCAP may map root (Linux 5.12), but every ordinary user may map itself.
    let drop = "exec setpriv --bounding-set=-all,+setfcap --inh-caps=-all -- $G doctor";
    let check = checks(&inside(&["-n"], &format!("{drop} --json capture")));
    let capture = check("capture");
    assert_eq!(
        (&capture["state"], &capture["what"]),
        (&"fail".into(), &"needs CAP_NET_RAW".into())
    );
    assert!(capture["fix"].as_str().unwrap().to_lowercase().contains("net_raw"), "{capture}");
    for name in ["packet sockets", "udp gso/gro", "rootless"] {
        assert_eq!(check(name)["state"], "ok", "{name}");
    }
    assert_eq!(inside(&["-n"], &format!("{drop} bridge")).status.code(), Some(1));
    assert_eq!(inside(&["-n"], &format!("{drop} lab")).status.code(), Some(0));
    let text = inside(&["-n"], drop);
    assert_eq!(text.status.code(), Some(0), "no use was requested");
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(
        text.lines().filter(|line| !line.contains("fix: ")).all(|line| line.len() <= 80),
        "{text}"
    );
    assert!(
        text.starts_with("Linux ") && text.lines().next().unwrap().ends_with("capabilities: none"),
        "{text}"
    );
    let last = text.lines().last().unwrap();
    let fails = text.lines().filter(|line| line.starts_with("fail  ")).count();
    let warns = text.lines().filter(|line| line.starts_with("warn  ")).count();
    assert_eq!(last, format!("{fails} fail, {warns} warn"));
}

/// If a program gains file capabilities that its parent lacks, its files in `/proc` belong to root. Here the parent is
/// a shell without capabilities.
#[test]
fn capabilities_of_the_file_leave_user_namespaces_as_they_are() {
    if !has("setcap") || !may(&["-n"], "setpriv --reuid 65534 --clear-groups true") {
        return;
    }
    // The copied program needs a directory that other users can reach.
    let folder = tempfile::Builder::new().prefix("grosso-").tempdir_in("/var/tmp").unwrap();
    let script = |capabilities: &str| {
        format!(
            "chmod 755 {folder}; cp $G {folder}/g; chmod 755 {folder}/g; {capabilities}
             exec setpriv --reuid 65534 --regid 65534 --clear-groups \\
                sh -c 'exec {folder}/g doctor --json'",
            folder = folder.path().display()
        )
    };
    let without = checks(&inside(&["-n"], &script("")));
    let with = checks(&inside(
        &["-n"],
        &script(&format!("setcap cap_net_raw+ep {}/g;", folder.path().display())),
    ));
    assert_eq!(with("rootless"), without("rootless"));
    assert_eq!(
        (&with("packet sockets"), &with("tun")),
        (&without("packet sockets"), &without("tun"))
    );
    // Applying one fix keeps what another fix enabled.
    assert_eq!(with("capture")["state"], "ok");
    let fix = |finding: Value| finding["fix"].as_str().unwrap().to_owned();
    for named in ["cap_net_admin", "cap_net_raw"] {
        let fixes = [without("capture"), without("devices"), with("devices")].map(fix);
        assert!(fixes.iter().all(|fix| fix.contains(named)), "{named}: {fixes:?}");
    }
    // If one use is named, the report covers only that use.
    let capture = inside(&["-n"], &script("").replace("doctor", "doctor capture"));
    assert!(!fix(checks(&capture)("capture")).contains("cap_net_admin"));
}

#[test]
fn blocked_user_namespaces_are_named_by_their_switch() {
    let block = "echo 0 > /proc/sys/user/max_user_namespaces";
    if !has("setpriv") || !may(&["-Ur"], block) {
        return;
    }
    let drop = "exec setpriv --bounding-set=-all --inh-caps=-all -- $G doctor --json";
    let check = checks(&inside(&["-Ur"], &format!("{block}; {drop}")));
    let rootless = check("rootless");
    assert_eq!(rootless["state"], "warn");
    assert!(
        rootless["what"].as_str().unwrap().contains("user.max_user_namespaces is 0"),
        "{rootless}"
    );
    assert!(
        rootless["fix"].as_str().unwrap().ends_with("sysctl -w user.max_user_namespaces=10000")
    );
    assert!(check("tun")["what"].as_str().unwrap().contains("not probed"));
    assert_eq!(check("udp gso/gro")["state"], "ok", "on the existing loopback device");
}

/// A host may boot from a file system that used to be a container's and still has the container's marker file.
/// Therefore, `doctor` also checks the namespaces.
#[test]
fn a_container_is_one_by_its_namespaces_too() {
    let mark = "mount -t tmpfs none /run && : > /run/.containerenv";
    if !may(&["-m"], mark) || std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        return;
    }
    let seen = |namespaces: &[&str]| {
        let output = inside(namespaces, &format!("{mark}; exec $G doctor --json"));
        let report = report(&String::from_utf8(output.stdout).unwrap());
        report["host"]["surroundings"].as_str().unwrap().to_owned()
    };
    assert_eq!(seen(&["-m", "-u"]), "container");
    let first = std::fs::read_link("/proc/self/ns/uts").unwrap();
    if first.to_str() == Some("uts:[4026531838]") {
        assert!(["machine", "virtual machine"].contains(&seen(&["-m"]).as_str()));
    }
}
