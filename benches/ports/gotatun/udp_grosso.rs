//! gotatun's UDP sockets on `grosso-tun`: in both directions, datagrams of equal size share one message.
//!
//! Each task has its own buffers, together with its half of the socket.

use std::{
    io::{self, ErrorKind::WouldBlock},
    net::SocketAddr,
    os::fd::AsFd,
};

use grosso_tun::{Datagram, Received, Udp, UdpOptions, UdpReceiver, UdpSender};
use nix::sys::socket::{setsockopt, sockopt};
use tokio::io::Interest;

use super::UdpSocket;
use crate::{
    packet::{Packet, PacketBufPool},
    udp::{UdpRecv, UdpSend},
};

/// Maximum number of packets per call.
const PACKETS_MAX: usize = 100;

/// The sending half of a socket, which the first call sets.
#[derive(Default)]
pub struct SendBuffer(Option<UdpSender>);

/// The receiving half of a socket, which the first call sets.
#[derive(Default)]
pub struct ReceiveBuffer(Option<UdpReceiver>);

fn adopt(socket: &tokio::net::UdpSocket) -> io::Result<Udp> {
    Udp::adopt(socket.as_fd().try_clone_to_owned()?, &UdpOptions::new())
}

/// Returns `WouldBlock` if no datagram was sent or received.
fn some(count: usize) -> io::Result<()> {
    if count == 0 { Err(WouldBlock.into()) } else { Ok(()) }
}

impl UdpSend for UdpSocket {
    type SendManyBuf = SendBuffer;

    async fn send_to(&self, packet: Packet, target: SocketAddr) -> io::Result<()> {
        self.socket()?.send_to(&packet, target).await.map(drop)
    }

    async fn send_many_to(
        &self,
        buffer: &mut SendBuffer,
        packets: &mut Vec<(Packet, SocketAddr)>,
    ) -> io::Result<()> {
        let socket = self.socket()?;
        let sender = match &mut buffer.0 {
            Some(sender) => sender,
            None => buffer.0.insert(adopt(socket)?.sender),
        };
        let list: Vec<_> = packets.iter().map(|(packet, to)| Datagram::new(packet, *to)).collect();
        let mut rest = &list[..];
        while !rest.is_empty() {
            socket.async_io(Interest::WRITABLE, || some(sender.try_send(&mut rest)?)).await?;
        }
        drop(list);
        packets.clear();
        Ok(())
    }

    fn max_number_of_packets_to_send(&self) -> usize {
        PACKETS_MAX
    }

    fn local_addr(&self) -> io::Result<Option<SocketAddr>> {
        if self.is_disabled_ipv6() { Ok(None) } else { Self::local_addr(self).map(Some) }
    }

    fn set_fwmark(&self, mark: u32) -> io::Result<()> {
        if self.is_disabled_ipv6() {
            return Ok(());
        }
        Ok(setsockopt(self.socket()?, sockopt::Mark, &mark)?)
    }
}

impl UdpRecv for UdpSocket {
    type RecvManyBuf = ReceiveBuffer;

    async fn recv_from(&mut self, pool: &mut PacketBufPool) -> io::Result<(Packet, SocketAddr)> {
        let mut packet = pool.get();
        let (len, from) = self.socket()?.recv_from(&mut packet).await?;
        packet.truncate(len);
        Ok((packet, from))
    }

    async fn recv_many_from(
        &mut self,
        buffer: &mut ReceiveBuffer,
        pool: &mut PacketBufPool,
        packets: &mut Vec<(Packet, SocketAddr)>,
    ) -> io::Result<()> {
        let socket = self.socket()?;
        let receiver = match &mut buffer.0 {
            Some(receiver) => receiver,
            None => buffer.0.insert(adopt(socket)?.receiver),
        };
        let mut each = |datagram: Received<'_>| {
            let mut packet = pool.get();
            packet.buf_mut().clear();
            packet.buf_mut().extend_from_slice(datagram.payload);
            packets.push((packet, datagram.from));
        };
        socket.async_io(Interest::READABLE, || some(receiver.try_recv(&mut each)?)).await
    }
}
