//! TCP by the rules of a profile that are more than the laws: what the receive offloads of other systems join.

use grosso_wire::{ipv4, tcp};

use crate::{
    bytes::{u16_at, u32_at},
    coalesce::{
        Acknowledgments, Arrival, Candidate, Close, Coalescer, FixedIdentification, Guess, NoMerge,
        Options, Part, Pass, Push, Refused, Rules, Sink, Sizes, Vary, Verdict, examine,
        gather::{record_of, traffic_class},
        shapes::Known,
        train::{Train, ending},
    },
    flow::Found,
    frame::Frame,
    meta::{IpLevels, Meta},
    template::{
        compare::{ON_LAST_ONLY, TIMESTAMP_LAYOUT},
        shape::Shape,
    },
};

impl<B: AsRef<[u8]>> Coalescer<B> {
    /// Takes one packet, TCP by the rules and anything else by the laws alone, for as long as the controller says.
    #[inline(never)]
    pub(super) fn push_ruled(
        &mut self,
        frame: Frame<B>,
        now_ns: u64,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        let packet = frame.buffer.as_ref();
        let place = match self.known(packet, &frame.meta, sink) {
            Ok(place) => place,
            Err(reason) => return self.pass_unknown(frame, reason, sink),
        };
        let Some(known) = self.shapes.get(place) else {
            return self.pass(frame, Pass::Protocol, sink);
        };
        let flow = self.hasher.flow(packet, &known.keys);
        let found = self.table.find(flow, frame.meta.hash);
        let (len, payload_len) = (packet.len(), packet.len() - known.shape.header_len);
        let (may_join, is_tcp) = (known.refusal.is_none(), known.shape.is_tcp);
        if may_join && self.bypasser.as_mut().is_some_and(|bypasser| bypasser.passes(flow, len)) {
            let guess = Guess { known: Some(place), flow, found };
            return self.pass_behind(&guess, frame, Pass::Bypass, sink);
        }
        if may_join
            && payload_len > 0
            && let Some(controller) = &mut self.controller
        {
            controller.count(flow, payload_len, now_ns);
            if let Found::Slot(slot) = found {
                controller.touch(slot);
            }
        }
        let meta = frame.meta;
        let guess = Guess { known: Some(place), flow, found };
        let verdict = match is_tcp {
            true => self.push_by_rules(frame, place, guess, now_ns, sink),
            false => self.push_known(frame.buffer, &frame.meta, place, Some(guess), now_ns, sink),
        };
        if may_join
            && verdict != Verdict::Waits
            && let Some(bypasser) = &mut self.bypasser
        {
            bypasser.learn(flow, &meta, len, verdict, now_ns);
        }
        verdict
    }

    /// Takes a packet of TCP whose headers are known and whose flow was looked up.
    fn push_by_rules(
        &mut self,
        frame: Frame<B>,
        place: usize,
        guess: Guess,
        now_ns: u64,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        let Some(known) = self.shapes.get(place) else {
            return self.pass(frame, Pass::Protocol, sink);
        };
        let is_empty = frame.buffer.as_ref().len() == known.shape.header_len;
        if is_empty && known.rules.acknowledgments.are_gathered() {
            let found = self.found_behind_waiting(&guess, &frame, sink);
            return self.gather(frame, place, found, now_ns, sink);
        }
        let examined = match known.refusal {
            None => {
                examine_by_rules(frame.buffer.as_ref(), &known.shape, &frame.meta, &known.rules)
            }
            Some(reason) => Err(reason),
        };
        let candidate = match examined {
            Ok(candidate) => candidate,
            Err(reason) => return self.pass_behind(&guess, frame, reason, sink),
        };
        let arrival = Arrival { frame, candidate, known: place, flow: guess.flow, now_ns };
        match self.resequencer {
            Some(_) => self.resequence(arrival, sink),
            None => self.admit(guess.found, arrival, sink),
        }
    }

    /// Takes an examined packet of TCP into the train of its flow, or starts one.
    pub(super) fn admit(
        &mut self,
        found: Found,
        arrival: Arrival<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        match found {
            Found::Slot(slot) => self.offer_by_rules(slot, arrival, sink),
            Found::Free(_) | Found::Full(_) => self.hold_by_rules(arrival, sink),
        }
    }

    /// Lets a packet through behind the train of its flow.
    fn pass_behind(
        &mut self,
        guess: &Guess,
        frame: Frame<B>,
        reason: Pass,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        if let Found::Slot(slot) = self.found_behind_waiting(guess, &frame, sink) {
            self.close(slot, Close::Barrier, sink);
        }
        self.pass(frame, reason, sink)
    }

    /// The train of a packet's flow, once everything has left that waited of it.
    fn found_behind_waiting(
        &mut self,
        guess: &Guess,
        frame: &Frame<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Found {
        if self.resequencer.is_none() {
            return guess.found;
        }
        let shape = guess.known.and_then(|place| self.shapes.get(place)).map(|known| &known.shape);
        let flags = shape.and_then(|shape| frame.buffer.as_ref().get(shape.flags? as usize));
        self.let_go_before(guess.flow, flags.copied().unwrap_or_default(), sink);
        self.table.find(guess.flow, frame.meta.hash)
    }

    /// Offers a packet to the train of its flow.
    fn offer_by_rules(
        &mut self,
        slot: u32,
        arrival: Arrival<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        let Some((train, known)) = self.trains.train_mut(slot).and_then(|train| {
            let known = self.shapes.get(train.known)?;
            Some((train, known))
        }) else {
            return self.pass(arrival.frame, Pass::Protocol, sink);
        };
        let rules = known.rules;
        let last = self.pool.last(&train.rest).unwrap_or(&train.first).buffer.as_ref();
        let packet = arrival.frame.buffer.as_ref();
        let admitted = if self.noted.is_vector(train) {
            Err(NoMerge::TcpAcknowledgmentAlone)
        } else {
            train.agrees(&arrival, known).and_then(|()| {
                beside_last(last, packet, &arrival.candidate, known)?;
                train.admits_by_rules(&arrival, known)
            })
        };
        let summarized = (!known.is_invertible)
            .then(|| record_of(packet, &known.shape, &arrival.frame.meta, arrival.now_ns));
        let fixed_ids = match admitted {
            Ok(fixed_ids) => fixed_ids,
            Err(refusal) => {
                self.stats.refused[refusal.index()] += 1;
                self.close(slot, Close::NoMerge, sink);
                let is_duplicate = refusal == NoMerge::TcpAcknowledgmentAlone
                    && arrival.candidate.payload_len == 0;
                // Who flushes at a limit starts anew with the next packet (rule L15).
                let is_limit = matches!(refusal, NoMerge::SizeLimit | NoMerge::SegmentLimit);
                if is_duplicate || (rules.refused == Refused::Leaves && !is_limit) {
                    self.deliver_alone(arrival, sink);
                } else {
                    self.hold_by_rules(arrival, sink);
                }
                return Verdict::Refused(refusal);
            }
        };
        let Arrival { frame, candidate, .. } = arrival;
        let header_len = known.shape.header_len;
        let part = Part::new(frame.buffer, header_len..header_len + candidate.payload_len);
        if let Err(part) = self.pool.push(&mut train.rest, part) {
            let frame = Frame { buffer: part.buffer, ..frame };
            self.close(slot, Close::PartsFull, sink);
            return self.hold_by_rules(Arrival { frame, ..arrival }, sink);
        }
        if let Some(record) = summarized {
            self.noted.summarize(slot, &record, candidate.payload_len > 0, false);
        }
        let ends = train.join_by_rules(&candidate, fixed_ids, &rules);
        let is_full = self.controller.as_ref().is_some_and(|controller| controller.is_full(train));
        if let Some(reason) = ends.or_else(|| is_full.then_some(Close::AcknowledgmentClock)) {
            self.close(slot, reason, sink);
        }
        Verdict::Joined
    }

    /// Starts a train with a packet, unless nothing may follow it.
    fn hold_by_rules(
        &mut self,
        arrival: Arrival<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        let rules = self.profile.rules;
        let candidate = &arrival.candidate;
        let ends = match ending_by_rules(candidate.flags, &rules) {
            Some(Close::Finish) => Some(Pass::TcpFinish),
            Some(_) => Some(Pass::TcpPush),
            // A window update folds into data, and starts nothing.
            None if candidate.payload_len == 0
                && rules.acknowledgments != Acknowledgments::Join =>
            {
                Some(Pass::Empty)
            }
            None => candidate.short_tail.then_some(Pass::Superframe),
        };
        match ends {
            Some(reason) => {
                let meta = self.verified(arrival.known, candidate, arrival.frame.meta);
                self.pass(Frame { meta, ..arrival.frame }, reason, sink)
            }
            None => self.start_by_rules(arrival, sink),
        }
    }

    /// Starts a train with a packet, and what its packets acknowledge if the train will not say so.
    fn start_by_rules(
        &mut self,
        arrival: Arrival<B>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        let summarized = self.shapes.get(arrival.known).filter(|known| !known.is_invertible);
        let record = summarized.map(|known| {
            let Arrival { frame, now_ns, .. } = &arrival;
            record_of(frame.buffer.as_ref(), &known.shape, &frame.meta, *now_ns)
        });
        let has_payload = arrival.candidate.payload_len > 0;
        let verdict = self.start(arrival, None, sink);
        if verdict == Verdict::Held
            && let (Some(record), Some(slot)) = (record, self.previous)
        {
            self.noted.summarize(slot, &record, has_payload, true);
        }
        verdict
    }

    /// Delivers a packet that was refused by its flow's train, behind it.
    fn deliver_alone(&mut self, arrival: Arrival<B>, sink: &mut (impl Sink<B> + ?Sized)) {
        let Arrival { frame, candidate, known, .. } = arrival;
        let meta = self.verified(known, &candidate, frame.meta);
        let packets = u32::from(candidate.packets);
        self.deliver_single(frame.buffer, meta, packets, Close::Never, sink);
    }
}

impl<B: AsRef<[u8]>> Train<B> {
    /// As [`Self::admits`], where fewer laws hold.
    fn admits_by_rules(&self, arrival: &Arrival<B>, known: &Known) -> Result<IpLevels, NoMerge> {
        let Arrival { frame, candidate, .. } = arrival;
        let (first, packet) = (self.first.buffer.as_ref(), frame.buffer.as_ref());
        let Known { shape, rules, .. } = known;
        if let Some(at) = shape.sequence {
            self.admits_sequence(first, packet, at as usize)?;
        }
        let mut fixed_ids = self.fixed_ids;
        if rules.identification == Vary::Equal {
            fixed_ids = self.admits_identifications(shape, first, packet, candidate)?;
            let is_wanted = rules.fixed_identification == FixedIdentification::DontFragment;
            if is_wanted && !all_forbid_fragments(first, shape, fixed_ids) {
                return Err(NoMerge::Identification);
            }
        }
        if rules.sizes == Sizes::EqualButLast {
            self.admits_size(candidate)?;
        }
        self.admits_more(candidate, known.bounds)?;
        self.admits_metadata(arrival, shape).map(|()| fixed_ids)
    }

    /// As [`Self::join`], where fewer packets end a train.
    fn join_by_rules(
        &mut self,
        candidate: &Candidate,
        fixed_ids: IpLevels,
        rules: &Rules,
    ) -> Option<Close> {
        self.fixed_ids = fixed_ids;
        self.packets += candidate.packets;
        self.payload_len += candidate.payload_len;
        self.ending_flags |= candidate.flags & ON_LAST_ONLY;
        let is_short = rules.sizes == Sizes::EqualButLast
            && (candidate.size < self.size || candidate.short_tail);
        ending_by_rules(candidate.flags, rules).or_else(|| is_short.then_some(Close::ShortSegment))
    }
}

/// A packet alone: as [`examine()`], and what the rules ask beside.
fn examine_by_rules(
    packet: &[u8],
    shape: &Shape,
    meta: &Meta,
    rules: &Rules,
) -> Result<Candidate, Pass> {
    let candidate = examine(packet, shape, meta, rules.acknowledgments != Acknowledgments::Alone)?;
    if candidate.flags & rules.flags_alone != 0 {
        return Err(Pass::TcpFlags);
    }
    if rules.congestion_alone && congestion_experienced(packet, shape) {
        return Err(Pass::Congestion);
    }
    let options = packet.get(shape.transport + tcp::HEADER_LEN..shape.header_len);
    let options = options.unwrap_or_default();
    let is_timestamp =
        options.len() == TIMESTAMP_LAYOUT.len() + 8 && options.starts_with(&TIMESTAMP_LAYOUT);
    if rules.options == Options::TimestampOnly && !options.is_empty() && !is_timestamp {
        return Err(Pass::TcpOptions);
    }
    // It says where to cut it, which a train that does not would take away.
    match meta.gso {
        Some(_) if !rules.is_invertible() => Err(Pass::Superframe),
        _ => Ok(candidate),
    }
}

/// Whether the innermost IP header says that the packet met congestion.
fn congestion_experienced(packet: &[u8], shape: &Shape) -> bool {
    traffic_class(packet, shape) & CONGESTION_EXPERIENCED == CONGESTION_EXPERIENCED
}

/// Whether the IPv4 headers of these levels forbid fragments.
fn all_forbid_fragments(packet: &[u8], shape: &Shape, levels: IpLevels) -> bool {
    let mut fixed = shape.identifications.iter().filter(|ip| levels.contains(ip.level as usize));
    fixed.all(|ip| {
        let word = u16_at(packet, ip.header as usize + ipv4::field::FRAGMENT.start);
        word & ipv4::DONT_FRAGMENT != 0
    })
}

/// A packet beside the last one of its train: what may grow must not shrink.
fn beside_last(
    last: &[u8],
    packet: &[u8],
    candidate: &Candidate,
    known: &Known,
) -> Result<(), NoMerge> {
    let tcp_at = known.shape.transport;
    let since = |at: usize| u32_at(packet, at).wrapping_sub(u32_at(last, at)) as i32;
    let acknowledged = since(tcp_at + tcp::field::ACKNOWLEDGMENT.start);
    if acknowledged < 0 {
        return Err(NoMerge::TcpAcknowledgment);
    }
    if candidate.payload_len == 0 {
        let window = tcp_at + tcp::field::WINDOW.start;
        let is_update = u16_at(packet, window) != u16_at(last, window);
        let joins = match known.rules.acknowledgments {
            // Those that wait as they are come another way.
            Acknowledgments::Alone
            | Acknowledgments::Vector
            | Acknowledgments::Thin
            | Acknowledgments::ThinAggressive => false,
            Acknowledgments::WindowUpdates => acknowledged == 0 && is_update,
            Acknowledgments::Join => acknowledged > 0 || is_update,
        };
        if !joins {
            return Err(NoMerge::TcpAcknowledgmentAlone);
        }
    }
    match known.timestamps {
        // In serial arithmetic (RFC 7323 section 5.2).
        Some(at) if since(at.into()) < 0 => Err(NoMerge::TcpTimestamp),
        _ => Ok(()),
    }
}

/// Which flags of a packet end its train, and as what.
fn ending_by_rules(flags: u8, rules: &Rules) -> Option<Close> {
    ending(flags).filter(|&close| close != Close::Push || rules.push == Push::Ends)
}

/// ECN (RFC 3168 section 5).
const CONGESTION_EXPERIENCED: u8 = 3;
