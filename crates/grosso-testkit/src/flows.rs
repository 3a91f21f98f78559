//! Checks of invariants between input and output packets.

use std::collections::BTreeMap;

use crate::oracle::{Flow, Link, flow_of};

/// Asserts that `output` has exactly the packets of `input`, in any order.
///
/// # Panics
/// Panics if a packet was lost, added or changed; the message shows the first example of each.
pub fn assert_conserved<A: AsRef<[u8]>, B: AsRef<[u8]>>(input: &[A], output: &[B]) {
    let mut balance: BTreeMap<&[u8], i64> = BTreeMap::new();
    for frame in input {
        *balance.entry(frame.as_ref()).or_default() += 1;
    }
    for frame in output {
        *balance.entry(frame.as_ref()).or_default() -= 1;
    }
    let lost = balance.iter().find(|(_, count)| **count > 0);
    let invented = balance.iter().find(|(_, count)| **count < 0);
    assert!(
        lost.is_none() && invented.is_none(),
        "{} packets in, {} packets out\nlost: {}\ninvented: {}",
        input.len(),
        output.len(),
        lost.map_or_else(String::new, |(frame, _)| hex(frame)),
        invented.map_or_else(String::new, |(frame, _)| hex(frame)),
    );
}

/// Asserts that the packets of every flow are in the same order in `output` as in `input`.
///
/// # Panics
/// Panics if a flow was reordered; the message names the flow and shows the first packet out of order.
pub fn assert_order_within_flows<A: AsRef<[u8]>, B: AsRef<[u8]>>(
    input: &[A],
    output: &[B],
    link: Link,
) {
    let (before, after) = (by_flow(input, link), by_flow(output, link));
    for (flow, expected) in &before {
        let found = after.get(flow).map_or(&[][..], Vec::as_slice);
        let place = (0..expected.len().max(found.len()))
            .find(|index| expected.get(*index) != found.get(*index));
        if let Some(place) = place {
            panic!(
                "flow [{flow}] differs at its packet {place}\nin:  {}\nout: {}",
                expected.get(place).map_or_else(String::new, |frame| hex(frame)),
                found.get(place).map_or_else(String::new, |frame| hex(frame)),
            );
        }
    }
}

/// Formats the length and the first bytes of a frame for messages.
pub fn hex(frame: &[u8]) -> String {
    let shown: Vec<String> = frame.iter().take(SHOWN).map(|byte| format!("{byte:02x}")).collect();
    format!(
        "{}{} ({} bytes)",
        shown.concat(),
        if frame.len() > SHOWN { ".." } else { "" },
        frame.len()
    )
}

/// Maximum number of bytes of a frame that a message shows: enough for all headers and a little payload.
const SHOWN: usize = 120;

fn by_flow<T: AsRef<[u8]>>(frames: &[T], link: Link) -> BTreeMap<Flow, Vec<&[u8]>> {
    let mut flows: BTreeMap<Flow, Vec<&[u8]>> = BTreeMap::new();
    for frame in frames {
        if let Some(flow) = flow_of(frame.as_ref(), link) {
            flows.entry(flow).or_default().push(frame.as_ref());
        }
    }
    flows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Packet;

    fn frame(sequence: u32) -> Vec<u8> {
        let packet = Packet::new().ethernet(|e| e).vlan(|v| v.id(7)).ipv4(|ip| ip);
        packet.tcp(|t| t.sequence(sequence)).payload_len(10).build()
    }

    #[test]
    #[should_panic(expected = "2 packets in, 1 packets out")]
    fn a_lost_packet_is_noticed() {
        assert_conserved(&[frame(1), frame(2)], &[frame(1)]);
    }

    #[test]
    #[should_panic(expected = "invented")]
    fn a_duplicated_packet_is_noticed() {
        assert_conserved(&[frame(1)], &[frame(1), frame(1)]);
    }

    #[test]
    #[should_panic(expected = "vlan 7")]
    fn an_overtaking_packet_is_noticed() {
        let (one, two) = (frame(1), frame(2));
        assert_conserved(&[&one, &two], &[&two, &one]);
        assert_order_within_flows(&[&one, &two], &[&two, &one], Link::Ethernet);
    }
}
