//! boringtun's UDP sockets on quinn-udp, for comparison with `udp_grosso.rs`.

use parking_lot::Mutex;
use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use std::cell::RefCell;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, UdpSocket};
use std::ops::Deref;
use std::os::fd::AsRawFd;
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
    state: UdpSocketState,
    socket: UdpSocket,
    buffers: Vec<Vec<u8>>,
    /// Payloads, back to back.
    bytes: Vec<u8>,
    /// End offset and source of each payload.
    ends: Vec<(usize, SocketAddr)>,
    next: usize,
}

#[derive(Debug)]
struct Sending {
    state: UdpSocketState,
    socket: UdpSocket,
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
            if let Some(Sending { state, socket, bytes, ends }) = &mut *sending.lock() {
                let (mut rest, mut start) = (&ends[..], 0);
                while let Some(&(first, to)) = rest.first() {
                    let size = first - start;
                    // A batch consists of datagrams of equal size to one address, followed by at most one shorter
                    // datagram.
                    let (mut count, mut end) = (1, first);
                    while let Some(&(next, also)) = rest.get(count) {
                        let is_full = count == state.max_gso_segments() || next - start > 65_000;
                        if is_full || also != to || next - end > size || end - start < count * size
                        {
                            break;
                        }
                        (count, end) = (count + 1, next);
                    }
                    let _ = state.try_send(
                        UdpSockRef::from(&*socket),
                        &Transmit {
                            destination: to,
                            ecn: None,
                            contents: &bytes[start..end],
                            segment_size: (count > 1).then_some(size),
                            src_ip: None,
                        },
                    );
                    (rest, start) = (&rest[count..], end);
                }
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
            None => {
                let (state, socket) = self.state()?;
                receiving.insert(Receiving {
                    state,
                    socket,
                    buffers: vec![vec![0; 1 << 16]; BATCH_SIZE],
                    bytes: Vec::new(),
                    ends: Vec::new(),
                    next: 0,
                })
            }
        };
        let Receiving { state, socket, buffers, bytes, ends, next } = state;
        if *next == ends.len() {
            bytes.clear();
            ends.clear();
            *next = 0;
            let mut slices: Vec<_> = buffers.iter_mut().map(|b| IoSliceMut::new(b)).collect();
            let mut metas = [RecvMeta::default(); BATCH_SIZE];
            let count = state.recv(UdpSockRef::from(&*socket), &mut slices, &mut metas)?;
            for (meta, buffer) in metas.iter().zip(&*buffers).take(count) {
                for payload in buffer[..meta.len].chunks(meta.stride.max(1)) {
                    bytes.extend_from_slice(payload);
                    ends.push((bytes.len(), meta.addr));
                }
            }
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
            None => {
                let (state, socket) = self.state()?;
                sending.insert(Sending { state, socket, bytes: Vec::new(), ends: Vec::new() })
            }
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

    fn state(&self) -> io::Result<(UdpSocketState, UdpSocket)> {
        let socket = UdpSocket::from(self.inner.try_clone()?);
        set_buffers(&socket);
        Ok((UdpSocketState::new(UdpSockRef::from(&socket))?, socket))
    }
}

/// Sets the socket's buffer sizes to those that grosso-tun uses, because the default sizes lose datagrams.
fn set_buffers(socket: &UdpSocket) {
    let bytes: libc::c_int = 4 << 20;
    for option in [libc::SO_RCVBUFFORCE, libc::SO_SNDBUFFORCE] {
        let (value, len) = ((&raw const bytes).cast(), size_of_val(&bytes) as libc::socklen_t);
        // SAFETY: the pointer and the length describe `bytes`.
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, value, len) };
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
