//! Tests a front end and a back end in one process, and a front end whose device writes arbitrary data into the shared
//! memory.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, IoSlice},
    os::{fd::BorrowedFd, unix::fs::FileExt},
    time::Duration,
};

use grosso_sys::wait::{Interest, wait_for};
use grosso_vhost::{
    backend::{BackEnd, Refused, Way},
    driver::{RING_BYTES, SLOT_BYTES, SLOTS, addresses},
    features,
    frontend::FrontEnd,
    message::{Letter, Message, reply, request},
    ring::{ChainFault, Sent},
};
use proptest::prelude::*;

const OFFERED: u64 = features::OF_RINGS | features::CSUM | features::GUEST_CSUM;
const WANTED: u64 = u64::MAX;
/// Size of a virtio header, in bytes.
const HEADER_BYTES: usize = 12;

/// Converts a letter to the message that arrives.
fn arrived(letter: Letter) -> Message {
    let Letter { bytes, files } = letter;
    let word = |at: usize| u32::from_ne_bytes(*bytes[at..].first_chunk().unwrap());
    assert_eq!((word(4) & 3, word(8) as usize), (1, bytes.len() - 12));
    let wants_reply = word(4) & 8 != 0;
    Message {
        request: word(0),
        wants_reply,
        payload: bytes[12..].to_vec(),
        files: files.into_iter().map(Into::into).collect(),
    }
}

fn answer(request: u32, number: u64) -> Message {
    let payload = number.to_ne_bytes().to_vec();
    Message { request, wants_reply: false, payload, files: vec![] }
}

/// Both endpoints after negotiation.
struct Ends {
    front: FrontEnd,
    back: BackEnd,
}

impl Ends {
    fn new(offered: u64) -> Self {
        let mut ends =
            Self { front: FrontEnd::new(WANTED).unwrap(), back: BackEnd::new(offered).unwrap() };
        ends.agree();
        ends
    }

    fn agree(&mut self) {
        let mut letters = VecDeque::from([self.front.greet()]);
        while let Some(letter) = letters.pop_front() {
            assert!(!self.front.is_running(Way::FromGuest) || letter.request() == 18);
            let Some(answered) = self.back.obey(arrived(letter)).unwrap() else { continue };
            let word = |at: usize| u32::from_ne_bytes(*answered[at..].first_chunk().unwrap());
            let number = u64::from_ne_bytes(*answered[12..].first_chunk().unwrap());
            letters.extend(self.front.handle_answer(&answer(word(0), number)).unwrap());
        }
        for way in [Way::ToGuest, Way::FromGuest] {
            assert!(self.front.is_running(way) && self.back.is_running(way), "{way:?}");
        }
    }

    /// Sends a frame to one endpoint. Returns whether there was room.
    fn send(&mut self, way: Way, frame: &[u8]) -> bool {
        let (header, rest) = frame.split_at(HEADER_BYTES);
        let parts = [IoSlice::new(header), IoSlice::new(rest)];
        let sent = match way {
            Way::ToGuest => self.back.ring(way).unwrap().send(&parts, HEADER_BYTES, false),
            Way::FromGuest => self.front.ring(way).unwrap().send(&parts),
        };
        match sent {
            Sent::Whole => true,
            Sent::NoRoom => false,
            other => panic!("{other:?}"),
        }
    }

    fn receive(&mut self, way: Way) -> Option<Vec<u8>> {
        let mut into = vec![0; SLOT_BYTES];
        let received = match way {
            Way::ToGuest => self.front.ring(way).unwrap().receive(&mut into),
            Way::FromGuest => self.back.ring(way).unwrap().receive(&mut into),
        };
        received.unwrap().map(|bytes| into[..bytes].to_vec())
    }

    fn publish(&mut self, way: Way) {
        self.front.publish(way);
        self.back.publish(way);
    }
}

/// Returns a virtio header followed by a frame. Their bytes depend on `number`.
fn frame(number: u64, bytes: usize) -> Vec<u8> {
    let all = (0..bytes).map(|at| (number as usize * 7 + at) as u8);
    let mut header = [0; HEADER_BYTES];
    // The device sets the number of buffers, which is one here; the driver must not set it (virtio 1.3 section 5.1.6).
    header[..8].copy_from_slice(&number.to_le_bytes());
    header.into_iter().chain(all).collect()
}

/// Returns the frame without the number of buffers, which the device sets.
fn without_buffers(mut frame: Vec<u8>) -> Vec<u8> {
    frame[10..12].fill(0);
    frame
}

/// A step: frames are sent in one direction, or an endpoint receives some.
#[derive(Clone, Copy, Debug)]
enum Step {
    Send(Way, usize),
    Take(Way, usize),
    Publish(Way),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let way = || prop_oneof![Just(Way::ToGuest), Just(Way::FromGuest)];
    let bytes = prop_oneof![8 => 0..2000_usize, 1 => 0..SLOT_BYTES - HEADER_BYTES + 1];
    let step = prop_oneof![
        4 => (way(), bytes).prop_map(|(way, bytes)| Step::Send(way, bytes)),
        2 => (way(), 0..400_usize).prop_map(|(way, count)| Step::Take(way, count)),
        1 => way().prop_map(Step::Publish),
    ];
    proptest::collection::vec(step, 0..300)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn frames_go_through_both_ends_whole_and_in_order(steps in steps(), event_index: bool) {
        let event = if event_index { 0 } else { features::EVENT_INDEX };
        let mut ends = Ends::new(OFFERED & !event);
        let mut under_way = [VecDeque::new(), VecDeque::new()];
        let mut number = 0;
        let all = [Way::ToGuest, Way::FromGuest].map(|way| Step::Take(way, usize::MAX));
        let last = [Step::Publish(Way::ToGuest), Step::Publish(Way::FromGuest)];
        for step in steps.into_iter().chain(last).chain(all) {
            match step {
                Step::Send(way, bytes) => {
                    let sent = frame(number, bytes);
                    if ends.send(way, &sent) {
                        under_way[way as usize].push_back(sent);
                        number += 1;
                    }
                    prop_assert!(under_way[way as usize].len() <= usize::from(SLOTS));
                }
                Step::Take(way, count) => for _ in 0..count {
                    let Some(got) = ends.receive(way) else { break };
                    let expected = under_way[way as usize].pop_front();
                    prop_assert!(Some(without_buffers(got)) == expected);
                },
                Step::Publish(way) => ends.publish(way),
            }
        }
        prop_assert!(under_way.iter().all(VecDeque::is_empty));
    }
}

#[test]
fn frames_continue_across_index_wrap_and_requested_notifications_arrive() {
    for offered in [OFFERED, OFFERED & !features::EVENT_INDEX] {
        let mut ends = Ends::new(offered);
        for round in 0..70_000_u64 {
            let sent = frame(round, (round % 300) as usize);
            for way in [Way::ToGuest, Way::FromGuest] {
                let is_asked = round % 64 == 0;
                if is_asked {
                    assert!(!asks(&mut ends, way), "{round}: nothing is there");
                }
                assert!(ends.send(way, &sent), "{round}");
                ends.publish(way);
                if is_asked {
                    assert!(is_notified(&mut ends, way), "{round} {way:?}");
                }
                assert!(ends.receive(way).map(without_buffers).as_ref() == Some(&sent), "{round}");
                assert_eq!(ends.receive(way), None);
                ends.publish(way);
            }
        }
    }
}

/// Enables notifications to the receiver. Returns whether entries are already available.
fn asks(ends: &mut Ends, way: Way) -> bool {
    match way {
        Way::ToGuest => {
            ends.front.take_call(way);
            ends.front.ring(way).unwrap().ask()
        }
        Way::FromGuest => {
            ends.back.take_kick(way);
            ends.back.ring(way).unwrap().ask()
        }
    }
}

fn is_notified(ends: &mut Ends, way: Way) -> bool {
    let (bell, ring) = match way {
        Way::ToGuest => (ends.front.call(way).map(rings), ends.front.ring(way).map(|r| r.hush())),
        Way::FromGuest => (ends.back.kick(way).map(rings), ends.back.ring(way).map(|r| r.hush())),
    };
    assert!(ring.is_some());
    bell.unwrap()
}

/// Returns whether a descriptor is ready now.
fn rings(bell: BorrowedFd<'_>) -> bool {
    wait_for(&[(bell, Interest::READ)], Some(Duration::ZERO)).unwrap().is_some()
}

#[test]
fn a_sender_without_space_is_notified_of_new_space() {
    for offered in [OFFERED, OFFERED & !features::EVENT_INDEX] {
        let mut ends = Ends::new(offered);
        let sent = frame(1, 100);
        (0..SLOTS).for_each(|_| assert!(ends.send(Way::FromGuest, &sent)));
        assert!(!ends.send(Way::FromGuest, &sent));
        ends.front.publish(Way::FromGuest);
        ends.front.take_call(Way::FromGuest);
        assert!(!ends.front.ring(Way::FromGuest).unwrap().ask());
        // A driver that uses the event index is notified once half of the ring is free.
        let told_of = if offered & features::EVENT_INDEX == 0 { 1 } else { SLOTS / 2 + 1 };
        for taken in 1..=told_of {
            assert!(ends.receive(Way::FromGuest).is_some());
            ends.back.publish(Way::FromGuest);
            assert_eq!(rings(ends.front.call(Way::FromGuest).unwrap()), taken == told_of);
        }
        (0..told_of).for_each(|_| assert!(ends.send(Way::FromGuest, &sent)));
        assert!(!ends.send(Way::FromGuest, &sent));
        // In the other direction, the front end provides room.
        (0..SLOTS).for_each(|_| assert!(ends.send(Way::ToGuest, &sent)));
        assert!(!ends.send(Way::ToGuest, &sent));
        ends.back.publish(Way::ToGuest);
        ends.back.take_kick(Way::ToGuest);
        assert!(!ends.back.ring(Way::ToGuest).unwrap().ask());
        assert!(ends.receive(Way::ToGuest).is_some());
        ends.front.publish(Way::ToGuest);
        assert!(rings(ends.back.kick(Way::ToGuest).unwrap()));
        assert!(ends.send(Way::ToGuest, &sent) && !ends.send(Way::ToGuest, &sent));
    }
}

#[test]
fn a_back_end_that_comes_again_gets_new_memory_and_rings() {
    let mut ends = Ends::new(OFFERED);
    for _ in 0..3 {
        let sent = frame(1, 1000);
        (0..9).for_each(|_| assert!(ends.send(Way::FromGuest, &sent)));
        ends.publish(Way::FromGuest);
        assert!(ends.receive(Way::FromGuest).is_some());
        ends.front.forget();
        assert!(!ends.front.is_running(Way::FromGuest) && ends.front.chosen().is_none());
        assert!(ends.front.call(Way::ToGuest).is_none() && !ends.front.is_broken());
        ends.back.forget();
        ends.agree();
        assert_eq!(ends.receive(Way::FromGuest), None);
    }
}

/// A device that has only a front end's memory and eventfds.
struct Device {
    front: FrontEnd,
    memory: File,
    /// Messages that the front end sent.
    said: Vec<Message>,
}

impl Device {
    fn new(offered: u64) -> Result<Self, Refused> {
        let mut front = FrontEnd::new(WANTED).unwrap();
        let _ = front.greet();
        let mut letters = front.handle_answer(&answer(request::GET_FEATURES, offered))?;
        if letters.len() == 1 {
            letters = front.handle_answer(&answer(request::GET_PROTOCOL_FEATURES, 0))?;
        }
        let mut said: Vec<Message> = letters.into_iter().map(arrived).collect();
        let table = said.iter_mut().find(|message| message.request == request::SET_MEM_TABLE);
        let memory = File::from(
            std::os::fd::AsFd::as_fd(&table.unwrap().files.pop().unwrap())
                .try_clone_to_owned()
                .unwrap(),
        );
        Ok(Self { front, memory, said })
    }

    /// Writes a used entry with this number to a ring.
    fn give_back(&self, way: Way, number: u16, (head, bytes): (u32, u32)) {
        let entry = USED + 4 + 8 * u64::from(number % SLOTS);
        self.put(way, entry, &[head, bytes].map(u32::to_le_bytes).concat());
    }

    fn count(&self, way: Way, count: u16) {
        self.put(way, USED + 2, &count.to_le_bytes());
    }

    fn put(&self, way: Way, at: u64, bytes: &[u8]) {
        self.memory.write_all_at(bytes, way as u64 * RING_BYTES + at).unwrap();
    }

    fn receive(&mut self) -> Result<Option<usize>, ChainFault> {
        self.front.ring(Way::ToGuest).unwrap().receive(&mut vec![0; 66_000])
    }

    fn send(&mut self) -> Sent {
        self.front.ring(Way::FromGuest).unwrap().send(&[IoSlice::new(&[0; 60])])
    }
}

/// Offset of the used entries in a ring.
const USED: u64 = addresses(0).used;
const PLAIN: u64 = features::VERSION_1 | features::PROTOCOL_FEATURES;

#[test]
fn used_entries_that_cannot_be_break_a_ring_by_name_and_nothing_else() {
    let overrun = SLOTS + 1;
    for (what, entries, count, fault) in [
        ("a head behind the table", &[(256, 60)][..], 1, ChainFault::Index),
        ("the greatest head", &[(u32::MAX, 60)], 1, ChainFault::Index),
        ("a head whose low bits are one", &[(1 << 16, 60)], 1, ChainFault::Index),
        ("more than there are", &[], overrun, ChainFault::Overrun),
        ("fewer than there were", &[], u16::MAX, ChainFault::Overrun),
    ] {
        let mut device = Device::new(PLAIN).unwrap();
        assert!((0..9).all(|_| device.send() == Sent::Whole));
        for way in [Way::ToGuest, Way::FromGuest] {
            entries.iter().zip(0..).for_each(|(entry, at)| device.give_back(way, at, *entry));
            device.count(way, count);
        }
        assert_eq!(device.send(), Sent::Fault(fault), "{what}");
        assert_eq!(device.send(), Sent::NoRoom, "{what}");
        assert_eq!(device.receive(), Err(fault), "{what}");
        assert_eq!(device.receive(), Ok(None), "{what}");
        assert!(device.front.is_broken() && !device.front.is_running(Way::FromGuest));
    }
}

#[test]
fn a_slot_that_comes_back_twice_is_not_sent_with_twice() {
    let mut device = Device::new(PLAIN).unwrap();
    assert_eq!(device.send(), Sent::Whole);
    device.give_back(Way::FromGuest, 0, (0, 0));
    device.count(Way::FromGuest, 1);
    // The returned slot is used and returned once more.
    assert_eq!(device.send(), Sent::Whole);
    device.give_back(Way::FromGuest, 1, (0, 0));
    device.give_back(Way::FromGuest, 2, (0, 0));
    device.count(Way::FromGuest, 2);
    assert_eq!(device.send(), Sent::Whole);
    assert_eq!(device.send(), Sent::Whole);
    device.count(Way::FromGuest, 4);
    device.give_back(Way::FromGuest, 3, (0, 0));
    assert_eq!(device.send(), Sent::Fault(ChainFault::Index));
    assert!(device.front.is_broken());
}

#[test]
fn a_length_that_cannot_be_costs_its_frame_and_the_slot_goes_out_again() {
    let mut device = Device::new(PLAIN).unwrap();
    let longest = SLOT_BYTES as u32;
    for (number, (bytes, expected)) in [
        (0, Ok(Some(0))),
        (66_000, Ok(Some(66_000))),
        (66_001, Err(ChainFault::TooLong)),
        (longest, Err(ChainFault::TooLong)),
        (longest + 1, Err(ChainFault::Length)),
        (u32::MAX, Err(ChainFault::Length)),
        (60, Ok(Some(60))),
    ]
    .into_iter()
    .enumerate()
    {
        device.give_back(Way::ToGuest, number as u16, (7, bytes));
        device.count(Way::ToGuest, number as u16 + 1);
        assert_eq!(device.receive(), expected, "{bytes}");
        assert!(device.front.is_running(Way::ToGuest));
    }
}

#[test]
fn whatever_a_device_writes_into_descriptors_moves_no_frame_of_the_driver() {
    let mut device = Device::new(PLAIN).unwrap();
    for way in [Way::ToGuest, Way::FromGuest] {
        device.put(way, 0, &[0xff; USED as usize]);
    }
    device.put(Way::ToGuest, 0x2000 + 5 * SLOT_BYTES as u64, b"abc");
    device.give_back(Way::ToGuest, 0, (5, 3));
    device.count(Way::ToGuest, 1);
    let mut into = [0; 3];
    let ring = device.front.ring(Way::ToGuest).unwrap();
    assert_eq!((ring.receive(&mut into), &into), (Ok(Some(3)), b"abc"));
    assert_eq!(device.send(), Sent::Whole);
}

#[test]
fn the_file_of_the_memory_keeps_its_length() {
    let device = Device::new(PLAIN).unwrap();
    for length in [0, 4096, 2 * RING_BYTES + 1] {
        let refused = device.memory.set_len(length).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied, "{length}");
    }
    assert_eq!(device.memory.metadata().unwrap().len(), 2 * RING_BYTES);
}

#[test]
fn a_ring_is_complete_before_the_back_end_is_notified() {
    let device = Device::new(PLAIN).unwrap();
    let numbers: Vec<u32> = device.said.iter().map(|message| message.request).collect();
    // These are the messages that QEMU's manual prescribes: owner, features and memory; call, size, base, addresses and
    // kick of each ring; and the message that enables each ring.
    assert_eq!(numbers, [16, 3, 2, 5, 13, 8, 10, 9, 12, 13, 8, 10, 9, 12, 18, 18]);
    assert!(device.said.iter().all(|message| !message.wants_reply), "it knows no such thing");
    for kick in device.said.iter().filter(|message| message.request == request::SET_VRING_KICK) {
        let mut count = [0; 8];
        assert_eq!(rustix::io::read(&kick.files[0], &mut count), Ok(8), "a ring begins with it");
    }
    let plain = Device::new(features::VERSION_1).unwrap();
    assert!(plain.said.iter().all(|message| message.request < 15), "nor of protocol features");
}

#[test]
fn a_driver_chooses_what_it_can_use_and_no_more() {
    let chosen = |offered| Device::new(offered).map(|device| device.front.chosen().unwrap());
    let rings = features::EVENT_INDEX | features::PROTOCOL_FEATURES | features::VERSION_1;
    assert_eq!(chosen(features::OF_RINGS), Ok(rings));
    assert_eq!(chosen(features::OF_RINGS | features::OF_MOVES), Ok(rings), "it gives no log");
    assert_eq!(chosen(!features::VERSION_1), Err(Refused::Message), "a device before virtio 1");
    let one = features::VERSION_1;
    for (offered, usable) in [
        (features::HOST_TSO4 | features::HOST_USO, 0),
        (features::HOST_ECN | features::CSUM, features::CSUM),
        (
            features::GUEST_TSO6 | features::GUEST_USO4 | features::GUEST_ECN | features::CSUM,
            features::CSUM,
        ),
    ] {
        assert_eq!(chosen(offered | one), Ok(usable | one), "{offered:x}");
    }
    let whole = features::CSUM | features::HOST_TSO4 | features::HOST_ECN | one;
    assert_eq!(chosen(whole), Ok(whole));
}

#[test]
fn answers_that_nobody_asked_for_are_refused() {
    let mut front = FrontEnd::new(WANTED).unwrap();
    assert!(
        front.handle_answer(&answer(request::GET_FEATURES, PLAIN)).is_err(),
        "before the first question"
    );
    let _ = front.greet();
    assert!(front.handle_answer(&answer(request::GET_QUEUE_NUM, PLAIN)).is_err());
    let short = Message { payload: vec![0; 7], ..answer(request::GET_FEATURES, 0) };
    let _ = front.greet();
    assert!(front.handle_answer(&short).is_err());
    // A back end that replies that a message has failed.
    let _ = front.greet();
    front.handle_answer(&answer(request::GET_FEATURES, PLAIN)).unwrap();
    let letters = front.handle_answer(&answer(request::GET_PROTOCOL_FEATURES, u64::MAX)).unwrap();
    assert!(letters[1..].iter().all(|letter| letter.bytes[4] == 9), "each is to be answered");
    assert!(front.handle_answer(&answer(request::SET_OWNER, 0)).unwrap().is_empty());
    assert!(!front.is_running(Way::ToGuest) && front.ring(Way::ToGuest).is_none());
    assert!(front.handle_answer(&answer(request::SET_FEATURES, 1)).is_err());
    assert_eq!(reply(1, &[]).len(), 12);
}
