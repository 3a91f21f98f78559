//! A connection for these tests. Each packet is identified by its position in the connection.

use grosso::{Meta, Profile, Verdict, coalesce::Reorder, coalesce::reason::Release};
use grosso_rig::{frames::Path, frames::Segment, session::Session};
use grosso_wire::LinkType;

/// Time to wait for a hole to be filled, in nanoseconds.
pub(crate) const HOLE_NS: u64 = 100_000;
/// Time to hold a train, in nanoseconds.
pub(crate) const HOLD_NS: u64 = 20_000;

/// Returns a profile that waits until holes are filled, and holds trains.
pub(crate) fn holes() -> Profile {
    let mut profile = Profile::linux();
    profile.limits.hold_ns = HOLD_NS;
    profile.reorder = Reorder::holes(HOLE_NS);
    profile
}

/// Returns a profile that restores the order within one poll.
pub(crate) fn within_batch() -> Profile {
    let mut profile = Profile::linux();
    profile.reorder = Reorder::WITHIN_BATCH;
    profile
}

/// A coalescer, and connections with segments of 100 bytes.
pub(crate) struct Connection {
    pub(crate) session: Session,
    /// Number of deliveries that [`Self::left`] has already returned.
    told: usize,
    /// Segment number of each pushed frame.
    places: Vec<usize>,
}

impl Connection {
    pub(crate) fn new(profile: Profile) -> Self {
        let session = Session::new(profile, LinkType::Ethernet, 1);
        Self { session, told: 0, places: Vec::new() }
    }

    /// Creates a connection that continues with segment 1, after segment 0 was delivered.
    pub(crate) fn begun(profile: Profile) -> Self {
        let mut connection = Self::new(profile);
        connection.push(&[0]);
        connection.pass(HOLD_NS);
        assert_eq!(connection.left(), [[0]]);
        connection
    }

    /// Pushes the segments with these numbers.
    pub(crate) fn push(&mut self, places: &[usize]) {
        for &place in places {
            self.push_as(place, |segment| segment);
        }
    }

    /// Pushes the segment with this number after changing it.
    pub(crate) fn push_as(
        &mut self,
        place: usize,
        edit: impl Fn(Segment) -> Segment + Copy + 'static,
    ) -> Verdict {
        self.push_len(place, 100, edit)
    }

    /// Pushes a packet of `len` bytes that starts at the segment with this number, after changing it.
    pub(crate) fn push_len(
        &mut self,
        place: usize,
        len: usize,
        edit: impl Fn(Segment) -> Segment + Copy + 'static,
    ) -> Verdict {
        let mut lengths = vec![100; place];
        lengths.push(len);
        let last = Path::Ipv4.train(&lengths, |index, s| if index == place { edit(s) } else { s });
        self.push_frame(place, &last[place])
    }

    /// Pushes a frame as the segment with this number.
    pub(crate) fn push_frame(&mut self, place: usize, frame: &[u8]) -> Verdict {
        self.places.push(place);
        self.session.push(frame, Meta::default())
    }

    /// Advances the time, and expires everything that is due.
    pub(crate) fn pass(&mut self, ns: u64) {
        self.session.now_ns += ns;
        self.session.expire();
    }

    /// Returns the segments of each frame delivered since the last call.
    pub(crate) fn left(&mut self) -> Vec<Vec<usize>> {
        let new = &self.session.left[self.told..];
        self.told += new.len();
        let places =
            |numbers: &[usize]| numbers.iter().map(|&number| self.places[number]).collect();
        new.iter().map(|left| places(&left.numbers)).collect()
    }

    /// Ends the run, and checks that every packet was delivered once. Returns the segments of each frame that was still
    /// held.
    pub(crate) fn finish(&mut self) -> Vec<Vec<usize>> {
        self.session.finish();
        self.session.assert_settled();
        self.session.assert_reversible();
        self.left()
    }

    /// Returns the number of packets released for a reason.
    pub(crate) fn released(&self, why: Release) -> u64 {
        self.session.stats().reorder.released[why.index()]
    }

    /// Returns the number of waiting packets.
    pub(crate) fn waiting(&self) -> u64 {
        self.session.stats().reorder.waiting()
    }
}
