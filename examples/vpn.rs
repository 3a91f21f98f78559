//! One end of a VPN: a TUN device, a UDP socket, AES-GCM between them, and one peer.
//!
//! `vpn LOCAL:PORT REMOTE:PORT DEVICE KEYFILE a|b`; `cipher.rs` describes the keys.
use std::{env, error::Error, io, net::SocketAddr, os::fd::AsFd};

use grosso_examples::Cipher;
use grosso_tun::{Datagram, Interest, Tun, TunOptions, Udp, wait_for};

struct Tunnel {
    tun: Tun,
    udp: Udp,
    peer: SocketAddr,
    cipher: Cipher,
    sealed: Vec<Vec<u8>>,
    packets: Vec<Vec<u8>>,
    spare: Vec<Vec<u8>>,
}

impl Tunnel {
    /// Encrypts packets of the host and sends them to the peer. The congestion marks of packets stay inside.
    fn outwards(&mut self) -> io::Result<()> {
        let Self { tun, udp, peer, cipher, sealed, spare, .. } = self;
        tun.try_recv(|packet, _| {
            let mut buffer = spare.pop().unwrap_or_default();
            cipher.seal(packet, &mut buffer);
            sealed.push(buffer);
        })?;
        let datagram = |payload| Datagram { payload, to: *peer, class: 0 };
        udp.send(&sealed.iter().map(|payload| datagram(payload)).collect::<Vec<_>>())?;
        spare.append(sealed);
        Ok(())
    }

    /// Decrypts datagrams of the peer and sends them to the host: a batch as a few superframes.
    fn inwards(&mut self) -> io::Result<()> {
        let Self { tun, udp, peer, cipher, packets, spare, .. } = self;
        udp.try_recv(|datagram| {
            let mut packet = spare.pop().unwrap_or_default();
            let is_ours = datagram.from == *peer && cipher.open(datagram.payload, &mut packet);
            if is_ours { packets.push(packet) } else { spare.push(packet) }
        })?;
        tun.send(packets)?;
        spare.append(packets);
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    let [local, peer, device, key, role] = &words[..] else {
        return Err("vpn LOCAL:PORT REMOTE:PORT DEVICE KEYFILE a|b".into());
    };
    // The cipher authenticates the peer's packets, and this program trusts its peer.
    let options = TunOptions::default().trusted(true);
    let mut tunnel = Tunnel {
        tun: Tun::open(device, &options)?,
        udp: Udp::bind(local.parse()?, false)?,
        peer: peer.parse()?,
        cipher: Cipher::read(key, role)?,
        sealed: Vec::new(),
        packets: Vec::new(),
        spare: Vec::new(),
    };
    println!("{} is there", tunnel.tun.name());
    for fallback in tunnel.tun.fallbacks() {
        println!("without {fallback}: {}", fallback.sentence());
    }
    loop {
        let Tunnel { tun, udp, .. } = &tunnel;
        wait_for(&[(tun.as_fd(), Interest::READ), (udp.as_fd(), Interest::READ)], None)?;
        tunnel.outwards()?;
        tunnel.inwards()?;
    }
}
