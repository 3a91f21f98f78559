//! Handles fragments found while removing tunnels. The fragments are grouped by depth, which is the number of tunnels
//! already removed.

use grosso::reassemble::ReassemblyRules;

use crate::{
    capture::random_seed,
    fragments::{self, Arrival, Joined, Lanes, Survey, Waiting},
    reports::decap::Depth,
};

/// Handler for fragments found during decapsulation.
pub(super) trait Joiner {
    /// Processes a fragment of packet `number` at tunnel depth `depth`.
    fn join(&mut self, depth: usize, number: u64, arrival: &Arrival<'_>) -> Join<'_>;

    /// Advances the clock to the timestamp of the next packet.
    fn tick(&mut self, _timestamp_ns: Option<u64>) {}

    /// Handles the end of a section.
    fn section(&mut self) {}

    /// Returns whether fragments are reassembled, the findings for each depth, and the number of fragment sets that are
    /// not listed.
    fn found(self) -> (bool, Vec<Depth>, u64);
}

/// Result of processing a fragment.
pub(super) enum Join<'a> {
    /// Reassembly is disabled.
    Unasked,
    /// The packet stays a fragment.
    Stays,
    /// The packet waits for other fragments.
    Waits,
    /// The packet was the last missing fragment. The value is the complete datagram.
    Whole(&'a [u8]),
}

/// Handler that does not reassemble fragments.
pub(super) struct Separate;

impl Joiner for Separate {
    fn join(&mut self, _depth: usize, _number: u64, _arrival: &Arrival<'_>) -> Join<'_> {
        Join::Unasked
    }

    fn found(self) -> (bool, Vec<Depth>, u64) {
        (false, Vec::new(), 0)
    }
}

/// State of the first pass, which records what happens to every fragment.
pub(super) struct Learning {
    rules: ReassemblyRules,
    seed: u64,
    depths: Vec<(Lanes, Survey)>,
    joined: Joined,
}

impl Learning {
    pub(super) fn new(waiting: &Waiting) -> Self {
        let rules = fragments::rules(waiting);
        let seed = random_seed();
        Self { rules, seed, depths: Vec::new(), joined: Joined::default() }
    }

    /// Returns the state that the second pass needs.
    pub(super) fn learned(self) -> Learned {
        let Self { rules, seed, depths, joined } = self;
        let depths = depths.into_iter().map(|(_, survey)| {
            // The second pass must make the same decisions as the first.
            (Lanes::new(rules.clone(), seed), survey)
        });
        Learned { depths: depths.collect(), joined }
    }
}

impl Joiner for Learning {
    fn join(&mut self, depth: usize, number: u64, arrival: &Arrival<'_>) -> Join<'_> {
        while self.depths.len() <= depth {
            self.depths.push((Lanes::new(self.rules.clone(), self.seed), Survey::default()));
        }
        let Some((lanes, survey)) = self.depths.get_mut(depth) else { return Join::Stays };
        self.joined.is_whole = false;
        survey.packet(number, arrival, lanes, Some(&mut self.joined));
        if self.joined.is_whole { Join::Whole(&self.joined.bytes) } else { Join::Waits }
    }

    fn tick(&mut self, timestamp_ns: Option<u64>) {
        for (lanes, survey) in &mut self.depths {
            survey.expire(timestamp_ns, lanes);
        }
    }

    fn section(&mut self) {
        for (lanes, survey) in &mut self.depths {
            survey.finish(lanes);
        }
    }

    fn found(self) -> (bool, Vec<Depth>, u64) {
        self.learned().found()
    }
}

/// State of the second pass, which joins the fragments selected by the first pass.
pub(super) struct Learned {
    depths: Vec<(Lanes, Survey)>,
    joined: Joined,
}

impl Joiner for Learned {
    fn join(&mut self, depth: usize, number: u64, arrival: &Arrival<'_>) -> Join<'_> {
        let Some((lanes, survey)) = self.depths.get_mut(depth) else { return Join::Stays };
        self.joined.is_whole = false;
        lanes.push(arrival, &mut self.joined);
        // The first pass did not see packets that were appended to the file later.
        let is_joined = survey.joined.contains(number);
        match (is_joined, self.joined.is_whole) {
            (false, _) => Join::Stays,
            (true, false) => Join::Waits,
            (true, true) => Join::Whole(&self.joined.bytes),
        }
    }

    fn tick(&mut self, timestamp_ns: Option<u64>) {
        for (lanes, _) in &mut self.depths {
            lanes.expire(timestamp_ns, &mut Joined::default());
        }
    }

    fn section(&mut self) {
        for (lanes, _) in &mut self.depths {
            lanes.finish(&mut Joined::default());
        }
    }

    fn found(self) -> (bool, Vec<Depth>, u64) {
        let unlisted = self.depths.iter().map(|(_, survey)| survey.unlisted).sum();
        let depths = self.depths.into_iter().enumerate();
        let found = depths.map(|(depth, (_, survey))| Depth { depth, found: survey.found });
        (true, found.filter(|depth| !depth.found.is_empty()).collect(), unlisted)
    }
}
