//! An experiment that compares ways to forward the frames of VMs: Grosso over shared memory or a socket, QEMU's own TAP
//! device, and passt.
//!
//! ```text
//!  host                                                      guest
//!  t0 (TAP) ------------- data path --- vhost-user --------- eth0
//!  t0 (TAP) - data path - VXLAN - data path - vhost-user --- eth0
//!  guest - eth0 - vhost-user - data path - vhost-user ------ eth0
//! ```
//!
//! The last group of settings compares the buffers into which a guest's driver receives: packet buffers and pages, as
//! in table R1. QEMU counts the instructions of these guests.
//!
//! VMs are emulated (TCG), so they do not need `/dev/kvm`, but they boot slowly. In the guest, this program serves
//! streams like `grosso lab sink`, and the host or another guest connects to it.

mod findings;
mod table;
mod trial;

use core::fmt;
use std::{
    io,
    path::Path,
    process::{Command, Stdio},
    sync::atomic::AtomicBool,
    time::Duration,
};

use grosso_sys::{
    interface::InterfaceName,
    netlink::{LinkChange, Netlink},
};
use schemars::JsonSchema;
use serde::Serialize;

use self::trial::{Boot, PASST, PROGRAMS};
pub use self::{
    findings::{VmFigures, VmFindings, VmGroup, VmRow},
    trial::{VmRun, VmStream},
};
use crate::{
    experiment::{Bench, Experiment, Plan, RunsOf, brief},
    guest::{Kernel, missing},
    netns::{Device, engine_network, vxlan_ends},
    report::FailedRow,
    trial::TrialError,
    verdict::Verdict,
};

/// Parameters of the experiment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct VmParameters {
    /// Release of the guest's kernel, or the reason why no VM can boot.
    pub guest: String,
}

/// Peer with which a guest exchanges streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VmPlace {
    /// The host.
    Host,
    /// Another guest.
    Guests,
    /// A host behind a VXLAN tunnel.
    Tunnel,
    /// The host, with guests that differ in their receive buffers. QEMU counts the instructions of these guests.
    ReceiveBuffers,
}

impl fmt::Display for VmPlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Host => "A guest and its host",
            Self::Guests => "Two guests; streams to and from the second guest",
            Self::Tunnel => "A guest and a host, connected by a VXLAN tunnel",
            Self::ReceiveBuffers => {
                "Receive buffers of a guest, compared by instructions of the guest"
            }
        })
    }
}

/// A way to forward a guest's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VmCarrier {
    /// Grosso, which shares the guest's memory.
    VhostUser,
    /// Grosso, which exchanges single packets over a Unix socket.
    Stream,
    /// QEMU's own TAP device, which the kernel connects to other devices.
    Qemu,
    /// passt, which terminates the guest's connections and opens sockets on the host for them.
    Passt,
    /// vhost-user to a guest that receives each packet into a packet buffer (`mrg_rxbuf=off`, no superframes).
    PacketBuffers,
    /// vhost-user to a guest that receives each packet into part of a page (`mrg_rxbuf=on`, no superframes).
    Pages,
    /// vhost-user to a guest that receives each superframe into a chain of pages for the longest superframe
    /// (`mrg_rxbuf=off`).
    SuperframeChains,
    /// vhost-user to a guest that receives each superframe into as many pages as it fills (`mrg_rxbuf=on`).
    SuperframePages,
}

impl fmt::Display for VmCarrier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::VhostUser => "vhost-user",
            Self::Stream => "unix stream",
            Self::Qemu => "QEMU's TAP",
            Self::Passt => "passt",
            Self::PacketBuffers => "packet buffers",
            Self::Pages => "pages",
            Self::SuperframeChains => "superframes, chains",
            Self::SuperframePages => "superframes, pages",
        })
    }
}

/// One setting to measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VmSetting {
    /// Peer with which the guest exchanges streams.
    pub place: VmPlace,
    /// The carrier that forwards the guest's frames.
    pub carrier: VmCarrier,
    /// Duration of each stream.
    pub measured: Duration,
}

/// The experiment on VMs.
#[derive(Debug)]
pub struct Vms {
    plan: Plan<VmParameters>,
    /// Prerequisites for booting VMs; `None` if no VM can boot.
    boot: Option<Boot>,
    groups: Vec<Vec<VmSetting>>,
    notes: Vec<String>,
}

impl Vms {
    /// Creates an experiment with every carrier that is available. The guest boots a kernel that is installed in a
    /// directory such as `/`. Its image is built in `folder` and contains this program. If no VM can boot, the
    /// experiment has no settings, and a note explains why.
    ///
    /// # Errors
    /// Fails if the image cannot be created.
    pub fn new(
        mut plan: Plan<VmParameters>,
        folder: &Path,
        (kernel, program): (&Path, &Path),
    ) -> io::Result<Self> {
        if let Some(why) = missing(kernel, PROGRAMS) {
            let note = format!("Cannot boot VMs on this host: {why}.");
            plan.parameters.guest = why;
            return Ok(Self { plan, boot: None, groups: Vec::new(), notes: vec![note] });
        }
        plan.parameters.guest = format!("Linux {}", Kernel::find(kernel)?.release());
        let mut notes = vec![NOTE.to_owned()];
        let mut groups = Vec::new();
        for (place, carriers) in SETTINGS {
            let there = carriers.iter().filter(|carrier| match why_not(place, **carrier) {
                Some(why) => {
                    notes.push(why.into());
                    false
                }
                None => true,
            });
            let setting = |&carrier| VmSetting { place, carrier, measured: plan.measured };
            groups.push(there.map(setting).collect());
        }
        let boot = Some(Boot::new(folder, kernel, program)?);
        Ok(Self { plan, boot, groups, notes })
    }
}

impl Experiment for Vms {
    type Parameters = VmParameters;
    type Setting = VmSetting;
    type Run = VmRun;
    type Findings = VmFindings;

    fn name(&self) -> &'static str {
        "vm"
    }

    fn plan(&self) -> &Plan<VmParameters> {
        &self.plan
    }

    fn device(&self) -> Option<Device> {
        None
    }

    fn settings(&self) -> Vec<&[VmSetting]> {
        self.groups.iter().map(Vec::as_slice).collect()
    }

    fn measure(
        &self,
        group: &mut [RunsOf<Self>],
        bench: &mut Bench<'_, Self>,
    ) -> Result<(), TrialError> {
        let measure = |setting: &VmSetting, interrupted: &AtomicBool| {
            let boot = self.boot.as_ref().ok_or(io::ErrorKind::NotFound);
            boot.map_err(io::Error::from)?.measure(setting, interrupted)
        };
        bench.each(measure, group)
    }

    fn label(&self, setting: &VmSetting) -> String {
        format!("{}, {}", setting.place, setting.carrier)
    }

    fn brief(&self, runs: &[VmRun]) -> String {
        brief(runs, |run| run.to_guest.megabits_a_second(), "Mb/s to the guest")
    }

    fn findings(&self, groups: Vec<Vec<RunsOf<Self>>>) -> VmFindings {
        VmFindings::new(groups)
    }

    fn judge(&self, findings: &VmFindings) -> Vec<Verdict> {
        findings.judge()
    }

    fn notes(&self, findings: &VmFindings, _failed: &[FailedRow]) -> Vec<String> {
        let mut notes = self.notes.clone();
        if self.boot.is_some() {
            let bytes: u64 = findings.rows().map(|row| row.verified_bytes).sum();
            notes.push(format!(
                "Before measuring, {bytes} received bytes were compared with the sent bytes."
            ));
        }
        let runs = findings.rows().flat_map(|row| &row.runs);
        let resets = runs.filter(|run| run.is_reset).count();
        if resets > 0 {
            notes.push(format!(
                "passt reset a connection in {resets} runs. These runs have no figures."
            ));
        }
        notes
    }
}

/// Returns why a carrier is not measured on this machine; `None` if it is.
fn why_not(place: VmPlace, carrier: VmCarrier) -> Option<&'static str> {
    match (place, carrier) {
        (_, VmCarrier::Passt) => {
            let mut passt = Command::new(PASST);
            let found = passt.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
            found.is_err().then_some("passt was not measured: it is not installed.")
        }
        (VmPlace::Tunnel, VmCarrier::Qemu) => {
            let add = || {
                let name = InterfaceName::new("x0")?;
                Netlink::new()?.add_vxlan_between((&name, LinkChange::new()), &vxlan_ends(0))
            };
            let added = engine_network().and_then(|network| network.run(add)?);
            added
                .is_err()
                .then_some("The kernel's VXLAN was not measured: this kernel does not support it.")
        }
        _ => None,
    }
}

/// Carriers to measure for each kind of peer.
const SETTINGS: [(VmPlace, &[VmCarrier]); 4] = {
    use VmCarrier::{
        PacketBuffers, Pages, Passt, Qemu, Stream, SuperframeChains, SuperframePages, VhostUser,
    };
    [
        (VmPlace::Host, &[VhostUser, Stream, Qemu, Passt]),
        (VmPlace::Guests, &[VhostUser, Qemu]),
        (VmPlace::Tunnel, &[VhostUser, Qemu]),
        (VmPlace::ReceiveBuffers, &[PacketBuffers, Pages, SuperframeChains, SuperframePages]),
    ]
};

const NOTE: &str = "\
One TCP stream is measured in each direction. The VMs boot again for each run.
path: CPU time of Grosso's data paths, or of passt. QEMU: CPU time of all
threads of the emulated VMs, including their calls to a TAP.
An emulated CPU is tens of times slower than a CPU of this machine, and it
handles every packet. Backends that cost little in comparison are therefore
equally fast. With two guests, QEMU's TAPs are ports of a kernel bridge. The
tunnel of Grosso is compared with the kernel's VXLAN on a TAP. The instructions
for receive buffers are those of the guest's kernel and of the program that
receives; they do not depend on the speed of this machine.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        experiment::{Series, assert_failures_are_rows},
        page::assert_shown,
        report::Report,
        sink::Called,
        table::assert_kept,
    };

    /// Returns made-up results in which Grosso is twice as fast as QEMU toward the guest, and half as fast from the
    /// guest.
    fn report() -> Report<VmFindings> {
        let (experiment, groups) = measured();
        experiment.report(groups).unwrap()
    }

    fn measured() -> (Vms, Vec<Vec<RunsOf<Vms>>>) {
        let plan =
            Plan { parameters: VmParameters { guest: "Linux 6.1".into() }, ..Plan::default() };
        let series = |place, carrier: &VmCarrier| {
            let instructions_per_kb = match carrier {
                VmCarrier::PacketBuffers => 3000.0,
                _ => 1000.0,
            };
            let stream = |megabits: f64, path_cpu_seconds| VmStream {
                called: Called { bytes: (megabits * 125e3) as u64, seconds: 1.0 },
                path_cpu_seconds,
                machine_cpu_seconds: 1.5,
                guest_instructions: (place == VmPlace::ReceiveBuffers)
                    .then_some((instructions_per_kb * megabits * 125.0) as u64),
            };
            let (to, from, cpu) = match carrier {
                VmCarrier::VhostUser => (800.0, 200.0, 0.1),
                _ => (400.0, 400.0, 0.0),
            };
            let setting = VmSetting { place, carrier: *carrier, measured: plan.measured };
            let run = |i: u32| VmRun {
                verified_bytes: 1 << 20,
                to_guest: stream(to + f64::from(i), cpu),
                from_guest: stream(from + f64::from(i), cpu),
                is_reset: false,
            };
            Series::new(setting, (0..3).map(run).collect())
        };
        let groups = SETTINGS.map(|(place, carriers)| {
            carriers.iter().map(|carrier| series(place, carrier)).collect()
        });
        let vms = Vms { plan, boot: None, groups: Vec::new(), notes: vec![NOTE.into()] };
        (vms, groups.into())
    }

    #[test]
    fn table_fits_a_terminal_and_has_both_directions() {
        let table = assert_kept("vms", &report());
        let line = table.lines().find(|line| line.starts_with("vhost-user ")).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(
            words,
            ["vhost-user", "801", "(800-802)", "1.00", "15.0", "201", "(200-202)", "3.98", "59.7"],
            "{table}"
        );
        let line = table.lines().find(|line| line.starts_with("QEMU's TAP ")).unwrap();
        assert!(line.contains(" - "), "no path: {table}");
    }

    #[test]
    fn a_direction_that_is_slower_contradicts_the_claim() {
        let report = report();
        let [places @ .., packets, superframes] = &report.verdicts[..] else {
            panic!("no verdicts")
        };
        assert_eq!(places.len(), 3);
        assert!(packets.holds(), "{packets}");
        assert_eq!(packets.measured, "3.00 times");
        assert!(!superframes.holds(), "equal figures: {superframes}");
        for verdict in places {
            assert!(verdict.is_contradicted(), "{verdict}");
            assert_eq!(verdict.measured, "0.50 times (2.00 to the guest, 0.50 from it)");
            assert!(verdict.claim.len() <= 52, "{verdict}");
        }
    }

    /// Tests a run in which a connection is reset: `passt` resets connections if its guest is slow.
    #[test]
    fn a_run_with_a_reset_connection_is_reported_and_excluded() {
        let setting = VmSetting {
            place: VmPlace::Host,
            carrier: VmCarrier::Passt,
            measured: Duration::from_secs(1),
        };
        let called = Called { bytes: 125_000_000, seconds: 1.0 };
        let to_guest = VmStream { called, ..VmStream::default() };
        let whole = VmRun { to_guest, from_guest: to_guest, ..VmRun::default() };
        let reset = VmRun { is_reset: true, ..VmRun::default() };
        let findings = VmFindings::new(vec![vec![Series::new(setting, vec![reset, whole])]]);
        let rate = findings.groups[0].rows[0].to_guest.megabits_a_second;
        assert_eq!((rate.min, rate.max), (1000.0, 1000.0));
        let boot = None;
        let plan = Plan::default();
        let vms = Vms { plan, boot, groups: Vec::new(), notes: Vec::new() };
        assert!(vms.notes(&findings, &[])[0].contains("reset a connection in 1 runs"));
    }

    #[test]
    fn page_is_self_contained_and_shown() {
        let page = report().page("grosso lab vm", "unknown");
        assert!(
            page.contains(
                "<h1>Streams to a VM: 801 Mb/s over vhost-user, 401 Mb/s over QEMU's TAP</h1>"
            ),
            "{page}"
        );
        assert_shown(&page);
    }

    #[test]
    fn without_a_kernel_the_reason_is_reported() {
        let folder = Path::new("/nowhere");
        let vms = Vms::new(Plan::default(), folder, (folder, folder)).unwrap();
        assert_eq!(vms.trials(), 0);
        let report = vms.report(Vec::new()).unwrap();
        let table = report.table();
        assert_eq!(table.matches("cannot be shown here").count(), 5, "{table}");
        assert!(table.contains("Cannot boot VMs on this host: "), "{table}");
        assert!(table.contains(" is not installed") || table.contains("/nowhere/boot"), "{table}");
    }

    #[test]
    fn a_failed_setting_is_a_row_without_figures() {
        let (experiment, groups) = measured();
        assert_failures_are_rows(&experiment, || groups.clone());
    }
}
