//! Stores the contents of the screen, and changes them when a key is pressed.

use std::collections::{HashMap, VecDeque};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::rates::{COLUMNS, Rates};
use crate::observe::control::{Answer, earlier};

/// The state of the whole screen.
#[derive(Debug, Default)]
pub struct MonitorState {
    /// Devices in display order.
    pub devices: Vec<Rates>,
    /// Index of the chosen device.
    pub chosen: usize,
    /// Column to sort by; `None` for the order of the replies.
    pub sorted_by: Option<usize>,
    /// Whether the fault columns count only the faults in the last interval, not all faults so far.
    pub deltas: bool,
    /// Whether readings are ignored.
    pub paused: bool,
    /// Whether the key help is shown.
    pub help: bool,
    /// Reason why there are no devices.
    pub notice: Option<String>,
    /// Time of the last reading, in nanoseconds since 1970.
    pub ts_ns: u64,
    before: Vec<Answer>,
    histories: HashMap<Key, History>,
}

/// Bits per second in the last intervals, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// Received bits per second.
    pub rx: VecDeque<u64>,
    /// Transmitted bits per second.
    pub tx: VecDeque<u64>,
}

/// The program's reaction to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterKey {
    /// The program continues.
    Go,
    /// The program ends.
    Quit,
}

impl MonitorState {
    /// Adds a reading. Rates are available from the second reading on.
    pub fn take(&mut self, answers: Vec<Answer>) {
        if self.paused {
            return;
        }
        self.notice = None;
        let chosen = self.devices.get(self.chosen).map(key_of);
        let earlier = core::mem::replace(&mut self.devices, rates(&self.before, &answers));
        // A program that is queried again too soon sends the same reply; its rates remain valid.
        let same = |device: &Rates| {
            let is_same =
                |answer: &&Answer| answer.pid == device.pid && self.before.contains(answer);
            answers.iter().any(|answer| is_same(&answer))
        };
        self.devices.extend(earlier.into_iter().filter(same));
        self.ts_ns = answers.iter().map(|answer| answer.ts_ns).max().unwrap_or(0);
        let mut histories = HashMap::new();
        for device in &self.devices {
            let key = key_of(device);
            let mut history = self.histories.remove(&key).unwrap_or_default();
            for (bits, gbit) in
                [(&mut history.rx, device.rx_gbit_per_s), (&mut history.tx, device.tx_gbit_per_s)]
            {
                if bits.len() == HISTORY_MAX {
                    bits.pop_front();
                }
                bits.push_back((gbit * 1e9) as u64);
            }
            histories.insert(key, history);
        }
        self.histories = histories;
        self.before = answers;
        self.sort(chosen);
    }

    /// Records why no counters can be read.
    pub fn lose(&mut self, why: String) {
        if !self.paused {
            self.devices.clear();
            self.before.clear();
            self.notice = Some(why);
        }
    }

    /// Handles a key.
    pub fn key(&mut self, key: KeyEvent) -> AfterKey {
        let last = self.devices.len().saturating_sub(1);
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                return AfterKey::Quit;
            }
            // Any key closes the help first.
            _ if self.help => self.help = false,
            KeyCode::Char('q') | KeyCode::Esc => return AfterKey::Quit,
            KeyCode::Char('?') | KeyCode::Char('h') => self.help = true,
            KeyCode::Char(' ') => self.paused = !self.paused,
            KeyCode::Char('d') => self.deltas = !self.deltas,
            KeyCode::Char('s') => {
                self.sorted_by = match self.sorted_by {
                    None => Some(0),
                    Some(column) => Some(column + 1).filter(|next| *next < COLUMNS.len()),
                };
                self.sort(self.devices.get(self.chosen).map(key_of));
            }
            KeyCode::Up | KeyCode::Char('k') => self.chosen = self.chosen.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.chosen = (self.chosen + 1).min(last),
            KeyCode::Home => self.chosen = 0,
            KeyCode::End => self.chosen = last,
            _ => {}
        }
        AfterKey::Go
    }

    /// Returns the chosen device, and its history.
    pub fn chosen(&self) -> Option<(&Rates, &History)> {
        let device = self.devices.get(self.chosen)?;
        Some((device, self.histories.get(&key_of(device))?))
    }

    /// Sorts the devices; the same device stays chosen.
    fn sort(&mut self, chosen: Option<Key>) {
        match self.sorted_by {
            None => self.devices.sort_by(|a, b| (a.pid, &a.path).cmp(&(b.pid, &b.path))),
            Some(column) => {
                let value = COLUMNS[column].key;
                self.devices.sort_by(|a, b| value(b).total_cmp(&value(a)));
            }
        }
        let place = self.devices.iter().position(|device| Some(key_of(device)) == chosen);
        self.chosen =
            place.unwrap_or_else(|| self.chosen.min(self.devices.len().saturating_sub(1)));
    }
}

/// Returns the rates of the devices that are in both readings.
pub fn rates(before: &[Answer], now: &[Answer]) -> Vec<Rates> {
    let mut rates = Vec::new();
    for answer in now {
        for reading in &answer.devices {
            let Some((then_ns, earlier)) = earlier(before, answer.pid, reading) else { continue };
            // The clock of a program may have been set back.
            let Some(passed_ns @ 1..) = answer.ts_ns.checked_sub(then_ns) else { continue };
            rates.push(Rates::of(answer.pid, reading, earlier, passed_ns as f64 / 1e9));
        }
    }
    rates
}

/// Identity of a device: process ID, path and name.
type Key = (u32, String, String);

fn key_of(device: &Rates) -> Key {
    (device.pid, device.path.clone(), device.device.clone())
}

/// Maximum number of intervals that are kept: as many as a wide screen shows.
const HISTORY_MAX: usize = 240;
