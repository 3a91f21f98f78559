//! Peers that run in a Go program: coalescing and segmentation from wireguard-go and Tailscale's fork, and coalescing
//! from gVisor.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use grosso_testkit::workloads::Workload;

use crate::{
    child::Program,
    contender::{About, Boxed, Peer},
    frame::plain_transport,
    tool::{Missing, run},
    work::Work,
};

/// Builds the program. The Go toolchain downloads the modules that it needs through the Go proxy.
pub(crate) fn build(folder: &Path) -> Result<PathBuf, Missing> {
    let hint = "install Go 1.23 or newer, https://go.dev/dl";
    let program = folder.join("go-peer");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("go");
    let mut compiler = Command::new("go");
    compiler.args(["build", "-trimpath", "-o"]).arg(&program).arg(".").current_dir(source);
    run(&mut compiler).map_err(|why| Missing { why, hint })?;
    Ok(program)
}

/// Returns the contenders of the Go program for a workload, if they do that kind of work.
pub(crate) fn contenders<'a>(
    program: &Program,
    work: Work,
    workload: &'a Workload,
) -> Vec<Boxed<'a>> {
    let contender =
        |peer, inside, name: &str| program.contender(About::new(peer, "", inside), name, workload);
    let both = |inside, work| {
        vec![
            contender(Peer::WireguardGo, inside, &format!("wireguard-{work}")),
            contender(Peer::Tailscale, inside, &format!("tailscale-{work}")),
        ]
    };
    let gvisor = |inside, name| contender(Peer::Gvisor, inside, name);
    let transport = plain_transport(&workload.frames[0]);
    let mut contenders = match work {
        Work::CoalesceVerified if transport.is_some() => {
            both("parse, copy, verify what joins", "coalesce")
        }
        Work::SegmentCopy if transport.is_some() => both("copy, sums; told headers", "segment"),
        Work::Checksum => both("", "checksum"),
        _ => Vec::new(),
    };
    match work {
        Work::CoalesceTrusted if transport == Some("tcp") => {
            contenders.push(gvisor("parse, join", "gvisor-coalesce-trusted"));
        }
        Work::CoalesceVerified if transport == Some("tcp") => {
            contenders.push(gvisor("parse, verify each, join", "gvisor-coalesce"));
        }
        Work::Checksum => contenders.push(gvisor("", "gvisor-checksum")),
        _ => {}
    }
    contenders
}
