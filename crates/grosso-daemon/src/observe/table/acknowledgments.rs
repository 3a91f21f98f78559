//! Counters for acknowledgments that the path drops, sends together, or expands.

use grosso::{acknowledge::Kept, expand::Unexpanded};

use super::{Counter, CounterSource, Label, lower};

/// Returns all counters of acknowledgments.
pub(super) fn counters() -> Vec<Counter> {
    let tables = [gathered(), kept(), expanded(), unexpanded()];
    tables.into_iter().flatten().collect()
}

/// Returns the counters of acknowledgments that the coalescer held in order to send them together.
fn gathered() -> Vec<Counter> {
    let counter = |name: &str, unit, help, read| {
        Counter::new(name, unit, help, CounterSource::Coalescer(read, 0)).alone()
    };
    vec![
        counter(
            "rx_acks_filtered",
            "packets",
            "Acknowledgments dropped because a later one carries all their information.",
            |stats, _| stats.filtered,
        ),
        counter(
            "rx_acks_vectors",
            "vectors",
            "Groups of acknowledgments of one flow that were held and sent together.",
            |stats, _| stats.vectors,
        ),
        counter(
            "rx_acks_vector_packets",
            "packets",
            "Acknowledgments that were held in groups and sent unchanged.",
            |stats, _| stats.vector_packets,
        ),
    ]
}

/// Returns the counters of acknowledgments that could have been dropped but were kept, by reason.
fn kept() -> Vec<Counter> {
    let all = "Acknowledgments that were held for the filter and kept, by reason.";
    let counter = |(index, reason): (usize, &Kept)| {
        let name = reason.name();
        let help = format!("Acknowledgments kept by the filter: {}", lower(reason.sentence()));
        let source = CounterSource::Coalescer(|stats, index| stats.kept[index], index);
        Counter::new(format!("rx_acks_kept_{name}"), "packets", &help, source)
            .of("rx_acks_kept_total", all, Label::Value("reason", name.to_owned()))
            .grouped("rx_acks_kept", name)
    };
    Kept::ALL.iter().enumerate().map(counter).collect()
}

/// Returns the counters of expanded acknowledgments.
fn expanded() -> Vec<Counter> {
    let counter = |name: &str, help, read| {
        Counter::new(name, "packets", help, CounterSource::Received(read, 0)).alone()
    };
    vec![
        counter(
            "rx_acks_expanded",
            "Acknowledgments of merged packets that were expanded into several acknowledgments each.",
            |stats, _| stats.acknowledgments_expanded,
        ),
        counter(
            "rx_acks_expanded_into",
            "Acknowledgments that resulted from expansion, including the original acknowledgments.",
            |stats, _| stats.acknowledgments_expanded_into,
        ),
    ]
}

/// Returns the counters of acknowledgments that were not expanded, by reason.
fn unexpanded() -> Vec<Counter> {
    let all = "Acknowledgments of merged packets that were not expanded, by reason.";
    let counter = |(index, reason): (usize, &Unexpanded)| {
        let name = reason.name();
        let help = format!(
            "Acknowledgments of merged packets that were not expanded: {}",
            lower(reason.sentence())
        );
        let source =
            CounterSource::Received(|stats, index| stats.acknowledgments_unexpanded[index], index);
        Counter::new(format!("rx_acks_unexpanded_{name}"), "packets", &help, source)
            .of("rx_acks_unexpanded_total", all, Label::Value("reason", name.to_owned()))
            .grouped("rx_acks_unexpanded", name)
    };
    Unexpanded::ALL.iter().enumerate().map(counter).collect()
}
