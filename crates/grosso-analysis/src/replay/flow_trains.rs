//! Records the trains of each flow: which packets in a direction merge, why its trains end, and how long they wait.

use grosso::{Delivery, Sink, Verdict, coalesce::reason::Close};
use grosso_capture::Packet;
use grosso_io::PortBuffer;
use grosso_wire::dissect;

use super::{Fate, HoldTime, Purpose, Receiver, Records, Repair, Replay, Rules, Seen};
use crate::{
    checksums::{Levels, Verdict as ChecksumVerdict, judge},
    error::Failure,
    evidence::{Judge, Sight},
    slowdown::{Connections, EndedTrain, FlowMark, Slowdowns},
};

/// Tracker for the flows in a capture during a replay.
#[derive(Default)]
pub(crate) struct Streams {
    pub(crate) connections: Connections,
    levels: Levels,
}

impl Streams {
    pub(crate) fn new(connections: Connections) -> Self {
        Self { connections, levels: Levels::default() }
    }

    /// Processes a packet. Returns its direction if it has a payload.
    pub(crate) fn observe(
        &mut self,
        packet: &Packet<'_>,
        seen: &Seen<'_>,
        classifier: &Judge,
    ) -> Option<FlowMark> {
        let (link, judgment) = (seen.link?, seen.judgment?);
        let described = packet.meta();
        let stack = dissect(packet.data, link, &seen.ports);
        let sight = Sight::new(packet, &described, &stack, link, seen.ports);
        let claim = classifier.claim(&sight);
        judge(packet.data, packet.is_cut(), &stack, claim, &mut self.levels);
        let is_bad = self.levels.worst() == Some(ChecksumVerdict::Bad);
        self.connections.mark(&sight, &judgment, is_bad)
    }

    /// Returns the name of the verdict on the last packet's worst checksum; `None` if it has none.
    #[cfg(feature = "tables")]
    pub(crate) fn checksum(&self) -> Option<&'static str> {
        self.levels.worst().map(ChecksumVerdict::name)
    }

    /// Returns the causes that slow down the observed directions, and the flow table.
    pub(crate) fn conclude(self) -> Slowdowns {
        self.connections.conclude()
    }
}

/// Packet in a coalescer, with its direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MarkedPacket {
    mark: FlowMark,
    number: u64,
    arrived_ns: u64,
}

/// Trains delivered while a packet was being pushed, kept until the verdict on that packet is known.
#[derive(Debug, Default)]
pub(crate) struct FlowTrains {
    /// Packet that is being pushed.
    pushed: Option<MarkedPacket>,
    /// Delivered trains, and whether each consists only of the pushed packet.
    left: Vec<(Close, EndedTrain, bool)>,
    waited: Vec<(FlowMark, u64)>,
    now_ns: u64,
}

impl FlowTrains {
    /// Sets the packet that the replay will process next. `mark` is the result of [`Streams::observe`].
    pub(crate) fn begin(&mut self, seen: &Seen<'_>, mark: Option<FlowMark>) {
        let (number, arrived_ns) = (seen.packet.number, seen.time.unwrap_or(0));
        self.pushed = mark.map(|mark| MarkedPacket { mark, number, arrived_ns });
    }

    /// Returns the packet set by [`Self::begin`], to be stored alongside the buffer; `None` if it has no payload.
    pub(crate) const fn pushed(&self) -> Option<MarkedPacket> {
        self.pushed
    }

    /// Sets the time of subsequent deliveries.
    pub(crate) const fn at(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Adds a delivered train and those of its packets that have a payload.
    pub(crate) fn leave(
        &mut self,
        delivery: &Delivery<'_, PortBuffer>,
        packet: impl Fn(&PortBuffer) -> Option<MarkedPacket>,
    ) {
        let (mut first, mut judged, mut last) = (None, 0, None);
        for packet in delivery.parts().filter_map(|part| packet(&part.buffer)) {
            first.get_or_insert(packet);
            last = Some(packet.number);
            judged += u64::from(packet.mark.packets);
            self.waited.push((packet.mark, self.now_ns.saturating_sub(packet.arrived_ns)));
        }
        let Some(MarkedPacket { mark, number, .. }) = first else { return };
        let is_pushed = self.pushed.is_some_and(|pushed| pushed.number == number);
        // The engine recognizes superframes by recorded metadata, the classifier by other evidence too.
        let packets = judged.max(delivery.packets.into());
        let train = EndedTrain { first: mark, packets, ended: delivery.closed.name() };
        self.left.push((delivery.closed, train, is_pushed && last == Some(number)));
    }

    /// Records the trains in `connections`, with the verdict on the pushed packet.
    pub(crate) fn settle(&mut self, fate: Option<Fate>, connections: &mut Connections) {
        for (closed, mut train, is_pushed) in self.left.drain(..) {
            if let Some(Fate::Engine(verdict)) = fate
                && let Some(why) = why(closed, verdict, is_pushed)
            {
                train.ended = why;
            }
            connections.add_train(&train);
        }
        if let (Some(Fate::Aside(aside)), Some(MarkedPacket { mark, .. })) = (fate, self.pushed) {
            let packets = mark.packets.into();
            connections.add_train(&EndedTrain { first: mark, packets, ended: aside.name() });
            self.waited.push((mark, 0));
        }
        for (mark, waited_ns) in self.waited.drain(..) {
            connections.add_hold(&mark, waited_ns);
        }
        self.pushed = None;
    }
}

/// Returns the reason why the pushed packet ended a train, or `None` if it did not. `is_pushed` says whether the train
/// consists only of this packet.
pub(crate) const fn why(closed: Close, verdict: Verdict, is_pushed: bool) -> Option<&'static str> {
    let is_by_packet = match closed {
        Close::NoMerge | Close::Barrier => true,
        Close::Never => is_pushed,
        _ => false,
    };
    match verdict {
        Verdict::Refused(reason) if is_by_packet => Some(reason.name()),
        Verdict::Passed(reason) if is_by_packet => Some(reason.name()),
        _ => None,
    }
}

/// Replay that only reports each flow's trains.
pub(crate) struct FlowReplay {
    replay: Replay,
    meter: FlowMeter,
}

/// Receiver that stores the packets of a [`FlowReplay`].
#[derive(Default)]
struct FlowMeter {
    records: Records<Option<MarkedPacket>>,
    trains: FlowTrains,
}

impl FlowReplay {
    /// Creates a replay with these rules if the flow table is to list each flow's trains.
    pub(crate) fn listing(
        rules: &Rules,
        connections: &mut Connections,
    ) -> Result<Option<Self>, Failure> {
        if !connections.lists_flows() {
            return Ok(None);
        }
        let replay = Replay::new(rules, Purpose::Looks)?;
        connections.merged_by(replay.rules_text());
        Ok(Some(Self::new(replay)))
    }

    pub(crate) fn new(replay: Replay) -> Self {
        Self { replay, meter: FlowMeter::default() }
    }

    /// Pushes a packet. `mark` identifies its flow direction.
    pub(crate) fn push(
        &mut self,
        seen: &Seen<'_>,
        mark: Option<FlowMark>,
        connections: &mut Connections,
    ) {
        self.meter.trains.begin(seen, mark);
        let fate = self.replay.push(seen, &mut self.meter);
        self.meter.trains.settle(Some(fate), connections);
    }

    /// Flushes all trains at the end of the capture or of a section.
    pub(crate) fn finish(&mut self, connections: &mut Connections) {
        self.replay.finish(&mut self.meter);
        self.meter.trains.settle(None, connections);
    }
}

impl Replay {
    /// Returns a short description of the rules, for the flow table.
    pub(crate) fn rules_text(&self) -> String {
        let profile = self.profile();
        let (hold, repair) = (HoldTime::of(profile), Repair::of(profile).to_string());
        let reorder = if repair == "off" { String::new() } else { format!(", reorder {repair}") };
        format!("{}, hold {hold}{reorder}", profile.name)
    }
}

impl Sink<PortBuffer> for FlowMeter {
    fn deliver(&mut self, mut delivery: Delivery<'_, PortBuffer>) {
        self.trains.leave(&delivery, |buffer| *self.records.of(buffer));
        while let Some(part) = delivery.next_part() {
            self.records.give_back(part.buffer);
        }
    }

    fn discard(&mut self, buffer: PortBuffer) {
        self.records.give_back(buffer);
    }
}

impl Receiver for FlowMeter {
    fn keep(&mut self, seen: &Seen<'_>) -> PortBuffer {
        let (buffer, packet) = self.records.add(&seen.data);
        *packet = self.trains.pushed();
        buffer
    }

    fn at(&mut self, now_ns: u64) {
        self.trains.at(now_ns);
    }
}
