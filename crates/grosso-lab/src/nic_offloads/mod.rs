//! Gain from a device's own offloads. Each feature of the device is measured both on and off while TCP data flows
//! between the device and a sink.
//!
//! ```text
//!  this machine                                      the peer
//!  lab - the device, its features on and off - wire - sink (`grosso lab sink`)
//!   |
//!  watchdog: restores the features, even if the lab is killed
//! ```
//!
//! A receive feature is measured with a stream from the sink, and a transmit feature with a stream to the sink. All
//! other settings of the device stay unchanged.

use core::fmt;
use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::atomic::AtomicBool,
};

use grosso_sys::{
    ethtool::{self, Feature, set_features},
    interface::{Control, InterfaceName},
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    experiment::{Bench, Experiment, Plan, RunsOf, brief},
    netns::Device,
    report::FailedRow,
    sink::Direction,
    trial::TrialError,
    verdict::Verdict,
};

mod findings;
mod trial;
mod watch;

pub use self::{
    findings::{NicOffloadFindings, NicOffloadRow},
    trial::{NicOffloadRun, NicOffloadSetting, measure},
    watch::{Keeper, watch},
};

/// Parameters of the experiment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NicOffloadParameters {
    /// The device.
    #[serde(serialize_with = "as_text")]
    #[schemars(with = "String")]
    pub nic: InterfaceName,
    /// The address of the sink.
    pub peer: SocketAddr,
    /// Features to measure; if empty, all features that can be changed.
    pub features: Vec<String>,
}

/// The experiment on a device's own offloads.
#[derive(Clone, Debug)]
pub struct NicOffloads {
    plan: Plan<NicOffloadParameters>,
    /// Two settings for each feature: off and on.
    settings: Vec<[NicOffloadSetting; 2]>,
    /// Features that the stream does not use, each with the traffic that would use it.
    unused: Vec<(String, &'static str)>,
}

impl NicOffloads {
    /// Creates an experiment with every feature of the device that can be changed, or with the named features.
    ///
    /// # Errors
    /// Fails if the device does not exist, if a named feature cannot be measured, or if the user may not change the
    /// device.
    pub fn new(plan: Plan<NicOffloadParameters>) -> io::Result<Self> {
        let NicOffloadParameters { nic, peer, features: named } = &plan.parameters;
        let control = Control::new()?;
        let mut found = ethtool::features(&control, nic)?;
        found.retain(is_tried);
        if let Some(one) = named.iter().find(|name| found.iter().all(|one| one.name != **name)) {
            let names: Vec<&str> = found.iter().map(|feature| feature.name.as_str()).collect();
            let what = format!("cannot measure feature {one} of {nic}; available features: ");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what + &names.join(", ")));
        }
        if let Some(first) = found.first() {
            // This request changes nothing, but fails if the user may not change the device.
            set_features(&control, nic, &[(&first.name, first.requested)])?;
        }
        found.retain(|feature| named.is_empty() || named.contains(&feature.name));
        let mut unused = Vec::new();
        found.retain(|feature| match other_traffic(&feature.name, peer.ip()) {
            Some(needed) => {
                unused.push((feature.name.clone(), needed));
                false
            }
            None => true,
        });
        let settings = found.into_iter().map(|Feature { name, requested, .. }| {
            [false, true].map(|on| NicOffloadSetting {
                device: *nic,
                peer: *peer,
                direction: direction(&name),
                feature: name.clone(),
                was_on: requested,
                on,
                measured: plan.measured,
            })
        });
        Ok(Self { settings: settings.collect(), plan, unused })
    }
}

impl Experiment for NicOffloads {
    type Parameters = NicOffloadParameters;
    type Setting = NicOffloadSetting;
    type Run = NicOffloadRun;
    type Findings = NicOffloadFindings;

    fn name(&self) -> &'static str {
        "nic"
    }

    fn plan(&self) -> &Plan<NicOffloadParameters> {
        &self.plan
    }

    fn device(&self) -> Option<Device> {
        None
    }

    fn settings(&self) -> Vec<&[NicOffloadSetting]> {
        self.settings.iter().map(<[_; 2]>::as_slice).collect()
    }

    fn verify(
        &self,
        setting: &NicOffloadSetting,
        interrupted: &AtomicBool,
    ) -> Result<Option<u64>, TrialError> {
        trial::verify(setting, interrupted).map(Some)
    }

    /// Returns whether a state is skipped because the device does not accept it, which happens if a feature that it
    /// needs is off.
    fn is_optional(&self, _setting: &NicOffloadSetting, error: &io::Error) -> bool {
        error.kind() == io::ErrorKind::Unsupported
    }

    fn measure(
        &self,
        group: &mut [RunsOf<Self>],
        bench: &mut Bench<'_, Self>,
    ) -> Result<(), TrialError> {
        bench.each(measure, group)
    }

    fn label(&self, setting: &NicOffloadSetting) -> String {
        format!("{} {}", setting.feature, if setting.on { "on" } else { "off" })
    }

    fn brief(&self, runs: &[NicOffloadRun]) -> String {
        brief(runs, NicOffloadRun::gigabits_a_second, "Gb/s")
    }

    fn findings(&self, groups: Vec<Vec<RunsOf<Self>>>) -> NicOffloadFindings {
        NicOffloadFindings { rows: groups.into_iter().flatten().map(NicOffloadRow::new).collect() }
    }

    fn judge(&self, findings: &NicOffloadFindings) -> Vec<Verdict> {
        let unused = self.unused.iter();
        let unused = unused.map(|(name, needed)| Verdict::not_here(findings::claim(name), needed));
        findings.pairs().map(|[off, on]| findings::judge(off, on)).chain(unused).collect()
    }

    fn notes(&self, findings: &NicOffloadFindings, failed: &[FailedRow]) -> Vec<String> {
        let mut notes = vec![NOTE.to_owned()];
        for [setting, _] in &self.settings {
            let rows = || findings.rows.iter().filter(|row| row.feature == setting.feature);
            let name = format!("{} ", setting.feature);
            let failed = failed.iter().any(|row| row.setting.starts_with(&name));
            if !failed && rows().count() == 1 {
                let missing = if rows().any(|row| row.on) { "off" } else { "on" };
                notes.push(format!(
                    "Feature {} cannot be turned {missing} at the moment.",
                    setting.feature
                ));
            }
        }
        let repeated: u64 =
            findings.rows.iter().flat_map(|row| &row.runs).map(|run| run.repeated).sum();
        if repeated > 0 {
            notes.push(format!("{repeated} trials were repeated because no data arrived."));
        }
        let nic = &self.plan.parameters.nic;
        let knobs: Vec<String> = findings
            .pairs()
            .filter_map(|[off, on]| findings::advice(off, on))
            .map(|(feature, state)| format!("  ethtool -K {nic} {feature} {state}"))
            .collect();
        notes.push(match knobs.is_empty() {
            true => "No other setting is measurably better than the current one.".into(),
            false => format!("Better settings:\n{}", knobs.join("\n")),
        });
        notes
    }
}

/// Returns whether a feature is measured: it can be changed, it affects the packets in a stream, and no other settings
/// are lost when it is turned off.
fn is_tried(feature: &Feature) -> bool {
    let is_of_packets = feature.name.starts_with("rx-") || feature.name.starts_with("tx-");
    !feature.fixed && is_of_packets && !LEFT_ALONE.contains(&feature.name.as_str())
}

/// Returns the traffic that uses a feature, if a TCP stream to this address does not use it.
fn other_traffic(feature: &str, peer: IpAddr) -> Option<&'static str> {
    let (version, others) = match peer {
        IpAddr::V4(_) => ("a stream over IPv6", ["tx-tcp6-segmentation", "tx-checksum-ipv6"]),
        IpAddr::V6(_) => ("a stream over IPv4", ["tx-tcp-segmentation", "tx-checksum-ipv4"]),
    };
    if others.contains(&feature) {
        return Some(version);
    }
    let traffic = OTHER_TRAFFIC.iter().find(|(part, _)| feature.contains(part));
    traffic.map(|(_, traffic)| *traffic)
}

fn direction(feature: &str) -> Direction {
    if feature.starts_with("rx-") { Direction::Receive } else { Direction::Transmit }
}

fn as_text<S: serde::Serializer>(
    shown: &impl fmt::Display,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(shown)
}

/// Features that are never changed, because a change would lose other programs' filters and keys, or make additional
/// frames arrive.
const LEFT_ALONE: [&str; 6] = [
    "rx-all",
    "rx-fcs",
    "rx-ntuple-filter",
    "rx-vlan-filter",
    "rx-vlan-stag-filter",
    "rx-udp_tunnel-port-offload",
];

/// Parts of the names of features that a TCP stream between two hosts does not use, each with the traffic that does.
const OTHER_TRAFFIC: [(&str, &str); 11] = [
    ("sctp", "an SCTP stream"),
    ("fcoe", "FCoE frames"),
    ("vlan", "packets with a VLAN tag"),
    ("macsec", "MACsec frames"),
    ("esp", "ESP packets"),
    ("gre-", "a GRE tunnel"),
    ("ipxip", "an IP tunnel"),
    ("tnl", "a UDP tunnel"),
    ("tunnel", "a UDP tunnel"),
    ("udp", "UDP datagrams"),
    ("-list", "forwarded packets"),
];

const NOTE: &str = "\
* marks the original setting, which the lab restores. CPU time is the busy time
of all CPUs, including other programs, so keep the machine idle. Turning off a
feature also turns off the features that depend on it. Features for other
traffic, such as UDP, tunnels or forwarding, are not measured.";

#[cfg(test)]
mod tests {
    use super::*;

    fn feature(name: &str, fixed: bool) -> Feature {
        Feature { name: name.into(), active: true, requested: true, fixed }
    }

    #[test]
    fn what_others_set_up_is_left_alone() {
        assert!(is_tried(&feature("rx-gro", false)));
        assert!(is_tried(&feature("tx-tcp-segmentation", false)));
        assert!(!is_tried(&feature("rx-gro", true)), "fixed");
        for name in ["loopback", "hw-tc-offload", "l2-fwd-offload", "rx-ntuple-filter", "rx-all"] {
            assert!(!is_tried(&feature(name, false)), "{name}");
        }
    }

    #[test]
    fn features_that_a_tcp_stream_does_not_use_are_not_measured() {
        let [four, six] = ["192.0.2.1", "2001:db8::1"].map(|peer| peer.parse().unwrap());
        for (feature, needed) in [
            ("tx-sctp-segmentation", Some("an SCTP stream")),
            ("tx-udp-segmentation", Some("UDP datagrams")),
            ("tx-udp_tnl-segmentation", Some("a UDP tunnel")),
            ("rx-gro-list", Some("forwarded packets")),
            ("rx-gro", None),
            ("tx-tcp-ecn-segmentation", None),
            ("tx-generic-segmentation", None),
        ] {
            assert_eq!([four, six].map(|peer| other_traffic(feature, peer)), [needed; 2]);
        }
        let segmentation = ["tx-tcp-segmentation", "tx-tcp6-segmentation"];
        let needed = segmentation.map(|feature| other_traffic(feature, four));
        assert_eq!(needed, [None, Some("a stream over IPv6")]);
        let needed = segmentation.map(|feature| other_traffic(feature, six));
        assert_eq!(needed, [Some("a stream over IPv4"), None]);
    }

    #[test]
    fn a_feature_is_measured_in_its_direction() {
        assert_eq!(direction("rx-gro-list"), Direction::Receive);
        assert_eq!(direction("tx-checksum-ip-generic"), Direction::Transmit);
    }
}
