//! Counts instructions per packet with callgrind, and compares them with `benches/instructions.toml`.
//!
//! The counts do not depend on the load, and barely on the machine: valgrind offers AVX2 to the program if the CPU has
//! it, but never AVX-512. For each count, the program starts itself under valgrind and counts only the instructions
//! inside [`measured`]. With `--record` it writes the recorded file instead of comparing.

#![forbid(unsafe_code)]

use std::{
    collections::BTreeMap,
    env, fs,
    hint::black_box,
    num::NonZero,
    process::{Command, ExitCode},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use grosso_benches::{
    COALESCED, CUT, Cutter, ENCAPSULATED, Ends, JOINED, Join, Joiner, LEFT, PROFILED, Receiver,
    SEED, SEGMENTED, Scatterer, Sender, SentTunnel, TERMINATED, Terminator, Trust, TunnelSender,
    leave_checksums, profiles,
};
use grosso_testkit::workloads::workload;

/// Instructions per packet, keyed by the name of the work.
type Counts = BTreeMap<String, f64>;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        [INSIDE, name] => run(name),
        [RECORD] => count_all().and_then(|counts| record(&counts)),
        [] => count_all().and_then(|counts| compare(&counts)),
        _ => Err(format!("{arguments:?}: only {RECORD} is known")),
    };
    finish(result)
}

fn finish(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("instructions: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the names of all counted workloads.
fn names() -> impl Iterator<Item = String> {
    let coalesce = COALESCED
        .iter()
        .flat_map(|name| Trust::ALL.map(|trust| format!("coalesce/{}/{name}", trust.name())));
    let left = LEFT.iter().map(|name| format!("coalesce/partial/{name}"));
    let profiled = profiles().into_iter().flat_map(|profile| {
        PROFILED.iter().map(move |name| format!("profile/{}/{name}", profile.name))
    });
    let segment = SEGMENTED.iter().map(|name| format!("segment/{name}"));
    let scatter = SEGMENTED.iter().map(|name| format!("scatter/{name}"));
    let encapsulate = ENCAPSULATED.iter().flat_map(|name| {
        SentTunnel::ALL.map(|tunnel| format!("encapsulate/{}/{name}", tunnel.name()))
    });
    let cut = CUT.iter().map(|name| format!("fragments/cut/{name}"));
    let join = JOINED
        .iter()
        .flat_map(|name| Join::ALL.map(|join| format!("fragments/join/{}/{name}", join.name())));
    let ends = TERMINATED
        .iter()
        .flat_map(|name| Ends::ALL.map(|ends| format!("tunnel/{}/{name}", ends.name())));
    coalesce
        .chain(left)
        .chain(profiled)
        .chain(segment)
        .chain(scatter)
        .chain(encapsulate)
        .chain(cut)
        .chain(join)
        .chain(ends)
}

/// Does the named work twice (under valgrind), measures only the second run, and prints the number of packets.
fn run(name: &str) -> Result<(), String> {
    let (kind, name) = name.rsplit_once('/').ok_or("no name")?;
    let mut workload = workload(name, SEED);
    let packets = match kind.split('/').collect::<Vec<_>>()[..] {
        ["coalesce", "partial"] => {
            let checksum = leave_checksums(&mut workload);
            let mut receiver = Receiver::new(&workload, Trust::Trusted).completing(checksum);
            receiver.trace();
            measured(&mut || receiver.trace())
        }
        ["coalesce", trust] => {
            let trust = Trust::ALL.into_iter().find(|known| known.name() == trust);
            let mut receiver = Receiver::new(&workload, trust.ok_or("no such trust")?);
            receiver.trace();
            measured(&mut || receiver.trace())
        }
        ["profile", profile] => {
            let profile = profiles().into_iter().find(|known| known.name == profile);
            let profile = profile.ok_or("no such profile")?;
            let mut receiver = Receiver::with_profile(&workload, profile, Trust::Trusted);
            receiver.trace();
            measured(&mut || receiver.trace())
        }
        ["segment"] => {
            let mut sender = Sender::new(&workload);
            sender.trace();
            measured(&mut || sender.trace())
        }
        ["scatter"] => {
            let mut scatterer = Scatterer::new(&workload);
            scatterer.trace();
            measured(&mut || scatterer.trace())
        }
        ["encapsulate", tunnel] => {
            let tunnel = SentTunnel::ALL.into_iter().find(|known| known.name() == tunnel);
            let mut sender = TunnelSender::new(&workload, tunnel.ok_or("no such tunnel")?);
            sender.trace();
            measured(&mut || sender.trace())
        }
        ["tunnel", ends] => {
            let ends = Ends::ALL.into_iter().find(|known| known.name() == ends);
            let mut terminator = Terminator::new(&workload, ends.ok_or("no such way to end it")?);
            terminator.trace();
            measured(&mut || terminator.trace())
        }
        ["fragments", "cut"] => {
            let mut cutter = Cutter::new(&workload);
            cutter.trace();
            measured(&mut || cutter.trace())
        }
        ["fragments", "join", join] => {
            let join = Join::ALL.into_iter().find(|known| known.name() == join);
            let mut joiner = Joiner::new(&workload, join.ok_or("no such way to join")?);
            joiner.trace();
            measured(&mut || joiner.trace())
        }
        _ => return Err(format!("{kind}: no such work")),
    };
    println!("{packets}");
    Ok(())
}

/// Runs `work`, and returns the number of packets that it processed; callgrind counts this function.
#[inline(never)]
fn measured(work: &mut dyn FnMut() -> usize) -> usize {
    // This prevents a tail call, so that callgrind sees a call with a return.
    black_box(work())
}

/// Counts the instructions of all workloads, running one on each CPU: other programs do not influence the counts.
fn count_all() -> Result<Counts, String> {
    let names: Vec<String> = names().collect();
    let next = AtomicUsize::new(0);
    let count_some = || -> Result<Counts, String> {
        let mut counts = Counts::new();
        while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
            counts.insert(name.clone(), count(name)?);
        }
        Ok(counts)
    };
    thread::scope(|scope| {
        let cpus = thread::available_parallelism().map_or(1, NonZero::get);
        let workers: Vec<_> = (0..cpus).map(|_| scope.spawn(count_some)).collect();
        let mut all = Counts::new();
        for worker in workers {
            all.append(&mut worker.join().map_err(|_| "a worker panicked".to_owned())??);
        }
        Ok(all)
    })
}

/// Returns the instructions per packet of the workload `name`.
fn count(name: &str) -> Result<f64, String> {
    let program = env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no", "--toggle-collect=*::measured*"])
        .arg("--callgrind-out-file=/dev/null")
        .arg(program)
        .args([INSIDE, name])
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    let talk = String::from_utf8_lossy(&output.stderr);
    let collected = talk.lines().find_map(|line| line.split_once("Collected : ")).map(|(_, n)| n);
    let instructions: Option<f64> = collected.and_then(|number| number.trim().parse().ok());
    let packets: Option<f64> = String::from_utf8_lossy(&output.stdout).trim().parse().ok();
    match (instructions, packets) {
        (Some(instructions), Some(packets)) if output.status.success() => {
            Ok(instructions / packets)
        }
        _ => Err(format!("{name} under valgrind: {}\n{talk}", output.status)),
    }
}

fn record(counts: &Counts) -> Result<(), String> {
    let lines = counts.iter().map(|(name, count)| format!("\"{name}\" = {count:.1}\n"));
    let text = HEAD.to_owned() + &lines.collect::<String>();
    fs::write(RECORDED, text).map_err(|error| format!("{RECORDED}: {error}"))
}

fn compare(counts: &Counts) -> Result<(), String> {
    let text = fs::read_to_string(RECORDED).map_err(|error| format!("{RECORDED}: {error}"))?;
    let recorded: Counts = text.lines().filter_map(parse).collect();
    let mut grown = 0;
    for (name, count) in counts {
        let before = recorded.get(name).copied().unwrap_or(0.0);
        let change_percent = (count / before - 1.0) * 100.0;
        println!("{name:<32} {count:>8.1} recorded {before:>8.1} {change_percent:>+6.1} %");
        grown += u32::from(change_percent > TOLERANCE_PERCENT || !change_percent.is_finite());
    }
    println!("instructions: {} counted, {grown} grown", counts.len());
    if grown > 0 || counts.len() != recorded.len() {
        let hint =
            "if that is meant, record: cargo run --profile bench -p grosso-benches -- --record";
        return Err(format!(
            "{grown} of {} grew beyond {TOLERANCE_PERCENT} %; {hint}",
            counts.len()
        ));
    }
    Ok(())
}

fn parse(line: &str) -> Option<(String, f64)> {
    let (name, count) = line.split_once('=')?;
    Some((name.trim().trim_matches('"').to_owned(), count.trim().parse().ok()?))
}

const INSIDE: &str = "--inside-valgrind";
const RECORD: &str = "--record";

/// Maximum accepted growth of a count.
const TOLERANCE_PERCENT: f64 = 3.0;

const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/instructions.toml");

const HEAD: &str = "\
# Instructions per packet under callgrind: `cargo run --profile bench -p grosso-benches -- --record` writes this file.
# Without --record, the command fails if a count has grown by more than 3 %.
";

#[cfg(test)]
mod tests {
    use super::*;

    /// The list of publications states what remote checksum offload saves, by the recorded counts.
    #[test]
    fn the_documented_saving_of_remote_checksum_offload_is_the_recorded_one() {
        let recorded = fs::read_to_string(RECORDED).unwrap();
        let recorded: Counts = recorded.lines().filter_map(parse).collect();
        let [without, with] =
            ["gue", "gue_rco"].map(|tunnel| recorded[&format!("encapsulate/{tunnel}/gso_tcp4")]);
        let saved_percent = (1.0 - with / without) * 100.0;
        let line = format!(
            "{with:.0} instead of {without:.0} instructions per packet, {saved_percent:.0} % fewer"
        );
        let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/sources.md");
        let document = fs::read_to_string(document).unwrap();
        let row = document.lines().find(|row| row.starts_with("| D13 ")).unwrap();
        assert!(row.contains(&line), "{line}: {row}");
    }
}
