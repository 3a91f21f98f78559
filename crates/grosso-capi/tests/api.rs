//! Tests the functions declared in the header, called the way C code calls them.
#![cfg(unix)]

use core::{
    ffi::{CStr, c_void},
    ptr,
};

use grosso_capi::{coalescer::*, error::*, packet::*, reassembler::*, types::*};
use grosso_testkit::{
    Packet,
    oracle::{Link, is_right},
};

/// Arguments that the callbacks received.
#[derive(Default)]
struct Seen {
    frames: Vec<(Vec<u8>, Vnet, usize)>,
    released: Vec<usize>,
    /// Handle that the callback misuses; the results go into `misuse`.
    handle: Option<*const Coalescer>,
    misuse: Vec<i32>,
}

unsafe extern "C" fn take(
    context: *mut c_void,
    pieces: *const libc::iovec,
    count: usize,
    vnet: *const Vnet,
) {
    // SAFETY: the test passed this context.
    let seen = unsafe { &mut *context.cast::<Seen>() };
    // SAFETY: the header promises this many pieces.
    let pieces = unsafe { core::slice::from_raw_parts(pieces, count) };
    let bytes = pieces.iter().flat_map(|piece| {
        // SAFETY: the header promises that each piece points to its bytes.
        unsafe { core::slice::from_raw_parts(piece.iov_base.cast::<u8>(), piece.iov_len) }
    });
    // SAFETY: the header promises a virtio header.
    seen.frames.push((bytes.copied().collect(), unsafe { *vnet }, count));
    if let Some(handle) = seen.handle {
        // SAFETY: the handle is valid; the call must report that the handle is in use.
        seen.misuse.push(unsafe { grosso_coalescer_end(handle, 0) });
        // SAFETY: the handle is valid; the call must report that the handle is in use.
        seen.misuse.push(unsafe { grosso_coalescer_free(handle.cast_mut()) });
    }
}

unsafe extern "C" fn release(context: *mut c_void, user: *mut c_void) {
    // SAFETY: the test passed this context.
    unsafe { &mut *context.cast::<Seen>() }.released.push(user as usize);
}

unsafe extern "C" fn keep(context: *mut c_void, bytes: *const c_void, len: usize) {
    // SAFETY: the test passed this context.
    let packets = unsafe { &mut *context.cast::<Vec<Vec<u8>>>() };
    // SAFETY: the header promises this many bytes.
    packets.push(unsafe { core::slice::from_raw_parts(bytes.cast::<u8>(), len) }.to_vec());
}

fn options(seen: &mut Seen) -> Options {
    Options {
        size: size_of::<Options>() as u32,
        link: GROSSO_LINK_ETHERNET,
        flags: 0,
        reserved: 0,
        seed: 0x5eed,
        context: (&raw mut *seen).cast(),
        take: Some(take),
        release: Some(release),
    }
}

fn coalescer(options: &Options) -> *mut Coalescer {
    let mut handle = ptr::null_mut();
    // SAFETY: both pointers point to valid values of their types.
    assert_eq!(unsafe { grosso_coalescer_new(options, &raw mut handle) }, 0);
    handle
}

fn push(handle: *const Coalescer, packet: &[u8], user: usize) -> i32 {
    let (bytes, user) = (packet.as_ptr().cast(), user as *mut c_void);
    // SAFETY: the handle is valid, and the packets outlive it.
    unsafe { grosso_coalescer_push(handle, bytes, packet.len(), ptr::null(), user, 0) }
}

fn finish(handle: *mut Coalescer) {
    // SAFETY: the handle is valid, and nothing else uses it.
    assert_eq!(unsafe { grosso_coalescer_end(handle, 0) }, 0);
    // SAFETY: the handle is valid, and is not used afterwards.
    assert_eq!(unsafe { grosso_coalescer_free(handle) }, 0);
}

fn tcp(i: u32) -> Vec<u8> {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(i as u16));
    packet.tcp(|t| t.sequence(1000 + i * 500)).payload_len(500).build()
}

#[test]
fn packets_become_a_superframe_and_packets_again() {
    let mut seen = Seen::default();
    let handle = coalescer(&options(&mut seen));
    let packets = [tcp(0), tcp(1), tcp(2)];
    for (i, packet) in packets.iter().enumerate() {
        assert_eq!(push(handle, packet, i + 10), 0);
    }
    // SAFETY: the handle is valid.
    assert_eq!(unsafe { grosso_coalescer_end(handle, 0) }, 0);
    // SAFETY: the handle is valid.
    assert_eq!(unsafe { grosso_coalescer_free(handle) }, 0);
    seen.released.sort_unstable();
    assert_eq!(seen.released, [10, 11, 12]);
    let [(frame, vnet, pieces)] = &seen.frames[..] else { panic!("one frame") };
    assert_eq!((frame.len(), *pieces), (54 + 1500, 4));
    let expected = Vnet {
        flags: 1,
        gso_type: 1,
        header_length: 54,
        gso_size: 500,
        checksum_start: 34,
        checksum_offset: 16,
        buffers: 1,
    };
    assert_eq!(*vnet, expected);

    let segment = |room: usize| {
        let (mut cut, mut buffer) = (Vec::<Vec<u8>>::new(), vec![0_u8; room]);
        // SAFETY: every pointer points to this many bytes, and the context has the type that `keep` expects.
        let count = unsafe {
            grosso_segment(
                GROSSO_LINK_ETHERNET,
                frame.as_ptr().cast(),
                frame.len(),
                vnet,
                buffer.as_mut_ptr().cast(),
                room,
                Some(keep),
                (&raw mut cut).cast(),
            )
        };
        (count, cut)
    };
    assert_eq!(segment(1514), (3, packets.to_vec()));
    assert_eq!(segment(500).0, GROSSO_ERROR_ROOM);
}

#[test]
fn a_verified_checksum_of_a_superframe_leaves_as_the_partial_one_that_its_header_speaks_of() {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|tcp| tcp).payload_len(3000);
    let (verified, (partial, start, offset)) = (packet.build(), packet.build_superframe());
    assert_ne!(verified, partial);
    let mut seen = Seen::default();
    let handle = coalescer(&options(&mut seen));
    let vnet = Vnet { flags: 2, gso_type: 1, gso_size: 1000, ..Vnet::default() };
    let (bytes, user) = (verified.as_ptr().cast(), ptr::null_mut());
    // SAFETY: the handle is valid, and the frame and its header outlive it.
    let pushed =
        unsafe { grosso_coalescer_push(handle, bytes, verified.len(), &raw const vnet, user, 0) };
    // SAFETY: the handle is valid.
    assert_eq!((pushed, unsafe { grosso_coalescer_end(handle, 0) }), (0, 0));
    // SAFETY: the handle is valid.
    assert_eq!(unsafe { grosso_coalescer_free(handle) }, 0);
    let [(frame, vnet, pieces)] = &seen.frames[..] else { panic!("one frame") };
    let place = (usize::from(vnet.checksum_start), usize::from(vnet.checksum_offset));
    assert_eq!((vnet.flags, vnet.gso_type, vnet.gso_size, place), (1, 1, 1000, (start, offset)));
    assert_eq!(*pieces, 2, "the headers in the first");
    assert!(*frame == partial);
}

/// A virtio header cannot describe this superframe, so its packets are delivered one by one.
#[test]
fn a_superframe_with_an_unverified_checksum_is_segmented() {
    let mut seen = Seen::default();
    let handle = coalescer(&options(&mut seen));
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t).payload_len(4000).build();
    let vnet = Vnet { gso_type: 1, gso_size: 1400, ..Vnet::default() };
    let bytes = packet.as_ptr().cast();
    // SAFETY: the handle is valid, and the packet and the header outlive it.
    let pushed = unsafe {
        grosso_coalescer_push(handle, bytes, packet.len(), &raw const vnet, ptr::null_mut(), 0)
    };
    assert_eq!(pushed, 0);
    finish(handle);
    let lengths: Vec<_> = seen.frames.iter().map(|(bytes, ..)| bytes.len() - 54).collect();
    assert_eq!(lengths, [1400, 1400, 1200]);
    let payload: Vec<u8> =
        seen.frames.iter().flat_map(|(bytes, ..)| bytes[54..].to_vec()).collect();
    assert!(payload == packet[54..]);
    for (bytes, vnet, _) in &seen.frames {
        assert_eq!((vnet.flags & 1, vnet.gso_type), (0, 0));
        assert!(is_right(bytes, Link::Ethernet));
    }
    assert_eq!(seen.released, [0]);
}

#[test]
fn a_datagram_that_is_to_be_fragmented_is_refused_and_not_lost() {
    let mut seen = Seen::default();
    let handle = coalescer(&options(&mut seen));
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).payload_len(4000).build();
    for flags in 0..2 {
        let gso = Vnet { flags, gso_type: 3, gso_size: 1400, ..Vnet::default() };
        let vnet = Vnet { checksum_start: 34, checksum_offset: 6, ..gso };
        let bytes = packet.as_ptr().cast();
        // SAFETY: the handle is valid, and the packet and the header outlive it.
        let pushed = unsafe {
            grosso_coalescer_push(handle, bytes, packet.len(), &raw const vnet, ptr::null_mut(), 0)
        };
        assert_eq!(pushed, GROSSO_ERROR_VNET, "{flags}");
    }
    finish(handle);
    assert!(seen.frames.is_empty() && seen.released.is_empty(), "the frame was not accepted");
}

#[test]
fn a_frame_has_no_more_pieces_than_one_call_takes() {
    let mut seen = Seen::default();
    let handle = coalescer(&options(&mut seen));
    let packets: Vec<_> = (0..1500)
        .map(|i| {
            let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(i as u16));
            packet.tcp(|t| t.sequence(1000 + i * 30)).payload_len(30).build()
        })
        .collect();
    for (user, packet) in packets.iter().enumerate() {
        assert_eq!(push(handle, packet, user), 0);
    }
    finish(handle);
    let [(bytes, _, count)] = &seen.frames[..] else { panic!("{} frames", seen.frames.len()) };
    assert_eq!(*count, GROSSO_PIECES_MAX);
    let payloads: Vec<u8> = packets.iter().flat_map(|packet| packet[54..].to_vec()).collect();
    assert!(bytes[54..] == payloads);
}

#[test]
fn a_frame_of_more_than_16_mib_is_refused_by_every_function() {
    let mut seen = Seen::default();
    let handle = coalescer(&options(&mut seen));
    let mut frame = tcp(0);
    frame.resize((16 << 20) + 1, 0);
    let (bytes, len) = (frame.as_mut_ptr().cast::<c_void>(), frame.len());
    let (mut buffer, mut vnet) = (vec![0_u8; len], Vnet::default());
    let mut cut = Vec::<Vec<u8>>::new();
    let (out, context) = (buffer.as_mut_ptr().cast(), (&raw mut cut).cast());
    let link = GROSSO_LINK_ETHERNET;
    // SAFETY: the handle is valid, and the frame outlives it.
    let pushed = unsafe { grosso_coalescer_push(handle, bytes, len, ptr::null(), context, 0) };
    // SAFETY: every pointer points to this many bytes, and the context has the type that `keep` expects.
    let cut =
        unsafe { grosso_segment(link, bytes, len, ptr::null(), out, len, Some(keep), context) };
    // SAFETY: the pointers point to this many bytes and to a header.
    let opened = unsafe { grosso_checksum_open(link, bytes, len, &raw mut vnet) };
    assert_eq!([pushed, cut, opened], [GROSSO_ERROR_ARGUMENT; 3]);
    // SAFETY: the handle is valid.
    assert_eq!(unsafe { grosso_coalescer_free(handle) }, 0);
}

#[test]
fn a_callback_cannot_enter_or_free_its_own_handle() {
    let mut seen = Seen::default();
    let handle = coalescer(&options(&mut seen));
    seen.handle = Some(handle);
    let packet = tcp(0);
    assert_eq!(push(handle, &packet, 1), 0);
    // SAFETY: the handle is valid.
    assert_eq!(unsafe { grosso_coalescer_end(handle, 0) }, 0);
    assert_eq!(seen.misuse, [GROSSO_ERROR_BUSY; 2]);
    // SAFETY: the handle is valid.
    assert_eq!(unsafe { grosso_coalescer_free(handle) }, 0);
}

#[test]
fn wrong_options_make_no_handle_and_have_a_text() {
    let mut seen = Seen::default();
    let right = options(&mut seen);
    let mut handle = ptr::null_mut();
    for wrong in [
        Options { size: 8, ..right },
        Options { size: 1 << 20, ..right },
        Options { link: 7, ..right },
        Options { flags: 1 << 9, ..right },
        Options { reserved: 1, ..right },
        Options { take: None, ..right },
    ] {
        // SAFETY: a size that is too small or above the maximum is rejected before anything else is read; otherwise,
        // `size` is the size of the structure.
        let result = unsafe { grosso_coalescer_new(&raw const wrong, &raw mut handle) };
        assert_eq!((result, handle.is_null()), (GROSSO_ERROR_ARGUMENT, true));
    }
    // SAFETY: null is rejected.
    assert_eq!(unsafe { grosso_coalescer_new(ptr::null(), &raw mut handle) }, -1);
    // SAFETY: null is rejected.
    assert_eq!(unsafe { grosso_coalescer_end(ptr::null(), 0) }, -1);
    // SAFETY: null is allowed.
    assert_eq!(unsafe { grosso_coalescer_free(ptr::null_mut()) }, 0);
    for code in -9..2 {
        // SAFETY: the function returns a string that is never freed.
        let text = unsafe { CStr::from_ptr(grosso_error_text(code)) }.to_str().unwrap();
        assert_eq!(text == "no error", code >= 0, "{code}");
    }
}

/// Tests options from a later version: fields that this version does not know must be zero.
#[test]
fn options_of_a_later_version_are_taken_if_they_ask_for_nothing_new() {
    #[repr(C)]
    struct Later {
        known: Options,
        new: u64,
    }
    let mut seen = Seen::default();
    let known = Options { size: size_of::<Later>() as u32, ..options(&mut seen) };
    for (new, expected) in [(0, 0), (1, GROSSO_ERROR_ARGUMENT)] {
        let (later, mut handle) = (Later { known, new }, ptr::null_mut());
        // SAFETY: the pointer points to as many bytes as `size` states.
        let result = unsafe { grosso_coalescer_new((&raw const later).cast(), &raw mut handle) };
        assert_eq!(result, expected);
        // SAFETY: the handle is null or valid.
        assert_eq!(unsafe { grosso_coalescer_free(handle) }, 0);
    }
}

#[test]
fn fragments_become_a_datagram() {
    let mut whole =
        Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).payload_len(1200).build();
    // Clears DF and adjusts the header checksum.
    whole[20] &= !0x40;
    set_header_checksum(&mut whole);
    let fragment = |from: usize, to: usize, more: bool| {
        let mut frame = [&whole[..34], &whole[34 + from..34 + to]].concat();
        frame[16..18].copy_from_slice(&((20 + to - from) as u16).to_be_bytes());
        let place = (from / 8) as u16 | if more { 0x2000 } else { 0 };
        frame[20..22].copy_from_slice(&place.to_be_bytes());
        set_header_checksum(&mut frame);
        frame
    };
    let fragments = [fragment(800, 1208, false), fragment(0, 800, true)];
    let mut seen = Seen::default();
    let (options, mut handle) = (options(&mut seen), ptr::null_mut());
    // SAFETY: both pointers point to valid values of their types.
    assert_eq!(unsafe { grosso_reassembler_new(&raw const options, &raw mut handle) }, 0);
    for (i, frame) in fragments.iter().enumerate() {
        let (bytes, user) = (frame.as_ptr().cast(), (i + 1) as *mut c_void);
        // SAFETY: the handle is valid, and the frames outlive it.
        let result = unsafe { grosso_reassembler_push(handle, bytes, frame.len(), user, 0) };
        assert_eq!(result, 0);
    }
    // SAFETY: the handle is valid.
    assert_eq!(unsafe { grosso_reassembler_finish(handle) }, 0);
    // SAFETY: the handle is valid.
    assert_eq!(unsafe { grosso_reassembler_free(handle) }, 0);
    seen.released.sort_unstable();
    assert_eq!(seen.released, [1, 2]);
    let [(frame, vnet, _)] = &seen.frames[..] else { panic!("one datagram") };
    assert_eq!((frame, vnet.gso_type), (&whole, 0));
}

/// Uses the library to compute the checksum of the IPv4 header that follows an Ethernet header, and stores it there.
fn set_header_checksum(frame: &mut [u8]) {
    frame[24..26].fill(0);
    // SAFETY: the slice has a complete header.
    let sum = unsafe { grosso_checksum(frame[14..].as_ptr().cast(), 20) };
    frame[24..26].copy_from_slice(&(sum as u16).to_ne_bytes());
}

#[test]
fn a_checksum_is_opened_and_completed() {
    let whole = tcp(5);
    let (mut packet, mut vnet) = (whole.clone(), Vnet::default());
    let (bytes, len) = (packet.as_mut_ptr().cast::<c_void>(), packet.len());
    // SAFETY: the pointers point to this many bytes and to a header.
    let opened = unsafe { grosso_checksum_open(GROSSO_LINK_ETHERNET, bytes, len, &raw mut vnet) };
    assert_eq!((opened, vnet.flags, vnet.checksum_start, vnet.checksum_offset), (0, 1, 34, 16));
    // SAFETY: the pointer points to this many bytes.
    assert_eq!(unsafe { grosso_checksum_complete(bytes, len, 34, 16) }, 0);
    assert_eq!(packet, whole);
    let bytes = packet.as_mut_ptr().cast();
    // SAFETY: the pointer points to this many bytes.
    assert_eq!(unsafe { grosso_checksum_complete(bytes, 30, 34, 16) }, GROSSO_ERROR_CHECKSUM);
}
