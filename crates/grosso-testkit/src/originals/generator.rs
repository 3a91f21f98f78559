//! Random packets that exercise every decision of the originals.

use crate::{
    Packet,
    headers::{Ethernet, Ipv4, Tcp},
    random::Random,
};

/// One direction of a connection.
#[derive(Clone, Debug)]
struct GeneratedFlow {
    index: u16,
    sequence: u32,
    ack: u32,
    window: u16,
    value: u32,
    echo: u32,
    is_stamped: bool,
    /// Payload bytes of a full packet.
    size: usize,
}

/// Returns the frames that `count` polls receive, rarely more than 200 per poll, on `connections` connections. Some
/// connections share the same addresses.
pub fn polls(random: &mut Random, connections: u16, count: usize) -> Vec<Vec<Vec<u8>>> {
    let mut all: Vec<_> =
        (0..connections).map(|index| GeneratedFlow::random(random, index)).collect();
    (0..count).map(|_| poll(random, &mut all)).collect()
}

fn poll(random: &mut Random, all: &mut [GeneratedFlow]) -> Vec<Vec<u8>> {
    let packets = random.within(1, 200);
    let mut frames = Vec::new();
    // Trains reach their limits only if there are few deviations.
    let deviations = *random.choose(&[0, 2, 10, 40]);
    let active = random.within(1, all.len());
    while frames.len() < packets {
        let index = random.below(active);
        for _ in 0..random.geometric(8) {
            frames.push(all[index].packet(random, deviations));
        }
    }
    frames
}

impl GeneratedFlow {
    fn random(random: &mut Random, index: u16) -> Self {
        let is_stamped = random.one_in(2);
        Self {
            index,
            // Some sequence numbers wrap around.
            sequence: if random.one_in(2) { u32::MAX - 40_000 } else { random.bits() as u32 },
            ack: random.bits() as u32,
            window: 500,
            value: if random.one_in(4) { u32::MAX - 20 } else { 1000 },
            echo: 50,
            is_stamped,
            // Trains of small packets reach the limits on the number of packets.
            size: match random.one_in(3) {
                true => 500,
                false if is_stamped => 1448,
                false => 1460,
            },
        }
    }

    /// Returns the next packet. With a probability of `deviations` percent, it differs from the packet that its train
    /// expects.
    fn packet(&mut self, random: &mut Random, deviations: usize) -> Vec<u8> {
        let mut len = match random.below(20) {
            0 => 0,
            1 => random.within(1, 6),
            2 => random.within(1, self.size),
            _ => self.size,
        };
        // Sometimes the peer has sent data, so the acknowledgment number advances.
        match random.below(12) {
            0..4 => self.ack = self.ack.wrapping_add(random.within(1, 3000) as u32),
            4 => self.window = self.window.wrapping_add(random.within(1, 9) as u16),
            5 => self.window = self.window.wrapping_sub(random.within(1, 9) as u16),
            6..9 => (self.value, self.echo) = (self.value.wrapping_add(1), self.echo + 1),
            _ => {}
        }
        let mut packet = Shown {
            sequence: self.sequence,
            ack: self.ack,
            stamps: self.is_stamped.then_some((self.value, self.echo)),
            ..Shown::default()
        };
        if random.one_in(10) {
            packet.flags |= Tcp::PSH;
        }
        if random.percent(deviations) {
            len = packet.deviate(random, len);
        }
        if packet.sequence == self.sequence {
            self.sequence = self.sequence.wrapping_add(len as u32);
        }
        let low = self.index % 3;
        let ethernet = |ethernet: Ethernet| {
            if packet.is_from_elsewhere { ethernet.source([2, 0, 0, 0, 9, 9]) } else { ethernet }
        };
        let ip = |ip: Ipv4| {
            let ip = ip.source([10, 0, 0, 1 + low as u8]).destination([10, 0, 1, 1]);
            let ip = ip.tos(packet.tos).ttl(packet.ttl).id(packet.id).df(packet.has_df);
            let ip = ip.more_fragments(packet.is_fragment).checksum_xor(packet.ip_checksum_xor);
            if packet.has_ip_options { ip.options(&[1, 1, 1, 1]) } else { ip }
        };
        let tcp = |tcp: Tcp| {
            let tcp = tcp.source_port(1000 + self.index).sequence(packet.sequence).ack(packet.ack);
            let tcp = tcp.flags(packet.flags).window(self.window);
            let tcp = tcp.checksum_xor(packet.checksum_xor);
            match (packet.has_selective, packet.stamps) {
                (true, _) => tcp.options(&[1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 9]),
                (false, Some((value, echo))) => tcp.timestamps(value, echo),
                (false, None) => tcp,
            }
        };
        let built = Packet::new().ethernet(ethernet).ipv4(ip).tcp(tcp).payload_len(len);
        // Short frames either have padding, as on Ethernet, or none, as from a device that removes the padding.
        if random.one_in(3) { built.build() } else { built.pad_to(packet.pad_to).build() }
    }
}

/// The fields that vary between packets.
#[derive(Clone, Debug)]
struct Shown {
    sequence: u32,
    ack: u32,
    flags: u16,
    stamps: Option<(u32, u32)>,
    has_selective: bool,
    tos: u8,
    ttl: u8,
    id: u16,
    has_df: bool,
    is_fragment: bool,
    has_ip_options: bool,
    is_from_elsewhere: bool,
    checksum_xor: u16,
    ip_checksum_xor: u16,
    pad_to: usize,
}

impl Default for Shown {
    fn default() -> Self {
        Self {
            sequence: 0,
            ack: 0,
            flags: Tcp::ACK,
            stamps: None,
            has_selective: false,
            tos: 2,
            ttl: 64,
            id: 7,
            has_df: true,
            is_fragment: false,
            has_ip_options: false,
            is_from_elsewhere: false,
            checksum_xor: 0,
            ip_checksum_xor: 0,
            pad_to: 60,
        }
    }
}

impl Shown {
    /// Changes one field or the payload length, and returns the payload length.
    fn deviate(&mut self, random: &mut Random, len: usize) -> usize {
        match random.below(24) {
            0 => self.sequence = self.sequence.wrapping_add(random.within(1, 3000) as u32),
            1 => self.sequence = self.sequence.wrapping_sub(random.within(1, 3000) as u32),
            2 => self.ack = self.ack.wrapping_sub(random.within(1, 3000) as u32),
            3 => {
                self.ack = self.ack.wrapping_sub(random.within(0, 3000) as u32);
                return 0;
            }
            4 => self.flags |= *random.choose(&[Tcp::FIN, Tcp::SYN, Tcp::RST, Tcp::URG]),
            5 => self.flags |= *random.choose(&[Tcp::ECE, Tcp::CWR]),
            6 => self.flags &= !Tcp::ACK,
            7 => self.tos = *random.choose(&[0, 1, 3, 6]),
            8 => self.tos = 0xb8 | 2,
            9 => self.ttl = 63,
            10 => self.id = random.bits() as u16,
            11 => self.has_df = false,
            12 => self.is_fragment = true,
            13 => self.has_ip_options = true,
            14 => self.is_from_elsewhere = true,
            15 => self.checksum_xor = 1 << random.below(15),
            16 => self.ip_checksum_xor = 1 << random.below(15),
            17 => self.has_selective = true,
            18 => self.stamps = self.stamps.map(|(value, echo)| (value.wrapping_sub(1), echo)),
            19 => self.stamps = self.stamps.map(|(value, _)| (value, 0)),
            20 => self.stamps = self.stamps.map_or(Some((5, 5)), |_| None),
            21 => self.pad_to = 2000,
            _ => return random.within(0, 20),
        }
        len
    }
}
