//! The sender of a transfer.

use std::collections::BTreeMap;

use super::{Event, Fault, ICMP_SEGMENT_BYTES, Item, Passage, SEGMENT_BYTES, Setting};

/// A sender with SACK, a retransmission timer, and fast retransmit after three packets beyond a gap.
#[derive(Debug)]
pub(super) struct Source {
    setting: Setting,
    segment: u32,
    una: u32,
    next: u32,
    /// Sequence number at the end of the data written so far.
    written: u32,
    /// Sequence number at the end of all data.
    end: u32,
    outstanding: BTreeMap<u32, Sent>,
    window: u32,
    /// Maximum number of packets in flight.
    allowance: usize,
    recovery: u32,
    identification: u16,
    ticks: u32,
    timer: u32,
    timeouts: u32,
    echo: u32,
    is_open: bool,
}

/// An unacknowledged packet.
#[derive(Clone, Copy, Debug)]
struct Sent {
    len: u32,
    is_sacked: bool,
    is_lost: bool,
    is_again: bool,
}

impl Source {
    pub(super) fn new(setting: Setting) -> Self {
        let segment = if setting.fault == Fault::TinySegments { 100 } else { SEGMENT_BYTES };
        let first = ISN + 1;
        // The last packet is shorter than a full segment, as after most writes.
        let end = first + setting.segments * segment + 77;
        Self {
            setting,
            segment,
            una: first,
            next: first,
            written: if setting.fault == Fault::PausingWriter { first } else { end },
            end,
            outstanding: BTreeMap::new(),
            window: 0,
            allowance: ALLOWANCE_START.min(allowance_max(setting.fault)),
            recovery: first,
            identification: 0x1000,
            ticks: 0,
            timer: 0,
            timeouts: 0,
            echo: 0,
            is_open: false,
        }
    }

    pub(super) fn connect(&mut self, now_ns: u64, path: &mut Passage) {
        if matches!(self.setting.fault, Fault::BlackHole | Fault::BlackHoleForEver) {
            // Only small packets pass through the path: the few bytes of a first write, and the packet at the end of
            // the window.
            self.end = self.una + 9 * SEGMENT_BYTES + 300;
            self.written = self.end;
        }
        let item = Item { is_syn: true, ..self.item(now_ns, ISN, 0) };
        path.send(now_ns, item);
    }

    pub(super) fn receive(&mut self, now_ns: u64, item: &Item, path: &mut Passage) {
        self.echo = item.timestamps.0;
        self.window = item.window;
        if item.is_syn {
            self.is_open = true;
            let item = self.item(now_ns, self.next, 0);
            path.send(now_ns, item);
            if self.setting.fault == Fault::PausingWriter {
                path.agenda.add(now_ns, Event::Write);
            }
        }
        let una = self.una;
        if item.ack > una {
            self.una = item.ack;
            self.outstanding = self.outstanding.split_off(&item.ack);
            self.timeouts = 0;
            self.allowance = (self.allowance + 2).min(allowance_max(self.setting.fault));
            self.start_timer(now_ns, path);
        }
        for &(left, right) in &item.blocks {
            for (&start, sent) in self.outstanding.range_mut(left..right.max(left)) {
                sent.is_sacked |= start + sent.len <= right;
            }
        }
        self.find_lost();
        self.fill(now_ns, path);
    }

    /// Marks packets as lost if three later packets were acknowledged.
    fn find_lost(&mut self) {
        let mut beyond = 0;
        let mut is_lost = false;
        for sent in self.outstanding.values_mut().rev() {
            if sent.is_sacked {
                beyond += 1;
            } else if beyond >= 3 && !sent.is_lost && !sent.is_again {
                sent.is_lost = true;
                is_lost = true;
            }
        }
        if is_lost && self.una >= self.recovery {
            self.recovery = self.next;
            self.allowance = (self.allowance / 2).max(4);
        }
    }

    pub(super) fn time_out(&mut self, now_ns: u64, number: u32, path: &mut Passage) {
        if number != self.timer || self.outstanding.is_empty() || self.timeouts >= TIMEOUTS_MAX {
            return;
        }
        self.timeouts += 1;
        self.allowance = 4;
        match self.setting.fault {
            Fault::BlackHole if self.timeouts >= 3 => self.resize(512),
            Fault::PathMtuIgnored if self.timeouts >= 3 => self.resize(1000),
            _ => {}
        }
        for sent in self.outstanding.values_mut() {
            sent.is_lost = !sent.is_sacked;
            sent.is_again = false;
        }
        if self.timeouts > 1 {
            self.allowance = 1;
        }
        self.fill(now_ns, path);
        self.start_timer(now_ns, path);
    }

    /// Handles the ICMP message about a packet that was too big.
    pub(super) fn shrink(&mut self, now_ns: u64, path: &mut Passage) {
        if self.setting.fault == Fault::PathMtu && self.segment > ICMP_SEGMENT_BYTES {
            self.resize(ICMP_SEGMENT_BYTES);
            for sent in self.outstanding.values_mut() {
                sent.is_lost = !sent.is_sacked;
            }
            self.fill(now_ns, path);
        }
    }

    /// Splits the outstanding data into smaller packets.
    fn resize(&mut self, segment: u32) {
        self.segment = segment;
        let before = std::mem::take(&mut self.outstanding);
        for (start, sent) in before {
            let mut place = start;
            while place < start + sent.len {
                let len = segment.min(start + sent.len - place);
                self.outstanding.insert(place, Sent { len, ..sent });
                place += len;
            }
        }
    }

    /// Writes a small amount of data on behalf of the application.
    pub(super) fn write(&mut self, now_ns: u64, path: &mut Passage) {
        // The receiver delays the acknowledgment of the last packet.
        self.written = self.end.min(self.written + 9 * SEGMENT_BYTES);
        self.fill(now_ns, path);
        if self.written < self.end {
            let pause_ns = 5 * self.setting.one_way_ns / 2 + PAUSE_NS;
            path.agenda.add(now_ns + pause_ns, Event::Write);
        }
    }

    /// Sends as much data as the window and the allowance permit.
    fn fill(&mut self, now_ns: u64, path: &mut Passage) {
        if !self.is_open {
            return;
        }
        loop {
            let in_flight =
                self.outstanding.values().filter(|sent| !sent.is_sacked && !sent.is_lost).count();
            if in_flight >= self.allowance {
                return;
            }
            let lost = self.outstanding.iter_mut().find(|(_, sent)| sent.is_lost);
            let (start, len) = if let Some((&start, sent)) = lost {
                (sent.is_lost, sent.is_again) = (false, true);
                (start, sent.len)
            } else {
                let len = self.segment.min(self.written - self.next);
                let is_allowed = self.next + len <= self.una + self.window;
                if len == 0 || !is_allowed {
                    return;
                }
                let sent = Sent { len, is_sacked: false, is_lost: false, is_again: false };
                let is_first = self.outstanding.is_empty();
                self.outstanding.insert(self.next, sent);
                let start = self.next;
                self.next += len;
                if is_first {
                    self.start_timer(now_ns, path);
                }
                (start, len)
            };
            let item = self.item(now_ns, start, len);
            path.send(now_ns, item);
        }
    }

    fn item(&mut self, now_ns: u64, sequence: u32, len: u32) -> Item {
        self.identification = self.identification.wrapping_add(1);
        self.ticks += 1;
        let is_fast = self.setting.fault == Fault::FastTimestamps;
        let value = if is_fast { self.ticks } else { (now_ns / 1_000_000) as u32 };
        let is_write_end = len > 0 && sequence + len == self.written;
        Item {
            from_sender: true,
            sequence,
            len,
            ack: RECEIVER_ISN + 1,
            is_push: is_write_end || len > 0 && self.setting.fault == Fault::PushOnEveryPacket,
            window: 1 << 16,
            timestamps: (value, self.echo),
            identification: self.identification,
            ..Item::default()
        }
    }

    fn start_timer(&mut self, now_ns: u64, path: &mut Passage) {
        self.timer += 1;
        let wait_ns = (200_000_000 + 4 * self.setting.one_way_ns) << self.timeouts.min(6);
        path.agenda.add(now_ns + wait_ns, Event::Timer(self.timer));
    }
}

/// Returns the maximum number of packets in flight.
const fn allowance_max(fault: Fault) -> usize {
    match fault {
        Fault::SmallCongestionWindow(packets) => packets,
        // More than the receive window and the bandwidth permit, so this limit has no effect.
        Fault::Healthy | Fault::Alternating(_) => 4096,
        _ => 40,
    }
}

const ISN: u32 = 100_000;
const RECEIVER_ISN: u32 = 900_000;
/// Initial maximum number of packets in flight.
const ALLOWANCE_START: usize = 10;
/// Minimum length of a pause by the application, in nanoseconds.
const PAUSE_NS: u64 = 30_000_000;
/// Number of consecutive timeouts after which the sender gives up.
const TIMEOUTS_MAX: u32 = 6;
