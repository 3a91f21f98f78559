//! Rules by which the packets of one TCP train may differ beyond what cutting gives back, as data.
//!
//! The laws of a [header](grosso_wire::HeaderSpec) want every field equal that they do not describe, so that a
//! superframe can be cut into the very packets that went in. The receive offloads of other systems want less: later
//! acknowledgments, windows and timestamps overwrite earlier ones. Here that is a replaced law, field by field.

use grosso_wire::Role;

use crate::{acknowledge::AckFiltering, template::compare::Liberties};

/// Behaviour of a field that the laws want equal, in a train of TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Vary {
    /// Nothing: another value ends the train.
    #[default]
    Equal,
    /// It is not looked at, and the first packet's stays.
    First,
    /// The last packet's stays.
    Latest,
}

/// The rules of a profile for TCP. UDP is always joined so that it can be cut again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rules {
    /// The code point of differentiated services. ECN beside it is always equal: what none of the lossy originals
    /// looked at loses marks of congestion (P8).
    pub differentiated_services: Vary,
    /// The flow label of IPv6, and its code point of differentiated services.
    pub flow_label: Vary,
    /// TTL and hop limit.
    pub time_to_live: Vary,
    /// The don't-fragment bit of IPv4.
    pub dont_fragment: Vary,
    /// The identification of IPv4, which otherwise steps or stays.
    pub identification: Vary,
    /// Packets whose identification may stay along a train, where it is looked at.
    pub fixed_identification: FixedIdentification,
    /// The acknowledgment number. One that is behind the train's never joins.
    pub acknowledgment: Vary,
    /// The window.
    pub window: Vary,
    /// The value of the timestamp option. One that is behind the train's never joins.
    pub timestamp_value: Vary,
    /// The echo of the timestamp option.
    pub timestamp_echo: Vary,
    /// TCP options that a packet in a train may have.
    pub options: Options,
    /// Lengths that packets of a train may have.
    pub sizes: Sizes,
    /// Effect of PSH.
    pub push: Push,
    /// TCP flags with which a packet is in no train, beside SYN, RST and URG: the low byte of the flags.
    pub flags_alone: u8,
    /// Whether a packet that met congestion is in no train.
    pub congestion_alone: bool,
    /// Treatment of packets without payload.
    pub acknowledgments: Acknowledgments,
    /// Treatment of a packet that did not fit the train of its flow.
    pub refused: Refused,
    /// Treatment of a packet whose flow has no train, while no place in the table is free.
    pub full: FullTable,
}

/// Packets whose IPv4 identification may stay along a train.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FixedIdentification {
    /// That of any header (rule G14).
    Any,
    /// That of a header that forbids fragments, as in Linux before 6.18 (rule G14a).
    DontFragment,
}

/// TCP options that a packet in a train may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Options {
    /// Any.
    Any,
    /// None, or two NOPs and a timestamp.
    TimestampOnly,
}

/// Lengths that packets of a train may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sizes {
    /// All as the first, but the last may be shorter.
    EqualButLast,
    /// As they like: the superframe does not say where to cut it.
    Any,
}

/// Effect of PSH.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Push {
    /// It ends the train.
    Ends,
    /// It joins, and is on the superframe.
    Joins,
}

/// Treatment of packets without payload. Two acknowledgments of the same data with the same window never join:
/// the sender counts them (P12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Acknowledgments {
    /// They are in no train, and none is held over them (P10).
    Alone,
    /// Those that change nothing but the window join.
    WindowUpdates,
    /// Those that acknowledge more or change the window join: fewer acknowledgments reach the sender, whose clock
    /// they are.
    Join,
    /// Those of a flow leave together, each of them whole, with a record of what it says: a
    /// [`Vector`](crate::coalesce::Vector).
    Vector,
    /// They leave together and whole, but for those of which a later one says all: those are dropped, and at least one
    /// of them stays ([`AckFiltering::Conservative`]).
    Filter,
    /// As [`Self::Filter`], and the newest is enough ([`AckFiltering::Aggressive`]).
    FilterAggressive,
}

impl Vary {
    const fn is_equal(self) -> bool {
        matches!(self, Self::Equal)
    }
}

impl Acknowledgments {
    /// Whether some of them join trains.
    pub(crate) const fn join_trains(self) -> bool {
        matches!(self, Self::WindowUpdates | Self::Join)
    }

    /// Whether those of a flow wait for each other as they are.
    pub(crate) const fn are_gathered(self) -> bool {
        matches!(self, Self::Vector | Self::Filter | Self::FilterAggressive)
    }

    /// Degree to which they are filtered, if they are.
    pub(crate) const fn filtering(self) -> Option<AckFiltering> {
        match self {
            Self::Filter => Some(AckFiltering::Conservative),
            Self::FilterAggressive => Some(AckFiltering::Aggressive),
            _ => None,
        }
    }
}

/// Treatment of a packet that did not fit the train of its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refused {
    /// It starts the next.
    Starts,
    /// It leaves behind the train, unless a limit kept it out.
    Leaves,
}

/// Treatment of a packet whose flow has no train, while no place in the table is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FullTable {
    /// It starts one, and the oldest train in its way leaves (rule G3).
    Evicts,
    /// It leaves alone, and those held go on (rule L10).
    Leaves,
}

impl Rules {
    /// Those of trains that can be cut into the very packets that went in.
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
    };

    /// Whether every train can be cut into the packets that went in. If not, only who ends TCP may have it: what it
    /// would forward are other packets.
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
            // What is left out of trains changes no packet, and neither does what is dropped.
            fixed_identification: _,
            options: _,
            flags_alone: _,
            congestion_alone: _,
            refused: _,
            full: _,
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
    }

    /// Whether the timestamp option is looked into.
    pub(crate) const fn varies_timestamps(&self) -> bool {
        !self.timestamp_value.is_equal() || !self.timestamp_echo.is_equal()
    }

    /// Whether a packet is compared with the last one of its train too: some field may grow, and none may shrink.
    pub(crate) const fn compares_with_last(&self) -> bool {
        !self.acknowledgment.is_equal()
            || self.varies_timestamps()
            || self.acknowledgments.join_trains()
    }

    /// Behaviour of fields of this role.
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

impl Liberties for Rules {
    fn lets_vary(&self, role: Role) -> bool {
        !self.vary(role).is_equal()
    }

    fn lets_timestamps_vary(&self) -> bool {
        self.varies_timestamps()
    }
}
