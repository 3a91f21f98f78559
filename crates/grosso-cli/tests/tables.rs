//! Tests the tables and pages that the lab's experiments fill.

use grosso_testkit::processor::Processor;
use serde_json::Value;

use crate::{
    sources::{COST, Measured, first_runs_of, measured},
    veth_lab::Net,
};

#[test]
fn lab_fragments_shows_the_collapse_and_its_cure() {
    let words = first_runs_of("fragments");
    let Some(Measured { report, page, .. }) = &*measured(&words) else { return };
    assert_eq!(report["schema"], "grosso.lab-fragments/4");
    assert_eq!(report["environment"]["timeout_ms"], 150.0);
    let losses: Vec<f64> =
        report["groups"].as_array().unwrap().iter().map(|g| g["loss"].as_f64().unwrap()).collect();
    assert_eq!(losses, [0.0, 0.005, 0.0]);
    assert_eq!(report["groups"][2]["is_overload"], true);
    for (group, fewest) in report["groups"].as_array().unwrap().iter().zip([32, 64]) {
        let row = |receiver: &str, buffers: Value| {
            let mut rows = group["rows"].as_array().unwrap().iter();
            rows.find(|row| row["receiver"] == receiver && row["buffers"] == buffers).unwrap()
        };
        let number = |row: &Value, name: &str| row[name]["median"].as_f64().unwrap();
        let (few, unbounded) = (row("coalesces", fewest.into()), row("coalesces", ().into()));
        let queued = row("queues", fewest.into());
        // A timeout in the middle of the trial may free the reassembly buffers once, and complete datagrams can then
        // use them.
        assert!(number(few, "goodput_gbps") > 5.0 * number(queued, "goodput_gbps"), "{group}");
        assert_eq!(number(few, "no_buffer_a_second"), 0.0, "{few}");
        assert!(number(queued, "no_buffer_a_second") > 0.0, "{queued}");
        assert!(queued["buffers_max"] == fewest && number(unbounded, "goodput_gbps") > 0.0);
        assert!(
            number(queued, "silence_ms") > 100.0,
            "the receiver waits for the timeout: {queued}"
        );
    }
    let verdicts = report["verdicts"].as_array().unwrap();
    assert_eq!(verdicts.len(), 9, "{verdicts:?}");
    assert!(page.contains(&format!("lab {words}")), "how to repeat it");
}

#[test]
fn lab_tunnels_fills_table_r4_and_compares_with_the_kernel() {
    let words = first_runs_of("tunnels");
    let Some(Measured { report, page, .. }) = &*measured(&words) else { return };
    assert_eq!(report["schema"], "grosso.lab-tunnels/4");
    assert_eq!(report["environment"]["streams"], 4);
    let groups = report["groups"].as_array().unwrap();
    let rows: Vec<_> = groups.iter().flat_map(|group| group["rows"].as_array().unwrap()).collect();
    let number = |row: &Value, name: &str| row[name]["median"].as_f64().unwrap();
    for row in &rows {
        assert!(number(row, "megabits_a_second") > 0.0, "{row}");
        assert!(number(row, "transactions_a_second") > 0.0, "{row}");
        assert!(row["latency"]["p99_us"].as_f64().unwrap() > 0.0, "{row}");
        assert_eq!(row["checksum_errors"], 0, "{row}");
    }
    let row = |carrier: &str, remote_checksum: bool| {
        let mut rows = rows.iter();
        let is_it =
            |row: &&&Value| row["carrier"] == carrier && row["remote_checksum"] == remote_checksum;
        *rows.find(is_it).unwrap()
    };
    let summed = |remote_checksum, side: usize| {
        let row = row("grosso", remote_checksum);
        row["costs"][side]["checksums_s_per_gb"].as_f64().unwrap()
    };
    for side in [0, 1] {
        assert!(summed(true, side) < summed(false, side) / 4.0, "{report}");
    }
    assert!(
        number(row("grosso", false), "cpu_s_per_gb") < number(row("plain", false), "cpu_s_per_gb")
    );
    let with = |carrier: &str| {
        let compared = report["comparisons"].as_array().unwrap().iter();
        compared.filter(|compared| compared["with"] == carrier).count()
    };
    assert_eq!(with("plain"), 2);
    assert!(with("kernel") == 2 || groups[1]["rows"].as_array().unwrap().len() == 2);
    assert_eq!(report["verdicts"].as_array().unwrap().len(), 4);
    assert!(page.contains(&format!("lab {words}")), "how to repeat it");
}

#[test]
fn lab_cost_splits_the_time_per_packet() {
    let Some(Measured { report, page, .. }) = &*measured(COST) else { return };
    assert_eq!(report["schema"], "grosso.lab-cost/3");
    let number = |value: &Value| value.as_f64().unwrap();
    let rows = report["rows"].as_array().unwrap();
    // AF_XDP needs root.
    assert!([5, 7].contains(&rows.len()), "{report}");
    for run in rows.iter().flat_map(|row| row["runs"].as_array().unwrap()) {
        for path in run["paths"].as_array().unwrap() {
            let total = number(&path["total_ns"]);
            let parts = path["parts"].as_object().unwrap();
            assert_eq!(parts.len(), 10);
            assert!(number(&parts["unexplained"]) < total / 2.0, "{path}");
            let all: f64 = parts.values().map(number).sum();
            assert!(total > 0.0 && (all - total).abs() < total * 1e-6, "{path}");
        }
    }
    let calls = |offloads: &str| {
        let is_it = |row: &&Value| row["wire"] == "ring" && row["offloads"] == offloads;
        number(&rows.iter().find(is_it).unwrap()["paths"][1]["send_calls_a_packet"])
    };
    assert!(calls("on") < calls("one_by_one"), "{report}");
    assert_eq!(report["verdicts"].as_array().unwrap().len(), 3);
    assert!(page.contains(&format!("lab {COST}")), "how to repeat it");
}

#[test]
fn lab_acks_reports_acknowledgments_at_the_sender() {
    let words = first_runs_of("acks");
    let Some(Measured { report, page, .. }) = &*measured(&words) else { return };
    assert_eq!(report["schema"], "grosso.lab-acks/4");
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 76);
    // Fraction of the acknowledgments arriving at the sender's NIC that were delivered to the sender.
    let reached = |handling: &str| {
        let of = |row: &&Value| row["side"] == "sender" && row["handling"] == handling;
        let sum = |name: &str| -> f64 {
            rows.iter().filter(of).map(|row| row[name]["median"].as_f64().unwrap()).sum()
        };
        sum("acknowledgments_reached") / sum("acknowledgments_sent")
    };
    assert!(reached("freebsd") < 0.7, "{}", reached("freebsd"));
    for handling in ["off", "linux", "vector", "rsc-82599"] {
        assert!((0.8..1.2).contains(&reached(handling)), "{handling}: {}", reached(handling));
    }
    assert_eq!(report["overtaken"]["through_it"], 0);
    // In userspace, one more row predicts what the kernel's senders would do.
    let others = usize::from(report["senders"] == "userspace");
    assert_eq!(report["verdicts"].as_array().unwrap().len(), 11 + 13 + 2 + others);
    assert!(page.contains(&format!("lab {words}")), "how to repeat it");
}

#[test]
fn lab_acks_has_senders_in_userspace_where_the_kernel_takes_none() {
    // If the kernel does not support these senders, other tests run them in userspace too.
    let usual = measured(&first_runs_of("acks"));
    let is_userspace =
        |of: &Option<Measured>| of.as_ref().is_none_or(|of| of.report["senders"] == "userspace");
    let results = match is_userspace(&usual) {
        true => usual,
        false => measured(
            "acks --senders userspace --runs 1 --time 50ms --round-trip 10ms --transfer 1000000",
        ),
    };
    let Some(Measured { report, page, .. }) = &*results else { return };
    assert_eq!(report["senders"], "userspace");
    let transfers = report["transfers"].as_array().unwrap();
    let round_trips = |handling: &str| {
        let is_it = |row: &&Value| {
            row["side"] == "sender" && row["handling"] == handling && row["worth"] == "one"
        };
        let row = transfers.iter().find(is_it).unwrap();
        row["runs"][0]["round_trips"].as_u64().unwrap()
    };
    assert!(round_trips("freebsd") > round_trips("off"), "{transfers:?}");
    let verdicts = report["verdicts"].as_array().unwrap();
    let told = verdicts.iter().filter(|verdict| {
        verdict["measured"].as_str().is_some_and(|measured| measured.ends_with("in userspace)"))
    });
    let elsewhere = verdicts.iter().filter(|verdict| verdict["verdict"] == "cannot_be_shown_here");
    assert_eq!((told.count(), elsewhere.count()), (13 + 2, 1));
    assert!(page.contains("Userspace TCP sent the transfers"), "the page has the note too");
}

#[test]
fn lab_run_shows_that_lro_in_the_middle_breaks_the_far_side() {
    let words = first_runs_of("run --config examples/lab/lro-in-the-middle.toml");
    let Some(Measured { report, page, .. }) = &*measured(&words) else { return };
    assert_eq!(
        (&report["schema"], &report["experiment"]),
        (&"grosso.lab-own/2".into(), &"run".into())
    );
    let rows = report["rows"].as_array().unwrap();
    let number = |row: usize, name: &str| rows[row][name]["median"].as_f64().unwrap();
    let [alone, gro, lro] = [0, 1, 2];
    assert!(number(alone, "gbps") > 10.0 * number(lro, "gbps"), "{report}");
    assert!(number(gro, "gbps") > 10.0 * number(lro, "gbps"), "{report}");
    assert!(number(gro, "segments_per_train") > 2.0, "{report}");
    assert_eq!(number(gro, "too_long_a_second") + number(alone, "too_long_a_second"), 0.0);
    assert!(number(lro, "too_long_a_second") > 0.0 && number(lro, "segments_per_train") > 1.0);
    let verdicts = report["verdicts"].as_array().unwrap();
    assert_eq!(verdicts.len(), 4);
    for verdict in &verdicts[..2] {
        assert_eq!(verdict["verdict"], "reproduced", "{verdict}");
    }
    assert!(
        page.contains("lab run --config examples/lab/lro-in-the-middle.toml"),
        "how to repeat it"
    );
}

#[test]
fn lab_nic_carries_verified_bytes_with_each_feature_off_and_on() {
    let _processor = Processor::acquire();
    let Some(net) = Net::new() else { return };
    let run = net.run("--runs 1 --time 200ms --no-html --json");
    assert_eq!(run.code, 0, "{}", run.stderr);
    let report = run.json();
    let rows = report["rows"].as_array().unwrap();
    assert!(rows.len() >= 4, "{report}");
    for row in rows {
        assert!(row["verified_bytes"].as_u64().unwrap() > 0, "{row}");
        assert!(row["gigabits_a_second"]["median"].as_f64().unwrap() > 0.0, "{row}");
    }
}
