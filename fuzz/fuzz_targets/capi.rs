//! The C API, called with hostile frames, virtio headers and options, under the address sanitizer: every buffer is
//! returned once, no panic unwinds into C, and no byte outside a buffer is accessed.
use std::ffi::c_void;

use grosso_capi::{
    coalescer::*,
    error::{GROSSO_ERROR_BROKEN, GROSSO_ERROR_LOST},
    packet::*,
    reassembler::*,
    types::*,
};

/// Buffers that the library holds, indexed by number. Each is in a separate box, so that the sanitizer detects
/// out-of-bounds accesses.
type Held = Vec<Option<Box<[u8]>>>;

unsafe extern "C" fn take(
    _: *mut c_void,
    pieces: *const libc::iovec,
    count: usize,
    _: *const Vnet,
) {
    let pieces = unsafe { std::slice::from_raw_parts(pieces, count) };
    for piece in pieces {
        let bytes =
            unsafe { std::slice::from_raw_parts(piece.iov_base.cast::<u8>(), piece.iov_len) };
        std::hint::black_box(bytes.iter().fold(0_u8, |sum, byte| sum ^ byte));
    }
}

unsafe extern "C" fn release(context: *mut c_void, user: *mut c_void) {
    let held = unsafe { &mut *context.cast::<Held>() };
    assert!(held[user as usize].take().is_some(), "released twice");
}

unsafe extern "C" fn packet(_: *mut c_void, bytes: *const c_void, len: usize) {
    let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), len) };
    std::hint::black_box(bytes.iter().fold(0_u8, |sum, byte| sum ^ byte));
}

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let Some((&[choice, link, flags, room], mut rest)) = data.split_first_chunk::<4>() else {
        return;
    };
    let mut held: Box<Held> = Box::default();
    let context: *mut c_void = (&raw mut *held).cast();
    let options = Options {
        size: size_of::<Options>() as u32,
        link: (link & 1).into(),
        flags: (flags & 3).into(),
        reserved: 0,
        seed: 7,
        context,
        take: Some(take),
        release: Some(release),
    };
    let (mut coalescer, mut reassembler) = (std::ptr::null_mut(), std::ptr::null_mut());
    assert_eq!(unsafe { grosso_coalescer_new(&raw const options, &raw mut coalescer) }, 0);
    assert_eq!(unsafe { grosso_reassembler_new(&raw const options, &raw mut reassembler) }, 0);
    let mut now_ns = 0;
    while let Some((&[a, b], more)) = rest.split_first_chunk::<2>() {
        let len = usize::from(u16::from_le_bytes([a, b]) & 0x7ff).min(more.len());
        let (frame, behind) = more.split_at(len);
        let (head, bytes) = frame.split_at(frame.len().min(12));
        rest = behind;
        let mut words = [0; 12];
        words[..head.len()].copy_from_slice(head);
        let word = |i: usize| u16::from_ne_bytes([words[i], words[i + 1]]);
        let vnet = Vnet {
            flags: words[0],
            gso_type: words[1],
            header_length: word(2),
            gso_size: word(4),
            checksum_start: word(6),
            checksum_offset: word(8),
            buffers: word(10),
        };
        let vnet: *const Vnet = if a & 1 == 0 { &raw const vnet } else { std::ptr::null() };
        let mut copy: Box<[u8]> = bytes.into();
        let (start, len) = (copy.as_mut_ptr().cast::<c_void>(), copy.len());
        now_ns += u64::from(b) << 28;
        let result = match choice % 4 {
            0 => {
                let mut out = vec![0_u8; usize::from(room) * 8].into_boxed_slice();
                let buffer = out.as_mut_ptr().cast();
                let room = out.len();
                let (f, user): (Packet, _) = (Some(packet), std::ptr::null_mut());
                unsafe { grosso_segment(options.link, start, len, vnet, buffer, room, f, user) }
            }
            1 => {
                let mut vnet = Vnet::default();
                let open = unsafe { grosso_checksum_open(options.link, start, len, &raw mut vnet) };
                let (from, to) = (word(6), word(8));
                let complete = unsafe { grosso_checksum_complete(start, len, from, to) };
                open.min(complete)
            }
            which => {
                let user = held.len();
                held.push(Some(copy));
                let name = user as *mut c_void;
                let result = if which == 2 {
                    unsafe { grosso_coalescer_push(coalescer, start, len, vnet, name, now_ns) }
                } else {
                    unsafe { grosso_reassembler_push(reassembler, start, len, name, now_ns) }
                };
                if result < 0 && result != GROSSO_ERROR_LOST {
                    held[user] = None;
                }
                result
            }
        };
        assert_ne!(result, GROSSO_ERROR_BROKEN);
        if a & 2 != 0 {
            assert!(unsafe { grosso_coalescer_end(coalescer, now_ns) } != GROSSO_ERROR_BROKEN);
        }
    }
    assert!(unsafe { grosso_coalescer_end(coalescer, now_ns) } != GROSSO_ERROR_BROKEN);
    assert!(unsafe { grosso_reassembler_finish(reassembler) } != GROSSO_ERROR_BROKEN);
    assert!(held.iter().all(Option::is_none), "a buffer was not returned");
    assert_eq!(unsafe { grosso_coalescer_free(coalescer) }, 0);
    assert_eq!(unsafe { grosso_reassembler_free(reassembler) }, 0);
}
