//! wireguard-go's coalescing and segmentation, and gVisor's coalescing, in a program of Go.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use grosso_testkit::workloads::Workload;

use crate::{
    child::Program,
    contender::{About, Boxed, Peer},
    field::{Missing, run},
    frame::plain_transport,
    work::Work,
};

/// Builds the program; the modules that it needs come through Go's own proxy.
pub(crate) fn build(folder: &Path) -> Result<PathBuf, Missing> {
    let hint = "install Go 1.23 or newer, https://go.dev/dl";
    let program = folder.join("go-peer");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("go");
    let mut compiler = Command::new("go");
    compiler.args(["build", "-trimpath", "-o"]).arg(&program).arg(".").current_dir(source);
    run(&mut compiler).map_err(|why| Missing { why, hint })?;
    Ok(program)
}

/// The contenders of both for a workload, if they do that kind.
pub(crate) fn contenders<'a>(
    program: &Program,
    work: Work,
    workload: &'a Workload,
) -> Vec<Boxed<'a>> {
    let contender =
        |peer, inside, name| program.contender(About::new(peer, "", inside), name, workload);
    let wireguard = |inside, name| contender(Peer::WireguardGo, inside, name);
    let gvisor = |inside, name| contender(Peer::Gvisor, inside, name);
    if work == Work::Checksum {
        return vec![wireguard("", "checksum"), gvisor("", "gvisor-checksum")];
    }
    let transport = plain_transport(&workload.frames[0]);
    match work {
        Work::CoalesceTrusted if transport == Some("tcp") => {
            vec![gvisor("parse, join", "gvisor-coalesce-trusted")]
        }
        Work::CoalesceVerified if transport == Some("tcp") => vec![
            wireguard("parse, copy, verify what joins", "coalesce"),
            gvisor("parse, verify each, join", "gvisor-coalesce"),
        ],
        Work::CoalesceVerified if transport.is_some() => {
            vec![wireguard("parse, copy, verify what joins", "coalesce")]
        }
        Work::SegmentCopy if transport.is_some() => {
            vec![wireguard("copy, sums; told headers", "segment")]
        }
        _ => Vec::new(),
    }
}
