//! One endpoint of a WireGuard tunnel with a single peer: boringtun's `noise` module between a TUN device and a UDP
//! socket.
//!
//! Usage: `wireguard LOCAL:PORT REMOTE:PORT DEVICE KEYFILE`. The key file contains this endpoint's private key and the
//! peer's public key, 32 bytes each.
use std::{
    env,
    error::Error,
    fs, io,
    net::SocketAddr,
    os::fd::AsFd,
    time::{Duration, Instant},
};

use boringtun::{
    noise::{Tunn, TunnResult},
    x25519::{PublicKey, StaticSecret},
};
use grosso_tun::{Batch, Datagram, Interest, Trust, Tun, TunOptions, Udp, UdpOptions, wait_for};

/// Room for the bytes that encryption adds, and for every handshake message.
const OVERHEAD: usize = 148;
/// Size of the buffer for a packet that waited for the handshake.
const QUEUED_MAX: usize = 2048;
/// Interval at which the protocol's timers are checked.
const TICK: Duration = Duration::from_millis(250);

struct Tunnel {
    tun: Tun,
    udp: Udp,
    peer: SocketAddr,
    noise: Tunn,
    messages: Vec<Vec<u8>>,
    packets: Batch,
    spare: Vec<Vec<u8>>,
}

impl Tunnel {
    /// Encrypts packets from the host and sends them to the peer. If there is no session, the packets wait, and the
    /// first handshake message is sent.
    fn outwards(&mut self) -> io::Result<()> {
        let Self { tun, noise, messages, spare, .. } = self;
        tun.try_recv(|packet, _| {
            let mut buffer = spare.pop().unwrap_or_default();
            buffer.resize(packet.len() + OVERHEAD, 0);
            let message = noise.encapsulate(packet, &mut buffer);
            keep(len(&message), buffer, messages, spare);
        })?;
        self.send_messages()
    }

    /// Decrypts datagrams from the peer and passes the packets to the host. Each batch of packets becomes a few
    /// superframes. Sends the peer handshake replies, and packets that waited for the handshake.
    fn inwards(&mut self) -> io::Result<()> {
        let Self { tun, udp, peer, noise, messages, packets, spare } = self;
        udp.try_recv(|datagram| {
            if datagram.from != *peer {
                return;
            }
            let mut rest = datagram.payload;
            loop {
                let mut buffer = spare.pop().unwrap_or_default();
                buffer.resize(rest.len().max(QUEUED_MAX), 0);
                let result = noise.decapsulate(None, rest, &mut buffer);
                let len = len(&result);
                if matches!(result, TunnResult::WriteToNetwork(_)) {
                    keep(len, buffer, messages, spare);
                    rest = &[];
                    continue;
                }
                if len > 0 {
                    packets.push_copy(&buffer[..len]);
                }
                spare.push(buffer);
                break;
            }
        })?;
        tun.send(packets)?;
        self.send_messages()
    }

    /// Does periodic work: sends keepalives, renews keys, and repeats handshakes.
    fn tick(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; OVERHEAD];
        let message = self.noise.update_timers(&mut buffer);
        keep(len(&message), buffer, &mut self.messages, &mut self.spare);
        self.send_messages()
    }

    fn send_messages(&mut self) -> io::Result<()> {
        let Self { udp, peer, messages, spare, .. } = self;
        let datagrams: Vec<_> =
            messages.iter().map(|payload| Datagram::new(payload, *peer)).collect();
        udp.send(&mut &datagrams[..])?;
        spare.append(messages);
        Ok(())
    }
}

/// Returns the number of bytes that the protocol wrote to the buffer.
fn len(result: &TunnResult<'_>) -> usize {
    match result {
        TunnResult::WriteToNetwork(bytes)
        | TunnResult::WriteToTunnelV4(bytes, _)
        | TunnResult::WriteToTunnelV6(bytes, _) => bytes.len(),
        TunnResult::Done | TunnResult::Err(_) => 0,
    }
}

/// Adds a buffer to a list, unless it is empty.
fn keep(len: usize, mut buffer: Vec<u8>, list: &mut Vec<Vec<u8>>, spare: &mut Vec<Vec<u8>>) {
    buffer.truncate(len);
    if len > 0 { list.push(buffer) } else { spare.push(buffer) }
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    let [local, peer, device, keys] = &words[..] else {
        return Err("wireguard LOCAL:PORT REMOTE:PORT DEVICE KEYFILE".into());
    };
    let keys: [u8; 64] = fs::read(keys)?.try_into().map_err(|_| "two keys have 64 bytes")?;
    let (own, other): ([u8; 32], [u8; 32]) = (keys[..32].try_into()?, keys[32..].try_into()?);
    // The cipher authenticates every packet, and this program trusts its peer.
    let tun = Tun::open(device, &TunOptions::new().trust(Trust::Authenticated))?;
    println!("{} is there", tun.name());
    let mut tunnel = Tunnel {
        tun,
        udp: Udp::bind(local.parse()?, &UdpOptions::new())?,
        peer: peer.parse()?,
        noise: Tunn::new(StaticSecret::from(own), PublicKey::from(other), None, None, 1, None),
        messages: Vec::new(),
        packets: Batch::new(),
        spare: Vec::new(),
    };
    let mut ticked = Instant::now();
    loop {
        let Tunnel { tun, udp, .. } = &tunnel;
        wait_for(&[(tun.as_fd(), Interest::READ), (udp.as_fd(), Interest::READ)], Some(TICK))?;
        tunnel.outwards()?;
        tunnel.inwards()?;
        if ticked.elapsed() >= TICK {
            tunnel.tick()?;
            ticked = Instant::now();
        }
    }
}
