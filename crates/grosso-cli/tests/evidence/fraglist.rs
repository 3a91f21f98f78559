//! Tests frames that the kernel's fraglist GRO merged, captured before and after the merge.

use super::{FAMILIES, PLAIN, assert_is_the_wire, bench, bytes, inspect, longest, sizes};
use crate::common::{Timed, frames};
use crate::vantage::{BYTES, Chain, set, without_offloads};

/// Creates a bridge whose port to the sender merges packets into fraglists, and a sender without offloads.
fn chain() -> Option<Chain> {
    let chain = Chain::new(PLAIN)?;
    without_offloads(&chain.sender, "s0");
    set(&chain.bridge, "s1", "rx-gro", true);
    set(&chain.bridge, "s1", "rx-gro-list", true);
    Some(chain)
}

/// Returns the datagrams from the sender.
fn datagrams(packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let is_udp = |frame: &&Vec<u8>| match frame[12..14] {
        [0x08, 0x00] => frame[23] == 17,
        _ => frame[20] == 17,
    };
    packets.iter().filter(is_udp).cloned().collect()
}

#[test]
fn streams_merged_by_reference_are_split_into_what_the_sender_sent() {
    let Some(chain) = chain() else { return };
    for family in FAMILIES {
        let devices = [(&chain.sender, "s0"), (&chain.bridge, "s1")];
        let talk = || chain.stream(chain.ends(family), BYTES);
        let [sent, seen]: [Vec<Timed>; 2] =
            chain.record(&devices, family, talk).try_into().unwrap();
        assert_eq!(longest(&bytes(&sent)), 1514);
        assert!(longest(&bytes(&seen)) > 3000, "nothing was merged");
        let bench = bench(&[("seen.pcap", &seen)]);
        let (code, report) = inspect(&bench, "seen.pcap");
        assert_eq!((code, &report["checksums"]["bad"]), (1, &0.into()), "{report}");
        assert_eq!(report["verdict"]["vantage"], "receiver-host", "{report}");
        let run = bench.run("wire --strict --json -r seen.pcap -w out.pcap");
        assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
        assert!(sizes(&run.json()).iter().all(|(_, source)| source == "prefix"), "{}", run.stdout);
        assert_is_the_wire(&run.stdout, &frames(&bench.get("out.pcap")), &sent);
    }
}

#[test]
fn datagrams_merged_by_reference_are_split_into_what_the_sender_sent() {
    let Some(chain) = chain() else { return };
    for (family, size) in FAMILIES.into_iter().flat_map(|family| [(family, 1200), (family, 100)]) {
        let devices = [(&chain.sender, "s0"), (&chain.bridge, "s1")];
        let talk = || {
            chain.datagrams(
                chain.ends(family),
                size,
                &[12 * usize::from(size), 40 * usize::from(size)],
            )
        };
        let [sent, seen]: [Vec<Timed>; 2] =
            chain.record(&devices, family, talk).try_into().unwrap();
        let (sent, seen_bytes) = (datagrams(&bytes(&sent)), datagrams(&bytes(&seen)));
        assert!(seen_bytes.len() < sent.len(), "nothing was merged");
        let bench = bench(&[("seen.pcap", &seen)]);
        let (code, report) = inspect(&bench, "seen.pcap");
        assert_eq!((code, &report["checksums"]["bad"]), (1, &0.into()), "{report}");
        let run = bench.run("wire --strict --json -r seen.pcap -w out.pcap");
        assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
        assert_eq!(sizes(&run.json()), [(u64::from(size), "prefix".into())], "{}", run.stdout);
        assert!(datagrams(&frames(&bench.get("out.pcap"))) == sent, "{size}: other datagrams");
    }
}
