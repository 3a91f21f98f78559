//! The VPN from `vpn.rs` on tokio, with one task per direction. The two programs are compatible.
//!
//! Usage: `vpn_tokio LOCAL:PORT REMOTE:PORT DEVICE KEYFILE a|b`
use std::{env, error::Error, io, net::SocketAddr};

use grosso_examples::Cipher;
use grosso_tun::{
    AsyncTun, AsyncTunReceiver, AsyncTunSender, AsyncUdp, AsyncUdpReceiver, AsyncUdpSender, Batch,
    Datagram, Trust, Tun, TunOptions, Udp, UdpOptions,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    let [local, peer, device, key, role] = &words[..] else {
        return Err("vpn_tokio LOCAL:PORT REMOTE:PORT DEVICE KEYFILE a|b".into());
    };
    let tun: Tun = Tun::open(device, &TunOptions::new().trust(Trust::Authenticated))?;
    println!("{} is there", tun.name());
    let peer = peer.parse()?;
    let (from_host, to_host) = AsyncTun::new(tun)?.split();
    let udp = Udp::bind(local.parse()?, &UdpOptions::new())?;
    let (from_peer, to_peer) = AsyncUdp::new(udp)?.split();
    tokio::try_join!(
        outwards(from_host, to_peer, peer, Cipher::read(key, role)?),
        inwards(from_peer, to_host, peer, Cipher::read(key, role)?),
    )?;
    Ok(())
}

/// Seals packets from the host and sends them to the peer, until the device or the socket fails.
async fn outwards(
    mut tun: AsyncTunReceiver,
    mut udp: AsyncUdpSender,
    peer: SocketAddr,
    mut cipher: Cipher,
) -> io::Result<()> {
    let (mut sealed, mut spare) = (Vec::<Vec<u8>>::new(), Vec::new());
    loop {
        tun.recv(|packet, _| {
            let mut buffer = spare.pop().unwrap_or_default();
            cipher.seal(packet, &mut buffer);
            sealed.push(buffer);
        })
        .await?;
        let datagrams: Vec<_> = sealed.iter().map(|payload| Datagram::new(payload, peer)).collect();
        udp.send(&mut &datagrams[..]).await?;
        spare.append(&mut sealed);
    }
}

/// Opens datagrams from the peer and writes the packets to the device.
async fn inwards(
    mut udp: AsyncUdpReceiver,
    mut tun: AsyncTunSender,
    peer: SocketAddr,
    cipher: Cipher,
) -> io::Result<()> {
    let mut batch = Batch::new();
    loop {
        udp.recv(|datagram| {
            let mut packet = batch.buffer();
            let is_ours = datagram.from == peer && cipher.open(datagram.payload, &mut packet);
            if is_ours { batch.push(packet) } else { batch.recycle(packet) }
        })
        .await?;
        tun.send(&mut batch).await?;
    }
}
