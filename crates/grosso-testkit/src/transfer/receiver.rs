//! The receiver of a transfer.

use std::collections::BTreeMap;

use super::{Event, Fault, Item, Passage, SEGMENT_BYTES, Setting};

/// A receiver that acknowledges every second packet, acknowledges immediately if data is missing, and reports
/// duplicates.
#[derive(Debug)]
pub(super) struct Reader {
    setting: Setting,
    next: u32,
    is_open: bool,
    /// Ranges received beyond a gap.
    ahead: BTreeMap<u32, u32>,
    /// Range received beyond a gap most recently.
    latest: Option<(u32, u32)>,
    identification: u16,
    unacknowledged: u32,
    timer: u32,
    echo: u32,
    /// Number of bytes that the application has not read yet.
    unread: u32,
    is_closed: bool,
}

impl Reader {
    pub(super) fn new(setting: Setting) -> Self {
        Self {
            setting,
            next: 0,
            is_open: false,
            ahead: BTreeMap::new(),
            latest: None,
            identification: 7,
            unacknowledged: 0,
            timer: 0,
            echo: 0,
            unread: 0,
            is_closed: false,
        }
    }

    pub(super) fn receive(&mut self, now_ns: u64, item: &Item, path: &mut Passage) {
        if item.is_syn {
            self.next = item.sequence.wrapping_add(1);
            self.echo = item.timestamps.0;
            if !self.is_open && self.setting.fault == Fault::SlowReader {
                path.agenda.add(now_ns + READ_NS, Event::Read);
            }
            self.is_open = true;
            self.answer(now_ns, true, None, path);
            return;
        }
        if item.len == 0 {
            return;
        }
        let (start, end) = (item.sequence, item.sequence.wrapping_add(item.len));
        if end <= self.next || self.ahead.iter().any(|(&from, &to)| from <= start && end <= to) {
            self.answer(now_ns, false, Some((start, end)), path);
            return;
        }
        if start > self.next {
            self.ahead.insert(start, end.max(self.ahead.get(&start).copied().unwrap_or(0)));
            self.latest = Some((start, end));
            self.answer(now_ns, false, None, path);
            return;
        }
        let before = self.next;
        self.next = end;
        self.echo = item.timestamps.0;
        let had_gap = !self.ahead.is_empty();
        while let Some((&from, &to)) = self.ahead.first_key_value() {
            if from > self.next {
                break;
            }
            self.next = self.next.max(to);
            self.ahead.remove(&from);
        }
        if self.setting.fault == Fault::SlowReader {
            self.unread += self.next - before;
        }
        self.unacknowledged += 1;
        let packets_per_ack = match self.setting.fault {
            Fault::StretchedAcks(packets) => packets,
            _ => 2,
        };
        if had_gap || self.unacknowledged >= packets_per_ack {
            self.answer(now_ns, false, None, path);
        } else {
            self.timer += 1;
            path.agenda.add(now_ns + DELAYED_ACK_NS, Event::DelayedAck(self.timer));
        }
    }

    pub(super) fn time_out(&mut self, now_ns: u64, number: u32, path: &mut Passage) {
        if number == self.timer && self.unacknowledged > 0 {
            self.answer(now_ns, false, None, path);
        }
    }

    /// Reads the available data on behalf of the application.
    pub(super) fn read(&mut self, now_ns: u64, path: &mut Passage) {
        let had_data = self.unread > 0;
        self.unread = 0;
        if self.is_closed {
            self.answer(now_ns, false, None, path);
        }
        if had_data {
            path.agenda.add(now_ns + READ_NS, Event::Read);
        }
    }

    fn answer(&mut self, now_ns: u64, is_syn: bool, twice: Option<(u32, u32)>, path: &mut Passage) {
        self.unacknowledged = 0;
        self.timer += 1;
        self.identification = self.identification.wrapping_add(1);
        let mut blocks: Vec<(u32, u32)> = twice.into_iter().collect();
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for (&from, &to) in &self.ahead {
            match ranges.last_mut() {
                Some(last) if last.1 >= from => last.1 = last.1.max(to),
                _ => ranges.push((from, to)),
            }
        }
        let latest = self.latest.map_or(0, |latest| latest.0);
        ranges.sort_by_key(|&(from, to)| !(from <= latest && latest < to));
        blocks.extend(ranges.into_iter().take(3 - blocks.len()));
        let window = self.window();
        self.is_closed = window == 0;
        path.send(
            now_ns,
            Item {
                sequence: if is_syn { ISN } else { ISN + 1 },
                ack: self.next,
                is_syn,
                window,
                timestamps: ((now_ns / 1_000_000) as u32, self.echo),
                blocks,
                identification: self.identification,
                ..Item::default()
            },
        );
    }

    fn window(&self) -> u32 {
        match self.setting.fault {
            Fault::SmallWindow(segments) => segments * SEGMENT_BYTES,
            Fault::SlowReader => {
                let free = (BUFFER_SEGMENTS * SEGMENT_BYTES).saturating_sub(self.unread);
                // Announcing a very small window would cause the silly window syndrome, so a window of zero is
                // announced instead.
                if free < 2 * SEGMENT_BYTES { 0 } else { free }
            }
            _ => 4 << 20,
        }
    }
}

const ISN: u32 = 900_000;
const DELAYED_ACK_NS: u64 = 40_000_000;
/// Time between two reads of a slow application.
const READ_NS: u64 = 150_000_000;
/// Receive buffer of a slow application in segments.
const BUFFER_SEGMENTS: u32 = 32;
