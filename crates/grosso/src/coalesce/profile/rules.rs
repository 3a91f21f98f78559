//! Rules that let packets of a TCP train differ even where segmentation cannot restore the differences.
//!
//! The laws of a [header](grosso_wire::HeaderSpec) require every other field to be equal, so that segmenting a
//! superframe restores the original packets. Other implementations of receive offload are less strict: later
//! acknowledgments, windows and timestamps replace earlier ones. A profile replaces the laws of these fields.

use grosso_wire::Role;

use crate::{acknowledge::AckFiltering, template::compare::Relaxed};

/// Treatment of a field that the exact rules require to be equal in all packets of a TCP train.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Vary {
    /// The field must be equal. A different value ends the train.
    #[default]
    Equal,
    /// The field is not compared; the value in the first packet is kept.
    First,
    /// The field is not compared; the value in the last packet is kept.
    Latest,
}

/// TCP rules of a profile. They do not apply to UDP, whose trains are always invertible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rules {
    /// DSCP in IPv4. This excludes ECN, which must always be equal: the original lossy implementations ignored it and
    /// lost congestion marks (P8).
    pub differentiated_services: Vary,
    /// IPv6 flow label and DSCP.
    pub flow_label: Vary,
    /// TTL or hop limit.
    pub time_to_live: Vary,
    /// IPv4 DF bit.
    pub dont_fragment: Vary,
    /// IPv4 identification. If it is compared, it must increase by one or stay fixed.
    pub identification: Vary,
    /// Packets whose IPv4 identification may stay fixed. Ignored if identifications are not compared.
    pub fixed_identification: FixedIdentification,
    /// Acknowledgment number. A packet never merges if its number is lower than the train's.
    pub acknowledgment: Vary,
    /// TCP window.
    pub window: Vary,
    /// TCP timestamp value. A packet never merges if its value is lower than the train's.
    pub timestamp_value: Vary,
    /// TCP timestamp echo.
    pub timestamp_echo: Vary,
    /// Permitted TCP options.
    pub options: Options,
    /// Permitted payload lengths.
    pub sizes: Sizes,
    /// Effect of PSH.
    pub push: Push,
    /// TCP flags that prevent a packet from merging, in addition to SYN, RST and URG, as the low byte of the flags
    /// field.
    pub flags_alone: u8,
    /// Whether packets marked CE never merge.
    pub congestion_alone: bool,
    /// Treatment of packets without payload.
    pub acknowledgments: Acknowledgments,
    /// Treatment of a packet that does not fit into its flow's train.
    pub refused: Refused,
    /// Treatment of a packet that would start a train when the table is full.
    pub full: FullTable,
    /// Effect of reaching a limit on bytes or packets.
    pub at_limit: AtLimit,
    /// Treatment of frames with padding after the end of the packet.
    pub padding: Padding,
    /// Treatment of packets whose timestamp echoes zero.
    pub zero_echo: ZeroEcho,
    /// Checksum of superframes.
    pub checksum: TrainChecksum,
}

/// Effect of [`Limits::size_bytes`](super::Limits::size_bytes) and
/// [`Limits::tcp_segments`](super::Limits::tcp_segments).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtLimit {
    /// A packet that would exceed the limit starts the next train.
    Next,
    /// A packet that reaches the limit is the last of its train, which is then delivered immediately.
    Ends,
}

/// Treatment of frames with padding after the end of the packet. Ethernet pads short frames to its minimum length (P3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Padding {
    /// Padded frames are delivered alone.
    Alone,
    /// Padded frames are merged without their padding.
    Trim,
}

/// Treatment of packets with a TCP timestamp that echoes zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ZeroEcho {
    /// Packets with a zero echo merge like other packets.
    Joins,
    /// Packets with a zero echo may start a train, but are not appended to one.
    Starts,
    /// Packets with a zero echo are delivered alone.
    Alone,
}

/// Checksum of a superframe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TrainChecksum {
    /// A pseudo-header sum, to be completed by a device or the receiver.
    Partial,
    /// A complete checksum, derived from the packets' checksums. It is partial if one of the packets' checksums was.
    Complete,
}

/// Packets that may merge although their IPv4 identifications are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FixedIdentification {
    /// All packets (rule G14).
    Any,
    /// Only packets with DF, as in Linux before 6.18 (rule G14a).
    DontFragment,
}

/// TCP options that a packet in a train may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Options {
    /// Any options.
    Any,
    /// No options, or two NOPs and a timestamp.
    TimestampOnly,
}

/// Payload lengths that the packets of a train may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sizes {
    /// Equal lengths, except that the last packet may be shorter.
    EqualButLast,
    /// Any lengths. Packet boundaries cannot be recovered from the superframe.
    Any,
}

/// Effect of PSH.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Push {
    /// PSH ends the train.
    Ends,
    /// The packet merges, and PSH is set in the superframe.
    Joins,
}

/// Treatment of packets without payload. Duplicate acknowledgments (same number and window) never merge, because
/// senders count them (P12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Acknowledgments {
    /// Pure acknowledgments are delivered alone, and end the train before them (P10).
    Alone,
    /// Pure acknowledgments merge if they only change the window.
    WindowUpdates,
    /// Pure acknowledgments merge if they acknowledge more data or change the window. The sender then has fewer
    /// acknowledgments to clock its transmissions.
    Join,
    /// Pure acknowledgments merge if they acknowledge more data; those that only change the window count as duplicates.
    Newer,
    /// Pure acknowledgments of a flow are delivered together as a [`Vector`](crate::coalesce::Vector): unchanged, and
    /// with a record of each.
    Vector,
    /// Pure acknowledgments are delivered together. Those that a later one makes redundant are dropped, except one
    /// ([`AckFiltering::Conservative`]).
    Filter,
    /// Like [`Self::Filter`], but only the newest acknowledgment is kept ([`AckFiltering::Aggressive`]).
    FilterAggressive,
}

impl Vary {
    const fn is_equal(self) -> bool {
        matches!(self, Self::Equal)
    }
}

impl Acknowledgments {
    /// Returns whether some acknowledgments merge into trains.
    pub(crate) const fn join_trains(self) -> bool {
        matches!(self, Self::WindowUpdates | Self::Join | Self::Newer)
    }

    /// Returns whether acknowledgments of a flow wait together unmerged.
    pub(crate) const fn are_gathered(self) -> bool {
        matches!(self, Self::Vector | Self::Filter | Self::FilterAggressive)
    }

    /// Returns the filtering mode, if acknowledgments are filtered.
    pub(crate) const fn filtering(self) -> Option<AckFiltering> {
        match self {
            Self::Filter => Some(AckFiltering::Conservative),
            Self::FilterAggressive => Some(AckFiltering::Aggressive),
            _ => None,
        }
    }
}

/// Treatment of a packet that does not fit into its flow's train.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refused {
    /// The packet starts the next train.
    Starts,
    /// The packet is delivered unmerged after the train, or starts the next train if only a limit prevented the merge.
    Leaves,
}

/// Treatment of a packet that would start a train when the flow table is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FullTable {
    /// The packet starts a train, and the oldest train of the bucket is delivered (rule G3).
    Evicts,
    /// The packet is delivered alone, and the held trains are kept (rule L10).
    Leaves,
}

impl Rules {
    /// Rules for trains that segmentation restores to the original packets.
    pub const INVERTIBLE: Self = Self {
        differentiated_services: Vary::Equal,
        flow_label: Vary::Equal,
        time_to_live: Vary::Equal,
        dont_fragment: Vary::Equal,
        identification: Vary::Equal,
        fixed_identification: FixedIdentification::Any,
        acknowledgment: Vary::Equal,
        window: Vary::Equal,
        timestamp_value: Vary::Equal,
        timestamp_echo: Vary::Equal,
        options: Options::Any,
        sizes: Sizes::EqualButLast,
        push: Push::Ends,
        flags_alone: 0,
        congestion_alone: false,
        acknowledgments: Acknowledgments::Alone,
        refused: Refused::Starts,
        full: FullTable::Evicts,
        at_limit: AtLimit::Next,
        padding: Padding::Alone,
        zero_echo: ZeroEcho::Joins,
        checksum: TrainChecksum::Partial,
    };

    /// Returns whether segmenting any train restores the original packets. If not, only the host that terminates TCP
    /// may use the profile, because forwarded packets would differ from the received ones.
    #[must_use]
    pub const fn is_invertible(&self) -> bool {
        let Self {
            differentiated_services,
            flow_label,
            time_to_live,
            dont_fragment,
            identification,
            acknowledgment,
            window,
            timestamp_value: _,
            timestamp_echo: _,
            sizes,
            push,
            acknowledgments,
            padding,
            // Packets that are excluded or dropped do not change the others.
            fixed_identification: _,
            options: _,
            flags_alone: _,
            congestion_alone: _,
            refused: _,
            full: _,
            at_limit: _,
            zero_echo: _,
            // This checksum makes no difference, because the receiver of a superframe completes it anyway.
            checksum: _,
        } = *self;
        differentiated_services.is_equal()
            && flow_label.is_equal()
            && time_to_live.is_equal()
            && dont_fragment.is_equal()
            && identification.is_equal()
            && acknowledgment.is_equal()
            && window.is_equal()
            && !self.varies_timestamps()
            && matches!(sizes, Sizes::EqualButLast)
            && matches!(push, Push::Ends)
            && !acknowledgments.join_trains()
            && matches!(padding, Padding::Alone)
    }

    /// Returns whether the timestamp option may vary.
    pub(crate) const fn varies_timestamps(&self) -> bool {
        !self.timestamp_value.is_equal() || !self.timestamp_echo.is_equal()
    }

    /// Returns whether some field may increase but not decrease, so that a packet must also be compared with the last
    /// packet of its train.
    pub(crate) const fn compares_with_last(&self) -> bool {
        !self.acknowledgment.is_equal()
            || self.varies_timestamps()
            || self.acknowledgments.join_trains()
    }

    /// Returns the treatment that the rules specify for fields with this role.
    pub(crate) fn vary(&self, role: Role) -> Vary {
        match role {
            Role::TypeOfService => self.differentiated_services,
            Role::ClassAndLabel => self.flow_label,
            Role::TimeToLive => self.time_to_live,
            Role::Fragmentation => self.dont_fragment,
            Role::Identification => self.identification,
            Role::Acknowledgment => self.acknowledgment,
            Role::Window => self.window,
            _ => Vary::Equal,
        }
    }
}

impl Relaxed for Rules {
    fn lets_vary(&self, role: Role) -> bool {
        !self.vary(role).is_equal()
    }

    fn lets_timestamps_vary(&self) -> bool {
        self.varies_timestamps()
    }
}
