//! boringtun's UDP sockets on `grosso-tun`: in both directions, datagrams of equal size share one message.
//!
//! The type has the same interface as the socket that it replaces, one datagram per call: received datagrams wait here
//! for the next calls, and datagrams to send wait until `flush`.

use grosso_tun::{Datagram, Udp, UdpOptions, UdpReceiver, UdpSender};
use parking_lot::Mutex;
use std::cell::RefCell;
use std::io;
use std::mem::MaybeUninit;
use std::net::{SocketAddr, UdpSocket};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

pub use ::socket2::{Domain, Protocol, SockAddr, Type};

/// A socket, with the state of each direction after its first use.
#[derive(Debug)]
pub struct Socket {
    inner: ::socket2::Socket,
    /// Address to which the socket is connected.
    peer: OnceLock<SockAddr>,
    receiving: Mutex<Option<Receiving>>,
    sending: Arc<Mutex<Option<Sending>>>,
}

#[derive(Debug)]
struct Receiving {
    udp: UdpReceiver,
    /// Payloads, back to back.
    bytes: Vec<u8>,
    /// End offset and source of each payload.
    ends: Vec<(usize, SocketAddr)>,
    next: usize,
}

#[derive(Debug)]
struct Sending {
    udp: UdpSender,
    bytes: Vec<u8>,
    ends: Vec<(usize, SocketAddr)>,
}

thread_local! {
    /// Sockets that hold datagrams of this thread.
    static WAITING: RefCell<Vec<Arc<Mutex<Option<Sending>>>>> = const { RefCell::new(Vec::new()) };
}

/// Sends this thread's waiting datagrams. Datagrams for which the socket has no room are lost, as on a wire.
pub fn flush() {
    WAITING.with_borrow_mut(|waiting| {
        for sending in waiting.drain(..) {
            if let Some(Sending { udp, bytes, ends }) = &mut *sending.lock() {
                let starts = std::iter::once(0).chain(ends.iter().map(|(end, _)| *end));
                let each = starts.zip(&*ends);
                let list: Vec<_> =
                    each.map(|(start, &(end, to))| Datagram::new(&bytes[start..end], to)).collect();
                let _ = udp.try_send(&mut &list[..]);
                bytes.clear();
                ends.clear();
            }
        }
    });
}

impl Socket {
    pub fn new(domain: Domain, kind: Type, protocol: Option<Protocol>) -> io::Result<Self> {
        ::socket2::Socket::new(domain, kind, protocol).map(Self::from)
    }

    pub fn try_clone(&self) -> io::Result<Self> {
        self.inner.try_clone().map(Self::from)
    }

    pub fn recv_from(&self, buffer: &mut [MaybeUninit<u8>]) -> io::Result<(usize, SockAddr)> {
        let receiving = &mut *self.receiving.lock();
        let state = match receiving {
            Some(state) => state,
            None => receiving.insert(Receiving {
                udp: self.udp()?.receiver,
                bytes: Vec::new(),
                ends: Vec::new(),
                next: 0,
            }),
        };
        let Receiving { udp, bytes, ends, next } = state;
        if *next == ends.len() {
            bytes.clear();
            ends.clear();
            *next = 0;
            udp.try_recv(|datagram| {
                bytes.extend_from_slice(datagram.payload);
                ends.push((bytes.len(), datagram.from));
            })?;
        }
        let (end, from) = *ends.get(*next).ok_or(io::ErrorKind::WouldBlock)?;
        let start = next.checked_sub(1).map_or(0, |before| ends[before].0);
        *next += 1;
        let len = (end - start).min(buffer.len());
        buffer[..len].write_copy_of_slice(&bytes[start..start + len]);
        Ok((len, from.into()))
    }

    pub fn recv(&self, buffer: &mut [MaybeUninit<u8>]) -> io::Result<usize> {
        self.recv_from(buffer).map(|(len, _)| len)
    }

    /// Returns whether this socket holds received datagrams that polling the descriptor would not reveal.
    pub fn has_more(&self) -> bool {
        self.receiving.lock().as_ref().is_some_and(|state| state.next < state.ends.len())
    }

    pub fn send_to(&self, packet: &[u8], to: &SockAddr) -> io::Result<usize> {
        let to = to.as_socket().ok_or(io::ErrorKind::InvalidInput)?;
        let sending = &mut *self.sending.lock();
        let Sending { bytes, ends, .. } = match sending {
            Some(state) => state,
            None => sending.insert(Sending {
                udp: self.udp()?.sender,
                bytes: Vec::new(),
                ends: Vec::new(),
            }),
        };
        if ends.is_empty() {
            WAITING.with_borrow_mut(|waiting| waiting.push(Arc::clone(&self.sending)));
        }
        bytes.extend_from_slice(packet);
        ends.push((bytes.len(), to));
        Ok(packet.len())
    }

    pub fn send(&self, packet: &[u8]) -> io::Result<usize> {
        let peer = match self.peer.get() {
            Some(peer) => peer,
            None => {
                let peer = self.inner.peer_addr()?;
                self.peer.get_or_init(|| peer)
            }
        };
        self.send_to(packet, peer)
    }

    pub fn write(&self, packet: &[u8]) -> io::Result<usize> {
        self.send(packet)
    }

    fn udp(&self) -> io::Result<Udp> {
        Udp::adopt(UdpSocket::from(self.inner.try_clone()?).into(), &UdpOptions::new())
    }
}

impl From<::socket2::Socket> for Socket {
    fn from(inner: ::socket2::Socket) -> Self {
        let peer = OnceLock::new();
        Self { inner, peer, receiving: Mutex::default(), sending: Arc::default() }
    }
}

impl Deref for Socket {
    type Target = ::socket2::Socket;

    fn deref(&self) -> &Self::Target {
        &self.inner
    }
}
