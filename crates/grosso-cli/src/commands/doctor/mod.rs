//! `grosso doctor`: checks which features work on this host, and explains why others do not and how to fix that.
//!
//! All probes run in a network namespace that disappears when the process ends. The host's own network is only
//! inspected, never changed.

mod confined;
mod finding;
mod host;
mod interfaces;
mod kernel;
mod probes;
mod report;
mod tunnels;

use grosso_sys::namespace::{NetworkNamespace, user_namespace_refusal};
use grosso_sys::userns;

use self::{
    finding::{Finding, FindingState},
    host::Host,
    report::Diagnosis,
};
use crate::{
    arguments::{Doctor, Use},
    error::{Exit, Failure},
    form::ReportForm,
    report::{self as reports, Place},
    session::Session,
};

/// Schema of this report.
pub(super) const FORM: ReportForm = Diagnosis::FORM;

/// Runs the command. The process must be single-threaded, because it may have to create a user namespace.
pub(super) fn run(options: &Doctor, session: &mut Session) -> Result<Exit, Failure> {
    // The host is inspected before the process becomes root in its own namespace.
    let host = Host::look();
    let rootless = rootless(&host);
    let interfaces = interfaces::findings(&host);
    let (capture, devices) = (host::capture(), host::devices(&host));
    let confined = confined::findings();
    let network = userns::enter().map_err(|refusal| refusal.to_string());
    let network = network.and_then(|()| {
        NetworkNamespace::new()
            .map_err(|error| format!("cannot create a private network namespace: {error}"))
    });
    let mut checks = vec![kernel::finding(&host.release)];
    match &network {
        Ok(network) => {
            checks.extend([probes::tun(&host, network), rootless, probes::udp(Some(network))]);
            checks.extend([probes::packet(network), probes::xdp(network)]);
            checks.push(tunnels::finding(&host, network));
        }
        Err(why) => {
            checks.extend([host::tun_unprobed(&host, why), rootless, probes::udp(None)]);
            let names = ["packet sockets", "af_xdp", "kernel tunnels"];
            let unprobed = |name| Finding::fail(name, format!("not probed: {why}"));
            checks.extend(names.map(unprobed));
        }
    }
    checks.extend(interfaces);
    checks.extend([capture, devices]);
    checks.extend(confined);
    let checks = checks.into_iter().map(|check| check.asked_by(&options.uses)).collect();
    let checks = with_grants(checks, &host, &options.uses);
    let diagnosis = Diagnosis::new(host, options.uses.clone(), checks);
    reports::print(&diagnosis, &session.talk, Place::Standard)?;
    Ok(if diagnosis.fail > 0 { Exit::No } else { Exit::Yes })
}

/// Returns the findings. If capabilities solve the problem in a finding, its fix is replaced by one that grants these
/// capabilities and those needed for all requested uses, or for all findings if no use was requested. Otherwise,
/// applying one fix would remove the capabilities granted by an earlier one.
fn with_grants(checks: Vec<Finding>, host: &Host, uses: &[Use]) -> Vec<Finding> {
    let is_meant = |check: &&Finding| uses.is_empty() || check.state == FindingState::Fail;
    let meant = checks.iter().filter(is_meant);
    let wanted: Vec<&str> = meant.flat_map(|check| check.lacks).copied().collect();
    let grant = |check: Finding| match check.lacks {
        [] => check,
        own => {
            let capabilities = [own, &wanted].concat();
            check.fix(host.grant(&capabilities))
        }
    };
    checks.into_iter().map(grant).collect()
}

impl Use {
    /// Returns whether this use needs the feature that a finding describes.
    fn takes(self, finding: &str) -> bool {
        let names: &[&str] = match self {
            Self::Capture => &["kernel", "capture"],
            Self::Bridge => &["kernel", "tun", "capture", "devices"],
            Self::Tunnel => &["kernel", "tun", "devices"],
            Self::Lab => &["kernel", "tun", "packet sockets"],
            Self::Xdp => &["af_xdp", "devices"],
        };
        names.contains(&finding)
    }
}

/// Checks whether unprivileged users can create network namespaces, as the lab and the tests do.
fn rootless(host: &Host) -> Finding {
    match user_namespace_refusal() {
        Ok(None) => {
            Finding::ok("rootless", "user namespaces allowed: `grosso lab` works without sudo")
        }
        Ok(Some(refusal)) => {
            let finding =
                Finding::fail("rootless", format!("user namespaces are not available: {refusal}"));
            match refusal.remedy() {
                Some(command) => finding.fix(host.sudo(command)),
                None => finding.fix("run `grosso lab` as root, and outside a container"),
            }
        }
        Err(error) => Finding::fail("rootless", format!("cannot start a process: {error}")),
    }
}
