//! One end of a VPN: a TUN device, a UDP socket, AES-GCM between them, and one peer.
//!
//! `vpn LOCAL:PORT REMOTE:PORT DEVICE KEYFILE a|b`: of the 16 bytes of the key file both ends have a copy, one end is
//! `a` and the other `b`. A counter that starts anew with the program is the nonce, so a key is for one run of both:
//! real programs agree on keys first, such as by Noise, and keep a window of numbers seen.
use std::{env, error::Error, fs, io, net::SocketAddr, os::fd::AsFd};

use aes_gcm::{
    Aes128Gcm, KeyInit, Nonce,
    aead::{AeadInOut, inout::InOutBuf},
};
use grosso_tun::{Datagram, Interest, Tun, TunOptions, Udp, wait_for};

/// Bytes in front of the sealed packet: the counter.
const COUNTER: usize = 8;
/// Bytes behind it: the tag.
const TAG: usize = 16;

struct Tunnel {
    tun: Tun,
    udp: Udp,
    peer: SocketAddr,
    cipher: Aes128Gcm,
    /// First byte of the nonces of this end; the other end's has the lowest bit inverted.
    role: u8,
    sent: u64,
    sealed: Vec<Vec<u8>>,
    packets: Vec<Vec<u8>>,
    spare: Vec<Vec<u8>>,
}

impl Tunnel {
    /// Packets of the host, sealed, to the peer. The congestion marks of packets stay inside.
    fn outwards(&mut self) -> io::Result<()> {
        let Self { tun, udp, peer, cipher, role, sent, sealed, spare, .. } = self;
        tun.try_recv(|packet, _| {
            let mut buffer = spare.pop().unwrap_or_default();
            buffer.clear();
            *sent += 1;
            buffer.extend_from_slice(&sent.to_be_bytes());
            buffer.extend_from_slice(packet);
            let nonce = nonce(*role, *sent);
            let text = InOutBuf::from(&mut buffer[COUNTER..]);
            let tag = cipher.encrypt_inout_detached(&nonce, &[], text).expect("a packet is short");
            buffer.extend_from_slice(&tag);
            sealed.push(buffer);
        })?;
        let class = 0;
        let datagrams: Vec<Datagram<'_>> =
            sealed.iter().map(|payload| Datagram { payload, to: *peer, class }).collect();
        udp.send(&datagrams)?;
        spare.append(sealed);
        Ok(())
    }

    /// Datagrams of the peer, opened, to the host: a batch as a few superframes.
    fn inwards(&mut self) -> io::Result<()> {
        let Self { tun, udp, peer, cipher, role, packets, spare, .. } = self;
        udp.try_recv(|datagram| {
            let Some((counter, rest)) = datagram.payload.split_first_chunk::<COUNTER>() else {
                return;
            };
            let Some((text, tag)) = rest.split_last_chunk::<TAG>() else { return };
            if datagram.from != *peer {
                return;
            }
            let mut packet = spare.pop().unwrap_or_default();
            packet.clear();
            packet.extend_from_slice(text);
            let nonce = nonce(*role ^ 1, u64::from_be_bytes(*counter));
            let text = InOutBuf::from(&mut packet[..]);
            match cipher.decrypt_inout_detached(&nonce, &[], text, &(*tag).into()) {
                Ok(()) => packets.push(packet),
                Err(_) => spare.push(packet),
            }
        })?;
        tun.send(packets)?;
        spare.append(packets);
        Ok(())
    }
}

fn nonce(role: u8, counter: u64) -> Nonce<aes_gcm::aead::consts::U12> {
    let mut nonce = [0; 12];
    nonce[0] = role;
    nonce[4..].copy_from_slice(&counter.to_be_bytes());
    nonce.into()
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    let [local, peer, device, key, role] = &words[..] else {
        return Err("vpn LOCAL:PORT REMOTE:PORT DEVICE KEYFILE a|b".into());
    };
    let key: [u8; 16] = fs::read(key)?.try_into().map_err(|_| "a key has 16 bytes")?;
    // The cipher vouches for what the peer sent, and this program trusts its peer.
    let options = TunOptions::default().trusted(true);
    let mut tunnel = Tunnel {
        tun: Tun::open(device, &options)?,
        udp: Udp::bind(local.parse()?, false)?,
        peer: peer.parse()?,
        cipher: Aes128Gcm::new(&key.into()),
        role: u8::from(role == "b"),
        sent: 0,
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
