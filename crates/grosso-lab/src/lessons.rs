//! Explanations on the pages of the publications: background for readers who are new to offloads, and what the result
//! means for the reader's machine.

use crate::{
    page::escape,
    verdict::{Answer, Verdict},
};

/// Explanation of a publication's experiment.
struct Lesson {
    /// The experiment's name.
    experiment: &'static str,
    /// Introduction to the experiment, in three to six sentences.
    background: &'static str,
    /// Claims whose verdicts lead to advice.
    meanings: &'static [Meaning],
}

/// Advice that follows from the verdict on a claim.
struct Meaning {
    claim: &'static str,
    if_reproduced: &'static str,
    otherwise: &'static str,
}

/// Returns the page's section with the background of an experiment; empty if the experiment does not repeat a
/// publication.
pub(crate) fn background(experiment: &str) -> String {
    lesson(experiment).map_or_else(String::new, |lesson| {
        format!("<h2>The question</h2>\n<p>{}</p>\n", escape(lesson.background))
    })
}

/// Returns the page's section with what the verdicts mean for the machine; empty if the experiment does not repeat a
/// publication.
pub(crate) fn meaning(experiment: &str, verdicts: &[Verdict]) -> String {
    let sentence = |meaning: &Meaning| {
        let verdict = verdicts.iter().find(|verdict| verdict.claim == meaning.claim)?;
        let text = match verdict.answer {
            Answer::Reproduced => meaning.if_reproduced.to_owned(),
            Answer::NotReproduced { .. } => meaning.otherwise.to_owned(),
            Answer::Undecided { .. } | Answer::CannotBeShownHere { .. } => {
                format!("This run does not show whether this is true here: {}.", meaning.claim)
            }
        };
        Some(format!("<li>{}</li>\n", escape(&text)))
    };
    let meanings = lesson(experiment).map_or(&[][..], |lesson| lesson.meanings);
    let sentences: String = meanings.iter().filter_map(sentence).collect();
    match sentences.is_empty() {
        true => String::new(),
        false => format!("<h2>What this means for this machine</h2>\n<ul>\n{sentences}</ul>\n"),
    }
}

fn lesson(experiment: &str) -> Option<&'static Lesson> {
    LESSONS.iter().find(|lesson| lesson.experiment == experiment)
}

const LESSONS: [Lesson; 5] = [
    Lesson {
        experiment: "lro",
        background: "\
A wire carries packets of about 1500 bytes, and a host spends most of its receive time on work that is done once per \
packet: finding the connection, updating TCP's state, waking the program. Receive offload (LRO, and later GRO) \
collects consecutive packets of a connection, which form a train, and passes them to TCP as one large packet, a \
superframe. TCP then works once per train. R1 compares a driver's own code for this with code that all drivers can \
share. MTU 1500 to 9000 means that the sender's MTU is 1500 and the receiver's is 9000.",
        meanings: &[
            Meaning {
                claim: "coalescing is faster per CPU at MTU 1500",
                if_reproduced: "\
Merging saves CPU time on this machine. The kernel's GRO also merges: leave GRO on at every host that receives \
streams.",
                otherwise: "\
Receive offload does not pay off on this machine. Packets probably arrive in batches already, or another cost is \
larger than that of TCP.",
            },
            Meaning {
                claim: "coalescing is also faster at MTU 9000",
                if_reproduced: "Jumbo frames do not replace receive offload: use both.",
                otherwise: "With jumbo frames, receive offload gains nothing more on this machine.",
            },
            Meaning {
                claim: "pages of 32 KiB are faster than pages of 4 KiB",
                if_reproduced: "\
Larger receive pages help a little: a program with its own packet ring should use large blocks.",
                otherwise: "The size of receive pages does not matter on this machine.",
            },
        ],
    },
    Lesson {
        experiment: "gso",
        background: "\
A program sends large blocks, but a wire carries packets of about 1500 bytes. Without segmentation offload, TCP makes \
each packet itself, and every packet passes through IP, the firewall and the driver. With TSO in a NIC, or GSO in \
software, one superframe of up to 64 KB passes through all of them and is segmented at the last moment. R5 measures \
what this gains over loopback.",
        meanings: &[
            Meaning {
                claim: "superframes are faster at MTU 1500",
                if_reproduced: "Leave TSO and GSO on: a CPU of this machine then sends more data.",
                otherwise: "Superframes do not make this machine's sender faster; another cost is larger.",
            },
            Meaning {
                claim: "superframes gain less at the longest MTU",
                if_reproduced: "\
The gain comes from the number of packets: if the MTU is already large, segmentation offload saves little.",
                otherwise: "Even at a large MTU, segmentation offload saves as much as at a small one.",
            },
        ],
    },
    Lesson {
        experiment: "fragments",
        background: "\
A datagram that is longer than the MTU travels in fragments, which the receiver holds until all have arrived. A NIC \
has a fixed number of receive buffers. If each held fragment keeps its buffer, incomplete datagrams can use up all of \
them: the NIC then drops the fragments that would complete these datagrams, and nothing arrives until they time out. \
If the receiver coalesces instead, it combines the fragments and returns their buffers at once. R2 reports 6.6 Gb/s \
with coalescing and 9 Mb/s without it.",
        meanings: &[
            Meaning {
                claim: "overload: queueing delivers less than coalescing",
                if_reproduced: "\
A receiver with few buffers delivers less if it queues fragments, even on a wire without loss. Check the NIC's ring \
size with ethtool -g, and set the MTU of tunnels low enough to avoid fragments.",
                otherwise: "This receiver's buffers suffice for queued fragments if none is lost.",
            },
            Meaning {
                claim: "after a loss, queueing stalls until the timeout",
                if_reproduced: "\
If a receiver queues fragments, a lost fragment can silence it until the reassembly timeout: in Linux, 30 s for IPv4 \
and 60 s for IPv6.",
                otherwise: "A lost fragment does not silence this receiver.",
            },
        ],
    },
    Lesson {
        experiment: "acks",
        background: "\
A TCP sender may have only a limited amount of data in flight, its window. Acknowledgments (ACKs) tell it what has \
arrived, and each one also lets the window grow. A device that merges a train of consecutive packets into one \
superframe can also merge ACKs. If it merges data, the receiver acknowledges the whole train only once. In both \
cases, fewer ACKs arrive. A sender that counts ACKs, or that limits the growth per ACK (to two segments: L = 2), \
grows its window too slowly, and the transfer takes longer although no packet is lost. A sender that counts the \
acknowledged bytes without such a limit, such as Linux, loses nothing.",
        meanings: &[
            Meaning {
                claim: "byte counting: merged ACKs are harmless",
                if_reproduced: "Between Linux hosts, nothing needs to change: Linux counts bytes and is not slowed.",
                otherwise: "Merged ACKs also slowed a sender that counts bytes, such as Linux.",
            },
            Meaning {
                claim: "ACK counting: merged ACKs halve the speed",
                if_reproduced: "\
Do not merge pure ACKs in front of senders whose TCP you do not know. Linux's GRO never merges them.",
                otherwise: "Merged ACKs did not slow a sender that counts them in this run.",
            },
            Meaning {
                claim: "L = 2: unmerged pure ACKs restore the speed",
                if_reproduced: "\
If a device merges ACKs, turn its LRO off and leave GRO on, which merges data but no pure ACKs.",
                otherwise: "Leaving ACKs unmerged did not restore the speed here; something else limits the sender.",
            },
            Meaning {
                claim: "L = 2: LRO at the receiver slows transfers",
                if_reproduced: "\
A receiver that merges data sends fewer ACKs, which slows distant senders that count them or limit their growth. If \
Grosso merges the data, expanded ACKs (--expand-acks) reduce this.",
                otherwise: "Merging at the receiver did not slow distant senders in this run.",
            },
        ],
    },
    Lesson {
        experiment: "tunnels",
        background: "\
A tunnel puts each packet into another one, and the checksum of each packet covers its whole payload. Many NICs \
compute the sum of the outer packet only, so the sender's CPU must read every byte for the inner one. With remote \
checksum offload (RCO), the sender leaves the inner checksum to the receiver, which gets it almost for free from the \
verified outer checksum. R4 compares tunnels in GUE, and VXLAN, with and without RCO.",
        meanings: &[Meaning {
            claim: "RCO saves TX checksum and encapsulation time",
            if_reproduced: "\
If the NIC computes checksums only for outer packets, turn on remote checksum offload at both ends of the tunnel \
(encap-remcsum, or remcsumtx and remcsumrx).",
            otherwise: "\
Remote checksum offload saves nothing here. It is also unnecessary if a NIC computes inner checksums.",
        }],
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::{Bound, Evidence, Unit};

    #[test]
    fn every_meaning_belongs_to_a_verdict_of_the_publications() {
        let list = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/sources.md");
        let list = std::fs::read_to_string(list).unwrap();
        for Meaning { claim, .. } in LESSONS.iter().flat_map(|lesson| lesson.meanings) {
            assert!(list.contains(&format!("*{claim}*")), "{claim}");
        }
    }

    #[test]
    fn advice_follows_the_verdict() {
        let claim = LESSONS[0].meanings[0].claim;
        let advice = |ratio| {
            let evidence = Evidence::exact(ratio, Bound::AtLeast(1.0));
            meaning("lro", &[evidence.verdict(claim, Unit::Times, "a cause")])
        };
        assert!(advice(2.0).contains("leave GRO on"), "{}", advice(2.0));
        assert!(advice(0.5).contains("does not pay off"), "{}", advice(0.5));
        let here = meaning("lro", &[Verdict::not_here(claim, "a CPU")]);
        assert!(here.contains("does not show"), "{here}");
        assert_eq!((background("vm"), meaning("vm", &[])), (String::new(), String::new()));
    }
}
