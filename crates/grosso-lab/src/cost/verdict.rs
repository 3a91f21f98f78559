//! Verdicts: whether the figures support the experiment's claims.

use super::{CostRow, Offloads, PartName, Wire};
use crate::{
    statistics::{Spread, ratio},
    verdict::{Bound, Evidence, Verdict},
};

/// Returns verdicts on the figures.
pub(super) fn judge(rows: &[CostRow]) -> Vec<Verdict> {
    [explained(rows), batching(rows), offloads(rows)].into_iter().flatten().collect()
}

/// Judges the greatest share of a path's time that no part accounts for, among settings with many packets per turn.
/// With one packet per turn, reading the clocks takes as long as many parts.
fn explained(rows: &[CostRow]) -> Option<Verdict> {
    let rows = rows.iter().filter(|row| row.offloads == Offloads::On);
    let paths = rows.flat_map(|row| &row.paths);
    let most = paths.map(|path| path.percent(PartName::Unexplained)).reduce(f64::max)?;
    Some(
        Evidence::exact(most <= UNEXPLAINED_PERCENT)
            .verdict(
                "with offloads, the parts explain 95 % of the time",
                format!("all but {most:.1} %"),
                "other work that interrupted the path between two readings of the clock",
            )
            .for_every_row(),
    )
}

/// Judges the gain from polls of many frames, for the path that receives packets from the wire.
fn batching(rows: &[CostRow]) -> Option<Verdict> {
    let total = |offloads| {
        let [_, path_b] = row(rows, Wire::Ring, offloads)?.paths;
        Some(path_b.total_ns)
    };
    let (one, many) = (total(Offloads::OneByOne)?, total(Offloads::On)?);
    Some(Evidence::ratio(&many, &one, Bound::Under(1.0)).verdict(
        "path b is cheaper with 64 frames per poll",
        format!("{:.1} times (ring)", ratio(one.median, many.median)?),
        "polls that found one frame each",
    ))
}

/// Judges the gain from offloads for both paths together, on the wire with the smallest gain.
fn offloads(rows: &[CostRow]) -> Option<Verdict> {
    let both = |row: &CostRow| {
        let [one, other] = row.paths.map(|path| path.total_ns);
        Spread::of(one.values().iter().zip(other.values()).map(|(one, other)| one + other))
    };
    let ratios = [Wire::Ring, Wire::Xdp, Wire::Udp].into_iter().filter_map(|wire| {
        let (off, on) =
            (both(row(rows, wire, Offloads::Off)?), both(row(rows, wire, Offloads::On)?));
        let word = Evidence::ratio(&on, &off, Bound::Under(1.0));
        Some((ratio(off.median, on.median)?, wire, word))
    });
    let (least, wire, word) = ratios.min_by(|one, other| one.0.total_cmp(&other.0))?;
    Some(
        word.verdict(
            "offloads make both paths cheaper on every wire",
            format!("{least:.1} times ({wire})"),
            "a wire that costs more than the packets on it",
        )
        .for_every_row(),
    )
}

fn row(rows: &[CostRow], wire: Wire, offloads: Offloads) -> Option<&CostRow> {
    rows.iter().find(|row| (row.wire, row.offloads) == (wire, offloads))
}

/// Greatest share of time that may remain unexplained.
const UNEXPLAINED_PERCENT: f64 = 5.0;

#[cfg(test)]
mod tests {
    use super::super::{Parts, tests::report};
    use super::*;

    fn said(rows: &[CostRow], claim: &str) -> (bool, String) {
        let verdicts = judge(rows);
        let verdict = verdicts.iter().find(|verdict| verdict.claim.contains(claim)).unwrap();
        (verdict.holds(), verdict.measured.clone())
    }

    #[test]
    fn what_is_unexplained_in_any_path_is_too_much() {
        let mut rows = report().findings.rows;
        assert_eq!(said(&rows, "explain"), (false, "all but 18.2 %".into()));
        let with = |share: f64| {
            Parts::each(|part| if part == PartName::Unexplained { share } else { 1.0 })
        };
        for path in rows.iter_mut().flat_map(|row| &mut row.paths) {
            path.parts = with(0.0);
        }
        assert_eq!(said(&rows, "explain"), (true, "all but 0.0 %".into()));
        rows[5].paths[1].parts = with(0.5);
        assert_eq!(said(&rows, "explain"), (false, "all but 5.3 %".into()));
        rows[5].paths[1].parts = with(0.4);
        assert_eq!(said(&rows, "explain"), (true, "all but 4.3 %".into()));
    }

    #[test]
    fn batching_is_path_b_s_and_offloads_are_worth_what_they_are_where_least() {
        let mut rows = report().findings.rows;
        assert_eq!(said(&rows, "64 frames"), (true, "5.0 times (ring)".into()));
        rows[1].paths[0].total_ns = Spread::of([0.0; 3]);
        assert!(said(&rows, "64 frames").0, "path a reads superframes");
        rows[1].paths[1].total_ns = Spread::of([54.0; 3]);
        assert_eq!(said(&rows, "64 frames"), (false, "1.0 times (ring)".into()));
        assert!(said(&rows, "offloads make").0);
        rows[4].paths[0].total_ns = Spread::of([0.0; 3]);
        assert_eq!(said(&rows, "offloads make"), (true, "1.7 times (AF_XDP)".into()));
        rows[4].paths[1].total_ns = Spread::of([164.0; 3]);
        assert_eq!(said(&rows, "offloads make"), (false, "1.0 times (AF_XDP)".into()));
    }

    #[test]
    fn a_verdict_fits_its_line_and_wants_its_rows() {
        let rows = report().findings.rows;
        assert!(judge(&rows).iter().all(|verdict| verdict.claim.len() <= 52));
        let claims: Vec<_> =
            judge(&rows[5..6]).iter().map(|verdict| verdict.claim.clone()).collect();
        assert_eq!(claims.len(), 1, "{claims:?}");
        assert_eq!(judge(&[]), []);
    }
}
