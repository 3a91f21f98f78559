//! Path MTU discovery by probes (RFC 8899), which finds the maximum length of packets that reach one remote endpoint.
//!
//! ```text
//!               a message, or long packets are sent
//!   unknown ------------------------------------> the longest is probed
//!        ^                                         |              |
//!        | no answer at all                answered|              |three are lost, the base is answered
//!        +------------------------------------- whole          narrow: lengths are probed, then rest until
//!                                                               the longest is probed again
//! ```
//!
//! A path is narrow if the longest packets do not arrive. Each probe is sent together with a packet of the base length,
//! which distinguishes a lost probe from a host that never answers (section 4.3). The prober has neither a clock nor a
//! socket. Times are passed as monotonic nanoseconds, and lengths are in bytes including the IP header. The caller
//! sends echo requests with DF set and reports the numbers of the replies.

/// Path MTU discovery for one remote endpoint.
#[derive(Debug)]
pub struct Prober {
    base: usize,
    /// Length of the longest packet that leaves this host.
    top: usize,
    known: Measured,
    /// Length of the longest packet known to arrive when the last search ended.
    settled: Option<usize>,
    /// Length that an ICMP message reported, and the number of the first packet sent after that message.
    said: Option<(usize, u64)>,
    /// Shortest length known to be lost.
    lost: usize,
    round: Option<ProbeRound>,
    number: u64,
    /// Time of the next round.
    next_ns: u64,
    /// Interval after which a narrow path is probed again.
    rest_ns: u64,
    /// Time of the last packet.
    sent_ns: Option<u64>,
    /// Time of the last answer, or 0 before the first one.
    heard_ns: u64,
    finding: Option<Finding>,
}

/// Result of a probing round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The longest packets arrive, although an ICMP message claimed otherwise.
    Refuted,
    /// The longest packets do not arrive.
    Narrow,
    /// No probe was answered.
    Silent,
}

/// Result of the probes so far: the packet lengths that the path carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Measured {
    /// Nothing is known: the remote endpoint has not been probed or does not answer.
    #[default]
    Nothing,
    /// The longest packets arrive.
    Whole,
    /// The longest packets do not arrive, but packets of this length in bytes do.
    Narrow(usize),
}

/// Echo requests to send, each with its number and its length in bytes including the IP header.
pub type Asked = [(u64, usize); 2];

/// Probes of one length.
#[derive(Clone, Copy, Debug)]
struct ProbeRound {
    len: usize,
    aim: Aim,
    first: u64,
    tries: u8,
    has_base: bool,
    until_ns: u64,
}

/// Reason for the length that a round probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aim {
    /// The length is the maximum, or lies between one that arrives and one that is lost.
    Search,
    /// An earlier search found the length.
    Earlier,
    /// An ICMP message reported the length. Longer packets are tried when the path is probed again.
    Named,
}

impl Prober {
    /// Creates a prober for an unknown path. Packets of `base` bytes are assumed to arrive (`BASE_PLPMTU`).
    pub fn new(base: usize) -> Self {
        Self {
            base,
            top: 0,
            known: Measured::Nothing,
            settled: None,
            said: None,
            lost: 0,
            round: None,
            number: 0,
            next_ns: 0,
            rest_ns: RAISE_TIMER_NS,
            sent_ns: None,
            heard_ns: 0,
            finding: None,
        }
    }

    /// Returns what the probes have shown so far about the packet lengths that the path carries.
    pub fn known(&self) -> Measured {
        self.known
    }

    /// Returns the length of the longest packets that arrive, if longer ones are lost and no search is in progress.
    pub fn settled(&self) -> Option<usize> {
        self.settled
    }

    /// Returns whether an ICMP message is waiting to be verified by a probe.
    pub fn is_questioned(&self) -> bool {
        self.said.is_some()
    }

    /// Returns whether a probe is outstanding.
    pub fn is_waiting(&self) -> bool {
        self.round.is_some()
    }

    /// Returns the time of the next probe with a longer packet, if the path is narrow. This probe is sent even without
    /// traffic.
    pub fn raises_ns(&self) -> Option<u64> {
        matches!(self.known, Measured::Narrow(_)).then_some(self.next_ns)
    }

    /// Returns the last result and clears it.
    pub fn take_finding(&mut self) -> Option<Finding> {
        self.finding.take()
    }

    /// Handles an ICMP message that reports a path MTU of `said` bytes. The message only triggers a probe (section
    /// 4.6.2).
    pub fn hear(&mut self, said: usize) {
        if self.top == 0 || said < self.top {
            self.said = Some((said.max(self.base), self.number));
        }
    }

    /// Returns the echo requests to send now. `top` is the length in bytes of the longest packets that are sent.
    /// `sends_long` says whether packets that routers cannot fragment were sent recently.
    pub fn poll(&mut self, now_ns: u64, top: usize, sends_long: bool) -> Option<Asked> {
        if top != self.top {
            let said = self.said.filter(|(said, _)| *said < top);
            let Self { base, number, sent_ns, .. } = *self;
            *self = Self { top, said, number, sent_ns, ..Self::new(base) };
        }
        if let Some(ProbeRound { tries: PROBES_MAX, until_ns, .. }) = self.round
            && now_ns >= until_ns
        {
            self.unanswered(now_ns);
        }
        if self.round.is_none() && self.is_due(now_ns, sends_long) {
            self.begin(top, Aim::Search);
        }
        let round = self.round.as_mut().filter(|round| now_ns >= round.until_ns)?;
        round.tries += 1;
        round.until_ns = now_ns.saturating_add(PROBE_TIMER_NS);
        self.sent_ns = Some(now_ns);
        let number = self.number;
        self.number += 2;
        Some([(number, self.base), (number + 1, round.len)])
    }

    /// Handles the answer to echo request `number`. Late answers to a finished round are ignored.
    pub fn answered(&mut self, now_ns: u64, number: u64) {
        let sent = self.number;
        let Some(round) = self.round.as_mut() else { return };
        if !(round.first..sent).contains(&number) {
            return;
        }
        self.heard_ns = now_ns;
        if number.is_multiple_of(2) {
            round.has_base = true;
            return;
        }
        let ProbeRound { len, aim, .. } = *round;
        self.round = None;
        if len >= self.top {
            self.whole(now_ns, number);
        } else {
            self.known = Measured::Narrow(len);
            self.search(now_ns, if aim == Aim::Named { None } else { self.between(len) });
        }
    }

    /// Handles an answer to the longest packet. It does not refute messages that arrived after the packet was sent.
    fn whole(&mut self, now_ns: u64, number: u64) {
        if self.said.take_if(|(_, after)| number >= *after).is_some() {
            self.finding = Some(Finding::Refuted);
        }
        (self.known, self.settled, self.rest_ns) = (Measured::Whole, None, RAISE_TIMER_NS);
        self.next_ns = now_ns.saturating_add(CONFIRMATION_TIMER_NS);
    }

    fn is_due(&self, now_ns: u64, sends_long: bool) -> bool {
        // No search is needed if the limit does not exceed the base length.
        let is_wanted =
            sends_long || self.said.is_some() || matches!(self.known, Measured::Narrow(_));
        let rests = self.said.is_none() && now_ns < self.next_ns;
        // Messages and link changes start at most one round per probe timeout.
        let may_ask = self.sent_ns.is_none_or(|sent| now_ns >= sent.saturating_add(PROBE_TIMER_NS));
        self.top > self.base && is_wanted && !rests && may_ask
    }

    fn begin(&mut self, len: usize, aim: Aim) {
        let first = self.number;
        self.round = Some(ProbeRound { len, aim, first, tries: 0, has_base: false, until_ns: 0 });
    }

    /// Ends a round in which no probe was answered.
    fn unanswered(&mut self, now_ns: u64) {
        let Some(ProbeRound { len, aim, has_base, .. }) = self.round.take() else { return };
        if !has_base {
            return self.silent(now_ns);
        }
        self.lost = len;
        let carried = match self.known {
            Measured::Narrow(carried) if aim != Aim::Earlier => carried,
            _ => self.base,
        };
        if len < self.top {
            self.known = Measured::Narrow(carried);
            return self.search(now_ns, self.between(carried));
        }
        if !matches!(self.known, Measured::Narrow(_)) {
            self.finding = Some(Finding::Narrow);
        }
        let said = self.said.take().map(|(said, _)| said);
        // A message does not lower the result of a search.
        let (next, aim) = match said.filter(|said| *said > carried) {
            Some(said) => (said, Aim::Named),
            None => (carried, Aim::Earlier),
        };
        self.known = Measured::Narrow(carried);
        if next > self.base {
            self.begin(next, aim);
        } else {
            self.search(now_ns, self.between(self.base));
        }
    }

    /// Ends a round without any answer. This proves nothing about the path, but the known length eventually expires.
    fn silent(&mut self, now_ns: u64) {
        self.said = None;
        self.finding = Some(Finding::Silent);
        self.next_ns = now_ns.saturating_add(SILENCE_NS);
        let is_old = now_ns.saturating_sub(self.heard_ns) >= FORGOTTEN_NS;
        if self.known == Measured::Whole || is_old {
            (self.known, self.settled) = (Measured::Nothing, None);
        }
    }

    /// Returns the length halfway between one that arrives and one that is lost, or `None` if they are close together.
    fn between(&self, carried: usize) -> Option<usize> {
        let gap = self.lost.saturating_sub(carried);
        (gap > SEARCH_STEP).then_some(carried + gap / 2)
    }

    fn search(&mut self, now_ns: u64, next: Option<usize>) {
        match (next, self.known) {
            (Some(len), _) => self.begin(len, Aim::Search),
            (None, Measured::Narrow(carried)) => {
                self.settled = Some(carried);
                self.next_ns = now_ns.saturating_add(self.rest_ns);
                self.rest_ns = (2 * self.rest_ns).min(RAISE_TIMER_MAX_NS);
            }
            (None, Measured::Nothing | Measured::Whole) => {}
        }
    }
}

/// Number of lost probes after which their length counts as lost (`MAX_PROBES`, section 5.1.2).
const PROBES_MAX: u8 = 3;
/// Time within which a probe must be answered (`PROBE_TIMER`, section 5.1.1: at least one second). While the answer
/// to the last probe is awaited, answers to earlier probes of the same length count too.
const PROBE_TIMER_NS: u64 = 1_000_000_000;
/// Interval between probes while long packets are sent (`CONFIRMATION_TIMER`, section 5.1.1).
const CONFIRMATION_TIMER_NS: u64 = 5_000_000_000;
/// Interval after which a narrow path is probed again (`PMTU_RAISE_TIMER`, section 5.1.1). It doubles, up to a maximum,
/// each time the path is found to be as narrow as before. The RFC uses ten minutes, and a separate timer for paths that
/// become even narrower; here, the same probes detect both.
const RAISE_TIMER_NS: u64 = 5_000_000_000;
const RAISE_TIMER_MAX_NS: u64 = 30_000_000_000;
/// Interval after which a host that never answered is probed again.
const SILENCE_NS: u64 = 60_000_000_000;
/// Time after which a narrow path is forgotten if the remote endpoint no longer answers.
const FORGOTTEN_NS: u64 = 600_000_000_000;
/// Difference in bytes at which a search stops.
const SEARCH_STEP: usize = 32;

#[cfg(test)]
mod tests;
