//! gotatun's TUN device on `grosso-tun`: receives superframes, and sends batches of packets as superframes.

use std::{io, sync::Arc, time::Duration};

use grosso_tun::{
    AsyncTun, AsyncTunReceiver, AsyncTunSender, Batch, Filled, Interface, Room, Trust, Tun,
    TunOptions,
};
use tokio::{
    sync::{Mutex, watch},
    time::sleep,
};

use crate::{
    packet::{Ip, Packet, PacketBufPool},
    task::Task,
    tun::{IpRecv, IpSend, MtuWatcher},
};

/// Error of a [`TunDevice`].
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Error(#[from] io::Error);

/// A TUN device.
#[derive(Clone)]
pub struct TunDevice {
    receiver: Arc<Mutex<AsyncTunReceiver>>,
    sender: Arc<Mutex<AsyncTunSender<Packet>>>,
    interface: Interface,
    mtu: MtuWatcher,
    _mtu_monitor: Arc<Task>,
}

impl TunDevice {
    /// Opens the device with this name.
    pub fn from_name(name: &str) -> Result<Self, Error> {
        // The peer has authenticated every packet of the tunnel.
        let options = TunOptions::new().trust(Trust::Authenticated);
        let tun = Tun::open(name, &options)?;
        let interface = tun.interface().clone();
        let (receiver, sender) = AsyncTun::new(tun)?.split();
        let (changes, mtu) = watch::channel(mtu_of(&interface)?);
        let watched = interface.clone();
        let monitor = Task::spawn("tun_mtu_monitor", async move {
            while let Ok(new) = mtu_of(&watched) {
                changes.send_if_modified(|mtu| std::mem::replace(mtu, new) != new);
                sleep(Duration::from_secs(3)).await;
            }
        });
        Ok(Self {
            receiver: Arc::new(Mutex::new(receiver)),
            sender: Arc::new(Mutex::new(sender)),
            interface,
            mtu: mtu.into(),
            _mtu_monitor: Arc::new(monitor),
        })
    }

    /// Returns the name of the device.
    pub fn name(&self) -> Result<String, Error> {
        Ok(self.interface.name()?)
    }
}

/// A buffer of gotatun's pool.
struct Buffer(Packet);

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        self.0.buf_mut()
    }
}

fn mtu_of(interface: &Interface) -> io::Result<u16> {
    Ok(interface.mtu()?.try_into().unwrap_or(u16::MAX))
}

impl IpSend for TunDevice {
    async fn send(&mut self, packet: Packet<Ip>) -> io::Result<()> {
        self.send_many(&mut vec![packet]).await
    }

    async fn send_many(&mut self, packets: &mut Vec<Packet<Ip>>) -> io::Result<()> {
        let mut batch: Batch<Packet> = packets.drain(..).map(Packet::into_bytes).collect();
        self.sender.lock().await.send(&mut batch).await
    }
}

impl IpRecv for TunDevice {
    async fn recv<'a>(
        &'a mut self,
        pool: &mut PacketBufPool,
    ) -> io::Result<impl Iterator<Item = Packet<Ip>> + Send + 'a> {
        let mut packets = Vec::new();
        let make = |bytes| {
            let mut packet = pool.get();
            if packet.len() < bytes {
                packet.buf_mut().resize(bytes, 0);
            }
            Buffer(packet)
        };
        let out = |filled: Filled<Buffer>| {
            let bytes = filled.bytes();
            let Buffer(mut packet) = filled.buffer;
            packet.truncate(bytes);
            packets.extend(packet.try_into_ip().ok());
        };
        self.receiver.lock().await.recv_into(&Room::new(0, 0), make, out).await?;
        Ok(packets.into_iter())
    }

    fn mtu(&self) -> MtuWatcher {
        self.mtu.clone()
    }
}
