//! A slow oracle that reassembles one datagram, byte by byte.

use std::collections::BTreeMap;

use grosso::reassemble::Overlap;

use crate::fragments::{Piece, Version};

/// Result of pushing a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The fragment is held and waits for the rest of its datagram.
    Held,
    /// The fragment is ignored.
    Duplicate,
    /// The fragment is dropped together with its datagram.
    Killed,
    /// The fragment completes its datagram.
    Completed,
    /// The fragment belongs to a datagram that was already dropped.
    Dead,
}

/// State of the datagrams that share a reassembly key, under one overlap policy.
#[derive(Clone, Debug)]
pub struct Oracle {
    version: Version,
    overlap: Overlap,
    bytes: BTreeMap<u32, u8>,
    accepted: Vec<Piece>,
    /// Byte ranges that arrived in order, as Linux stores them.
    runs: Vec<(u32, u32)>,
    end: Option<u32>,
    dead: bool,
    /// The data of the completed datagrams.
    pub complete: Vec<Vec<u8>>,
}

impl Oracle {
    /// Creates an oracle that has not received any fragments.
    pub fn new(version: Version, overlap: Overlap) -> Self {
        Self {
            version,
            overlap,
            bytes: BTreeMap::new(),
            accepted: Vec::new(),
            runs: Vec::new(),
            end: None,
            dead: false,
            complete: Vec::new(),
        }
    }

    /// Processes a fragment and returns its fate.
    pub fn push(&mut self, piece: &Piece) -> Fate {
        if self.dead {
            return Fate::Dead;
        }
        let fate = self.judge(piece.clone());
        if matches!(fate, Fate::Killed | Fate::Completed) {
            let complete = core::mem::take(&mut self.complete);
            *self = Self { complete, ..Self::new(self.version, self.overlap) };
            self.dead = fate == Fate::Killed && self.overlap == Overlap::Drop;
        }
        fate
    }

    fn judge(&mut self, mut piece: Piece) -> Fate {
        let limit = if self.version == Version::V4 { 65_515 } else { 65_535 };
        if piece.end() > limit {
            return Fate::Killed;
        }
        if piece.more && !piece.data.len().is_multiple_of(8) {
            if self.version == Version::V6 || self.overlap == Overlap::Drop {
                return Fate::Killed;
            }
            piece.data.truncate(piece.data.len() / 8 * 8);
        }
        if piece.data.is_empty() {
            return Fate::Killed;
        }
        let reach = self.accepted.iter().map(Piece::end).max().unwrap_or(0);
        if let Some(end) = self.end
            && (piece.end() > end || !piece.more && piece.end() != end)
        {
            return Fate::Killed;
        }
        if !piece.more && piece.end() < reach {
            return Fate::Killed;
        }
        let places: Vec<u32> = (piece.offset..piece.end()).collect();
        let overlaps = places.iter().any(|place| self.bytes.contains_key(place));
        match self.overlap {
            Overlap::Drop if overlaps => {
                let same = self.accepted.contains(&piece);
                return if same { Fate::Duplicate } else { Fate::Killed };
            }
            Overlap::Linux if overlaps => {
                let inside =
                    |&(start, end): &(u32, u32)| start <= piece.offset && piece.end() <= end;
                if !self.runs.iter().any(inside) {
                    return Fate::Killed;
                }
                if !piece.more {
                    self.end = Some(piece.end());
                }
                return Fate::Duplicate;
            }
            _ => {}
        }
        match self.runs.iter_mut().max() {
            Some(run) if run.1 == piece.offset => run.1 = piece.end(),
            _ => self.runs.push((piece.offset, piece.end())),
        }
        for (place, &byte) in places.iter().zip(&piece.data) {
            match self.overlap {
                Overlap::First => _ = self.bytes.entry(*place).or_insert(byte),
                _ => _ = self.bytes.insert(*place, byte),
            }
        }
        if !piece.more {
            self.end = Some(piece.end());
        }
        self.accepted.push(piece);
        match self.end {
            Some(end) if (0..end).all(|place| self.bytes.contains_key(&place)) => {
                self.complete.push(self.bytes.values().copied().collect());
                Fate::Completed
            }
            _ => Fate::Held,
        }
    }
}
