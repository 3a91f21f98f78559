//! Handles SIGBUS, the signal for access to a mapped file that was truncated.
//!
//! Access to mapped memory beyond the end of its file raises SIGBUS, and a front end can truncate its file at any time.
//! The handler replaces the region with empty memory and records the loss. The guest has then lost its memory, but the
//! program continues. Other SIGBUS signals are handled as before.

use core::{
    ffi::{c_int, c_void},
    mem::MaybeUninit,
    ptr::{self, NonNull},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};
use std::{io, sync::OnceLock};

/// A mapping that the handler protects.
#[derive(Debug)]
pub(crate) struct Watched {
    slot: &'static Slot,
}

/// One mapping in the handler's table.
#[derive(Debug)]
struct Slot {
    taken: AtomicBool,
    /// Address of the mapping, or 0 if the entry is free.
    start: AtomicUsize,
    bytes: AtomicUsize,
    lost: AtomicBool,
}

impl Watched {
    /// Registers a mapping with the handler.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::OutOfMemory`] for more than [`MAPPINGS_MAX`], or any error from `sigaction(2)`.
    pub(crate) fn new(start: NonNull<u8>, bytes: usize) -> io::Result<Self> {
        install()?;
        let free = |slot: &&Slot| !slot.taken.swap(true, Ordering::Acquire);
        let slot = SLOTS.iter().find(free).ok_or(io::ErrorKind::OutOfMemory)?;
        slot.lost.store(false, Ordering::Relaxed);
        slot.bytes.store(bytes, Ordering::Release);
        slot.start.store(start.as_ptr().expose_provenance(), Ordering::Release);
        Ok(Self { slot })
    }

    /// Returns whether the file was truncated.
    pub(crate) fn is_lost(&self) -> bool {
        self.slot.lost.load(Ordering::Relaxed)
    }

    /// Removes the mapping from the handler's table before it is unmapped.
    pub(crate) fn end(&self) {
        self.slot.start.store(0, Ordering::Release);
        self.slot.taken.store(false, Ordering::Release);
    }
}

/// Installs the handler once per process.
fn install() -> io::Result<()> {
    let made = BEFORE.get_or_init(|| {
        let mut before = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: a zeroed structure is valid: it has no flags and an empty mask.
        let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: both structures exist during the call, and the handler is a function of this program.
        let set = unsafe { libc::sigaction(libc::SIGBUS, &raw const action, before.as_mut_ptr()) };
        // SAFETY: the structure was zeroed, which is a valid value, and the kernel has filled it in if the call
        // succeeded.
        let before = unsafe { before.assume_init() };
        if set == 0 { Ok(before) } else { Err(io::Error::last_os_error().raw_os_error()) }
    });
    match made {
        Ok(_) => Ok(()),
        Err(code) => Err(io::Error::from_raw_os_error(code.unwrap_or(libc::EINVAL))),
    }
}

/// Handles SIGBUS. The handler only makes system calls and accesses atomic words.
extern "C" fn handle(_: c_int, information: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel passes a structure to a handler with SA_SIGINFO, which exists during the call.
    let information = unsafe { &*information };
    // SAFETY: SIGBUS provides an address.
    let address = unsafe { information.si_addr() }.addr();
    for slot in &SLOTS {
        let start = slot.start.load(Ordering::Acquire);
        let bytes = slot.bytes.load(Ordering::Acquire);
        // The slot may have been reused in the meantime. The length of the new mapping must not be combined with the
        // start of the old one.
        let is_whole = start != 0 && slot.start.load(Ordering::Acquire) == start;
        if !is_whole || address.wrapping_sub(start) >= bytes {
            continue;
        }
        let (access, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
        );
        let at = ptr::with_exposed_provenance_mut(start);
        // SAFETY: the range is a `Mapping`, whose bytes any program may change at any time.
        let put = unsafe { libc::mmap(at, bytes, access, flags, -1, 0) };
        if put != libc::MAP_FAILED {
            slot.lost.store(true, Ordering::Relaxed);
            return;
        }
    }
    // No mapping in this table contains the address. The previous handler is restored, and handles the fault when the
    // instruction is repeated.
    if let Some(Ok(before)) = BEFORE.get() {
        // SAFETY: the kernel returned this structure.
        unsafe { libc::sigaction(libc::SIGBUS, before, ptr::null_mut()) };
    }
}

/// Maximum number of mappings per process: enough for 64 guests, each with eight regions and a dirty log.
const MAPPINGS_MAX: usize = 64 * 9;

static BEFORE: OnceLock<Result<libc::sigaction, Option<i32>>> = OnceLock::new();
static SLOTS: [Slot; MAPPINGS_MAX] = [const {
    Slot {
        taken: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        bytes: AtomicUsize::new(0),
        lost: AtomicBool::new(false),
    }
}; MAPPINGS_MAX];
