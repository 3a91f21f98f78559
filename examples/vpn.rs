//! One endpoint of a VPN with a single peer: a TUN device, a UDP socket, AES-GCM between them, and one thread per
//! direction.
//!
//! Usage: `vpn LOCAL:PORT REMOTE:PORT DEVICE KEYFILE a|b`. `cipher.rs` describes the key file.
use std::{env, error::Error, io, net::SocketAddr, thread};

use grosso_examples::Cipher;
use grosso_tun::{
    Batch, Datagram, Trust, Tun, TunOptions, TunReceiver, TunSender, Udp, UdpOptions, UdpReceiver,
    UdpSender,
};

/// Seals packets from the host and sends them to the peer. Congestion marks are not copied from the packets to the
/// datagrams.
fn outwards(
    mut tun: TunReceiver,
    mut udp: UdpSender,
    peer: SocketAddr,
    mut cipher: Cipher,
) -> io::Result<()> {
    let (mut sealed, mut spare) = (Vec::<Vec<u8>>::new(), Vec::new());
    loop {
        tun.recv(|packet, _| {
            let mut buffer = spare.pop().unwrap_or_default();
            cipher.seal(packet, &mut buffer);
            sealed.push(buffer);
        })?;
        let datagrams: Vec<_> = sealed.iter().map(|payload| Datagram::new(payload, peer)).collect();
        udp.send(&mut &datagrams[..])?;
        spare.append(&mut sealed);
    }
}

/// Opens datagrams from the peer and writes the packets to the device. Each batch of packets becomes a few superframes.
fn inwards(
    mut udp: UdpReceiver,
    mut tun: TunSender,
    peer: SocketAddr,
    cipher: Cipher,
) -> io::Result<()> {
    let mut batch = Batch::new();
    loop {
        udp.recv(|datagram| {
            let mut packet = batch.buffer();
            let is_ours = datagram.from == peer && cipher.open(datagram.payload, &mut packet);
            if is_ours { batch.push(packet) } else { batch.recycle(packet) }
        })?;
        tun.send(&mut batch)?;
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    let [local, peer, device, key, role] = &words[..] else {
        return Err("vpn LOCAL:PORT REMOTE:PORT DEVICE KEYFILE a|b".into());
    };
    // The cipher authenticates every packet, and this program trusts its peer.
    let tun: Tun = Tun::open(device, &TunOptions::new().trust(Trust::Authenticated))?;
    println!("{} is there", tun.name());
    for fallback in tun.fallbacks() {
        println!("without {fallback}: {}", fallback.sentence());
    }
    let peer = peer.parse()?;
    let (from_host, to_host) = tun.split();
    let (from_peer, to_peer) = Udp::bind(local.parse()?, &UdpOptions::new())?.split();
    let sealer = Cipher::read(key, role)?;
    let sending = thread::spawn(move || outwards(from_host, to_peer, peer, sealer));
    inwards(from_peer, to_host, peer, Cipher::read(key, role)?)?;
    sending.join().expect("the sending thread does not panic")?;
    Ok(())
}
