//! Tests the log of dirty pages, in which a back end records the pages of a guest's memory that it writes.

use std::{
    fs::File,
    os::{fd::OwnedFd, unix::fs::FileExt},
};

use grosso_vhost::{
    backend::{BackEnd, Refused, Way},
    features,
    message::{Message, request},
    ring::Sent,
};
use rustix::fs::{MemfdFlags, memfd_create};

use crate::{
    DATA, FORMS, Guest, MEMORY_BYTES, OFFERED, TABLE, USED, WRITTEN, data, give, of_ring, received,
    send, set_up,
};

const PAGE_BYTES: u64 = 4096;
/// Length in bytes of a dirty log for the guest's memory.
const LOG_BYTES: u64 = MEMORY_BYTES / PAGE_BYTES / 8;
/// Offset of the log in its file.
const OFFSET: u64 = 24;

fn log_file() -> File {
    let file = File::from(memfd_create("log", MemfdFlags::CLOEXEC).unwrap());
    file.set_len(OFFSET + LOG_BYTES).unwrap();
    file
}

/// Creates a back end whose front end supports logs in shared memory.
fn back_end() -> BackEnd {
    let mut back = BackEnd::new(OFFERED).unwrap();
    let protocol = features::PROTOCOL_LOG_SHMFD;
    send(&mut back, request::SET_PROTOCOL_FEATURES, &[protocol], vec![]).unwrap();
    back
}

/// Provides a log; returns whether the reply accepts it.
fn give_log(back: &mut BackEnd, words: [u64; 2], file: &File) -> Result<bool, Refused> {
    let payload = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let files = vec![OwnedFd::from(file.try_clone().unwrap()).into()];
    let message = Message { request: request::SET_LOG_BASE, wants_reply: false, payload, files };
    let header = [request::SET_LOG_BASE, 5, 8].map(u32::to_ne_bytes).concat();
    Ok(back.obey(message)?.is_some_and(|answer| answer == [&header[..], &[0; 8]].concat()))
}

/// Reads the pages in the log and clears it.
fn logged(file: &File) -> Vec<u64> {
    let mut bits = [0; LOG_BYTES as usize];
    file.read_exact_at(&mut bits, OFFSET).unwrap();
    file.write_all_at(&[0; LOG_BYTES as usize], OFFSET).unwrap();
    let is_set = |page: &u64| bits[*page as usize / 8] & 1 << (page % 8) != 0;
    (0..MEMORY_BYTES / PAGE_BYTES).filter(is_set).collect()
}

fn pages(guest: &Guest) -> Vec<Vec<u8>> {
    let mut bytes = vec![0; MEMORY_BYTES as usize];
    guest.file.read_exact_at(&mut bytes, 0).unwrap();
    bytes.chunks(PAGE_BYTES as usize).map(<[u8]>::to_vec).collect()
}

/// Returns the pages that have changed.
fn changed(guest: &Guest, before: &[Vec<u8>]) -> Vec<u64> {
    let pairs = (0..).zip(pages(guest).into_iter().zip(before));
    pairs.filter(|(_, (now, before))| now != *before).map(|(page, _)| page).collect()
}

#[test]
fn each_page_that_a_device_writes_is_recorded_and_no_other() {
    for form in FORMS {
        let (mut back, log) = (back_end(), log_file());
        let mut guest = Guest::new(form, 8, 0);
        set_up(&mut back, &guest, features::LOG_ALL | features::EVENT_INDEX, Way::ToGuest);
        assert!(!back.is_running(Way::ToGuest), "what it wrote would be lost");
        assert_eq!(give_log(&mut back, [LOG_BYTES, OFFSET], &log), Ok(true));
        assert!(back.is_running(Way::ToGuest));
        logged(&log);
        // Buffers: one that starts in the middle of a page and ends two pages later, one that fills a page, and one
        // that starts at the last byte of a page.
        guest.describe(TABLE, 0, (data(16) + 2000, 8000, WRITTEN, 0));
        guest.describe(TABLE, 1, (data(40), 4096, WRITTEN, 0));
        guest.describe(TABLE, 2, (data(50) - 1, 1, WRITTEN | 1, 3));
        guest.describe(TABLE, 3, (data(60), 90, WRITTEN, 0));
        guest.put(DATA, &[0xee; 0x10_0000 - 1]);
        for (head, bytes) in [(0, 8000), (1, 4096), (2, 20)] {
            guest.offer(head);
            let before = pages(&guest);
            let ring = back.ring(Way::ToGuest).unwrap();
            assert_eq!(give(ring, bytes, false), Sent::Whole);
            assert_eq!(changed(&guest, &before), logged(&log), "the frame itself");
            back.publish(Way::ToGuest);
            let expected = changed(&guest, &before);
            assert_eq!(guest.used().len(), 1);
            let of_ring = [TABLE, USED][usize::from(form == FORMS[0])] / PAGE_BYTES;
            assert_eq!(logged(&log), [of_ring], "the entry");
            assert!(expected.contains(&of_ring));
        }
        let _ = back.ring(Way::ToGuest).unwrap().ask();
        assert_eq!(logged(&log), [USED / PAGE_BYTES], "events");
        // Entries that were read are also returned. The device writes nothing else.
        let mut guest = Guest::new(form, 8, 0);
        set_up(&mut back, &guest, features::LOG_ALL, Way::FromGuest);
        logged(&log);
        let before = pages(&guest);
        guest.offer_plain(0, 9, 0);
        assert!(received(back.ring(Way::FromGuest).unwrap()).unwrap().is_some());
        back.publish(Way::FromGuest);
        let of_guest = changed(&guest, &before);
        assert!(logged(&log).iter().all(|page| of_guest.contains(page)));
    }
}

#[test]
fn a_log_begins_and_ends_while_frames_pass() {
    for form in FORMS {
        let (mut back, log) = (back_end(), log_file());
        let mut guest = Guest::new(form, 8, 0);
        let plain = features::VERSION_1 | guest.form();
        set_up(&mut back, &guest, features::VERSION_1, Way::ToGuest);
        let mut pass = |back: &mut BackEnd, number| {
            guest.offer_plain(number, 100, WRITTEN);
            let sent = give(back.ring(Way::ToGuest).unwrap(), 20, false);
            back.publish(Way::ToGuest);
            assert_eq!((sent, guest.used()), (Sent::Whole, vec![(number.into(), 20)]));
            logged(&log).contains(&(data(number) / PAGE_BYTES))
        };
        assert!(!pass(&mut back, 0));
        // If rings are already in use, the log is set first.
        assert_eq!(give_log(&mut back, [LOG_BYTES, OFFSET], &log), Ok(true));
        assert!(!pass(&mut back, 1), "nobody wants it yet");
        send(&mut back, request::SET_FEATURES, &[plain | features::LOG_ALL], vec![]).unwrap();
        assert_eq!(back.chosen(), Some(plain), "the guest has chosen nothing new");
        assert!(pass(&mut back, 2));
        send(&mut back, request::SET_FEATURES, &[plain], vec![]).unwrap();
        assert!(!pass(&mut back, 3), "the machine stays here");
        send(&mut back, request::SET_FEATURES, &[plain | features::LOG_ALL], vec![]).unwrap();
        assert!(pass(&mut back, 4), "the log that was there");
        back.forget();
        assert!(back.ring(Way::ToGuest).is_none());
    }
}

#[test]
fn a_log_that_cannot_be_is_refused_with_its_reason_and_nothing_is_written_without() {
    let guest = Guest::new(FORMS[0], 8, 0);
    let executable = File::open("/proc/self/exe").unwrap();
    let set_up_logged = |back: &mut BackEnd| {
        set_up(back, &guest, features::LOG_ALL, Way::ToGuest);
    };
    for (words, file, why) in [
        ([LOG_BYTES, OFFSET + 1], &log_file(), "the backing file is too short"),
        ([u64::MAX, OFFSET], &log_file(), "the backing file is too short"),
        ([LOG_BYTES - 1, OFFSET], &log_file(), "is too short: guest memory ends at 0x200000"),
        ([0, 0], &log_file(), "expected 1 to"),
        ([LOG_BYTES, OFFSET], &executable, "not in memory"),
    ] {
        let mut back = back_end();
        set_up_logged(&mut back);
        assert_eq!(give_log(&mut back, words, file), Err(Refused::Message), "{why}");
        let reason = back.refused_memory().unwrap().to_string();
        assert!(reason.contains(why), "{reason}");
        assert!(!back.is_running(Way::ToGuest));
    }
    // A log that is too short is accepted while logging is off.
    let mut back = back_end();
    set_up(&mut back, &guest, 0, Way::ToGuest);
    assert_eq!(give_log(&mut back, [LOG_BYTES - 1, OFFSET], &log_file()), Ok(true));
    let said = send(&mut back, request::SET_FEATURES, &[features::LOG_ALL], vec![]);
    assert_eq!((said, back.is_running(Way::ToGuest)), (Err(Refused::Message), false));
    assert!(
        back.refused_memory().unwrap().to_string().contains("is too short: guest memory ends at")
    );
    // A back end that does not support logs in shared memory refuses a log, and so does a back end that receives no
    // file.
    let mut back = BackEnd::new(OFFERED).unwrap();
    assert_eq!(give_log(&mut back, [LOG_BYTES, OFFSET], &log_file()), Err(Refused::Message));
    let said = send(&mut back_end(), request::SET_LOG_BASE, &[LOG_BYTES, OFFSET], vec![]);
    assert_eq!(said, Err(Refused::Message));
    // A log that is long enough for one memory table, but not for the next.
    let (mut back, log) = (back_end(), log_file());
    set_up_logged(&mut back);
    assert_eq!(give_log(&mut back, [LOG_BYTES, OFFSET], &log), Ok(true));
    let file = || vec![guest.file.try_clone().unwrap().into()];
    let higher = [1, 0x1000, MEMORY_BYTES, 0, 0];
    let said = send(&mut back, request::SET_MEM_TABLE, &higher, file());
    assert_eq!((said, back.is_running(Way::ToGuest)), (Err(Refused::Message), false));
    assert!(
        back.refused_memory().unwrap().to_string().contains("is too short: guest memory ends at")
    );
}

#[test]
fn a_log_that_is_cut_off_is_lost_memory() {
    let (mut back, log) = (back_end(), log_file());
    let mut guest = Guest::new(FORMS[0], 8, 0);
    set_up(&mut back, &guest, features::LOG_ALL, Way::ToGuest);
    assert_eq!(give_log(&mut back, [LOG_BYTES, OFFSET], &log), Ok(true));
    log.set_len(0).unwrap();
    guest.offer_plain(0, 100, WRITTEN);
    assert_eq!(give(back.ring(Way::ToGuest).unwrap(), 20, false), Sent::Whole);
    assert!(back.has_lost_memory());
    send(&mut back, request::SET_VRING_ENABLE, &of_ring(0, 1), vec![]).unwrap();
    assert_eq!(guest.bytes::<1>(DATA + 19), [19]);
}
