//! Reassembly of IP fragments into datagrams.

use core::ffi::{c_int, c_void};

use grosso::{
    Frame, Meta, Ports,
    reassemble::{Outcome, OverlapNeedsCoalesce, ReassemblyMode, ReassemblyRules},
};
use grosso_io::port::Transmit;

use crate::{
    error::{Failure, GROSSO_ERROR_ARGUMENT, GROSSO_ERROR_LOST},
    guard::{Handle, enter, give, take_back},
    lent::Lent,
    sink::Sink,
    types::{Options, link},
};

/// Reassembler, which joins IP fragments into datagrams and passes on other frames.
#[derive(Debug)]
pub struct Reassembler {
    _only_pointers_to_it: [u8; 0],
}

#[derive(Debug)]
struct Gathering {
    engine: grosso::reassemble::Reassembler<Lent>,
    sink: Sink,
    done: Vec<Lent>,
}

impl Gathering {
    fn new(options: &Options) -> Result<Self, Failure> {
        let link = link(options.link)?;
        let rules = ReassemblyRules::new(ReassemblyMode::KeepGeometry);
        let engine =
            grosso::reassemble::Reassembler::new(rules, link, Ports::ASSIGNED, options.seed);
        let engine = engine.map_err(|OverlapNeedsCoalesce| Failure(GROSSO_ERROR_ARGUMENT))?;
        Ok(Self { engine, sink: Sink::new(options, link), done: Vec::new() })
    }

    /// Runs the engine, delivers its frames to the caller, and then releases the buffers.
    fn run(
        &mut self,
        work: impl FnOnce(&mut grosso::reassemble::Reassembler<Lent>, &mut dyn FnMut(Outcome<'_, Lent>)),
    ) -> Result<c_int, Failure> {
        let Self { engine, sink, done } = self;
        let mut result = Ok(0);
        work(engine, &mut |outcome| {
            let sent = match outcome {
                Outcome::Passed { frame, .. } | Outcome::Fragment { frame, .. } => {
                    let sent = sink.transmit(&[frame.buffer.as_ref()], &frame.meta);
                    done.push(frame.buffer);
                    sent.map(drop)
                }
                Outcome::Datagram(mut datagram) => {
                    let slices: Vec<&[u8]> = datagram.slices().collect();
                    let sent = sink.transmit(&slices, &Meta::default());
                    drop(slices);
                    while let Some(fragment) = datagram.next_fragment() {
                        done.push(fragment.frame.buffer);
                    }
                    sent.map(drop)
                }
                Outcome::Returned { frame, .. } => {
                    done.push(frame.buffer);
                    Ok(())
                }
                _ => Ok(()),
            };
            if sent.is_err() {
                result = Err(Failure(GROSSO_ERROR_LOST));
            }
        });
        done.drain(..).for_each(|buffer| sink.release(buffer));
        result
    }
}

/// Creates a reassembler. Its callbacks must not call functions of the same handle.
///
/// # Safety
/// See `grosso_coalescer_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grosso_reassembler_new(
    options: *const Options,
    out: *mut *mut Reassembler,
) -> c_int {
    // SAFETY: this function has the same contract as `Options::read`.
    let options = unsafe { Options::read(options) };
    // SAFETY: this function has the same contract as `give`; nothing reads through a pointer to `Reassembler`.
    unsafe { give(out.cast(), || Gathering::new(&options?)) }
}

/// Pushes a frame as `grosso_coalescer_push` does. Fragments wait for the rest of their datagram for at most 30 s
/// (IPv4) or 60 s (IPv6) by the caller's clock, and are then released. Use it for frames from a wire: it supports
/// neither superframes nor partial checksums, and delivers frames without such metadata.
///
/// # Safety
/// See `grosso_coalescer_push`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grosso_reassembler_push(
    reassembler: *const Reassembler,
    frame: *const c_void,
    len: usize,
    user: *mut c_void,
    now_ns: u64,
) -> c_int {
    let work = |gathering: &mut Gathering| {
        // SAFETY: this function has the same contract as `Lent::new`.
        let buffer = unsafe { Lent::new(frame, len, user) }?;
        gathering.run(|engine, mut out| {
            engine.push(Frame::new(buffer), now_ns, &mut out);
        })
    };
    // SAFETY: this function has the same contract as `enter`.
    unsafe { enter(reassembler.cast(), work) }
}

/// Discards all incomplete datagrams and releases their buffers.
///
/// # Safety
/// See `grosso_coalescer_push`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grosso_reassembler_finish(reassembler: *const Reassembler) -> c_int {
    let work = |gathering: &mut Gathering| gathering.run(|engine, mut out| engine.finish(&mut out));
    // SAFETY: this function has the same contract as `enter`.
    unsafe { enter(reassembler.cast(), work) }
}

/// Frees a reassembler; null is allowed. Call `grosso_reassembler_finish` first.
///
/// # Safety
/// See `grosso_coalescer_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grosso_reassembler_free(reassembler: *mut Reassembler) -> c_int {
    // SAFETY: this function has the same contract as `take_back`.
    unsafe { take_back(reassembler.cast::<Handle<Gathering>>()) }
}
