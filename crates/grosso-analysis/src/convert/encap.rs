//! `grosso encap`: encapsulates packets in a tunnel. The options are those of `ip link`.
//!
//! The capture keeps its link type. A tunnel that carries IP packets inserts its headers after the packet's link-layer
//! header. A tunnel that carries Ethernet frames inserts them after a copy of the frame's Ethernet header. `decap` can
//! therefore restore the original capture.

use grosso::{
    Meta,
    checksum::{self, Checksum},
    meta::Gso,
    tunnel::{
        Carrier, Endpoint, Header,
        encapsulate::{Encapsulator, Refusal},
    },
};
use grosso_capture::{Format, PacketMeta, TunnelPort};
use grosso_wire::{Kind, LinkType, Ports, Stack, ethernet, ipv4, udp};

use crate::{
    capture::{CaptureCommand, Files, Frame, Outcome, Output, Session, Transform, transform},
    checksums::{
        has_gre_checksum_to_come, is_large_send_without_length, is_left_to_device, seeded_around,
    },
    error::Failure,
    evidence::{Evidence, Given, Judge, Nature, Sight, Tally},
    meta,
    reports::{encap::EncapReport, reassemble::Alone},
    units,
};

/// Options for `grosso encap`, which encapsulates packets in a tunnel.
#[derive(Clone, Debug)]
pub struct Encap {
    /// Assumptions about facts that the capture does not record.
    pub given: Given,
    /// Local endpoint of the tunnel.
    pub endpoint: Endpoint,
    /// Short description of the tunnel for the report.
    pub summary: String,
    /// Tunnel options in the form of `ip link add`, for the report.
    pub words: String,
    /// Random seed for source ports, flow labels and IP IDs.
    pub seed: u64,
}

impl CaptureCommand for Encap {
    type Report = EncapReport;

    fn run(self, files: Files, session: &Session) -> Result<Outcome<EncapReport>, Failure> {
        let overhead = self.endpoint.overhead().collect();
        let tunnel = tunnel_port(&self.endpoint);
        let encapsulator = Encapsulator::new(self.endpoint, self.seed)
            .map_err(|contradiction| Failure::usage("usage.tunnel", contradiction.to_string()))?;
        let mut input = files.input(session)?;
        let output = files.output_for_longer(&input, session)?;
        let format = output.format;
        let mut work = EncapWork {
            output,
            encapsulator,
            tunnel,
            judge: Judge::new(self.given),
            tally: Tally::default(),
            packet: Vec::new(),
            refused: Alone::default(),
        };
        let done = transform(&mut input, &mut work)?;
        let EncapWork { output, encapsulator, refused, tally, .. } = work;
        let (facts, place) = output.finish(&input)?;
        tally.notes().for_each(|note| session.note(note));
        let stats = encapsulator.stats();
        if format == Format::Pcap && stats.frames > 0 {
            note_port(tunnel, session);
        }
        note(
            stats.refused(Refusal::SuperframeNumbered),
            stats.refused(Refusal::NotEthernet),
            session,
        );
        let report = EncapReport {
            input: input.facts(done.bytes),
            output: facts,
            tunnel: self.summary,
            words: self.words,
            overhead,
            encapsulated: stats.frames,
            superframes: stats.superframes,
            remote_checksums: stats.remote_checksums,
            contradictions: tally.contradictions(),
            refused,
            elapsed_s: session.elapsed_s(),
        };
        let is_refused =
            session.strict && (!report.refused.is_empty() || report.contradictions > 0);
        Ok(done.outcome((report, place), input, is_refused))
    }
}

/// Returns the UDP port of a tunnel, or `None` if the tunnel does not use UDP.
fn tunnel_port(endpoint: &Endpoint) -> Option<TunnelPort> {
    let udp = match &endpoint.carrier {
        Carrier::Ip => return None,
        Carrier::Gue(udp) | Carrier::DirectGue(udp) => {
            return Some(TunnelPort::new(Kind::Gue, udp.destination));
        }
        Carrier::Udp(udp) => udp,
    };
    Some(match endpoint.header {
        Header::Vxlan { generic_protocol, .. } => {
            let kind = if generic_protocol { Kind::VxlanGpe } else { Kind::Vxlan };
            TunnelPort::new(kind, udp.destination)
        }
        Header::Geneve { .. } => TunnelPort::new(Kind::Geneve, udp.destination),
        Header::Gre { .. } => TunnelPort::fou(udp.destination, ipv4::PROTOCOL_GRE),
        // The tunnel carries both IP versions. A port registered for IPv4 is also recognized with IPv6.
        Header::Ip => TunnelPort::fou(udp.destination, ipv4::PROTOCOL_IPV4),
    })
}

/// Tells the user which `--port` option finds the tunnel, if the file cannot record the port.
fn note_port(tunnel: Option<TunnelPort>, session: &Session) {
    if let Some(tunnel) = tunnel.filter(|tunnel| !tunnel.is_assigned()) {
        let port = tunnel.port();
        let name = tunnel.name();
        let note = format!("pcap cannot record that UDP port {port} is {name}; pcapng can");
        session.note(note);
        session.hint(&format!("pass --port {tunnel} to every command that reads the file"));
    }
}

/// Tells the user why packets stayed unchanged, and how to avoid it.
fn note(numbered: u64, not_ethernet: u64, session: &Session) {
    if numbered > 0 {
        let frames = units::count(numbered, "superframe");
        session.note(format!(
            "{frames} left unchanged: each packet split from a superframe needs a separate \
             sequence number"
        ));
        session.hint("to split superframes into packets first, run `grosso wire`");
    }
    if not_ethernet > 0 {
        let packets = units::count(not_ethernet, "packet");
        session.note(format!(
            "{packets} left unchanged: the tunnel carries Ethernet frames, but the packets have no Ethernet header"
        ));
        session.hint("vxlan gpe, geneve innerprotoinherit, gre and ipip carry IP packets");
    }
}

struct EncapWork {
    output: Output,
    encapsulator: Encapsulator,
    /// UDP port of the tunnel; `None` if the tunnel does not use UDP.
    tunnel: Option<TunnelPort>,
    judge: Judge,
    tally: Tally,
    /// Buffer that holds the encapsulated packet.
    packet: Vec<u8>,
    refused: Alone,
}

impl Transform for EncapWork {
    fn output(&mut self) -> &mut Output {
        &mut self.output
    }

    fn packet(&mut self, frame: Frame<'_>) -> Result<(), Failure> {
        let Frame { entry, packet, link } = frame;
        if packet.is_cut() {
            // The tunnel's lengths and checksums would describe a packet with missing bytes.
            self.refused.add("truncated", packet.number);
            return self.output.copy(entry);
        }
        let (said, ports, stack) = self.judge.parse(packet, link);
        let mut known = said.known(&stack);
        let given = self.given(&Sight::new(packet, &said, &stack, link, ports));
        known.gso = given.or(known.gso);
        if known.checksum == Checksum::None {
            // Captures from a sending host do not always record a partial checksum.
            (known.checksum, known.gso) = left_to_device(packet.data, &stack, known.gso);
        }
        if has_gre_checksum_to_come(packet.data, &stack) {
            self.refused.add("gre_checksum_partial", packet.number);
            return self.output.copy(entry);
        }
        match self.wrap(packet.data, known, link, &stack) {
            Ok(meta) => {
                // If only the headers suggest that the frame is a superframe, the output must not record a segment
                // size.
                let is_recorded = given.is_some() || said.gso().is_some();
                let meta = Meta { gso: meta.gso.filter(|_| is_recorded), ..meta };
                let mut tunnels = inside(&said, packet.data, &stack, &ports);
                if let Some(tunnel) = self.tunnel {
                    tunnel.enter(&mut tunnels);
                }
                let written = meta::of_tunnelled(&said, &meta, tunnels);
                self.output.write_changed(&written, &self.packet, packet)
            }
            Err(refusal) => {
                self.refused.add(refusal, packet.number);
                self.output.copy(entry)
            }
        }
    }
}

impl EncapWork {
    /// Returns the segmentation of a superframe if the user configured its segment size. Other frames are encapsulated
    /// as they are, because a tunnel can carry both packets and superframes.
    fn given(&mut self, sight: &Sight<'_>) -> Option<Gso> {
        let judgment = self.judge.judge(sight);
        let Nature::Superframe { gso, .. } = judgment.nature else { return None };
        if judgment.by != Some(Evidence::Given) {
            return None;
        }
        self.tally.count(&judgment);
        Some(gso)
    }
}

/// Returns the checksum state of a packet if the capture records none, and the segmentation if the packet is a
/// superframe. Inside a tunnel, only superframes have more than one partial checksum (rule T11).
fn left_to_device(packet: &[u8], stack: &Stack, gso: Option<Gso>) -> (Checksum, Option<Gso>) {
    if is_large_send_without_length(packet, stack) {
        return (Checksum::of_transport(stack), gso.or(Some(Gso::UNKNOWN)));
    }
    let around = seeded_around(packet, stack)
        .filter(|udp| stack.last().is_some_and(|last| last.offset != udp.offset));
    match (is_left_to_device(packet, stack), around) {
        (true, around) => {
            (Checksum::of_transport(stack), gso.or_else(|| around.map(|_| Gso::UNKNOWN)))
        }
        (false, Some(udp)) => {
            let offset = udp::field::CHECKSUM.start as u16;
            (Checksum::Partial { start: udp.offset, offset }, gso)
        }
        (false, None) => (Checksum::None, gso),
    }
}

impl EncapWork {
    /// Writes the encapsulated frame to `self.packet`, and returns its metadata.
    fn wrap(
        &mut self,
        frame: &[u8],
        meta: Meta,
        link: LinkType,
        stack: &Stack,
    ) -> Result<Meta, &'static str> {
        let endpoint = self.encapsulator.endpoint();
        let ethertype = if endpoint.local.is_ipv4() {
            ethernet::ETHERTYPE_IPV4
        } else {
            ethernet::ETHERTYPE_IPV6
        };
        if endpoint.carries_ethernet() {
            let front = frame.get(..ethernet::HEADER_LEN).unwrap_or_default();
            let front = (front, Kind::Ethernet);
            return self.put(front, ethertype, frame, &meta, link);
        }
        let network = stack.layers().iter().position(|layer| layer.kind.is_ip()).unwrap_or(0);
        let last = network.checked_sub(1).and_then(|last| stack.layers().get(last));
        let Some(last) = last else {
            return self.put((&[], Kind::Ethernet), ethertype, frame, &meta, link);
        };
        let (front, packet) = frame.split_at(last.end().min(frame.len()));
        let mut inner = meta;
        // A VLAN tag in the metadata belongs to the outer link-layer header.
        inner.vlan = None;
        if let Checksum::Partial { start, .. } = &mut inner.checksum {
            *start =
                start.checked_sub(front.len() as u16).ok_or(Refusal::ChecksumOutside.name())?;
        }
        let known = self.put((front, last.kind), ethertype, packet, &inner, LinkType::Raw)?;
        Ok(Meta { vlan: meta.vlan, ..known })
    }

    /// Writes `front`, the tunnel headers and `packet` to `self.packet`.
    fn put(
        &mut self,
        (front, last): (&[u8], Kind),
        ethertype: u16,
        packet: &[u8],
        meta: &Meta,
        link: LinkType,
    ) -> Result<Meta, &'static str> {
        self.packet.clear();
        self.packet.extend_from_slice(front);
        // Done first, so that the encapsulator does not count a packet that will stay unchanged.
        name_payload(&mut self.packet, last, ethertype)?;
        let put_in = self.encapsulator.encapsulate(&[packet], meta, link).map_err(Refusal::name)?;
        let rest = packet.get(put_in.replaced..packet.len() - put_in.padding).unwrap_or_default();
        self.packet.extend_from_slice(put_in.header);
        let payload_at = self.packet.len();
        self.packet.extend_from_slice(rest);
        let mut known = put_in.meta;
        if let Checksum::Partial { start, offset } = &mut known.checksum {
            *start += front.len() as u16;
            if usize::from(*start) < payload_at {
                // On the wire, this checksum is complete. No device will complete it here.
                let completed = checksum::complete(&mut self.packet, *start, *offset);
                completed.map_err(|_| Refusal::ChecksumOutside.name())?;
                known.checksum = Checksum::None;
            }
        }
        Ok(known)
    }
}

/// Returns the tunnels around the packet that use non-standard ports: those found by the dissector, and those recorded
/// in the capture.
fn inside(said: &PacketMeta, packet: &[u8], stack: &Stack, ports: &Ports) -> Vec<TunnelPort> {
    let mut found = TunnelPort::of_packet(packet, stack, ports);
    let mut recorded = meta::tunnels(said).to_vec();
    found.iter().for_each(|tunnel| tunnel.leave(&mut recorded));
    found.append(&mut recorded);
    found
}

/// Sets the type field of the link-layer header to `ethertype` (IPv4 or IPv6).
fn name_payload(front: &mut [u8], last: Kind, ethertype: u16) -> Result<(), &'static str> {
    let field = match last {
        _ if front.is_empty() => return Ok(()),
        Kind::Ethernet | Kind::Vlan | Kind::Sll => front.last_chunk_mut::<2>(),
        Kind::Sll2 => front.first_chunk_mut::<2>(),
        _ => None,
    };
    *field.ok_or("link_family")? = ethertype.to_be_bytes();
    Ok(())
}
