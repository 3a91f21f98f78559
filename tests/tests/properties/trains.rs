//! Trains whose headers the engine is configured to parse.

use grosso_testkit::{
    random::Random,
    stack::{Network, Stack, Tunnel},
    strategy::{GeneratedTrain, train_of},
};

/// Returns the first train derived from this seed that the engine can parse. The FOU port has only one protocol, which
/// is IPv4 in these tests.
pub(crate) fn readable_train(seed: u64, count: usize) -> GeneratedTrain {
    let mut random = Random::new(seed);
    let mut trains = core::iter::repeat_with(|| train_of(random.bits(), count));
    trains.find(|train| !has_ipv6_in_fou(&train.stack)).expect("an endless sequence")
}

fn has_ipv6_in_fou(stack: &Stack) -> bool {
    let inside = stack.tunnels.iter().skip(1).map(|(network, _)| *network).chain([stack.network]);
    let mut pairs = stack.tunnels.iter().zip(inside);
    pairs.any(|((_, tunnel), inside)| *tunnel == Tunnel::Fou && inside != Network::Ipv4)
}
