//! Reports, for each capture in a directory, whether it was taken on the wire, with the evidence if it was not.

use std::{collections::BTreeSet, env};

use grosso_analysis::Capture;
use grosso_report::error::Failure;

fn main() -> Result<(), Failure> {
    let directory = env::args_os().nth(1).unwrap_or_else(|| ".".into());
    for capture in Capture::each_in(directory)? {
        let path = capture.path().display().to_string();
        match capture.classify() {
            Ok(report) if report.verdict.wire_faithful => println!("{path}: the wire"),
            Ok(report) => {
                let sizes = report.superframes.mss.iter();
                let evidence: BTreeSet<_> = sizes.map(|size| size.source.code()).collect();
                let evidence: Vec<_> =
                    report.verdict.reasons.iter().copied().chain(evidence).collect();
                println!("{path}: not the wire: {}", evidence.join(", "));
            }
            Err(failure) => println!("{path}: {failure}"),
        }
    }
    Ok(())
}
