//! mycelium's TUN device on `grosso-tun`: receives superframes, and sends batches of packets as superframes.

use std::{error::Error, io};

use futures::{Sink, Stream};
use grosso_tun::{AsyncTun, Batch, Filled, Room, Trust, Tun, TunOptions};
use tokio::sync::mpsc;
use tracing::error;

use crate::{crypto::PacketBuffer, tun::TunConfig};

const LINK_MTU: u16 = 1400;
/// Maximum number of packets in each channel.
const CHANNEL_PACKETS: usize = 1000;
/// Maximum number of packets per write.
const BATCH_PACKETS: usize = 64;

/// A packet with room for mycelium's header and tag.
struct Buffer(PacketBuffer);

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        self.0.buffer_mut()
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Creates the device with its address and MTU.
pub async fn new(
    config: TunConfig,
) -> Result<
    (
        impl Stream<Item = io::Result<PacketBuffer>>,
        impl Sink<PacketBuffer, Error = impl Error> + Clone,
    ),
    Box<dyn Error>,
> {
    let options = TunOptions::new()
        .mtu(LINK_MTU)
        .address(config.node_subnet.address(), config.route_subnet.prefix_len())
        .up()
        // The peer has authenticated every packet.
        .trust(Trust::Authenticated);
    let (mut receiver, mut sender) = AsyncTun::new(Tun::open(&config.name, &options)?)?.split();
    let (tun_sink, mut outgoing) = mpsc::channel::<PacketBuffer>(CHANNEL_PACKETS);
    let (tun_stream, incoming) = mpsc::channel(CHANNEL_PACKETS);
    tokio::spawn(async move {
        let (room, mut packets) = (Room::new(0, 0), Vec::new());
        loop {
            let received = receiver.recv_into(
                &room,
                |_| Buffer(PacketBuffer::new()),
                |filled: Filled<Buffer>| {
                    let bytes = filled.bytes();
                    packets.push((filled.buffer.0, bytes));
                },
            );
            if let Err(why) = received.await {
                error!("Failed to read from tun interface: {why}");
                return;
            }
            for (mut packet, bytes) in packets.drain(..) {
                packet.set_size(bytes);
                if tun_stream.send(Ok(packet)).await.is_err() {
                    return;
                }
            }
        }
    });
    tokio::spawn(async move {
        let (mut packets, mut batch) = (Vec::new(), Batch::new());
        while outgoing.recv_many(&mut packets, BATCH_PACKETS).await > 0 {
            batch.extend(packets.drain(..).map(Buffer));
            if let Err(why) = sender.send(&mut batch).await {
                error!("Failed to send data to tun interface: {why}");
                batch.clear();
            }
        }
    });
    Ok((
        tokio_stream::wrappers::ReceiverStream::new(incoming),
        tokio_util::sync::PollSender::new(tun_sink),
    ))
}
