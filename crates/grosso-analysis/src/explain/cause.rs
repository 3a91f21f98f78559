//! Determines why a packet was refused or a train ended: the law or limit, the values involved, and a change that would
//! have let the packet merge.

use grosso::{
    CoalesceOptions, Delivery, Frame, Meta, Profile, Sink, Verdict,
    coalesce::{
        Batch, HEADER_BYTES_MAX,
        reason::{Close, NoMerge, Pass},
    },
};
use grosso_io::{PortBuffer, PortCoalescer};
use grosso_wire::{
    CookieLen, Cover, Field, LAYERS_MAX, Law, LinkType, Notation, Ports, Pseudowire, Role, Stack,
    dissect, tcp,
};

use super::{headers, timestamps};
use crate::{
    headers::{Transport, is_ip, u16_at, u32_at},
    replay::meta_of,
    reports::explain::{BrokenLaw, Held, Limit},
};

/// Reason why a packet was refused or a train ended, with the values involved.
#[derive(Debug, Default)]
pub(super) struct MergeCause {
    pub(super) detail: Option<String>,
    pub(super) law: Option<BrokenLaw>,
    pub(super) limit: Option<Limit>,
    /// Setting, or change to the packet, that would have let the packet merge.
    pub(super) remedy: Option<String>,
}

/// A packet, and the last packet of the train that refused it.
struct Pair<'a> {
    held: Held,
    last: &'a [u8],
    now: &'a [u8],
    last_stack: Stack,
    now_stack: Stack,
    before: Transport,
    after: Transport,
}

/// Returns why a packet did not join its flow's train. `last` is the last packet of that train.
pub(super) fn of_refusal(
    reason: NoMerge,
    held: Held,
    [last, now]: [&[u8]; 2],
    link: LinkType,
    ports: &Ports,
    profile: &Profile,
) -> Option<MergeCause> {
    let (last_stack, now_stack) = (dissect(last, link, ports), dissect(now, link, ports));
    let before = Transport::of(&last_stack, last.len())?;
    let after = Transport::of(&now_stack, now.len())?;
    let pair = Pair { held, last, now, last_stack, now_stack, before, after };
    let law = pair.law(reason, profile);
    let limit = pair.limit(reason, profile);
    let detail = pair
        .detail(reason)
        .or_else(|| law.as_ref().map(|law| format!("{} {} -> {}", law.field, law.held, law.came)));
    let mut remedies: Vec<String> =
        pair.remedy(reason, law.as_ref(), limit.as_ref()).into_iter().collect();
    remedies.extend(profiles(&[last, now], link, ports, Verdict::Joined));
    Some(MergeCause { detail, law, limit, remedy: remedy(&remedies) })
}

/// Returns why a packet cannot be part of any train.
pub(super) fn of_pass(
    reason: Pass,
    now: &[u8],
    link: Option<LinkType>,
    ports: &Ports,
    profile: &Profile,
) -> MergeCause {
    let Some(link) = link else { return MergeCause::default() };
    let stack = dissect(now, link, ports);
    let levels = stack.layers().iter().filter(|layer| is_ip(layer)).count() as u64;
    let limit = |name, most: usize, would_be| Some(Limit { name, most: most as u64, would_be });
    let limit = match reason {
        Pass::TunnelLevels => {
            limit("tunnels-max", profile.tunnels_max.into(), levels.checked_sub(1))
        }
        Pass::TooDeep => limit("headers per packet", LAYERS_MAX, None),
        Pass::TableFull => {
            limit("limits.flows", profile.limits.flows, Some(profile.limits.flows as u64 + 1))
        }
        Pass::HeaderTooLong => {
            limit("header bytes", HEADER_BYTES_MAX, Some(stack.header_len() as u64))
        }
        _ => None,
    };
    let told = match reason {
        Pass::Protocol if is_unconfigured_session(now, link, &stack, ports) => Some(CONFIGURE_L2TP),
        _ => remedy_of_pass(reason),
    };
    let mut remedies: Vec<String> = told.map(String::from).into_iter().collect();
    if reason == Pass::TunnelLevels {
        remedies.push(format!("--tunnels {}", levels.saturating_sub(1)));
    }
    remedies.extend(profiles(&[now], link, ports, Verdict::Held));
    MergeCause { remedy: remedy(&remedies), limit, ..MergeCause::default() }
}

/// Returns whether a packet belongs to an L2TPv3 session of unknown format, but would contain a frame if the session
/// had one of the supported formats. A control message never contains a frame.
fn is_unconfigured_session(packet: &[u8], link: LinkType, stack: &Stack, ports: &Ports) -> bool {
    let form = Pseudowire { cookie: CookieLen::None, has_sublayer: false };
    let told = dissect(packet, link, &ports.with_l2tp(Some(form)));
    ports.l2tp().is_none() && told.layers().len() > stack.layers().len() + 1
}

/// Returns the limit that ended a train.
pub(super) fn limit_of_close(reason: Close, packets: u64, profile: &Profile) -> Option<Limit> {
    let limits = &profile.limits;
    let (name, most, would_be) = match reason {
        Close::HoldTime => ("limits.hold-ns", limits.hold_ns, None),
        Close::SegmentLimit => {
            ("limits.udp-segments", limits.udp_segments.into(), Some(packets + 1))
        }
        Close::BucketFull => ("trains per bucket", WAYS, Some(WAYS + 1)),
        Close::TableFull => ("limits.flows", limits.flows as u64, Some(limits.flows as u64 + 1)),
        Close::HeaderStacksFull => ("header stacks", HEADER_STACKS, Some(HEADER_STACKS + 1)),
        Close::PartsFull => ("limits.parts", limits.parts as u64, Some(limits.parts as u64 + 1)),
        _ => return None,
    };
    Some(Limit { name, most, would_be })
}

impl Pair<'_> {
    /// Returns the law that the packet violated, according to the header tables.
    fn law(&self, reason: NoMerge, profile: &Profile) -> Option<BrokenLaw> {
        self.last_stack.layers().iter().find_map(|layer| {
            let range = layer.offset as usize..layer.end();
            let (held, came) = (self.last.get(range.clone())?, self.now.get(range)?);
            let spec = layer.kind.spec();
            let layout = spec.layout(held);
            let broken = |name: &str, law, held: String, came: String| {
                let law = match reason {
                    NoMerge::TcpAcknowledgment | NoMerge::TcpTimestamp
                        if !profile.rules.is_invertible() =>
                    {
                        "never decreases"
                    }
                    _ => law,
                };
                Some(BrokenLaw {
                    header: layer.kind.to_string(),
                    field: name.into(),
                    law,
                    held,
                    came,
                })
            };
            let in_fixed_part = layout.fields.iter().find_map(|field| {
                let (x, y) = (held.get(field.bytes.clone())?, came.get(field.bytes.clone())?);
                let words = words_of(field, reason, x, y)?;
                broken(field.name, words, value(field.notation, x), value(field.notation, y))
            });
            in_fixed_part.or_else(|| {
                let (x, y) = (held.get(layout.end()..)?, came.get(layout.end()..)?);
                let is_it = NoMerge::of(spec.tail.role) == reason
                    || (spec.tail.role == Role::Options && reason == NoMerge::TcpTimestamp);
                if x == y || !is_it {
                    return None;
                }
                broken(spec.tail.name, "stays the same, byte for byte", bytes(x), bytes(y))
            })
        })
    }

    fn limit(&self, reason: NoMerge, profile: &Profile) -> Option<Limit> {
        let limits = &profile.limits;
        match reason {
            NoMerge::SizeLimit => {
                let most = u64::from(limits.size_bytes.saturating_sub(1));
                let is_long = self.is_free();
                let bytes = self.before.overhead() + self.after.payload;
                Some(Limit {
                    name: if is_long { "limits.size-bytes" } else { "the value of a length field" },
                    most: if is_long { most } else { most.min(u16::MAX.into()) },
                    would_be: Some(self.held.payload_bytes + bytes as u64),
                })
            }
            NoMerge::SegmentLimit => {
                let (name, most) = if self.after.is_tcp() {
                    ("limits.tcp-segments", limits.tcp_segments)
                } else {
                    ("limits.udp-segments", limits.udp_segments)
                };
                Some(Limit { name, most: most.into(), would_be: Some(self.held.packets + 1) })
            }
            _ => None,
        }
    }

    /// Returns the values that show the cause most clearly.
    fn detail(&self, reason: NoMerge) -> Option<String> {
        match reason {
            NoMerge::TcpSequenceAhead | NoMerge::TcpSequenceBehind => {
                let found = self.sequences().1;
                Some(format!("expected {}, found {found}", self.expected_sequence()))
            }
            NoMerge::TcpTimestamp | NoMerge::TcpOptions => {
                let from = timestamps(self.last, &self.before)?;
                let to = timestamps(self.now, &self.after)?;
                Some(if from.0 != to.0 {
                    format!("TSval {} -> {}", from.0, to.0)
                } else {
                    format!("TSecr {} -> {}", from.1, to.1)
                })
            }
            NoMerge::Longer | NoMerge::SuperframeSize => {
                Some(format!("{} B -> {} B", self.before.payload, self.after.payload))
            }
            NoMerge::HeaderStack => Some(format!(
                "{} -> {}",
                headers(self.last, &self.last_stack),
                headers(self.now, &self.now_stack)
            )),
            NoMerge::TcpAcknowledgmentAlone => {
                let at = |packet: &[u8], transport: &Transport| {
                    let start = transport.layer.offset as usize;
                    (
                        u32_at(packet, start + tcp::field::ACKNOWLEDGMENT.start),
                        u16_at(packet, start + tcp::field::WINDOW.start),
                    )
                };
                let (from, to) = (at(self.last, &self.before), at(self.now, &self.after));
                Some(format!("ack {} -> {}, window {} -> {}", from.0, to.0, from.1, to.1))
            }
            _ => None,
        }
    }

    fn remedy(
        &self,
        reason: NoMerge,
        law: Option<&BrokenLaw>,
        limit: Option<&Limit>,
    ) -> Option<String> {
        let would_be = limit.and_then(|limit| limit.would_be);
        Some(match reason {
            NoMerge::TcpSequenceAhead | NoMerge::TcpSequenceBehind => {
                format!("sequence {}", self.expected_sequence())
            }
            NoMerge::Identification => {
                let last = self.before.identification(self.last)?;
                format!("id {}, or {last} in a train with a constant id", last.wrapping_add(1))
            }
            NoMerge::Longer => format!("at most {} B of payload", self.held.gso_size?),
            NoMerge::SuperframeSize => {
                format!("a superframe with segments of {} B", self.held.gso_size?)
            }
            NoMerge::SizeLimit if self.is_free() => format!("--max-size {}", would_be? + 1),
            NoMerge::SizeLimit => "less payload".into(),
            NoMerge::SegmentLimit => format!("--max-segs {}", would_be?),
            NoMerge::TcpAcknowledgmentAlone => {
                "a later acknowledgment number or another window".into()
            }
            NoMerge::HeaderStack => format!("{} as before", headers(self.last, &self.last_stack)),
            NoMerge::ChecksumState => "checksums that are all complete, or all partial".into(),
            NoMerge::VlanTag => "the VLAN tag in the train's metadata".into(),
            _ => {
                let BrokenLaw { field, held, .. } = law?;
                format!("{field} {held} as before")
            }
        })
    }

    /// Returns whether a superframe may be longer than its length fields can express.
    fn is_free(&self) -> bool {
        let levels = self.now_stack.layers().iter().filter(|layer| is_ip(layer)).count();
        self.after.is_tcp() && levels == 1
    }

    fn sequences(&self) -> (u32, u32) {
        let at = |packet: &[u8], transport: &Transport| {
            u32_at(packet, transport.layer.offset as usize + tcp::field::SEQUENCE.start)
        };
        (at(self.last, &self.before), at(self.now, &self.after))
    }

    fn expected_sequence(&self) -> u32 {
        self.sequences().0.wrapping_add(self.before.payload as u32)
    }
}

/// Returns a phrase that lists alternative remedies. Any one of them is sufficient.
fn remedy(remedies: &[String]) -> Option<String> {
    let with = |remedy: &String| match remedy.starts_with("never") {
        true => remedy.clone(),
        false => format!("with {remedy}"),
    };
    let words: Vec<String> = remedies.iter().map(with).collect();
    (!words.is_empty()).then(|| words.join("; or "))
}

/// Returns a description of the law for a field if its two values violate that law and `reason` is the corresponding
/// refusal.
fn words_of(field: &Field, reason: NoMerge, held: &[u8], came: &[u8]) -> Option<&'static str> {
    let is_named = NoMerge::of(field.role) == reason;
    match field.law {
        Law::Key { .. } if is_named && held != came => Some("is part of the flow"),
        Law::Equal if is_named && held != came => Some("stays the same"),
        Law::Flags if is_named && flags(held) != flags(came) => {
            Some("stay the same, except for FIN and PSH")
        }
        Law::Identification if reason == NoMerge::Identification => {
            let step = u16_at(came, 0).wrapping_sub(u16_at(held, 0));
            (step > 1).then_some("increases by one per packet, or stays constant")
        }
        Law::Sequence
            if matches!(reason, NoMerge::TcpSequenceAhead | NoMerge::TcpSequenceBehind) =>
        {
            Some("advances by the payload length")
        }
        Law::Checksum(Cover::Datagram { .. })
            if reason == NoMerge::ChecksumPresence
                && (u16_at(held, 0) == 0) != (u16_at(came, 0) == 0) =>
        {
            Some("is present in every packet, or in none")
        }
        _ => None,
    }
}

/// Returns the flags that must stay the same throughout a train.
fn flags(word: &[u8]) -> u16 {
    u16_at(word, 0) & FLAGS & !(tcp::FIN | tcp::PSH)
}

/// Formats the value of a field.
fn value(form: Notation, field: &[u8]) -> String {
    let number = field.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    match form {
        Notation::Number => number.to_string(),
        Notation::Hexadecimal => format!("{number:#0width$x}", width = 2 + 2 * field.len()),
        Notation::Flags => format!("{:#05x}", number & u64::from(FLAGS)),
        Notation::Bytes => bytes(field),
    }
}

/// Formats bytes in hexadecimal, up to the length of a line.
fn bytes(field: &[u8]) -> String {
    let hex: String = field.iter().take(BYTES_SHOWN).map(|byte| format!("{byte:02x}")).collect();
    if field.len() > BYTES_SHOWN { hex + "..." } else { hex }
}

/// Returns the built-in profiles under which the last of `packets`, pushed after the others, gets the verdict `wanted`.
fn profiles(packets: &[&[u8]], link: LinkType, ports: &Ports, wanted: Verdict) -> Option<String> {
    let names = Profile::all().into_iter().filter_map(|mut profile| {
        let name = profile.name.clone();
        profile.batch = Batch::AsItCame;
        let mut coalescer =
            PortCoalescer::new(CoalesceOptions::new(link, 0).profile(profile).ports(*ports));
        let sink: &mut dyn Sink<PortBuffer> = &mut |_: Delivery<'_, _>| {};
        let mut verdict = None;
        for &packet in packets {
            let meta: Meta = meta_of(packet, link, ports);
            let buffer = PortBuffer::from(packet.to_vec());
            verdict = Some(coalescer.push(Frame { buffer, meta }, 0, sink));
        }
        (verdict == Some(wanted)).then_some(name)
    });
    let names: Vec<_> = names.collect();
    (!names.is_empty()).then(|| format!("--profile {}", names.join(", ")))
}

/// Returns a change that would let packets merge that currently pass through for this reason.
fn remedy_of_pass(reason: Pass) -> Option<&'static str> {
    Some(match reason {
        Pass::NotIp | Pass::Protocol => "never: only TCP and UDP over IP form trains",
        Pass::Truncated | Pass::Short => "a complete capture of the packet (tcpdump -s 0)",
        Pass::Malformed => "consistent headers",
        Pass::TooDeep => "fewer headers",
        Pass::HeaderTooLong => "shorter headers",
        Pass::Encrypted => "the inner packet, decrypted",
        Pass::Fragment => "the whole datagram (grosso reassemble)",
        Pass::Padded => "a frame without trailing bytes",
        Pass::LengthZero => "a capture that records the segment size (grosso capture)",
        Pass::Ipv4Options => "an IPv4 header without options",
        Pass::Ipv4ReservedBit => "a reserved bit that is zero",
        Pass::Ipv4Checksum | Pass::Checksum => {
            "a correct checksum (grosso csum verify shows which is wrong)"
        }
        Pass::ChecksumForm => "the checksum that segmentation would write",
        Pass::ChecksumNone => "a UDP checksum",
        Pass::ChecksumPartial => "a partial checksum in the innermost header",
        Pass::RemoteChecksum => {
            "an outer checksum, and an offset that points to the inner checksum"
        }
        Pass::Empty => "payload",
        Pass::TcpSynchronize | Pass::TcpReset | Pass::TcpUrgent => {
            "never: the packet is always a singleton"
        }
        Pass::TcpFlags => "only flags that the profile does not exclude",
        Pass::TcpOptions => "no options, or two NOPs and a timestamp",
        Pass::Congestion => "no congestion mark",
        Pass::TcpFinish | Pass::TcpPush => {
            "a train of the same flow that is held when the packet arrives (longer --hold, larger \
             --batch)"
        }
        Pass::TableFull => "a free train slot (larger --max-flows, or rules.full = \"evicts\")",
        Pass::TcpLate | Pass::TcpOverlap => "the sequence number that follows the previous packet",
        Pass::GreFlags => "GRE without sequence numbers",
        Pass::GeneveControl => "never: the packet is addressed to the tunnel endpoint",
        Pass::Superframe => "packets instead of a superframe (grosso wire)",
        _ => return None,
    })
}

/// Remedy for an L2TPv3 session whose format is not configured.
const CONFIGURE_L2TP: &str = "--l2tp and the session format, for example --l2tp 4/default (packets do \
                         not contain the format)";
/// Mask of the TCP flags in the word that they share with the header length. It includes the reserved bits, which a
/// train also preserves.
const FLAGS: u16 = 0x0fff;
/// Number of trains in a bucket (rule G3).
const WAYS: u64 = 8;
/// Number of header stacks in the cache.
const HEADER_STACKS: u64 = 64;
/// Maximum number of bytes shown of a field.
const BYTES_SHOWN: usize = 12;
