//! Functions that need no handle.

use core::ffi::{c_int, c_void};

use grosso::{
    Ports,
    checksum::{Checksum, complete, make_partial},
    segment::{Outgoing, Segments},
};
use grosso_wire::{Stack, dissect};

use crate::{
    error::{
        Failure, GROSSO_ERROR_ARGUMENT, GROSSO_ERROR_CHECKSUM, GROSSO_ERROR_ROOM,
        GROSSO_ERROR_SEGMENT,
    },
    guard::guarded,
    lent::frame_len,
    types::{Packet, Vnet, link},
};

/// Borrows the caller's bytes for reading.
///
/// # Safety
/// The pointer must be null or point to `len` initialized bytes that are not written during the borrow.
unsafe fn read<'a>(bytes: *const c_void, len: usize) -> Result<&'a [u8], Failure> {
    if bytes.is_null() || len > isize::MAX as usize {
        return Err(Failure(GROSSO_ERROR_ARGUMENT));
    }
    // SAFETY: the pointer is not null, and by this function's contract points to this many initialized bytes that are
    // not written.
    Ok(unsafe { core::slice::from_raw_parts(bytes.cast(), len) })
}

/// Borrows the caller's bytes for writing.
///
/// # Safety
/// The pointer must be null or point to `len` initialized bytes that only the borrower accesses during the borrow.
unsafe fn write<'a>(bytes: *mut c_void, len: usize) -> Result<&'a mut [u8], Failure> {
    if bytes.is_null() || len > isize::MAX as usize {
        return Err(Failure(GROSSO_ERROR_ARGUMENT));
    }
    // SAFETY: the pointer is not null, and by this function's contract points to this many initialized bytes that only
    // the borrower accesses.
    Ok(unsafe { core::slice::from_raw_parts_mut(bytes.cast(), len) })
}

/// Segments a superframe into packets with complete checksums. Each packet is written to `buffer` and passed to
/// `packet`. A frame that is not a superframe is passed on as one packet. Returns the number of packets or a negative
/// error.
///
/// # Safety
/// `frame` must point to `len` bytes, `vnet` must be null or point to a header, and `buffer` must point to `room`
/// initialized bytes that do not overlap the frame.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grosso_segment(
    link_type: u32,
    frame: *const c_void,
    len: usize,
    vnet: *const Vnet,
    buffer: *mut c_void,
    room: usize,
    packet: Packet,
    context: *mut c_void,
) -> c_int {
    guarded(|| {
        let link = link(link_type)?;
        let packet = packet.ok_or(Failure(GROSSO_ERROR_ARGUMENT))?;
        // SAFETY: this function has the same contract as `read`.
        let frame = unsafe { read(frame, frame_len(len)?) }?;
        // SAFETY: this function has the same contract as `write`.
        let buffer = unsafe { write(buffer, room) }?;
        // SAFETY: the pointer is null or points to the caller's header, which is not written during the call.
        let vnet = unsafe { vnet.as_ref() }.copied().unwrap_or_default();
        let meta = vnet.meta(frame, link, &mut Stack::new(0))?;
        let give = |bytes: &[u8]| {
            // SAFETY: the caller provided the function for this context; the bytes outlive the call.
            unsafe { packet(context, bytes.as_ptr().cast(), bytes.len()) };
        };
        if meta.gso.is_none() {
            let whole = buffer.get_mut(..len).ok_or(Failure(GROSSO_ERROR_ROOM))?;
            whole.copy_from_slice(frame);
            if let Checksum::Partial { start, offset } = meta.checksum {
                complete(whole, start, offset).map_err(|_| Failure(GROSSO_ERROR_CHECKSUM))?;
            }
            give(whole);
            return Ok(1);
        }
        let slices = [frame];
        let segments = Segments::new(&slices, &meta, link, &Ports::ASSIGNED, Outgoing::COMPLETE);
        let mut segments = segments.map_err(|_| Failure(GROSSO_ERROR_SEGMENT))?;
        let mut count = 0;
        while let Some(segment) =
            segments.write_next(buffer).map_err(|_| Failure(GROSSO_ERROR_ROOM))?
        {
            give(&buffer[..segment.len()]);
            count += 1;
        }
        Ok(count)
    })
}

/// Returns the Internet checksum of `len` bytes, in the byte order in which it is stored, or a negative error.
///
/// # Safety
/// `bytes` must point to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grosso_checksum(bytes: *const c_void, len: usize) -> c_int {
    guarded(|| {
        // SAFETY: this function has the same contract as `read`.
        let bytes = unsafe { read(bytes, len) }?;
        Ok(u16::from_ne_bytes(grosso_checksum::Sum::of(bytes).checksum().to_be_bytes()).into())
    })
}

/// Replaces the TCP or UDP checksum of a complete packet with its pseudo-header sum, and marks the checksum as partial
/// in `vnet`.
///
/// # Safety
/// `packet` must point to `len` bytes, and `vnet` to a header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grosso_checksum_open(
    link_type: u32,
    packet: *mut c_void,
    len: usize,
    vnet: *mut Vnet,
) -> c_int {
    guarded(|| {
        let link = link(link_type)?;
        // SAFETY: this function has the same contract as `write`.
        let packet = unsafe { write(packet, frame_len(len)?) }?;
        // SAFETY: the pointer is null or points to the caller's header, which nothing else accesses during the call.
        let vnet = unsafe { vnet.as_mut() }.ok_or(Failure(GROSSO_ERROR_ARGUMENT))?;
        let stack = dissect(packet, link, &Ports::ASSIGNED);
        let Checksum::Partial { start, offset } = make_partial(packet, &stack) else {
            return Err(Failure(GROSSO_ERROR_CHECKSUM));
        };
        *vnet =
            Vnet { flags: 1, checksum_start: start, checksum_offset: offset, ..Vnet::default() };
        Ok(0)
    })
}

/// Completes a partial checksum: sums the packet, starting at `start`, and stores the checksum at `start + offset`.
///
/// # Safety
/// `packet` must point to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grosso_checksum_complete(
    packet: *mut c_void,
    len: usize,
    start: u16,
    offset: u16,
) -> c_int {
    guarded(|| {
        // SAFETY: this function has the same contract as `write`.
        let packet = unsafe { write(packet, len) }?;
        complete(packet, start, offset).map_err(|_| Failure(GROSSO_ERROR_CHECKSUM))?;
        Ok(0)
    })
}
