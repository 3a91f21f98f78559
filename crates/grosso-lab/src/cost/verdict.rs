//! Verdicts on whether the figures support the experiment's claims.

use super::{CostRow, Offloads, PartName, Wire, trial::PathRun};
use crate::{
    statistics::Spread,
    verdict::{Bound, Evidence, Unit, Verdict},
};

/// Returns the verdicts on the figures.
pub(super) fn judge(rows: &[CostRow]) -> Vec<Verdict> {
    [explained(rows), batching(rows), offloads(rows)].into_iter().flatten().collect()
}

/// Judges the largest unexplained fraction of a path's time among the settings with many packets per poll. With one
/// packet per poll, many parts take no longer than reading the clocks.
fn explained(rows: &[CostRow]) -> Option<Verdict> {
    let rows = rows.iter().filter(|row| row.offloads == Offloads::On);
    let paths = rows.flat_map(|row| [0, 1].map(|side| (row, side)));
    let evidences = paths.map(|(row, side)| {
        let unexplained = Spread::of(row.runs.iter().map(|run| {
            let PathRun { parts, total_ns, .. } = run.paths[side];
            parts.get(PartName::Unexplained) / total_ns
        }));
        let path = format!("path {} of {}", ["a", "b"][side], row.name());
        (Evidence::median(&unexplained, Bound::Under(UNEXPLAINED)), path)
    });
    let (evidence, path) = Evidence::all_of(evidences)?;
    let verdict = evidence.verdict(
        "with offloads, under 5 % of the time is unexplained",
        Unit::Percent,
        "other work interrupted the data path between two clock readings",
    );
    Some(verdict.with(path).for_every_row())
}

/// Judges the gain from many frames per poll for the path that receives packets from the wire.
fn batching(rows: &[CostRow]) -> Option<Verdict> {
    let total = |offloads| {
        let [_, path_b] = row(rows, Wire::Ring, offloads)?.paths;
        Some(path_b.total_ns)
    };
    let (one, many) = (total(Offloads::OneByOne)?, total(Offloads::On)?);
    let verdict = Evidence::ratio(&one, &many, Bound::AtLeast(1.0)).verdict(
        "path b is cheaper with 64 frames per poll",
        Unit::Times,
        "most polls returned only one frame",
    );
    Some(verdict.with(Wire::Ring))
}

/// Judges the gain from offloads for both paths together, on the wire where it is smallest.
fn offloads(rows: &[CostRow]) -> Option<Verdict> {
    let both = |row: &CostRow| {
        let [one, other] = row.paths.map(|path| path.total_ns);
        Spread::of(one.values().iter().zip(other.values()).map(|(one, other)| one + other))
    };
    let evidences = [Wire::Ring, Wire::Xdp, Wire::Udp].into_iter().filter_map(|wire| {
        let (off, on) =
            (both(row(rows, wire, Offloads::Off)?), both(row(rows, wire, Offloads::On)?));
        Some((Evidence::ratio(&off, &on, Bound::AtLeast(1.0)), wire))
    });
    let (evidence, wire) = Evidence::all_of(evidences)?;
    let verdict = evidence.verdict(
        "offloads lower the cost of both paths on every wire",
        Unit::Times,
        "on this wire, most time is spent on system calls, not on packets",
    );
    Some(verdict.with(wire).for_every_row())
}

fn row(rows: &[CostRow], wire: Wire, offloads: Offloads) -> Option<&CostRow> {
    rows.iter().find(|row| (row.wire, row.offloads) == (wire, offloads))
}

/// Fraction of a path's time below which little counts as unexplained.
const UNEXPLAINED: f64 = 0.05;

#[cfg(test)]
mod tests {
    use super::super::{CostRun, Parts, tests::report};
    use super::*;

    fn said(rows: &[CostRow], claim: &str) -> (bool, String) {
        let verdicts = judge(rows);
        let verdict = verdicts.iter().find(|verdict| verdict.claim.contains(claim)).unwrap();
        (verdict.holds(), verdict.measured.clone())
    }

    #[test]
    fn what_is_unexplained_in_any_path_is_too_much() {
        let mut rows = report().findings.rows;
        let of = |rows: &mut Vec<CostRow>, share: f64| {
            let parts = Parts::each(|part| if part == PartName::Unexplained { share } else { 1.0 });
            for row in rows {
                let path = PathRun { parts, total_ns: parts.total(), ..row.runs[0].paths[0] };
                let run = CostRun { paths: [path; 2], ..row.runs[0].clone() };
                row.runs = vec![run; 5];
            }
        };
        of(&mut rows, 0.0);
        assert!(said(&rows, "explain").0);
        let mut last = rows[5..6].to_vec();
        of(&mut last, 0.5);
        rows[5] = last[0].clone();
        let name = rows[5].name();
        let expected = |percent| format!("{percent} % (path a of {name})");
        assert_eq!(said(&rows, "explain"), (false, expected("5.3")));
        of(&mut last, 0.4);
        rows[5] = last[0].clone();
        assert_eq!(said(&rows, "explain"), (true, expected("4.3")));
    }

    #[test]
    fn batching_is_path_b_s_and_offloads_are_worth_what_they_are_where_least() {
        let mut rows = report().findings.rows;
        assert_eq!(said(&rows, "64 frames"), (true, "5.00 times (ring)".into()));
        rows[1].paths[0].total_ns = Spread::of([0.0; 3]);
        assert!(said(&rows, "64 frames").0, "path a reads superframes");
        rows[1].paths[1].total_ns = Spread::of([54.0; 3]);
        assert_eq!(said(&rows, "64 frames"), (false, "0.98 times (ring)".into()));
        assert!(said(&rows, "offloads lower").0);
        rows[4].paths[0].total_ns = Spread::of([0.0; 3]);
        assert_eq!(said(&rows, "offloads lower"), (true, "1.67 times (AF_XDP)".into()));
        rows[4].paths[1].total_ns = Spread::of([164.0; 3]);
        assert_eq!(said(&rows, "offloads lower"), (false, "0.99 times (AF_XDP)".into()));
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
