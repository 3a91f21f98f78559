//! Peers that run in a C program, which calls DPDK's libraries gro, gso, ip_frag and net.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use grosso_testkit::{
    oracle::{Lengths, Link, parse},
    workloads::Workload,
};

use crate::{
    child::Program,
    contender::{About, Boxed, Peer},
    tool::{Missing, run},
    work::Work,
};

/// Compiles the program for this machine's CPU, as DPDK's users do.
pub(crate) fn build(folder: &Path) -> Result<PathBuf, Missing> {
    let hint = "apt-get install libdpdk-dev pkg-config gcc";
    let flags = run(Command::new("pkg-config").args(["--cflags", "--libs", "libdpdk"]));
    let flags = flags.map_err(|why| Missing { why, hint })?;
    let program = folder.join("dpdk-peer");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("dpdk/peer.c");
    let mut compiler = Command::new("cc");
    compiler
        .args(["-O3", "-D_GNU_SOURCE", "-Wall", "-Werror", "-Wno-deprecated-declarations"])
        .arg(source);
    // The flags from DPDK's package select a baseline CPU, and the flags after them override it.
    compiler.args(flags.split_whitespace()).args(["-march=native", "-o"]).arg(&program);
    run(&mut compiler).map_err(|why| Missing { why, hint })?;
    Ok(program)
}

/// Returns DPDK's contenders for a workload, or an empty list if DPDK does not do this kind of work.
pub(crate) fn contenders<'a>(
    program: &Program,
    work: Work,
    workload: &'a Workload,
) -> Vec<Boxed<'a>> {
    let about = |variant, inside| About::new(Peer::Dpdk, variant, inside);
    let contender =
        |variant, inside, name| program.contender(about(variant, inside), name, workload);
    let doing_less = |variant, inside, name| {
        program.contender(about(variant, inside).doing_less(), name, workload)
    };
    let stack = stack(workload);
    let stack: Vec<&str> = stack.iter().map(String::as_str).collect();
    let coalesces = is_tcp(&stack) || is_vxlan(&stack);
    match work {
        Work::CoalesceTrusted if coalesces => vec![
            contender("burst", "parse, join; no checks", "coalesce-burst"),
            contender("context", "parse, join; no checks", "coalesce-context"),
            contender("burst + fields", "parse, ToS, TTL, join", "coalesce-burst-fields"),
            contender("context + fields", "parse, ToS, TTL, join", "coalesce-context-fields"),
        ],
        Work::CoalesceVerified if coalesces => vec![
            contender("burst + checks", "parse, verify, fields, join", "coalesce-burst-checks"),
            contender("context + checks", "parse, verify, fields, join", "coalesce-context-checks"),
        ],
        Work::SegmentCopy if coalesces || is_gre(&stack) => {
            vec![contender("copied + sums", "parse, chain, copy, sums", "segment-copy")]
        }
        Work::SegmentScatter if coalesces || is_gre(&stack) => vec![
            contender("chain + sums", "parse, headers, sums", "segment-chain-sums"),
            doing_less("chain", "parse, headers; no sums", "segment-chain"),
        ],
        // The packaged build accepts at most 8 fragments per datagram.
        Work::Reassemble if workload.name == "frag4_8k" => vec![
            contender("+ checks", "parse, chain, verify", "reassemble-checks"),
            doing_less("", "parse, chain; no checks", "reassemble"),
        ],
        Work::Checksum => vec![contender("", "", "checksum")],
        _ => Vec::new(),
    }
}

/// Returns the names of the headers in the first frame of a workload. The result is meaningless for a checksum
/// workload, which consists of plain bytes without headers.
fn stack(workload: &Workload) -> Vec<String> {
    let parsed = parse(&workload.frames[0], Link::Ethernet, Lengths::Whole);
    parsed.layers.iter().map(|layer| layer.name.to_owned()).collect()
}

fn is_tcp(stack: &[&str]) -> bool {
    matches!(stack, ["ethernet", "ipv4", "tcp"])
}

fn is_vxlan(stack: &[&str]) -> bool {
    matches!(stack, ["ethernet", "ipv4", "udp", "vxlan", "ethernet", "ipv4", "tcp"])
}

fn is_gre(stack: &[&str]) -> bool {
    matches!(stack, ["ethernet", "ipv4", "gre", "ipv4", "tcp"])
}
