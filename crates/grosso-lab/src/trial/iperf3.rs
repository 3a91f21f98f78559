//! Measurements with iperf3, as an independent check of the lab's own threads.

use std::{
    io::Read,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use grosso_sys::{namespace::NetworkNamespace, process::die_with_parent, scheduling::cpu_time};
use serde_json::Value;

use super::{
    Extent, Measured, Setting, TrialError,
    observe::{ObservedPath, segments},
};
use crate::{cpu_time::CpuSeconds, netns::Hosts, traffic::Traffic};

/// Measures the traffic between the hosts with iperf3. The CPU-seconds of sender and receiver come from iperf3, and
/// those of the data path from the scheduler. All of them cover the whole connection.
pub(super) fn observe(
    setting: &Setting,
    hosts: &Hosts,
    path: Option<ObservedPath<'_>>,
    interrupted: &AtomicBool,
) -> Result<Measured, TrialError> {
    let [sender, receiver] = hosts.networks();
    let [near, _, far] = setting.processors;
    let target = hosts.receiver_address().to_string();
    let server = start(receiver, far, &["--server".into(), "--one-off".into()])?;
    let mut server = Ending(server);
    let started = Instant::now();
    let before = path.map(|path| (path.handle.snapshot(), cpu_time(path.thread)));
    let report = loop {
        let mut client = Ending(start(sender, near, &words(setting, &target)?)?);
        match client.report(interrupted)? {
            // The server needs a moment until it is listening.
            Err(text) if text.contains("refused") && started.elapsed() < LISTENS => {
                thread::sleep(LOOK_AGAIN);
            }
            Err(text) => return Err(TrialError::Iperf3(text)),
            Ok(report) => break report,
        }
    };
    let after = path.map(|path| (path.handle.snapshot(), cpu_time(path.thread)));
    let _ = server.0.wait();
    let [sender_tcp, receiver_tcp] = hosts.tcp_counters()?;
    let number = |pointer: &str| report.pointer(pointer).and_then(Value::as_f64).unwrap_or(0.0);
    let sum = if setting.traffic.is_tcp() { "/end/sum_received" } else { "/end/sum" };
    let seconds = number(&format!("{sum}/seconds"));
    let mut measured = Measured {
        seconds,
        bytes: number(&format!("{sum}/bytes")) as u64,
        lost: number("/end/sum/lost_packets") as u64,
        cpu_seconds: CpuSeconds {
            sender: number("/end/cpu_utilization_percent/host_total") / 100.0 * seconds,
            receiver: number("/end/cpu_utilization_percent/remote_total") / 100.0 * seconds,
            ..CpuSeconds::default()
        },
        acknowledgements: receiver_tcp.sent,
        retransmits: sender_tcp.retransmitted + receiver_tcp.retransmitted,
        checksum_errors: sender_tcp.checksum_errors + receiver_tcp.checksum_errors,
        ..Measured::default()
    };
    if let (Some((Some(old), old_cpu)), Some((Some(new), new_cpu))) = (before, after) {
        measured.segments_per_train = segments(&new.left_to_right, &old.left_to_right);
        measured.cpu_seconds.path = (new_cpu?.running - old_cpu?.running).as_secs_f64();
    }
    Ok(measured)
}

/// Returns the client's command line.
fn words(setting: &Setting, target: &str) -> Result<Vec<String>, TrialError> {
    let mut words = vec!["--client".into(), target.into(), "--json".into()];
    match setting.extent {
        Extent::Time { warm_up, measured } => {
            // Every version accepts whole seconds, and some versions accept nothing else.
            words.extend(["--time".into(), measured.as_secs().max(1).to_string()]);
            words.extend(["--omit".into(), warm_up.as_secs().to_string()]);
        }
        Extent::Bytes(bytes) => words.extend(["--bytes".into(), bytes.to_string()]),
    }
    words.extend(["--parallel".into(), setting.connections.to_string()]);
    match setting.traffic {
        Traffic::TcpStream => {}
        Traffic::TcpSendfile => words.push("--zerocopy".into()),
        Traffic::TcpMaerts => words.push("--reverse".into()),
        Traffic::UdpStream => words.extend(["--udp", "--bandwidth", "0"].map(Into::into)),
        _ => return Err(TrialError::Iperf3(format!("does not support {}", setting.traffic))),
    }
    if setting.traffic.is_tcp() {
        words.extend(["--congestion".into(), setting.congestion.clone()]);
    }
    Ok(words)
}

fn start(
    network: &NetworkNamespace,
    processor: usize,
    words: &[String],
) -> Result<Child, TrialError> {
    let mut command = Command::new("iperf3");
    command.args(words).args(["--affinity", &processor.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let spawned = network.host(die_with_parent(&mut command))?.spawn();
    spawned.map_err(|error| TrialError::Iperf3(error.to_string()))
}

/// A process that is killed on drop.
struct Ending(Child);

impl Ending {
    /// Waits until the process ends. Returns its report, or the reason why there is none.
    fn report(&mut self, interrupted: &AtomicBool) -> Result<Result<Value, String>, TrialError> {
        let mut output = self.0.stdout.take();
        thread::scope(|scope| {
            let reading = scope.spawn(move || {
                let mut text = String::new();
                output.as_mut().map(|output| output.read_to_string(&mut text)).transpose()?;
                std::io::Result::Ok(text)
            });
            while !reading.is_finished() {
                if interrupted.load(Ordering::Relaxed) {
                    self.0.kill()?;
                    self.0.wait()?;
                    return Err(TrialError::Interrupted);
                }
                thread::sleep(LOOK_AGAIN);
            }
            let text = reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            self.0.wait()?;
            let report: Value = serde_json::from_str(&text)
                .map_err(|_| TrialError::Iperf3(format!("unreadable report: {}", text.trim())))?;
            Ok(match report.get("error").and_then(Value::as_str) {
                Some(error) => Err(error.to_owned()),
                None => Ok(report),
            })
        })
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        // The process may already have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Interval at which a thread checks whether the process has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Maximum time that the server may take to start.
const LISTENS: Duration = Duration::from_secs(5);
