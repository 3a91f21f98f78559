//! The VPN of `vpn.rs` on tokio, compatible with it.
//!
//! `vpn_tokio LOCAL:PORT REMOTE:PORT DEVICE KEYFILE a|b`
use std::{env, error::Error, io, net::SocketAddr};

use grosso_examples::Cipher;
use grosso_tun::{AsyncTun, AsyncUdp, Datagram, Tun, TunOptions, Udp};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    let [local, peer, device, key, role] = &words[..] else {
        return Err("vpn_tokio LOCAL:PORT REMOTE:PORT DEVICE KEYFILE a|b".into());
    };
    let tun: Tun = Tun::open(device, &TunOptions::default().trusted(true))?;
    println!("{} is there", tun.name());
    let udp = AsyncUdp::new(Udp::bind(local.parse()?, false)?)?;
    let ciphers = [Cipher::read(key, role)?, Cipher::read(key, role)?];
    carry(AsyncTun::new(tun)?, udp, peer.parse()?, ciphers).await?;
    Ok(())
}

/// Carries packets both ways until a device fails. A receive that loses the race has received nothing.
async fn carry(
    mut tun: AsyncTun,
    mut udp: AsyncUdp,
    peer: SocketAddr,
    [mut sealer, opener]: [Cipher; 2],
) -> io::Result<()> {
    let (mut sealed, mut packets) = (Vec::<Vec<u8>>::new(), Vec::<Vec<u8>>::new());
    let (mut spare_sealed, mut spare) = (Vec::new(), Vec::new());
    loop {
        tokio::select! {
            received = tun.recv(|packet, _| {
                let mut buffer = spare_sealed.pop().unwrap_or_default();
                sealer.seal(packet, &mut buffer);
                sealed.push(buffer);
            }) => received?,
            received = udp.recv(|datagram| {
                let mut packet = spare.pop().unwrap_or_default();
                let is_ours = datagram.from == peer && opener.open(datagram.payload, &mut packet);
                if is_ours { packets.push(packet) } else { spare.push(packet) }
            }) => received?,
        };
        let datagram = |payload| Datagram { payload, to: peer, class: 0 };
        udp.send(&sealed.iter().map(|payload| datagram(payload)).collect::<Vec<_>>()).await?;
        tun.send(&mut packets).await?;
        spare_sealed.append(&mut sealed);
        spare.append(&mut packets);
    }
}
