//! Frames for the packets of a transfer.

use super::Item;
use crate::Packet;

/// Builder of the frames of one connection.
#[derive(Debug)]
pub(super) struct Writer {
    is_ipv6: bool,
    /// Port of the sender.
    port: u16,
}

impl Writer {
    pub(super) const fn new(is_ipv6: bool, port: u16) -> Self {
        Self { is_ipv6, port }
    }

    /// Returns the frame of a packet.
    pub(super) fn frame(&self, item: &Item) -> Vec<u8> {
        let (source, destination) = if item.from_sender { (A, B) } else { (B, A) };
        let link = Packet::new().ethernet(|e| e);
        let network = if self.is_ipv6 {
            link.ipv6(|ip| ip.source(long(source)).destination(long(destination)))
        } else {
            let short = |host| [10, 0, 0, host];
            link.ipv4(|ip| {
                let ip = ip.source(short(source)).destination(short(destination));
                ip.id(item.identification).df(true)
            })
        };
        let ports = if item.from_sender { (self.port, 5201) } else { (5201, self.port) };
        let packet = network.tcp(|tcp| {
            let tcp = tcp.source_port(ports.0).destination_port(ports.1).sequence(item.sequence);
            let tcp = tcp.ack(item.ack).options(&options(item));
            let scale = if item.is_syn { 0 } else { SCALE };
            let tcp = tcp.window((item.window >> scale).min(65535) as u16);
            let tcp = if item.is_syn { tcp.syn() } else { tcp };
            let tcp = if item.is_syn && item.from_sender { tcp.no_ack() } else { tcp };
            let tcp = if item.is_push { tcp.psh() } else { tcp };
            if item.is_damaged { tcp.checksum_xor(0x1234) } else { tcp }
        });
        packet.payload_len(item.len as usize).build()
    }

    /// Returns the ICMP message about a packet that is too big. The message quotes the packet's headers and
    /// `more_bytes` bytes after them.
    pub(super) fn too_big(&self, item: &Item, mtu: u16, more_bytes: u16) -> Vec<u8> {
        let mut quoted = self.frame(item).split_off(14);
        let link = Packet::new().ethernet(|e| e);
        let [high, low] = mtu.to_be_bytes();
        let lengths = if self.is_ipv6 { 4..6 } else { 2..4 };
        let length = u16::from_be_bytes([quoted[lengths.start], quoted[lengths.start + 1]]);
        quoted[lengths].copy_from_slice(&(length + more_bytes).to_be_bytes());
        quoted.truncate(if self.is_ipv6 { 60 } else { 28 });
        let packet = if self.is_ipv6 {
            let link = link.ipv6(|ip| ip.source(long(254)).destination(long(A)));
            link.icmp(|icmp| icmp.kind(2).code(0).rest([0, 0, high, low]))
        } else {
            let link = link.ipv4(|ip| ip.source([10, 0, 0, 254]).destination([10, 0, 0, A]));
            link.icmp(|icmp| icmp.kind(3).code(4).rest([0, 0, high, low]))
        };
        packet.payload(&quoted).build()
    }
}

fn options(item: &Item) -> Vec<u8> {
    let mut options = Vec::new();
    if item.is_syn {
        options.extend([2, 4, 5, 180, 4, 2]);
    } else {
        options.extend([1, 1]);
    }
    options.extend([8, 10]);
    options.extend(item.timestamps.0.to_be_bytes());
    options.extend(item.timestamps.1.to_be_bytes());
    if item.is_syn {
        options.extend([1, 3, 3, SCALE as u8]);
    }
    if !item.blocks.is_empty() {
        options.extend([1, 1, 5, 2 + 8 * item.blocks.len() as u8]);
        for (left, right) in &item.blocks {
            options.extend(left.to_be_bytes());
            options.extend(right.to_be_bytes());
        }
    }
    options
}

const fn long(host: u8) -> [u8; 16] {
    [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]
}

/// Last bytes of the hosts' addresses.
const A: u8 = 1;
const B: u8 = 2;
/// Window scale of both hosts.
const SCALE: u32 = 7;
