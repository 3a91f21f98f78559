//! Code shared by the ports that use UDP sockets or raw IP sockets. It adds path MTU discovery, sending and counters to
//! [`Sockets`].

use std::{
    fmt, io,
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd},
};

use grosso::{
    Frame, Meta,
    features::{Device, Features},
};
use grosso_sys::datagram::DatagramSocket;
use grosso_wire::LinkType;

use super::{
    outer::{BuiltHeaders, Outer},
    path::Paths,
    sending::SocketSender,
    stats::{SocketEvent, SocketStats},
};
use crate::{
    buffer::PortBuffer,
    live::broken,
    port::{Port, PortCounter, PortError, Transmitted},
};

/// Sockets of a [`DatagramPort`], which differ between UDP and raw IP.
pub(in crate::live) trait Sockets: fmt::Debug {
    /// Headers that the kernel builds for sent packets.
    const BUILT: BuiltHeaders;

    /// Passes at most `max` frames to `each`, and returns the number of frames or slots read.
    fn receive(
        &mut self,
        max: usize,
        stats: &mut SocketStats,
        each: &mut dyn FnMut(Frame<PortBuffer>),
    ) -> io::Result<usize>;

    /// Returns whether frames have been read but not passed on.
    fn has_more(&self) -> bool {
        false
    }

    /// Keeps a buffer for reuse.
    fn recycle(&mut self, buffer: PortBuffer);

    /// Counts packets that the kernel dropped.
    fn count_drops(&mut self, stats: &mut SocketStats);

    /// Returns the descriptor that becomes readable when there are packets.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Returns the index of the sending socket for a frame, or `None` if no socket can send the frame.
    fn index(&self, outer: &Outer) -> Option<usize>;

    /// Returns the sending socket with this index.
    fn sender(&self, index: usize) -> &DatagramSocket;

    /// Returns mutable access to the sending socket with this index.
    fn sender_mut(&mut self, index: usize) -> &mut DatagramSocket;

    /// Sets whether the sockets fragment packets to the path MTU that the kernel knows.
    fn heed_path(&mut self, _is_narrow: bool) -> io::Result<()> {
        Ok(())
    }
}

/// Common implementation of `UdpPort` and `IpPort`.
#[derive(Debug)]
pub(in crate::live) struct DatagramPort<S> {
    name: String,
    is_ipv4: bool,
    pub(in crate::live) sockets: S,
    /// Message queue of each sending socket. There is at least one sending socket.
    pub(in crate::live) sending: Vec<SocketSender>,
    paths: Paths,
    stats: SocketStats,
}

impl<S: Sockets> DatagramPort<S> {
    /// Creates a port that sends frames from the address `local`. `sending` contains the state of each sending socket.
    pub(in crate::live) fn new(
        name: String,
        local: IpAddr,
        sockets: S,
        sending: Vec<SocketSender>,
        paths: Paths,
    ) -> io::Result<Self> {
        debug_assert!(!sending.is_empty(), "a port without an egress");
        let stats = SocketStats::default();
        let mut port = Self { name, is_ipv4: local.is_ipv4(), sockets, sending, paths, stats };
        port.follow_paths()?;
        Ok(port)
    }

    /// Returns the port's name for messages, for example `udp 192.0.2.1:4789` or `ip 192.0.2.1`.
    pub(in crate::live) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the counters of this port.
    pub(in crate::live) fn stats(&mut self) -> &SocketStats {
        self.sockets.count_drops(&mut self.stats);
        &self.stats
    }

    /// Checks whether the paths have changed.
    fn look(&mut self, now_ns: u64) -> io::Result<()> {
        let Self { paths, sending, stats, .. } = self;
        let sends_long = sending.iter_mut().map(SocketSender::take_sends_long).max();
        let has_sent = |quoted: &[u8]| sending.iter().any(|sender| sender.has_sent(quoted));
        let has_changed = paths.look(now_ns, &has_sent, sends_long == Some(true), stats);
        if has_changed { self.follow_paths() } else { Ok(()) }
    }

    fn follow_paths(&mut self) -> io::Result<()> {
        let is_questioned = self.paths.is_questioned();
        self.sending.iter_mut().for_each(|sender| sender.remember(is_questioned));
        self.sockets.heed_path(self.paths.is_narrow())
    }

    /// Queries the path MTU again if the counter of packets that were too long has risen above `before`.
    fn look_if_too_long(&mut self, before: u64) {
        if self.stats.too_long() > before {
            self.paths.look_now();
        }
    }
}

impl<S: Sockets> Port for DatagramPort<S> {
    fn link(&self) -> LinkType {
        LinkType::Raw
    }

    fn device(&self) -> Device {
        Device::new(Features::ALL.without(Features::GSO_PARTIAL))
    }

    fn receive(
        &mut self,
        now_ns: u64,
        max: usize,
        each: &mut dyn FnMut(Frame<PortBuffer>),
    ) -> Result<usize, PortError> {
        let received = self.look(now_ns);
        let received = received.and_then(|()| self.sockets.receive(max, &mut self.stats, each));
        received.map_err(|error| broken(&self.name, "receive", error))
    }

    fn recycle(&mut self, buffer: PortBuffer) {
        self.sockets.recycle(buffer);
    }

    fn transmit(&mut self, slices: &[&[u8]], meta: &Meta) -> Result<Transmitted, PortError> {
        let head = slices.first().copied().unwrap_or_default();
        let outer = Outer::parse(head, S::BUILT);
        let outer = outer.filter(|outer| outer.destination.is_ipv4() == self.is_ipv4);
        let Self { sockets, sending, stats, name, .. } = self;
        let found = outer.and_then(|outer| Some((outer, sockets.index(&outer)?)));
        let Some((outer, index)) = found else {
            stats.count(SocketEvent::TransmitInexpressible, 1);
            return Ok(Transmitted::Taken);
        };
        let too_long = stats.too_long();
        let Some(sender) = sending.get_mut(index) else {
            debug_assert!(false, "socket {index} of {}", sending.len());
            return Ok(Transmitted::NoRoom);
        };
        let sent = sender.send(sockets.sender_mut(index), slices, meta, outer, stats);
        let sent = sent.map_err(|error| broken(name, "send", error));
        self.look_if_too_long(too_long);
        sent
    }

    fn flush(&mut self) -> Result<Transmitted, PortError> {
        let Self { sockets, sending, stats, name, .. } = self;
        let too_long = stats.too_long();
        let mut flushed = Transmitted::Taken;
        for (index, sender) in sending.iter_mut().enumerate() {
            let sent = sender.flush(sockets.sender_mut(index), stats);
            match sent.map_err(|error| broken(name, "send", error))? {
                Transmitted::Taken => {}
                Transmitted::NoRoom => flushed = Transmitted::NoRoom,
            }
        }
        self.look_if_too_long(too_long);
        Ok(flushed)
    }

    /// Returns 0 (immediately) while frames that were read are still queued, because the descriptor does not become
    /// readable again for them. Otherwise returns the time of the next path MTU check.
    fn deadline(&self) -> Option<u64> {
        if self.sockets.has_more() { Some(0) } else { self.paths.deadline() }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.sockets.descriptor())
    }

    fn transmit_descriptor(&self) -> Option<BorrowedFd<'_>> {
        let blocked = self.sending.iter().position(|sender| sender.waiting() > 0);
        Some(self.sockets.sender(blocked.unwrap_or(0)).as_fd())
    }

    fn path_mtu(&self) -> Option<usize> {
        self.paths.mtu()
    }

    fn path_hint(&self) -> Option<usize> {
        self.paths.hint()
    }

    fn path_proven(&self) -> Option<usize> {
        self.paths.proven()
    }

    fn counters(&mut self, each: &mut dyn FnMut(PortCounter, u64)) {
        self.stats().counters().for_each(|(counter, value)| each(counter, value));
    }
}
