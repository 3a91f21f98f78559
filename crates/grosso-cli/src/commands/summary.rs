//! Code shared by `bridge` and `run`, which handles signals, serves metrics, and prints the final summary.

use std::net::SocketAddr;

use grosso_io::{PortError, runner::Broken};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    acceptor::note_reach,
    daemon::{events::Events, paths::Asked},
    error::Failure,
    form::ReportForm,
    observe::{self, Missing, PathReading, Service, reading::DeviceReading},
    report::{self, Envelope, Place, Report},
    session::Session,
    style::Style,
    units,
};

/// Starts listening for signals.
pub(super) fn listen(command: &str) -> Result<Events, Failure> {
    Events::listen().map_err(|error| {
        let message = format!("{command}: cannot listen for signals: {error}");
        Failure::environment("environment.signals", message)
    })
}

/// Starts the service for the process's counters, if possible. It never delays packets.
pub(super) fn observe(
    metrics: Option<SocketAddr>,
    asked: Asked,
    session: &mut Session,
) -> Option<Service> {
    let talk = &mut session.talk;
    let service = match Service::start(metrics, move || asked.readings()) {
        Ok(service) => service,
        Err(error) => {
            talk.note(format!("control socket unavailable: {error}"));
            return None;
        }
    };
    for missing in service.missing() {
        let (what, cure) = match missing {
            Missing::Socket(error) => (
                format!("control socket unavailable, so grosso stats does not work: {error}"),
                "set RUNTIME_DIRECTORY=DIR in the environment to choose the directory of the socket",
            ),
            Missing::Metrics(address, error) => (
                format!("cannot serve metrics on {address}: {error}"),
                "if another program listens there, choose another address with --metrics",
            ),
        };
        talk.note(what);
        talk.hint(cure);
    }
    if let Some(socket) = service.socket().filter(|_| talk.verbose) {
        talk.remark(&format!("counters: {}", socket.display()));
    }
    if let Some(address) = service.metrics() {
        talk.remark(&format!("metrics: http://{address}/metrics"));
        note_reach(talk, "metrics", address, "--metrics");
    }
    Some(service)
}

/// Returns the failure of `command` for a path that stopped because a device or the path itself failed.
pub(super) fn broken(command: &str, error: &Broken) -> Failure {
    let code = match error {
        Broken::Defect { .. } => return Failure::internal(format!("{command}: {error}")),
        Broken::Stuck { .. } => {
            let hint = "the thread may be blocked in a system call (for example, on a frozen file \
                        system) or stopped by a debugger; see /proc/PID/task/*/stack";
            return Failure::stuck(format!("{command}: {error}")).hint(hint);
        }
        Broken::Port(PortError::Gone { .. }) => "environment.device_gone",
        _ => "environment.device",
    };
    Failure::environment(code, format!("{command}: {error}"))
}

/// Prints the counts of the paths.
pub(super) fn summarize(
    form: ReportForm,
    readings: &[PathReading],
    session: &mut Session,
) -> Result<(), Failure> {
    let summary = Summary {
        form,
        devices: observe::reading::devices(readings, false),
        text: observe::print(readings, session.talk.verbose),
    };
    let notes = [ring_notes(&summary.devices), tag_notes(&summary.devices)].concat();
    notes.into_iter().for_each(|note| session.talk.note(note));
    report::print(&summary, &session.talk, Place::Standard)
}

/// Returns a note for each receive ring that was full, with the option for enlarging it.
fn ring_notes(devices: &[DeviceReading]) -> Vec<String> {
    let full = devices.iter().filter_map(|reading| {
        let lost = reading.counters.value("drop_rx_ring_full");
        let shed = reading.counters.value("drop_rx_ring_share");
        (lost + shed > 0).then(|| {
            format!(
                "{0}: {lost} frames dropped because the receive ring was full, and {shed} dropped \
                 early because their flows exceeded their share of the ring. Use a larger ring: \
                 --rx PACKETS for bridge, or rx = PACKETS in the configuration file. If the device \
                 itself drops packets (ethtool -S {0}), run ethtool -G {0} rx PACKETS",
                reading.device
            )
        })
    });
    full.collect()
}

/// Returns a note for each device whose MTU was too small for an 802.1ad tag, with a command that makes room.
fn tag_notes(devices: &[DeviceReading]) -> Vec<String> {
    let short = devices.iter().filter_map(|reading| {
        let lost = reading.counters.value("drop_tx_service_tag");
        (lost > 0).then(|| {
            format!(
                "{0}: {1} dropped, because packet sockets count an 802.1ad tag as part of the MTU. Raise \
                 the MTU by 4 bytes per tag, for example from 1500 to 1504: ip link set {0} mtu 1504",
                reading.device,
                units::count(lost, "frame")
            )
        })
    });
    short.collect()
}

/// Counts of the paths from start to end.
#[derive(Debug, Serialize, JsonSchema)]
struct Summary {
    #[serde(skip)]
    form: ReportForm,
    devices: Vec<DeviceReading>,
    #[serde(skip)]
    text: String,
}

impl Report for Summary {
    fn form(&self) -> ReportForm {
        self.form
    }

    fn text(&self, _style: Style) -> String {
        self.text.clone()
    }
}

/// Schema of the report of `bridge`.
pub(super) const BRIDGE: ReportForm = ReportForm::of::<Envelope<Summary>>("grosso.bridge/1");
/// Schema of the report of `run`.
pub(super) const RUN: ReportForm = ReportForm::of::<Envelope<Summary>>("grosso.run/1");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_that_was_full_is_noted_with_its_option_and_another_is_not() {
        let reading = |device: &str, [full, share]: [u64; 2]| -> DeviceReading {
            let reading = serde_json::json!({
                "path": "p", "device": device, "peer": "b0",
                "counters": {
                    "drop_rx_ring_full": full, "drop_rx_ring_share": share, "drop_tx_down": 3,
                },
            });
            serde_json::from_value(reading).unwrap()
        };
        let readings = [reading("e0", [7, 0]), reading("e1", [0, 0]), reading("e2", [0, 9])];
        assert_eq!(tag_notes(&readings), [""; 0]);
        let notes = ring_notes(&readings);
        let [full, share] = &notes[..] else { panic!("{notes:?}") };
        assert!(full.starts_with("e0: 7 frames") && full.contains("--rx PACKETS"), "{full}");
        assert!(full.ends_with("ethtool -G e0 rx PACKETS"), "{full}");
        assert!(
            share.starts_with("e2: 0 frames") && share.contains("and 9 dropped early"),
            "{share}"
        );
    }

    #[test]
    fn a_tag_of_802_1ad_that_did_not_fit_is_noted_with_its_cure_and_other_long_frames_are_not() {
        let reading = |device: &str, counter: &str| -> DeviceReading {
            let reading = serde_json::json!({
                "path": "p", "device": device, "peer": "b0", "counters": { counter: 5 },
            });
            serde_json::from_value(reading).unwrap()
        };
        let notes =
            tag_notes(&[reading("e0", "drop_tx_too_long"), reading("e1", "drop_tx_service_tag")]);
        let [note] = &notes[..] else { panic!("{notes:?}") };
        assert!(note.starts_with("e1: 5 frames dropped, because packet sockets"), "{note}");
        assert!(note.contains("an 802.1ad tag as part of the MTU"), "{note}");
        assert!(note.contains("ip link set e1 mtu 1504"), "{note}");
    }
}
