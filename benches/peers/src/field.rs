//! Determines which peers take part in a run, and why other peers are missing.

use std::path::{Path, PathBuf};

use grosso_benches::Cache;
use grosso_testkit::workloads::Workload;
use tempfile::TempDir;

use crate::{
    arguments::Arguments,
    child::Program,
    contender::{Boxed, Peer},
    crates, dpdk, go, ours,
    report::Absent,
    tool::Missing,
    work::{Row, Work},
};

/// The peers that are available on this machine.
pub(crate) struct Field<'a> {
    arguments: &'a Arguments,
    dpdk: Option<Program>,
    go: Option<Program>,
    /// Peers that do not take part.
    pub(crate) absent: Vec<Absent>,
    /// Directory for the frames of child processes, removed at the end of the run.
    folder: TempDir,
}

impl<'a> Field<'a> {
    /// Builds the peers that need to be built.
    ///
    /// # Errors
    /// Fails if no temporary directory can be created.
    pub(crate) fn assemble(arguments: &'a Arguments) -> Result<Self, String> {
        let folder =
            tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
        let mut field = Self { arguments, dpdk: None, go: None, absent: Vec::new(), folder };
        for peer in Peer::OTHERS.into_iter().filter(|peer| !arguments.wants(*peer)) {
            field.absent.push(Absent::new(peer, "left out by --without", ""));
        }
        field.dpdk = field.program(&[Peer::Dpdk], dpdk::build);
        field.go = field.program(&[Peer::WireguardGo, Peer::Tailscale, Peer::Gvisor], go::build);
        Ok(field)
    }

    /// Builds a program that several peers share, if one of them is requested.
    fn program(
        &mut self,
        peers: &[Peer],
        build: fn(&Path) -> Result<PathBuf, Missing>,
    ) -> Option<Program> {
        let wanted: Vec<Peer> =
            peers.iter().copied().filter(|peer| self.arguments.wants(*peer)).collect();
        if wanted.is_empty() {
            return None;
        }
        let folder = self.folder.path().to_owned();
        match build(&folder) {
            Ok(path) => Some(Program { path, folder }),
            Err(Missing { why, hint }) => {
                self.absent.extend(wanted.iter().map(|peer| Absent::new(*peer, &why, hint)));
                None
            }
        }
    }

    /// Returns the contenders of a row: all contenders for one workload, or only Grosso for each of several workloads.
    pub(crate) fn row<'w>(&self, row: &Row, workloads: &'w [Workload]) -> Vec<Boxed<'w>> {
        match workloads {
            [workload] => self.contenders(row.work, row.cache, workload),
            several => several
                .iter()
                .map(|workload| ours::coalescer(row.work, row.cache, workload.name, workload))
                .collect(),
        }
    }

    /// Returns all contenders that do this work on this workload, Grosso first.
    pub(crate) fn contenders<'w>(
        &self,
        work: Work,
        cache: Cache,
        workload: &'w Workload,
    ) -> Vec<Boxed<'w>> {
        let mut contenders = ours::contenders(work, cache, workload);
        // Peers use their own buffers. Filling these buffers brings the bytes into the cache.
        if cache == Cache::Hot {
            if let Some(program) = &self.dpdk {
                contenders.extend(dpdk::contenders(program, work, workload));
            }
            if let Some(program) = &self.go {
                contenders.extend(go::contenders(program, work, workload));
            }
            contenders.extend(crates::contenders(work, workload));
        }
        contenders.retain(|contender| self.arguments.wants(contender.about().peer));
        contenders
    }
}
