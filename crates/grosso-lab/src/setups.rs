//! Drawings of the setup in each publication, and of the setup in which the lab repeats the experiment.

use grosso_report::page::setup::{SetupDrawing, Station, StationLink};

/// Returns the page's section with an experiment's setups, as published and as in the lab; empty if the experiment does
/// not repeat a publication.
pub(crate) fn section(experiment: &str) -> String {
    let Some((_, published, here)) = SETUPS.iter().find(|(name, ..)| *name == experiment) else {
        return String::new();
    };
    format!(
        "<h2>The setup</h2>\n<div class=\"pair\">{}{}</div>\n<p>{LEGEND}</p>\n",
        published.draw(),
        here.draw(),
    )
}

const LEGEND: &str = "\
Grosso merges and segments packets in the place of a NIC and its driver. The sender is at the top, the receiver at the \
bottom. Thick borders mark what the experiment varies. Five short blocks stand for a train of packets, and one long \
block for the superframe into which the train is merged.";

const fn packets(label: &str) -> Option<StationLink<'_>> {
    Some(StationLink { has_superframes: false, label })
}

const fn superframes(label: &str) -> Option<StationLink<'_>> {
    Some(StationLink { has_superframes: true, label })
}

const fn fixed<'a>(
    name: &'a str,
    lines: &'a [&'a str],
    link: Option<StationLink<'a>>,
) -> Station<'a> {
    Station { name, lines, is_varied: false, link }
}

const fn varied<'a>(
    name: &'a str,
    lines: &'a [&'a str],
    link: Option<StationLink<'a>>,
) -> Station<'a> {
    Station { name, lines, is_varied: true, link }
}

const RECEIVER: Station<'_> = fixed("Receiver", &["the kernel's TCP in a network namespace"], None);

/// Experiments, each with the setup in the publication and the setup in the lab.
const SETUPS: [(&str, SetupDrawing<'_>, SetupDrawing<'_>); 5] = [
    (
        "lro",
        SetupDrawing {
            heading: "R1, 2007",
            stations: &[
                fixed("Sender", &["netperf TCP_SENDFILE, MTU 1500 or 9000"], packets("10 Gb/s")),
                varied(
                    "Receiver's NIC (myri10ge)",
                    &[
                        "the driver's own LRO, inet_lro, or none",
                        "pages of 4 to 32 KiB, or packet buffers",
                    ],
                    superframes("in the driver"),
                ),
                fixed("Receiver", &["two 2 GHz cores"], None),
            ],
        },
        SetupDrawing {
            heading: "Here",
            stations: &[
                fixed(
                    "Sender",
                    &["the kernel's TCP, MTU 1500 or 9000"],
                    packets("a veth pair, without TSO"),
                ),
                varied(
                    "Grosso in place of the receiver's NIC",
                    &[
                        "profile linux, inet-lro or myri10ge, or none",
                        "packets are kept in place, or copied",
                    ],
                    superframes("a TAP, or a veth pair"),
                ),
                RECEIVER,
            ],
        },
    ),
    (
        "fragments",
        SetupDrawing {
            heading: "R2, 2019",
            stations: &[
                fixed(
                    "Sender",
                    &["netperf UDP_STREAM over IPv6", "ESP in transport mode, then fragments"],
                    packets("fragments"),
                ),
                fixed("Receiver's NIC", &["few receive buffers"], packets("one buffer each")),
                varied(
                    "Reassembly in the kernel",
                    &["coalesces fragments, or queues them"],
                    superframes("whole datagrams"),
                ),
                fixed("Receiver", &["ESP, then the socket"], None),
            ],
        },
        SetupDrawing {
            heading: "Here",
            stations: &[
                fixed(
                    "Sender",
                    &[
                        "a socket in a network namespace",
                        "Grosso: ESP in transport mode, then fragments",
                    ],
                    packets("a veth pair, fragments"),
                ),
                varied(
                    "Receiver's NIC, emulated by Grosso",
                    &["few, many or unlimited receive buffers"],
                    packets("one buffer each"),
                ),
                varied(
                    "Reassembly in Grosso",
                    &["coalesces, queues, or queues and evicts"],
                    superframes("whole datagrams"),
                ),
                fixed("Receiver", &["ESP in Grosso, then the socket"], None),
            ],
        },
    ),
    (
        "acks",
        SetupDrawing {
            heading: "R3, 2011",
            stations: &[
                varied(
                    "Sender (FreeBSD)",
                    &[
                        "window of 100 KB, or of another size",
                        "LRO with or without merged pure ACKs",
                    ],
                    packets("10 Gb/s, a LAN, MTU 1500"),
                ),
                varied(
                    "Receiver's NIC (82599)",
                    &["software LRO, hardware LRO, or none", "interrupt delay of 0 or 16 us"],
                    superframes("4 to 5 segments"),
                ),
                fixed("Receiver", &["one ACK per superframe, or per two segments"], None),
            ],
        },
        SetupDrawing {
            heading: "Here",
            stations: &[
                varied(
                    "Sender",
                    &[
                        "the kernel's TCP, or TCP in userspace",
                        "window grows per byte, per byte (L = 2) or per ACK",
                    ],
                    packets("0.1 to 100 ms delay, with loss"),
                ),
                varied(
                    "Grosso as the NIC of either host",
                    &[
                        "at the sender: pure ACKs merged or not",
                        "at the receiver: data merged; ACKs expanded or not",
                    ],
                    superframes("held for 0 us to 1 ms"),
                ),
                RECEIVER,
            ],
        },
    ),
    (
        "tunnels",
        SetupDrawing {
            heading: "R4, 2014",
            stations: &[
                fixed("Sender", &["200 netperf streams"], superframes("TSO in the stack")),
                varied(
                    "Kernel tunnel on the sender",
                    &["GRE, IPIP or SIT in GUE; VXLAN", "remote checksum offload on or off"],
                    packets("40 Gb/s, outer checksum on"),
                ),
                fixed("Kernel tunnel on the receiver", &["GRO"], superframes("GRO in the stack")),
                fixed("Receiver", &["completes the inner checksum"], None),
            ],
        },
        SetupDrawing {
            heading: "Here",
            stations: &[
                fixed(
                    "Sender",
                    &["the kernel's TCP in a network namespace"],
                    superframes("a TUN or TAP device"),
                ),
                varied(
                    "Grosso, path a",
                    &[
                        "GRE, IPIP or SIT in GUE; VXLAN",
                        "remote checksum offload on or off",
                        "with superframes, or without (plain)",
                    ],
                    packets("UDP sockets over a veth pair"),
                ),
                varied(
                    "Grosso, path b",
                    &["inner checksum left partial, or completed"],
                    superframes("a TUN or TAP device"),
                ),
                RECEIVER,
            ],
        },
    ),
    (
        "gso",
        SetupDrawing {
            heading: "R5, 2014",
            stations: &[
                fixed("Sender", &["netperf TCP_STREAM, writes of 64 KB"], superframes("64 KB")),
                varied(
                    "Loopback interface",
                    &["TSO and GSO on or off", "MTU 1500, or the maximum"],
                    superframes("or MTU-sized packets"),
                ),
                fixed("Receiver", &["the same host"], None),
            ],
        },
        SetupDrawing {
            heading: "Here",
            stations: &[
                varied(
                    "Sender",
                    &["the kernel's TCP or UDP", "superframes on or off, or only GSO off"],
                    superframes("or MTU-sized packets"),
                ),
                fixed(
                    "Grosso in place of the sender's NIC",
                    &["segments superframes"],
                    packets("a veth pair"),
                ),
                RECEIVER,
            ],
        },
    ),
];

#[cfg(test)]
mod tests {
    use grosso_report::page::setup::{LABEL_MAX, LINE_MAX};

    use super::*;

    #[test]
    fn lines_and_labels_fit_and_only_the_last_station_has_no_link() {
        for (name, published, here) in SETUPS {
            for SetupDrawing { heading, stations } in [published, here] {
                for station in stations {
                    let lines = station.lines.iter().chain([&station.name]);
                    for line in lines {
                        assert!(line.chars().count() <= LINE_MAX, "{name}, {heading}: {line}");
                    }
                    let label = station.link.map_or("", |link| link.label);
                    assert!(label.chars().count() <= LABEL_MAX, "{name}, {heading}: {label}");
                }
                let (last, others) = stations.split_last().unwrap();
                assert!(last.link.is_none(), "{name}, {heading}");
                assert!(others.iter().all(|station| station.link.is_some()), "{name}, {heading}");
                assert!(stations.iter().any(|station| station.is_varied), "{name}, {heading}");
            }
        }
    }

    #[test]
    fn every_publication_has_a_setup() {
        for name in ["lro", "fragments", "acks", "tunnels", "gso"] {
            assert_eq!(section(name).matches("<svg ").count(), 2, "{name}");
        }
        assert_eq!(section("rtt"), "");
    }
}
