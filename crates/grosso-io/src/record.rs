//! A port that also records its frames in a capture.
//!
//! Frames are copied to memory up to a limit, and a separate thread writes them. If writing is too slow or fails,
//! packets are missing from the recording and are counted. The traffic itself loses no packets.
//!
//! ```
//! use grosso::{Meta, features::{Device, Features}};
//! use grosso_capture::{CaptureWriter, Format, WriterOptions};
//! use grosso_io::{Port, memory::wire, record::{Record, RecordOptions}};
//! use grosso_wire::LinkType;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (near, far) = wire(LinkType::Ethernet, Device::new(Features::NONE), 64);
//! let writer = CaptureWriter::new(Vec::new(), WriterOptions::new(Format::Pcapng));
//! let mut port = Record::start(near, writer, &RecordOptions::default())?;
//! let _ = port.transmit(&[&[0x42; 60]], &Meta::default())?;
//! let (_near, recording) = port.finish();
//! assert_eq!(recording.stats().written, 1);
//! assert!(recording.take_failure().is_none());
//! # drop(far);
//! # Ok(())
//! # }
//! ```

use std::{
    io::Write,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
};

use grosso::{Frame, Meta};
use grosso_wire::{LinkType, Ports, Stack};

use crate::{
    buffer::PortBuffer,
    delegate_port,
    port::{Port, PortError, Transmitted},
};
use grosso_capture::{CaptureError, CaptureWriter, Interface, PacketMeta, flag};

/// Options of a recording: the frames to record, and limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordOptions {
    /// Whether to record received frames.
    pub received: bool,
    /// Whether to record frames that the port accepted. The port may still drop and count such frames.
    pub transmitted: bool,
    /// Maximum total length of the recorded frames in bytes, without the overhead of the format.
    pub frame_bytes_max: u64,
    /// Maximum number of bytes queued for writing. The writing thread may hold as many bytes again.
    pub waiting_bytes_max: usize,
    /// Offset in nanoseconds from the caller's clock to the epoch.
    pub epoch_ns: u64,
    /// UDP ports that identify tunnels.
    pub ports: Ports,
}

impl Default for RecordOptions {
    /// Returns options that record both directions, with limits of 1 GiB for the frames and 8 MiB for the queue.
    fn default() -> Self {
        Self {
            received: true,
            transmitted: true,
            frame_bytes_max: 1 << 30,
            waiting_bytes_max: 8 << 20,
            epoch_ns: 0,
            ports: Ports::ASSIGNED,
        }
    }
}

/// Counters of a recording. By the end of the recording, each frame has been counted exactly once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordStats {
    /// Number of frames written to the file.
    pub written: u64,
    /// Number of frames skipped because the queue was full.
    pub overflowed: u64,
    /// Number of frames skipped because the capture had reached its limit.
    pub beyond_limit: u64,
    /// Number of frames skipped because writing failed. The last frames that were counted as written may also be
    /// missing.
    pub failed: u64,
}

/// A port whose frames are recorded. The [module documentation](self) has an example.
///
/// A received frame is recorded with the timestamp from its metadata or, without one, with the time of the call that
/// received it. A transmitted frame is recorded with the time of the last [`Port::receive`].
#[derive(Debug)]
pub struct Record<P> {
    port: P,
    recorder: Recorder,
}

/// Status of a recording, which remains available after the port has moved to another thread.
#[derive(Clone, Debug)]
pub struct Recording {
    shared: Arc<SharedRecording>,
}

impl Recording {
    /// Returns the counters so far.
    #[must_use]
    pub fn stats(&self) -> RecordStats {
        self.shared.state().stats
    }

    /// Returns the error that ended the recording early. Later calls return `None`.
    #[must_use]
    pub fn take_failure(&self) -> Option<CaptureError> {
        self.shared.state().failure.take()
    }
}

impl<P: Port> Record<P> {
    /// Starts recording the frames of a port as a new interface of the capture, with the port's link type.
    ///
    /// # Errors
    /// Returns errors from the writer, or a failure to start a thread.
    pub fn start<W: Write + Send + 'static>(
        port: P,
        mut writer: CaptureWriter<W>,
        options: &RecordOptions,
    ) -> Result<Self, CaptureError> {
        let interface = writer.add_interface(&Interface::new(port.link().to_pcap()))?;
        let target = Target {
            interface,
            link: port.link(),
            ports: options.ports,
            frame_bytes_left: options.frame_bytes_max,
        };
        let shared = Arc::new(SharedRecording::default());
        let work = {
            let shared = Arc::clone(&shared);
            move || target.write_all(writer, &shared)
        };
        let thread = thread::Builder::new().name("record".to_owned()).spawn(work);
        let path = "the recording thread".to_owned();
        let thread = thread.map_err(|source| CaptureError::Io { path, source })?;
        let recorder = Recorder { shared, options: *options, now_ns: 0, thread: Some(thread) };
        Ok(Self { port, recorder })
    }

    /// Returns the recorded port.
    #[must_use]
    pub fn inner(&self) -> &P {
        &self.port
    }

    /// Returns the status of the recording.
    #[must_use]
    pub fn recording(&self) -> Recording {
        Recording { shared: Arc::clone(&self.recorder.shared) }
    }

    /// Ends the recording, waits until all frames are written, and returns the port.
    ///
    /// Without this call, the remaining frames are also written, if the process runs long enough.
    pub fn finish(mut self) -> (P, Recording) {
        let recording = self.recording();
        self.recorder.end();
        if let Some(thread) = self.recorder.thread.take()
            && let Err(panic) = thread.join()
        {
            std::panic::resume_unwind(panic);
        }
        (self.port, recording)
    }
}

impl<P: Port> Port for Record<P> {
    delegate_port!(port: link, device, recycle, flush, deadline, descriptors, path_mtu);
    delegate_port!(port: counters, is_finished);

    fn receive(
        &mut self,
        now_ns: u64,
        max: usize,
        each: &mut dyn FnMut(Frame<PortBuffer>),
    ) -> Result<usize, PortError> {
        let Self { port, recorder } = self;
        recorder.now_ns = now_ns;
        if !recorder.options.received {
            return port.receive(now_ns, max, each);
        }
        port.receive(now_ns, max, &mut |frame| {
            recorder.note(FrameDirection::Received, &[frame.buffer.as_ref()], &frame.meta);
            each(frame);
        })
    }

    fn transmit(&mut self, slices: &[&[u8]], meta: &Meta) -> Result<Transmitted, PortError> {
        let transmitted = self.port.transmit(slices, meta)?;
        if self.recorder.options.transmitted && transmitted == Transmitted::Taken {
            self.recorder.note(FrameDirection::Transmitted, slices, meta);
        }
        Ok(transmitted)
    }
}

/// The part of the recording that belongs to the port.
#[derive(Debug)]
struct Recorder {
    shared: Arc<SharedRecording>,
    options: RecordOptions,
    /// The caller's clock at the last receive call, in nanoseconds.
    now_ns: u64,
    thread: Option<JoinHandle<()>>,
}

impl Recorder {
    /// Queues a frame for writing, if there is room.
    fn note(&self, direction: FrameDirection, slices: &[&[u8]], meta: &Meta) {
        let len = slices.iter().map(|slice| slice.len()).sum();
        let at_ns = match direction {
            FrameDirection::Received => meta.timestamp_ns.unwrap_or(self.now_ns),
            FrameDirection::Transmitted => self.now_ns,
        };
        let timestamp_ns = Some(at_ns.saturating_add(self.options.epoch_ns));
        let noted = Noted { len, direction, meta: Meta { timestamp_ns, ..*meta } };
        let mut state = self.shared.state();
        match state.end {
            Some(RecordingEnd::Failed) => state.stats.failed += 1,
            Some(RecordingEnd::Full) => state.stats.beyond_limit += 1,
            Some(RecordingEnd::Asked) => {}
            None if state.waiting.size_with(len) > self.options.waiting_bytes_max => {
                state.stats.overflowed += 1;
            }
            None => {
                let was_empty = state.waiting.frames.is_empty();
                state.waiting.push(noted, slices);
                drop(state);
                if was_empty {
                    self.shared.changed.notify_one();
                }
            }
        }
    }

    fn end(&self) {
        self.shared.state().end.get_or_insert(RecordingEnd::Asked);
        self.shared.changed.notify_one();
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.end();
    }
}

/// State shared by the port and the writing thread. The lock is never held for longer than a copy takes.
#[derive(Debug, Default)]
struct SharedRecording {
    state: Mutex<RecordingState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct RecordingState {
    waiting: Batch,
    end: Option<RecordingEnd>,
    stats: RecordStats,
    failure: Option<CaptureError>,
}

/// Reason why no further frames are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecordingEnd {
    Asked,
    Full,
    Failed,
}

impl SharedRecording {
    fn state(&self) -> MutexGuard<'_, RecordingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for frames, swaps them with an empty batch, and returns whether there are any frames.
    fn take(&self, batch: &mut Batch) -> bool {
        let mut state = self.state();
        while state.waiting.frames.is_empty() && state.end.is_none() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        core::mem::swap(&mut state.waiting, batch);
        !batch.frames.is_empty()
    }

    /// Ends the recording for the reason `end`. The waiting frames, and `lost` further frames, are counted as lost for
    /// this reason.
    fn stop(&self, end: RecordingEnd, lost: usize) {
        let mut state = self.state();
        let lost = (lost + state.waiting.frames.len()) as u64;
        state.waiting = Batch::default();
        state.end = Some(end);
        match end {
            RecordingEnd::Failed => state.stats.failed += lost,
            RecordingEnd::Full => state.stats.beyond_limit += lost,
            RecordingEnd::Asked => {}
        }
    }
}

/// Frames for the writing thread, with their bytes stored back to back.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    frames: Vec<Noted>,
}

/// A frame whose bytes are stored separately.
#[derive(Clone, Copy, Debug)]
struct Noted {
    len: usize,
    direction: FrameDirection,
    meta: Meta,
}

/// Direction of a frame, with the values of pcapng's flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum FrameDirection {
    Received = flag::INBOUND,
    Transmitted = flag::OUTBOUND,
}

impl Batch {
    /// Returns the size that the batch would have with another frame of `len` bytes.
    fn size_with(&self, len: usize) -> usize {
        self.bytes.len() + len + (self.frames.len() + 1) * size_of::<Noted>()
    }

    fn push(&mut self, noted: Noted, slices: &[&[u8]]) {
        slices.iter().for_each(|slice| self.bytes.extend_from_slice(slice));
        self.frames.push(noted);
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.frames.clear();
    }
}

/// The part of the recording that belongs to the writing thread.
struct Target {
    interface: u32,
    link: LinkType,
    ports: Ports,
    frame_bytes_left: u64,
}

impl Target {
    fn write_all<W: Write>(mut self, mut writer: CaptureWriter<W>, shared: &SharedRecording) {
        let (mut batch, mut stack) = (Batch::default(), Stack::new(0));
        while shared.take(&mut batch) {
            let fitting = self.fitting(&batch.frames);
            let result = self.write(&mut writer, &batch, fitting, &mut stack);
            let left_out = batch.frames.len() - fitting;
            match result {
                Err(error) => {
                    shared.state().failure = Some(error);
                    return shared.stop(RecordingEnd::Failed, batch.frames.len());
                }
                Ok(()) => shared.state().stats.written += fitting as u64,
            }
            if left_out > 0 {
                shared.stop(RecordingEnd::Full, left_out);
            }
            batch.clear();
        }
        if let Err(error) = writer.finish() {
            shared.state().failure = Some(error);
        }
    }

    /// Returns how many of the first frames in `frames` fit in the capture before it reaches its limit.
    fn fitting(&mut self, frames: &[Noted]) -> usize {
        let left = &mut self.frame_bytes_left;
        let fits = |noted: &&Noted| {
            let rest = left.checked_sub(noted.len as u64);
            rest.map(|rest| *left = rest).is_some()
        };
        frames.iter().take_while(fits).count()
    }

    /// Writes the first `count` frames of a batch and flushes them to the operating system.
    fn write<W: Write>(
        &self,
        writer: &mut CaptureWriter<W>,
        batch: &Batch,
        count: usize,
        stack: &mut Stack,
    ) -> Result<(), CaptureError> {
        let mut rest = &batch.bytes[..];
        for noted in batch.frames.iter().take(count) {
            let (frame, behind) = rest.split_at(noted.len);
            rest = behind;
            let mut said = PacketMeta::of_frame(frame, &noted.meta, self.link, &self.ports, stack);
            said.interface = self.interface;
            said.flags = Some(noted.direction as u32);
            writer.write_packet(&said, frame)?;
        }
        writer.flush()
    }
}

#[cfg(test)]
mod tests;
