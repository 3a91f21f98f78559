//! Merging of packets into superframes.

use core::ffi::{c_int, c_void};

use grosso::{CoalesceOptions, Delivery, Frame, Meta, Ports, Profile, checksum::Checksum};
use grosso_io::{egress::Egress, port::Transmit};
use grosso_wire::{LinkType, Stack};

use crate::{
    error::{Failure, GROSSO_ERROR_LOST},
    guard::{Handle, enter, give, take_back},
    lent::Lent,
    sink::Sink,
    types::{GROSSO_TRUSTED, GROSSO_UDP, Options, Vnet, link},
};

/// Coalescer, which merges the packets of a batch into superframes.
#[derive(Debug)]
pub struct Coalescer {
    _only_pointers_to_it: [u8; 0],
}

#[derive(Debug)]
struct Joining {
    engine: grosso::Coalescer<Lent>,
    egress: Egress,
    sink: Sink,
    link: LinkType,
    stack: Stack,
    /// Metadata of a frame without a virtio header.
    plain: Meta,
    done: Vec<Lent>,
}

impl Joining {
    fn new(options: &Options) -> Result<Self, Failure> {
        let link = link(options.link)?;
        let sink = Sink::new(options, link);
        let mut profile = Profile::linux();
        profile.udp = options.has(GROSSO_UDP);
        let checksum = match options.has(GROSSO_TRUSTED) {
            true => Checksum::Unnecessary { levels: 0 },
            false => Checksum::None,
        };
        Ok(Self {
            engine: grosso::Coalescer::new(
                CoalesceOptions::new(link, options.seed).profile(profile),
            ),
            egress: Egress::new(link, sink.device(), Ports::ASSIGNED),
            sink,
            link,
            stack: Stack::new(0),
            plain: Meta { checksum, ..Meta::default() },
            done: Vec::new(),
        })
    }

    fn push(&mut self, buffer: Lent, vnet: Option<&Vnet>, now_ns: u64) -> Result<c_int, Failure> {
        let meta = match vnet {
            Some(vnet) => vnet.meta(buffer.as_ref(), self.link, &mut self.stack)?,
            None => self.plain,
        };
        self.run(|engine, mut deliver| {
            engine.push(Frame { buffer, meta }, now_ns, &mut deliver);
        })
    }

    fn end(&mut self, now_ns: u64) -> Result<c_int, Failure> {
        self.run(|engine, mut deliver| {
            engine.poll_end(now_ns, &mut deliver);
            engine.finish(&mut deliver);
        })
    }

    /// Runs the engine, delivers its frames to the caller, and then releases the buffers.
    fn run(
        &mut self,
        work: impl FnOnce(&mut grosso::Coalescer<Lent>, &mut dyn FnMut(Delivery<'_, Lent>)),
    ) -> Result<c_int, Failure> {
        let Self { engine, egress, sink, done, .. } = self;
        let mut result = Ok(0);
        work(engine, &mut |delivery| {
            if egress.deliver(delivery, sink, |buffer| done.push(buffer)).is_err() {
                result = Err(Failure(GROSSO_ERROR_LOST));
            }
        });
        done.drain(..).for_each(|buffer| sink.release(buffer));
        result
    }
}

/// Creates a coalescer. Its callbacks must not call functions of the same handle.
///
/// # Safety
/// `options` must point to the number of bytes in its `size` field, and `out` to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grosso_coalescer_new(
    options: *const Options,
    out: *mut *mut Coalescer,
) -> c_int {
    // SAFETY: this function has the same contract as `Options::read`.
    let options = unsafe { Options::read(options) };
    // SAFETY: this function has the same contract as `give`; nothing reads through a pointer to `Coalescer`.
    unsafe { give(out.cast(), || Joining::new(&options?)) }
}

/// Pushes a frame of `len` bytes. The library holds it until the release callback is called with `user`, possibly
/// before this function returns. After an error other than `GROSSO_ERROR_LOST` the library does not hold the frame.
/// `vnet` is null if there is no virtio header. `now_ns` is monotonic time in nanoseconds.
///
/// # Safety
/// The handle must come from `grosso_coalescer_new` and be used by one thread at a time. The bytes must stay unchanged
/// until they are released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grosso_coalescer_push(
    coalescer: *const Coalescer,
    frame: *const c_void,
    len: usize,
    vnet: *const Vnet,
    user: *mut c_void,
    now_ns: u64,
) -> c_int {
    let work = |joining: &mut Joining| {
        // SAFETY: this function has the same contract as `Lent::new`.
        let buffer = unsafe { Lent::new(frame, len, user) }?;
        // SAFETY: the pointer is null or points to the caller's header, which is not written during the call.
        let vnet = unsafe { vnet.as_ref() };
        joining.push(buffer, vnet, now_ns)
    };
    // SAFETY: this function has the same contract as `enter`.
    unsafe { enter(coalescer.cast(), work) }
}

/// Ends a batch: delivers every frame and releases every buffer.
///
/// # Safety
/// See `grosso_coalescer_push`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grosso_coalescer_end(coalescer: *const Coalescer, now_ns: u64) -> c_int {
    // SAFETY: this function has the same contract as `enter`.
    unsafe { enter(coalescer.cast(), |joining: &mut Joining| joining.end(now_ns)) }
}

/// Frees a coalescer; null is allowed. Held frames are neither delivered nor released: end the batch first.
///
/// # Safety
/// The handle must be null or come from `grosso_coalescer_new`, and must not be used again if the result is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grosso_coalescer_free(coalescer: *mut Coalescer) -> c_int {
    // SAFETY: this function has the same contract as `take_back`.
    unsafe { take_back(coalescer.cast::<Handle<Joining>>()) }
}
