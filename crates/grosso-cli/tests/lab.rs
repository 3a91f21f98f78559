//! `grosso lab` from outside: what it prints, writes and refuses.

mod common;

use common::Bench;

#[test]
fn lab_measures_and_reports() {
    let bench = Bench::new();
    let run = bench.run("lab --runs 1 --time 200ms --congestion reno --html page.html --json");
    if run.code == 4 {
        // Where not even root may, there is nothing to measure; how that is said is tested here.
        let failure: serde_json::Value = serde_json::from_str(&run.stderr).unwrap();
        assert!(failure["code"].as_str().unwrap().starts_with("environment."), "{failure}");
        assert!(failure["hint"].is_string(), "{failure}");
        println!("skipped: {}", failure["message"]);
        assert!(std::env::var_os("GROSSO_SKIP_NOTHING").is_none(), "{failure}");
        return;
    }
    assert_eq!(run.code, 0, "{}", run.stderr);
    let report: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(report["schema"], "grosso.lab/1");
    assert_eq!(report["experiment"], "lro");
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
fn lab_refuses_what_cannot_be_measured() {
    let bench = Bench::new();
    let lines = [
        "lab --runs 0",
        "lab --time 1ms",
        "lab --time 5",
        "lab tso",
        "lab --hold fast",
        "lab --no-html --html page.html",
    ];
    for line in lines {
        let run = bench.run(line);
        assert_eq!(run.code, 2, "{line}: {}", run.stderr);
    }
}
