//! Known differences. Each has a sentence that describes it, a rule, and a way to recognize it.

use std::collections::BTreeMap;

use grosso_rig::kernel::{capabilities, release};
use grosso_testkit::oracle::{
    Layer, Lengths, Link, Parsed, State, Stop, VXLAN_GPE_PORT, flow_of, flow_of_parsed, parse,
    verify,
};

/// Reason why the kernel and the engine deliver different frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Known {
    /// The urgent pointer differs while URG is clear.
    UrgentPointer,
    /// A checksum is correct, but segmentation would write it in another form.
    ChecksumForm,
    /// A packet is delivered without comparison with the held packets of its flow.
    Overtaking,
    /// The UDP header of a tunnel declares a length that differs from the packet's.
    TunnelLength,
    /// A field identifies a flow in the kernel but only ends a train in the engine, or the reverse.
    FlowIdentity,
    /// CWR is set.
    WindowReduced,
    /// A GRE header has both a checksum and a key.
    GreChecksumAndKey,
    /// A header is present that the running kernel does not parse.
    NotLookedInto,
    /// A checksum is left to the receiver (remote checksum offload).
    RemoteChecksum,
    /// Extension headers contain the addresses for a pseudo-header.
    FinalAddress,
    /// The kernel compares identifications as before 6.18.
    OlderIdentification,
    /// More flows arrive than fit into a bucket.
    Eviction,
}

/// Side that may merge packets which the other side keeps separate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Joins {
    /// Only the kernel: the engine is stricter.
    Kernel,
    /// Only the engine. This is the only kind of difference that could lose data.
    Engine,
    /// The kernel or the engine, depending on the neighboring packets.
    Either,
}

impl Known {
    pub(crate) const ALL: &[Self] = &[
        Self::UrgentPointer,
        Self::ChecksumForm,
        Self::Overtaking,
        Self::TunnelLength,
        Self::FlowIdentity,
        Self::WindowReduced,
        Self::GreChecksumAndKey,
        Self::NotLookedInto,
        Self::RemoteChecksum,
        Self::FinalAddress,
        Self::OlderIdentification,
        Self::Eviction,
    ];

    /// Returns the rule numbers in `docs/rules.md`.
    pub(crate) fn rule(self) -> &'static str {
        match self {
            Self::UrgentPointer => "G33",
            Self::ChecksumForm => "C10",
            Self::Overtaking => "G75, B55",
            Self::TunnelLength => "G11",
            Self::FlowIdentity => "G4, G20",
            Self::WindowReduced => "G34a, G34b",
            Self::GreChecksumAndKey => "T21",
            Self::NotLookedInto => "G5",
            Self::RemoteChecksum => "C54",
            Self::FinalAddress => "C20",
            Self::OlderIdentification => "G14a",
            Self::Eviction => "G3",
        }
    }

    /// Returns whether the kernel or the engine merges more because of the difference.
    pub(crate) fn joins(self) -> Joins {
        match self {
            Self::UrgentPointer | Self::ChecksumForm | Self::Overtaking | Self::TunnelLength => {
                Joins::Kernel
            }
            Self::FlowIdentity => Joins::Kernel,
            Self::GreChecksumAndKey | Self::RemoteChecksum | Self::FinalAddress => Joins::Engine,
            Self::WindowReduced if release() < (6, 18) => Joins::Either,
            Self::WindowReduced => Joins::Engine,
            // A tunnel that the kernel does not parse is merged as a plain datagram.
            Self::NotLookedInto | Self::OlderIdentification | Self::Eviction => Joins::Either,
        }
    }

    /// Describes the difference in one sentence.
    pub(crate) fn sentence(self) -> &'static str {
        match self {
            Self::UrgentPointer => {
                "Linux does not compare the urgent pointer while URG is clear, and loses it."
            }
            Self::ChecksumForm => {
                "Linux joins a packet whose checksum is in its other form (0xffff for 0), and loses it."
            }
            Self::Overtaking => {
                "In Linux a packet that leaves before flow matching overtakes the held ones of its flow."
            }
            Self::TunnelLength => {
                "Linux does not compare the UDP length of a tunnel with the packet."
            }
            Self::FlowIdentity => {
                "In Linux another MAC address, VLAN priority, flow label or tunnel word is another flow, \
                 which is held beside the first and may be reordered with it."
            }
            Self::WindowReduced => {
                "Linux 6.18 never joins a packet with CWR; 7.2 and Grosso join equals."
            }
            Self::GreChecksumAndKey => {
                "With a checksum and a key, Linux compares the checksum where it means the key."
            }
            Self::NotLookedInto => {
                "This kernel has no receive handler for a header (a VLAN tag, MPLS, PPPoE, a tunnel without device)."
            }
            Self::RemoteChecksum => {
                "The VXLAN device was made without remote checksum offload, so its packets have wrong checksums to it."
            }
            Self::FinalAddress => {
                "Linux verifies with the addresses of the IPv6 header, also where a routing header or a home address \
                 option has those that count."
            }
            Self::OlderIdentification => {
                "Before 6.18, fixed identifications needed DF, and those of an outer header with DF were ignored."
            }
            Self::Eviction => {
                "Nine flows thrash a bucket of eight, and the two do not count the same packets as one flow."
            }
        }
    }
}

/// For each header type, whether the running kernel parses it.
#[derive(Clone, Debug)]
pub(crate) struct Reach(BTreeMap<&'static str, bool>);

impl Reach {
    /// Probes the kernel to find the headers that it parses.
    pub(crate) fn ask() -> Result<Self, String> {
        let report = capabilities()?;
        Ok(Self(report.into_iter().map(|found| (found.headers, found.merges)).collect()))
    }

    fn has(&self, headers: &str) -> bool {
        self.0.get(headers).copied().unwrap_or(false)
    }

    fn ends_before(&self, parsed: &Parsed) -> bool {
        let tags = parsed.layers.iter().filter(|layer| layer.name == "vlan").count();
        let pairs = parsed.layers.windows(2).map(|pair| (&pair[0], &pair[1]));
        tags == 1 && !self.has("vlan ipv4")
            || tags > 1 && !self.has("vlan vlan ipv4")
            || pairs.into_iter().any(|(outer, inner)| !self.goes_on(outer, inner))
    }

    fn goes_on(&self, outer: &Layer, inner: &Layer) -> bool {
        match (outer.name, inner.name) {
            (_, "mpls") => self.has("mpls ipv4"),
            (_, "pppoe") => self.has("pppoe ipv4"),
            // The kernel has no handler for a service chain on any link or tunnel.
            (_, "nsh") => false,
            // No device was created for these headers.
            ("udp", "geneve" | "gue" | "ipv4" | "ipv6") => false,
            ("udp", "vxlan" | "vxlan-gpe") => {
                outer.number("destination_port") != u64::from(VXLAN_GPE_PORT)
                    && self.has("ipv4 vxlan ethernet ipv4")
            }
            (_, "gre") => self.has("ipv4 gre ipv4"),
            ("gre", "ethernet") => self.has("ipv4 gre ethernet ipv4"),
            ("ipv4", "ipv4") => self.has("ipv4 ipv4"),
            ("ipv4", "ipv6") => self.has("ipv4 ipv6"),
            ("ipv6", "ipv4") => self.has("ipv6 ipv4"),
            ("ipv6", "ipv6") => self.has("ipv6 ipv6"),
            _ => true,
        }
    }
}

/// A frame of a vector that may cause a difference, and the flows that it may affect.
#[derive(Clone, Debug)]
pub(crate) struct Suspect {
    pub(crate) index: usize,
    pub(crate) known: Known,
    flow: Option<String>,
    pair: Option<Vec<u8>>,
}

impl Suspect {
    /// Returns whether the difference may affect the flow of this frame.
    pub(crate) fn touches(&self, frame: &[u8]) -> bool {
        match self.known {
            Known::Eviction => true,
            Known::Overtaking | Known::TunnelLength => self.pair == pair(frame),
            _ => self.flow.is_some() && self.flow == flow(frame),
        }
    }
}

/// Returns every suspect in a vector.
pub(crate) fn suspects(frames: &[Vec<u8>], reach: &Reach) -> Vec<Suspect> {
    let identities = common_identities(frames);
    let mut suspects = Vec::new();
    for (index, frame) in frames.iter().enumerate() {
        let parsed = parse(frame, Link::Ethernet, Lengths::Declared);
        let flow = flow_of_parsed(&parsed).map(|flow| flow.to_string());
        let mut known = alone(frame, &parsed, reach);
        if flow.as_ref().is_some_and(|flow| identities[flow] != identity(&parsed)) {
            known.push(Known::FlowIdentity);
        }
        let suspect = |known| Suspect { index, known, flow: flow.clone(), pair: pair_of(&parsed) };
        suspects.extend(known.into_iter().map(suspect));
    }
    let mut flows: Vec<_> = frames.iter().filter_map(|frame| exact_flow(frame)).collect();
    flows.sort();
    flows.dedup();
    if flows.len() > FLOWS_OF_A_BUCKET
        && let Some(first) = suspects.first().cloned()
    {
        suspects.push(Suspect { known: Known::Eviction, ..first });
    }
    suspects
}

/// Returns the known differences that one frame may cause, regardless of other frames.
fn alone(frame: &[u8], parsed: &Parsed, reach: &Reach) -> Vec<Known> {
    let verdicts = verify(frame, Link::Ethernet);
    let is_other_form = |verdict: &grosso_testkit::oracle::Verdict| {
        verdict.state == State::Right && verdict.found != verdict.expected
    };
    let has = |name| parsed.layers.iter().find(move |layer| layer.name == name);
    let tcp = has("tcp");
    let outer = parsed.layers.split_last().map_or(&[][..], |(_, outer)| outer);
    let lies = |layer: &Layer| layer.name == "udp" && layer.declared_end != frame.len();
    let tunnel_lies = outer.iter().any(lies);
    let gre = has("gre").map_or(0, |gre| gre.number("flags"));
    let ids = || parsed.layers.iter().filter(|layer| layer.name == "ipv4");
    let conditions = [
        (Known::UrgentPointer, tcp.is_some_and(|tcp| tcp.number("urgent_pointer") != 0)),
        (Known::ChecksumForm, verdicts.iter().any(is_other_form)),
        (Known::Overtaking, !tunnel_lies && is_never_compared(frame, parsed)),
        (Known::TunnelLength, tunnel_lies),
        (Known::WindowReduced, tcp.is_some_and(|tcp| tcp.number("offset_flags") & 0x80 != 0)),
        (Known::GreChecksumAndKey, gre & 0xa000 == 0xa000),
        (Known::NotLookedInto, reach.ends_before(parsed)),
        (Known::RemoteChecksum, parsed.has_remote_checksum()),
        (Known::FinalAddress, has_final_address(parsed)),
        (
            Known::OlderIdentification,
            release() < (6, 18)
                && (ids().count() > 1 || ids().any(|ip| ip.number("fragment") & 0x4000 == 0)),
        ),
    ];
    conditions.into_iter().filter_map(|(known, holds)| holds.then_some(known)).collect()
}

/// Returns whether some pseudo-header contains an address that differs from the address in the IP header.
fn has_final_address(parsed: &Parsed) -> bool {
    (0..parsed.layers.len()).any(|index| {
        let shown =
            parsed.network_of(index).map(|ip| [ip.bytes("source"), ip.bytes("destination")]);
        // A pseudo-header begins with the addresses.
        let summed = parsed.pseudo_header_of(index, 0, 0);
        shown.zip(summed).is_some_and(|(shown, summed)| !summed.starts_with(&shown.concat()))
    })
}

/// Returns whether Linux delivers the packet without comparison with the held packets of its flow (rule G75).
fn is_never_compared(frame: &[u8], parsed: &Parsed) -> bool {
    let Some(last) = parsed.last() else { return true };
    let is_wrong = |layer: &Layer| match layer.name {
        "ipv4" => layer.number("version_ihl") != 0x45,
        "fragment" => true,
        "tcp" => layer.number("offset_flags") >> 12 != layer.len as u64 / 4,
        "gre" => layer.number("flags") & !0xa000 != 0,
        "geneve" => layer.number("bits") & 0x80 != 0,
        _ => false,
    };
    // Linux does not start a train with these datagrams (rule U10).
    let is_odd_datagram = last.name == "udp"
        && (last.number("checksum") == 0
            || parsed.payload(frame).is_empty()
            || last.declared_end != frame.len());
    // Linux does not verify the outer checksum if an outer length is wrong or the reserved bit is set, and then it does
    // not parse the tunnel.
    let lies =
        |layer: &Layer| layer.declared_end != frame.len() || layer.number("fragment") & 0x8000 != 0;
    let tunnel = parsed.layers.iter().position(|layer| layer.name == "udp");
    let is_unverified = tunnel.is_some_and(|tunnel| {
        tunnel + 1 < parsed.layers.len()
            && parsed.layers[tunnel].number("checksum") != 0
            && parsed.layers[..tunnel].iter().any(lies)
    });
    parsed.stop != Stop::Transport
        || is_unverified
        || !matches!(last.name, "tcp" | "udp")
        || parsed.layers.iter().any(is_wrong)
        || parsed.layers.iter().filter(|layer| layer.is_ip()).count() > 2
        || verify(frame, Link::Ethernet).iter().any(|verdict| verdict.state == State::Wrong)
        || is_odd_datagram
}

/// Returns the flow of a frame as the engine sees it.
pub(crate) fn flow(frame: &[u8]) -> Option<String> {
    flow_of(frame, Link::Ethernet).map(|flow| flow.to_string())
}

/// Returns the flow of a frame as Linux sees it.
fn exact_flow(frame: &[u8]) -> Option<(String, Vec<u8>)> {
    let parsed = parse(frame, Link::Ethernet, Lengths::Declared);
    Some((flow_of_parsed(&parsed)?.to_string(), identity(&parsed)))
}

/// Returns the fields, other than addresses and ports, that identify a flow in Linux (rules G4, G6, G20, T2, T5, T21).
fn identity(parsed: &Parsed) -> Vec<u8> {
    let mut identity = Vec::new();
    for layer in &parsed.layers {
        identity.extend(layer.name.bytes());
        let fields: &[&str] = match layer.name {
            "ethernet" => &["destination", "source", "type"],
            "vlan" => &["tag", "type"],
            "mpls" => &["entry"],
            "nsh" => &["first", "kind", "next", "path", "index", "context"],
            "pppoe" => &["version_type", "code", "protocol"],
            "ipv6" => &["next_header"],
            "hop_by_hop" | "routing" | "destination_options" => &["next_header", "data"],
            "gre" => &["flags", "protocol", "key"],
            "vxlan" | "vxlan-gpe" => &["flags", "vni", "reserved"],
            "geneve" => &["version_len", "bits", "protocol", "reserved", "options"],
            "gue" => &["first", "protocol", "flags", "options"],
            _ => &[],
        };
        fields.iter().for_each(|field| identity.extend(layer.bytes(field)));
        match layer.name {
            "ipv6" => identity.extend((layer.number("word") as u32 & 0x000f_ffff).to_be_bytes()),
            "udp" => identity.push(u8::from(layer.number("checksum") == 0)),
            _ => {}
        }
    }
    identity
}

/// Returns the identity that most frames of each flow have.
fn common_identities(frames: &[Vec<u8>]) -> BTreeMap<String, Vec<u8>> {
    let mut counts: BTreeMap<String, BTreeMap<Vec<u8>, usize>> = BTreeMap::new();
    for (flow, identity) in frames.iter().filter_map(|frame| exact_flow(frame)) {
        *counts.entry(flow).or_default().entry(identity).or_default() += 1;
    }
    let most = |counts: BTreeMap<Vec<u8>, usize>| {
        counts.into_iter().max_by_key(|(_, count)| *count).map(|(identity, _)| identity)
    };
    counts.into_iter().filter_map(|(flow, counts)| Some((flow, most(counts)?))).collect()
}

/// Returns the outermost addresses of a frame.
fn pair(frame: &[u8]) -> Option<Vec<u8>> {
    pair_of(&parse(frame, Link::Ethernet, Lengths::Declared))
}

fn pair_of(parsed: &Parsed) -> Option<Vec<u8>> {
    let network = parsed.layers.iter().find(|layer| layer.is_ip())?;
    Some([network.bytes("source"), network.bytes("destination")].concat())
}

/// Number of flows without a device hash that Linux holds (rule G2).
const FLOWS_OF_A_BUCKET: usize = 8;
