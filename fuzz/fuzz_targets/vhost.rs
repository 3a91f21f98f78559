//! A malicious vhost-user peer, which sends and writes arbitrary data. A malicious front end, whose guest writes
//! arbitrary rings, is tested against the back end; a malicious back end is tested against the front end, whose memory
//! it shares.

use std::{cell::RefCell, fs::File, io::IoSlice, os::unix::fs::FileExt};

use crate::Decisions;
use grosso_vhost::{
    backend::{BackEnd, Way},
    driver::{RING_BYTES, SLOTS, addresses},
    features,
    frontend::FrontEnd,
    message::{Letter, Message, request},
    ring::Sent,
};

const OFFERED: u64 = features::OF_RINGS | features::OF_MOVES | features::GUEST_CSUM;
const PACKED: u64 = features::RING_PACKED;
/// Size of the memory, which has the same addresses in the guest and in the front end.
const MEMORY_BYTES: usize = 0x8000;
/// Size of a page. The dirty log has 8 bits, one for each page.
const PAGE_BYTES: usize = MEMORY_BYTES / 8;
/// Offsets of the descriptor table, available entries and used entries for each ring of two queue pairs.
const RINGS: [[u64; 3]; 4] =
    [[0, 0x400, 0x600], [0x800, 0xc00, 0xe00], [0x1000, 0x1400, 0x1600], [0x1800, 0x1c00, 0x1e00]];
const SIZE: u32 = 32;

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let mut decisions = Decisions::new(data);
    match below(&mut decisions, 2) {
        0 => BACK.with_borrow_mut(|back| run_back(back, decisions)),
        _ => FRONT.with_borrow_mut(|front| run_front(front, decisions)),
    }
}

thread_local! {
    /// One back end for all runs, because it is expensive to create and close its descriptors.
    static BACK: RefCell<BackEnd> = RefCell::new(BackEnd::new(OFFERED).expect("a back end"));
    static FRONT: RefCell<FrontEnd> = RefCell::new(FrontEnd::new(OFFERED).expect("a front end"));
}

fn run_back(back: &mut BackEnd, mut decisions: Decisions<'_>) {
    let memory = memory();
    back.forget();
    let forms = [OFFERED, OFFERED & !PACKED, features::VERSION_1, features::VERSION_1 | PACKED];
    let chosen = decisions.choose(&forms);
    set_up(back, &memory, chosen);
    let mut is_logged = chosen & features::LOG_ALL != 0;
    for _ in 0..64 {
        match below(&mut decisions, 8) {
            0 => {
                say(back, &memory, &mut decisions);
                // The message may have configured another log, or removed it.
                is_logged = false;
            }
            1 => {
                let chosen = decisions.choose(&forms);
                set_up(back, &memory, chosen);
                is_logged = chosen & features::LOG_ALL != 0;
            }
            2 if chosen & PACKED != 0 => describe(&memory, &mut decisions),
            2..4 => write(&memory, &mut decisions),
            4..6 => logged(&memory, is_logged, || drain(back)),
            _ => {
                let (pair, len) = (below(&mut decisions, 20), below(&mut decisions, 4000));
                logged(&memory, is_logged, || give(back, pair, len));
            }
        }
    }
    // A newly configured ring works in both formats, no matter what happened before.
    for (chosen, words) in
        [(OFFERED, [9, 0, 0, 0, 0, 0, 0x80, 0]), (OFFERED & !PACKED, [9, 0, 0, 0, 0, 0, 0, 0])]
    {
        memory.write_all_at(&[0; MEMORY_BYTES], 0).expect("memory");
        back.forget();
        set_up(back, &memory, chosen);
        let descriptor = [[0, 16, 0, 0, 0, 0, 0, 0], words].concat();
        memory.write_all_at(&descriptor, RINGS[1][0]).expect("memory");
        if chosen & PACKED == 0 {
            memory.write_all_at(&[0, 0, 1, 0], RINGS[1][1]).expect("memory");
        }
        let ring = back.ring(Way::FromGuest).expect("a ring");
        assert_eq!(ring.receive(&mut [0; 64]), Ok(Some(9)));
    }
}

/// Returns a number below a bound.
fn below(decisions: &mut Decisions<'_>, bound: usize) -> usize {
    usize::from(decisions.word()) % bound
}

fn memory() -> File {
    let name = c"guest";
    // SAFETY: the name is a C string.
    let number = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    assert!(number >= 0);
    // SAFETY: the kernel has just opened this descriptor.
    let memory: File = unsafe { std::os::fd::FromRawFd::from_raw_fd(number) };
    // The dirty log comes directly after the guest's memory.
    memory.set_len(MEMORY_BYTES as u64 + 1).expect("memory");
    memory
}

fn obey(back: &mut BackEnd, request: u32, payload: Vec<u8>, files: &[&File]) {
    let files = files.iter().filter_map(|file| file.try_clone().ok());
    let files = files.map(|file| std::os::fd::OwnedFd::from(file).into()).collect();
    let _ = back.obey(Message { request, wants_reply: false, payload, files });
}

fn bytes(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

fn set_up(back: &mut BackEnd, memory: &File, chosen: u64) {
    let protocol =
        features::PROTOCOL_MQ | features::PROTOCOL_REPLY_ACK | features::PROTOCOL_LOG_SHMFD;
    obey(back, request::SET_PROTOCOL_FEATURES, bytes(&[protocol]), &[]);
    obey(back, request::SET_FEATURES, bytes(&[chosen]), &[]);
    obey(back, request::SET_MEM_TABLE, bytes(&[1, 0, MEMORY_BYTES as u64, 0, 0]), &[memory]);
    obey(back, request::SET_LOG_BASE, bytes(&[1, MEMORY_BYTES as u64]), &[memory]);
    for (ring, [table, available, used]) in RINGS.into_iter().enumerate() {
        let of_ring = |value: u32| bytes(&[ring as u64 | u64::from(value) << 32]);
        obey(back, request::SET_VRING_NUM, of_ring(SIZE), &[]);
        obey(back, request::SET_VRING_BASE, of_ring(0), &[]);
        let addresses = bytes(&[ring as u64, table, used, available, 0]);
        obey(back, request::SET_VRING_ADDR, addresses, &[]);
        obey(back, request::SET_VRING_KICK, bytes(&[ring as u64 | 1 << 8]), &[]);
        obey(back, request::SET_VRING_ENABLE, of_ring(1), &[]);
    }
}

/// Sends any message, with or without a file.
fn say(back: &mut BackEnd, memory: &File, decisions: &mut Decisions<'_>) {
    let number = below(decisions, 24) as u32;
    let words = (0..below(decisions, 9)).map(|_| {
        let near = [0, 1, 32, 0x400, MEMORY_BYTES as u64, u64::MAX];
        decisions.choose(&near).wrapping_add(below(decisions, 3) as u64)
    });
    let payload = bytes(&words.collect::<Vec<_>>());
    let files = [memory];
    let has_file = [request::SET_MEM_TABLE, request::SET_LOG_BASE].contains(&number);
    let count = if has_file { below(decisions, 2) } else { 0 };
    obey(back, number, payload, &files[..count]);
}

fn write(memory: &File, decisions: &mut Decisions<'_>) {
    let ring = decisions.choose(&RINGS);
    let at = decisions.choose(&ring) + below(decisions, 0x200) as u64;
    let count = below(decisions, 40);
    let written: Vec<u8> = (0..count).map(|_| below(decisions, 256) as u8).collect();
    memory.write_all_at(&written, at).expect("memory");
}

/// Writes consecutive descriptors of a packed ring, some of which may be valid.
fn describe(memory: &File, decisions: &mut Decisions<'_>) {
    let [table, ..] = decisions.choose(&RINGS);
    let (first, count) = (below(decisions, SIZE as usize), below(decisions, SIZE as usize));
    let [laps, direction] = [[0x80_u16, 0x8000], [0, 2]].map(|flags| decisions.choose(&flags));
    for slot in first..first + count {
        let address = decisions.choose(&[0x4000, 0x7ff0, 0x8000, u64::MAX - 7]);
        let length = decisions.choose(&[0_u32, 12, 16, 1600, u32::MAX]);
        let flags = decisions.choose(&[0, 0, 1, 4, 5]) | direction;
        // After the end of the ring, the flags are inverted, because the next lap begins.
        let is_behind = slot >= SIZE as usize;
        let laps =
            decisions.choose(&[laps, laps, laps, 0x8080]) ^ if is_behind { 0x8080 } else { 0 };
        let words = [address, u64::from(length) | u64::from(flags | laps) << 48];
        memory.write_all_at(&bytes(&words), table + 16 * (slot as u64 % 32)).expect("memory");
    }
}

/// Performs an action. If `is_logged` is set, checks that the dirty log contains every changed page.
fn logged(memory: &File, is_logged: bool, act: impl FnOnce()) {
    if !is_logged {
        return act();
    }
    let pages = || {
        let mut bytes = [0; MEMORY_BYTES + 1];
        memory.read_exact_at(&mut bytes, 0).expect("memory");
        bytes
    };
    memory.write_all_at(&[0], MEMORY_BYTES as u64).expect("memory");
    let before = pages();
    act();
    let after = pages();
    let log = after[MEMORY_BYTES];
    let pairs = before.chunks_exact(PAGE_BYTES).zip(after.chunks_exact(PAGE_BYTES));
    for (page, (before, after)) in pairs.enumerate() {
        let is_marked = log & 1 << page != 0;
        assert!(before == after || is_marked, "page {page} was written and is not in the log");
    }
}

/// Receives the available frames of each pair. Frames and faults are limited by the size of the ring, so the loop ends.
fn drain(back: &mut BackEnd) {
    let mut frame = [0; 4096];
    for _ in 0..back.pairs() {
        back.turn(Way::FromGuest);
        let Some(ring) = back.ring(Way::FromGuest) else { continue };
        let mut taken = 0;
        while !matches!(ring.receive(&mut frame), Ok(None)) {
            taken += 1;
            assert!(taken <= 2 * u32::from(u16::MAX), "the loop does not end");
        }
        let _ = ring.ask();
    }
    back.publish(Way::FromGuest);
}

fn give(back: &mut BackEnd, pair: usize, len: usize) {
    back.choose(Way::ToGuest, pair);
    let mergeable = back.chosen().is_some_and(|chosen| chosen & features::MRG_RXBUF != 0);
    if let Some(ring) = back.ring(Way::ToGuest) {
        let frame = vec![7; len];
        let _ = ring.send(&[IoSlice::new(&[0; 12]), IoSlice::new(&frame)], 12, mergeable);
        let _ = ring.ask();
    }
    back.publish(Way::ToGuest);
}

/// Runs a front end, and writes into the memory that it has shared.
fn run_front(front: &mut FrontEnd, mut decisions: Decisions<'_>) {
    let mut memory = meet(front, OFFERED);
    // There are fewer steps here than for a back end, because shared memory is expensive to create.
    for _ in 0..24 {
        match below(&mut decisions, 8) {
            0 => {
                let number = below(&mut decisions, 24) as u32;
                let near = [0, 1, features::VERSION_1, features::PROTOCOL_REPLY_ACK, u64::MAX];
                match front.handle_answer(&answer(number, decisions.choose(&near))) {
                    Ok(letters) => memory = shared(letters).unwrap_or(memory),
                    Err(_) => memory = meet(front, features::VERSION_1),
                }
            }
            1 => memory = meet(front, OFFERED),
            2..4 => write_used(&memory, &mut decisions),
            4..6 => drain_front(front),
            _ => {
                let frame = vec![7; below(&mut decisions, 4000)];
                let ring = front.ring(Way::FromGuest);
                let sent = ring.map(|ring| (ring.send(&[IoSlice::new(&frame)]), ring.ask()));
                let is_broken = matches!(sent, Some((Sent::Fault(_), _)));
                assert!(!is_broken || front.is_broken());
                front.publish(Way::FromGuest);
            }
        }
    }
    // Newly created rings work, no matter what happened before.
    let memory = meet(front, OFFERED);
    memory.write_all_at(&[0, 0, 1, 0, 3, 0, 0, 0, 9, 0, 0, 0], USED).expect("memory");
    let ring = front.ring(Way::ToGuest).expect("a ring");
    assert_eq!(ring.receive(&mut [0; 64]), Ok(Some(9)));
}

/// Offset of the used entries in a front end's ring.
const USED: u64 = addresses(0).used;

/// Answers as a back end with these features would, and returns the shared memory that it receives.
fn meet(front: &mut FrontEnd, offered: u64) -> File {
    let _ = front.greet();
    let mut letters =
        front.handle_answer(&answer(request::GET_FEATURES, offered)).expect("an answer");
    if offered & features::PROTOCOL_FEATURES != 0 {
        letters = front.handle_answer(&answer(request::GET_PROTOCOL_FEATURES, 0)).expect("another");
    }
    shared(letters).expect("memory")
}

fn shared(letters: Vec<Letter>) -> Option<File> {
    let table = letters.into_iter().find(|letter| letter.request() == request::SET_MEM_TABLE);
    table?.files.pop().map(File::from)
}

fn answer(request: u32, number: u64) -> Message {
    Message { request, wants_reply: false, payload: bytes(&[number]), files: vec![] }
}

/// Writes used entries and their number, some of which may be valid.
fn write_used(memory: &File, decisions: &mut Decisions<'_>) {
    let ring = below(decisions, 2) as u64 * RING_BYTES;
    let (first, count) = (below(decisions, 300) as u64, below(decisions, 300));
    for entry in first..first + count as u64 {
        let heads = [entry as u32, below(decisions, 260) as u32, u32::MAX];
        let words = [decisions.choose(&heads), decisions.choose(&[9, 69_633, u32::MAX])];
        let at = ring + USED + 4 + 8 * (entry % u64::from(SLOTS));
        memory.write_all_at(&words.map(u32::to_ne_bytes).concat(), at).expect("memory");
    }
    let last = (first + count as u64) as u16;
    memory.write_all_at(&last.to_ne_bytes(), ring + USED + 2).expect("memory");
}

/// Receives the available frames. Frames and faults are limited by the number of available buffers, so the loop ends.
fn drain_front(front: &mut FrontEnd) {
    let mut frame = [0; 4096];
    let Some(ring) = front.ring(Way::ToGuest) else { return };
    let mut taken = 0;
    while !matches!(ring.receive(&mut frame), Ok(None)) {
        taken += 1;
        assert!(taken <= SLOTS + 1, "the loop does not end");
    }
    let _ = ring.ask();
    front.publish(Way::ToGuest);
}
