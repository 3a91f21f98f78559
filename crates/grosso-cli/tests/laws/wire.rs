//! Law: `wire` does not change a capture that was taken on the wire.

use grosso_testkit::flows::{assert_conserved, hex};
use proptest::prelude::*;

use super::{
    captures::{Recipe, recipe},
    cases, flows,
};
use crate::common::{Bench, capture, frames};

proptest! {
    #![proptest_config(cases(48))]

    #[test]
    fn wire_of_a_wire_changes_nothing(recipe in recipe()) {
        check(&recipe);
    }
}

pub(crate) fn check(recipe: &Recipe) {
    let bench = Bench::new();
    let before = recipe.frames(flows::on_wire);
    let name = |stem: &str| format!("{stem}.{}", recipe.extension());
    bench.put(&name("a"), &capture(recipe.format(), recipe.link_type(), &before));
    stays(&bench, &name("a"), &name("wire"), &before);

    // Merged packets are restored to the packets on the wire.
    bench.ok(&format!("coalesce -q -r {} -w merged.pcapng", name("a")));
    bench.ok(&format!("segment -q --strict -r merged.pcapng -w {}", name("cut")));
    let cut = frames(&bench.get(&name("cut")));
    assert_conserved(&before, &cut);
    stays(&bench, &name("cut"), &name("wire"), &cut);
    bench.ok("wire -q --strict -r merged.pcapng -w back.pcapng");
    assert!(frames(&bench.get("back.pcapng")) == cut, "wire and segment split differently");
}

/// Asserts that `inspect` classifies these packets as wire packets, and that neither `wire` nor `segment` changes them.
fn stays(bench: &Bench, from: &str, to: &str, before: &[Vec<u8>]) {
    let report = bench.ok(&format!("inspect {from} --json")).json();
    assert_eq!(report["verdict"]["vantage"], "wire", "{report:#}");
    let report = bench.ok(&format!("wire --strict --json -r {from} -w {to}")).json();
    same(before, &frames(&bench.get(to)), "wire");
    assert_eq!(report["superframes"]["split"], 0, "{report:#}");
    assert_eq!(report["checksums_completed"], 0, "{report:#}");
    assert_eq!(report["left"], serde_json::json!({}), "{report:#}");
    let report = bench.ok(&format!("segment --strict --json -r {from} -w {to}")).json();
    same(before, &frames(&bench.get(to)), "segment");
    assert_eq!((&report["cut"], &report["undescribed"]), (&0.into(), &0.into()), "{report:#}");
}

/// Asserts that the packets are equal, byte for byte. The failure message names the first packet that differs.
fn same(before: &[Vec<u8>], after: &[Vec<u8>], command: &str) {
    let place = (0..before.len().max(after.len())).find(|&at| before.get(at) != after.get(at));
    let Some(place) = place else { return };
    let shown =
        |frames: &[Vec<u8>]| frames.get(place).map_or_else(|| "nothing".into(), |frame| hex(frame));
    panic!(
        "{command}: {} -> {} packets, the first that differs is {}\nin:  {}\nout: {}",
        before.len(),
        after.len(),
        place + 1,
        shown(before),
        shown(after),
    );
}
