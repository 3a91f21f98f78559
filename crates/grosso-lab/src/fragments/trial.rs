//! One measurement with its own hosts and data paths, and a log of the datagrams sent and received.

use std::{
    ffi::CStr,
    io::{self, BufWriter},
    sync::atomic::{AtomicBool, Ordering},
    thread::{self, Scope},
    time::{Duration, Instant},
};

use grosso::{
    reassemble::{ReassemblyMode, ReassemblyRules},
    tunnel::esp::{self, IcvLength, KeyMaterial, NoAssociation, SecurityAssociation},
};
use grosso_capture::{CaptureWriter, Format, WriterOptions};
use grosso_io::{
    Port, PortError,
    impair::{Impair, Impairment},
    live::LivePort,
    record::{Record, RecordOptions},
    runner::{Handle, RunOptions, Snapshot},
    stage::{EspOptions, EspStage, Fragmentation, FragmentationOptions},
};
use grosso_sys::path;
use schemars::JsonSchema;
use serde::Serialize;

use super::{DATAGRAM_BYTES, FragmentSetting, Receiver};
use crate::{
    cpu_time::udp_receive_buffer_errors,
    netns::{Family, Hosts, Layout, Mtu},
    nic::Nic,
    running::Running,
    traffic::{Content, Pace, Progress, receive_paced, send_paced},
    trial::{PATHS, TrialError, gone, settle},
};

/// Results of one measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct FragmentRun {
    /// Duration of the measurement.
    pub seconds: f64,
    /// Number of bytes in each datagram.
    #[serde(skip)]
    pub datagram_bytes: usize,
    /// Number of datagrams that the sender's socket accepted.
    pub sent: u64,
    /// Number of datagrams that arrived with every byte correct.
    pub arrived: u64,
    /// Longest time without a datagram, in seconds.
    pub silence_seconds: f64,
    /// Number of frames for which the receiver's NIC had no free buffer.
    pub no_buffer: u64,
    /// Number of fragments that the wire lost at random.
    pub lost: u64,
    /// Number of frames that were dropped because the wire's queue was full. If it is not zero, the machine was too
    /// slow.
    pub wire_full: u64,
    /// Number of datagrams that timed out while they were incomplete.
    pub died: u64,
    /// Number of complete datagrams that did not fit into the receive buffer of the receiver's socket.
    pub socket_full: u64,
    /// Maximum number of NIC buffers in use at the same time since the start.
    pub buffers_max: usize,
    /// Maximum amount of memory that incomplete datagrams have occupied since the start, in bytes. Whole buffers count.
    pub held_bytes_max: u64,
}

impl FragmentRun {
    #[cfg(test)]
    pub(super) fn of(time: Duration, sent: u64, arrived: u64) -> Self {
        let (seconds, datagram_bytes) = (time.as_secs_f64(), DATAGRAM_BYTES);
        Self { seconds, datagram_bytes, sent, arrived, ..Self::default() }
    }

    /// Returns the rate at which the sender offered data, in Gb/s.
    #[must_use]
    pub fn offered_gbps(&self) -> f64 {
        self.sent as f64 * self.datagram_bytes as f64 * 8e-9 / self.seconds
    }

    /// Returns the rate of data in complete datagrams, in Gb/s.
    #[must_use]
    pub fn goodput_gbps(&self) -> f64 {
        self.arrived as f64 * self.datagram_bytes as f64 * 8e-9 / self.seconds
    }
}

/// Measures once, on new hosts that are removed afterward.
///
/// # Errors
/// Fails if the hosts cannot be created, if a datagram arrives damaged, if the recording cannot be written, or if the
/// measurement is interrupted.
pub fn measure(
    setting: &FragmentSetting,
    interrupted: &AtomicBool,
) -> Result<FragmentRun, TrialError> {
    let mtu = Mtu { sender: HOST_MTU, receiver: HOST_MTU };
    // If the load exceeds what the receiver can process, frames must wait only in the NIC's ring.
    let under_way_bytes = match setting.buffers {
        Some(buffers) if setting.is_overload() => buffers * usize::from(WIRE_MTU),
        _ => UNDER_WAY_BYTES,
    };
    let family = setting.family;
    let layout = Layout { mtu, family, under_way_bytes, patient: false, ..Layout::default() };
    let (hosts, [near, far]) = Hosts::apart(&layout, setting.device, WIRE_MTU)?;
    let [sender, receiver, _] = setting.processors;
    let sender = (PATHS[0], sender, BUDGET_FRAMES);
    // In one poll, a driver cannot receive more packets than its NIC has buffers.
    let receiver =
        (PATHS[1], receiver, setting.buffers.map_or(BUDGET_FRAMES, |n| n.min(BUDGET_FRAMES)));
    thread::scope(|scope| {
        let wire = near.wire;
        let near = match &setting.recording {
            None => {
                start(scope, secured(wire, &cutting(), Party::A)?, near.device, sender, |_| Ok(()))?
            }
            Some(path) => {
                let file = BufWriter::new(path::create(path, 0o666)?);
                let writer = CaptureWriter::new(file, WriterOptions::new(Format::Pcapng));
                let wire = Record::start(wire, writer, &RecordOptions::default());
                let left = secured(wire.map_err(PortError::from)?, &cutting(), Party::A)?;
                start(scope, left, near.device, sender, finish)?
            }
        };
        let mut impairment = Impairment::default();
        impairment.loss = setting.loss;
        let nic = Nic::new(Impair::new(far.wire, impairment), setting.buffers);
        let left = secured(nic, &joining(setting), Party::B)?;
        let far = start(scope, left, far.device, receiver, held)?;
        let observed = observe(setting, &hosts, far.handle(), interrupted);
        near.end()?;
        let (buffers_max, held_bytes_max) = far.end()?;
        Ok(FragmentRun { buffers_max, held_bytes_max, ..observed? })
    })
}

/// Returns the bytes of datagram `number`, counted from 0, so that a recording can be checked.
///
/// # Errors
/// Fails if there is not enough memory for a file.
pub fn datagram(number: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; DATAGRAM_BYTES];
    Content::new(SEED)?.write_datagram(number, &mut bytes);
    Ok(bytes)
}

/// One of the two hosts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Party {
    A,
    B,
}

type Secure<P> = EspStage<Fragmentation<P>>;

/// Adds the fragmentation and ESP stages to a host's port, so that fragments of ESP packets cross the wire.
fn secured<P: Port>(port: P, options: &FragmentationOptions, side: Party) -> io::Result<Secure<P>> {
    let agreed = || -> Result<_, NoAssociation> {
        let [a_to_b, b_to_a] = [(SPI, &KEY_AND_SALT), (SPI_BACK, &KEY_AND_SALT_BACK)];
        let [out, back] = if side == Party::A { [a_to_b, b_to_a] } else { [b_to_a, a_to_b] };
        Ok(EspOptions::new(association(out)?, association(back)?, SEED))
    };
    let agreed = agreed().map_err(io::Error::other)?;
    EspStage::new(Fragmentation::new(port, options)?, agreed).map_err(io::Error::other)
}

/// Creates the security association from table R2: transport mode, a 128-bit key, a 32-bit salt and a 96-bit ICV.
fn association((spi, key): (u32, &[u8; 20])) -> Result<SecurityAssociation, NoAssociation> {
    let key = KeyMaterial::aes_gcm(key)?;
    let mut association = SecurityAssociation::new(spi, esp::EspMode::Transport, key);
    association.icv = IcvLength::Twelve;
    Ok(association)
}

/// Returns the options for the sender, which only fragments: no fragments arrive from the other direction.
fn cutting() -> FragmentationOptions {
    let mut options = FragmentationOptions::new(SEED);
    options.mtu = Some(WIRE_MTU);
    // The kernel sets DF on IPv4 datagrams that fit into the MTU of its device.
    options.ignore_df = true;
    options
}

/// Returns the options for the receiver, which reassembles the fragments.
fn joining(setting: &FragmentSetting) -> FragmentationOptions {
    let mode = match setting.receiver {
        Receiver::Coalesces => ReassemblyMode::Coalesce,
        Receiver::Queues | Receiver::Evicts => ReassemblyMode::KeepGeometry,
    };
    let mut rules = ReassemblyRules::new(mode);
    let limits = &mut rules.limits;
    limits.ipv6_ns = u64::try_from(setting.timeout.as_nanos()).unwrap_or(u64::MAX);
    limits.ipv4_ns = limits.ipv6_ns;
    limits.buffer_bytes = BUFFER_BYTES;
    match (setting.receiver, setting.buffers) {
        (Receiver::Coalesces, _) => {}
        (Receiver::Evicts, Some(buffers)) => limits.memory_bytes = buffers / 2 * BUFFER_BYTES,
        // The size of the NIC's ring is the only limit.
        _ => limits.memory_bytes = usize::MAX,
    }
    if mode == ReassemblyMode::KeepGeometry {
        limits.source_bytes = limits.memory_bytes;
    }
    let mut options = FragmentationOptions::new(SEED);
    options.rules = Some(rules);
    options
}

/// Returns the maximum number of buffers that were in use at the same time, and the maximum memory that incomplete
/// datagrams occupied.
fn held<P: Port>(left: Secure<Nic<P>>) -> Result<(usize, u64), PortError> {
    let fragmentation = left.inner();
    let held_bytes_max = fragmentation.stats().joined.held_bytes_max;
    Ok((fragmentation.inner().in_use_max(), held_bytes_max))
}

/// Waits until the recording is written.
fn finish<P: Port>(left: Secure<Record<P>>) -> Result<(), PortError> {
    let (_, recording) = left.into_inner().into_inner().finish();
    recording.take_failure().map_or(Ok(()), |failure| Err(failure.into()))
}

/// Starts a named data path between a wire and a host's device. It runs on one CPU and polls at most `budget` frames at
/// a time. `last` gets the wire's port when the path ends.
fn start<'scope, L, T>(
    scope: &'scope Scope<'scope, '_>,
    left: L,
    device: LivePort,
    (name, processor, budget_frames): (&'static CStr, usize, usize),
    last: impl FnOnce(L) -> Result<T, PortError> + Send + 'scope,
) -> io::Result<Running<'scope, T>>
where
    L: Port + Send + 'scope,
    T: Send + 'scope,
{
    let mut options = RunOptions::new(SEED);
    (options.left_to_right.coalesce, options.right_to_left.coalesce) = (false, false);
    options.left_to_right.budget_frames = budget_frames;
    let first = move || settle(name, processor).map(|_| ());
    Running::start(scope, (left, device), options, first, last)
}

/// Sends datagrams, and reads the counters of the receiver's path at the start and the end of the measurement.
fn observe(
    setting: &FragmentSetting,
    hosts: &Hosts,
    receiver: &Handle,
    interrupted: &AtomicBool,
) -> Result<FragmentRun, TrialError> {
    let progress = Progress::default();
    let content = Content::new(SEED)?;
    let pace = Pace { datagram_bytes: setting.datagram_bytes, rate_bits: setting.rate_bits };
    let [near, far] = hosts.datagram_sockets()?;
    let [sends, _, receives] = setting.processors;
    thread::scope(|scope| {
        let (progress, content) = (&progress, &content);
        let receiving = scope.spawn(move || {
            settle(c"receiver", receives)?;
            receive_paced(&far, content, pace, progress)
        });
        let sending = scope.spawn(move || {
            settle(c"sender", sends)?;
            send_paced(&near, content, pace, progress)
        });
        let wait = |time: Duration| {
            let started = Instant::now();
            let over = || sending.is_finished() || receiving.is_finished();
            while started.elapsed() < time && !over() {
                if interrupted.load(Ordering::Relaxed) {
                    return Err(TrialError::Interrupted);
                }
                thread::sleep(LOOK_AGAIN.min(time));
            }
            FragmentReading::take(hosts, setting.family, receiver)
        };
        let watched = wait(WARM_UP).and_then(|before| Ok([before, wait(setting.measured)?]));
        progress.stop.store(true, Ordering::Relaxed);
        let sent = sending.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let sent = sent.map_err(TrialError::call("sender", "sendmsg"))?;
        let arrived = receiving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let arrived = arrived.map_err(TrialError::call("receiver", "recvmsg"))?;
        let [before, after] = watched?;
        let datagram_bytes = setting.datagram_bytes;
        let mut run = FragmentRun { datagram_bytes, ..after.since(&before, &sent, &arrived) };
        if setting.is_overload() {
            run.no_buffer += std::mem::take(&mut run.wire_full);
        }
        Ok(run)
    })
}

/// Counters at one point in time.
struct FragmentReading {
    time: Instant,
    path: Snapshot,
    /// Number of datagrams that did not fit into the receive buffer of the receiver's socket.
    socket_full: u64,
}

impl FragmentReading {
    fn take(hosts: &Hosts, family: Family, receiver: &Handle) -> Result<Self, TrialError> {
        let [_, b] = hosts.networks();
        Ok(Self {
            time: Instant::now(),
            path: receiver.snapshot().ok_or_else(gone)?,
            socket_full: b.run(|| udp_receive_buffer_errors(family == Family::V6))??,
        })
    }

    /// Returns the measurement between an earlier reading and this one.
    fn since(&self, before: &Self, sent: &[Instant], arrived: &[Instant]) -> FragmentRun {
        let window = [before.time, self.time];
        let count = |name| counter(&self.path, name) - counter(&before.path, name);
        FragmentRun {
            seconds: (self.time - before.time).as_secs_f64(),
            sent: within(sent, window).count() as u64,
            arrived: within(arrived, window).count() as u64,
            silence_seconds: longest_silence(arrived, window).as_secs_f64(),
            no_buffer: count("rx_no_buffer"),
            lost: count("wire_loss"),
            wire_full: count("rx_ring_full") + count("wire_full"),
            died: count("ip_reasm_fails"),
            socket_full: self.socket_full - before.socket_full,
            ..FragmentRun::default()
        }
    }
}

/// Returns a counter of the wire's port; zero if the port has no such counter.
fn counter(path: &Snapshot, name: &str) -> u64 {
    path.left.iter().find(|(counter, _)| counter.name == name).map_or(0, |(_, value)| *value)
}

fn within(times: &[Instant], [start, end]: [Instant; 2]) -> impl Iterator<Item = Instant> {
    times.iter().copied().filter(move |time| (start..end).contains(time))
}

/// Returns the longest interval without an arrival, including the times before the first and after the last one.
fn longest_silence(arrived: &[Instant], window: [Instant; 2]) -> Duration {
    let [start, end] = window;
    let mut last = start;
    let mut longest = Duration::ZERO;
    for time in within(arrived, window).chain([end]) {
        longest = longest.max(time.saturating_duration_since(last));
        last = time;
    }
    longest
}

/// SPI of the association from a to b. Neither the SPI nor the key and salt are secret: whoever reads a recording needs
/// them.
pub const SPI: u32 = 0x5232_0001;
/// Key and salt of the association from a to b, which are not secret; see [`SPI`].
pub const KEY_AND_SALT: [u8; 20] = *b"no secret key at all";
/// SPI of the association from b to a.
const SPI_BACK: u32 = 0x5232_0002;
const KEY_AND_SALT_BACK: [u8; 20] = *b"nor is that a secret";
/// MTU of the hosts: the maximum of a TAP device, so that the hosts do not fragment their datagrams.
const HOST_MTU: u16 = 65_521;
/// The MTU of the wire.
const WIRE_MTU: u16 = 1500;
/// Size of the wire's queue in bytes: about 40 ms at the default rate, which covers the times when a data path does not
/// get the CPU.
const UNDER_WAY_BYTES: usize = 8 << 20;
/// Maximum number of frames per poll, equal to NAPI's budget.
const BUDGET_FRAMES: usize = 64;
/// Size in bytes of a NIC's receive buffer: half a page.
const BUFFER_BYTES: usize = 2048;
/// Seed of the content and the keys, which is the same in all trials.
const SEED: u64 = 0x6772_6f73_736f;
/// Warm-up time, in which the buffers are used for the first time.
const WARM_UP: Duration = Duration::from_millis(100);
/// Interval at which a thread checks whether the measurement has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_counts_at_the_ends_and_what_is_outside_does_not() {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let window = [at(100), at(200)];
        let longest = |arrivals: &[u64]| {
            let arrived: Vec<Instant> = arrivals.iter().map(|&time| at(time)).collect();
            assert_eq!(within(&arrived, window).count(), arrivals.len().saturating_sub(2));
            longest_silence(&arrived, window).as_millis()
        };
        assert_eq!(longest(&[99, 110, 150, 190, 200]), 40, "between two");
        assert_eq!(longest(&[99, 160, 180, 201]), 60, "before the first");
        assert_eq!(longest(&[50, 110, 130, 300]), 70, "after the last");
        assert_eq!(longest(&[99, 200]), 100, "all the time");
    }
}
