//! boringtun's TUN device on `grosso-tun`: it receives superframes, and sends a batch of packets as superframes.
//!
//! The type has the same interface as the device that it replaces, one packet per call, so no other code changes: the
//! packets of a superframe wait here for the next calls, and written packets wait until `flush`.

use super::Error;
use grosso_tun::{Batch, Queues, Room, Trust, Tun, TunOptions, TunReceiver, TunSender};
use parking_lot::Mutex;
use std::io;
use std::ops::Range;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::io::{AsRawFd, RawFd};

/// Maximum number of packets that share a buffer.
const PACKETS_MAX: usize = 64;

pub struct TunSocket {
    fd: RawFd,
    name: String,
    reader: Mutex<Reader>,
    writer: Mutex<Writer>,
}

struct Reader {
    tun: TunReceiver,
    /// Buffers with received packets.
    buffers: Vec<Vec<u8>>,
    /// Index of the buffer and range of bytes of each packet.
    packets: Vec<(usize, Range<usize>)>,
    next: usize,
    spares: Vec<Vec<u8>>,
}

struct Writer {
    tun: TunSender,
    batch: Batch,
}

impl AsRawFd for TunSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd
    }
}

impl TunSocket {
    pub fn new(name: &str) -> Result<Self, Error> {
        // The peer has authenticated every packet of the tunnel.
        let options = TunOptions::new().queues(Queues::Several).trust(Trust::Authenticated);
        let tun: io::Result<Tun> = match name.parse::<i32>() {
            // SAFETY: the caller passes ownership of the descriptor together with its number.
            Ok(fd) => Tun::adopt(unsafe { OwnedFd::from_raw_fd(fd) }, &options),
            Err(_) => Tun::open(name, &options),
        };
        // Each direction has its own half of the device, so that neither has to wait for the other's lock.
        let (receiver, sender) = tun.map_err(Error::Socket)?.split();
        Ok(Self {
            fd: receiver.as_raw_fd(),
            name: name.to_owned(),
            writer: Mutex::new(Writer { tun: sender, batch: Batch::new() }),
            reader: Mutex::new(Reader {
                tun: receiver,
                buffers: Vec::new(),
                packets: Vec::new(),
                next: 0,
                spares: Vec::new(),
            }),
        })
    }

    /// Does nothing, because the device never blocks.
    pub fn set_non_blocking(self) -> Result<Self, Error> {
        Ok(self)
    }

    pub fn name(&self) -> Result<String, Error> {
        Ok(self.name.clone())
    }

    pub fn mtu(&self) -> Result<usize, Error> {
        let mtu = self.reader.lock().tun.interface().mtu();
        Ok(mtu.map_or(1500, |bytes| bytes as usize))
    }

    pub fn write4(&self, src: &[u8]) -> usize {
        self.writer.lock().batch.push_copy(src);
        src.len()
    }

    pub fn write6(&self, src: &[u8]) -> usize {
        self.write4(src)
    }

    /// Sends all written packets, merged into superframes by flow. Packets for which the device has no room are lost,
    /// as on a wire.
    pub fn flush(&self) {
        let writer = &mut *self.writer.lock();
        let _ = writer.tun.try_send(&mut writer.batch);
        writer.batch.clear();
    }

    /// Returns whether this device holds received packets that polling the descriptor would not reveal.
    pub fn has_more(&self) -> bool {
        let reader = self.reader.lock();
        reader.next < reader.packets.len()
    }

    pub fn read<'a>(&self, dst: &'a mut [u8]) -> Result<&'a mut [u8], Error> {
        self.reader.lock().read(dst).map_err(Error::IfaceRead)
    }
}

impl Reader {
    fn read<'a>(&mut self, dst: &'a mut [u8]) -> io::Result<&'a mut [u8]> {
        if self.next == self.packets.len() {
            self.fill()?;
        }
        let (buffer, range) = self.packets.get(self.next).ok_or(io::ErrorKind::WouldBlock)?;
        self.next += 1;
        let packet = &self.buffers[*buffer][range.clone()];
        let len = packet.len().min(dst.len());
        dst[..len].copy_from_slice(&packet[..len]);
        Ok(&mut dst[..len])
    }

    fn fill(&mut self) -> io::Result<()> {
        let Self { tun, buffers, packets, next, spares } = self;
        spares.append(buffers);
        packets.clear();
        *next = 0;
        // Packets of a superframe share a buffer.
        let room = Room::new(0, 0).packets(PACKETS_MAX);
        let make = |bytes: usize| {
            let mut buffer = spares.pop().unwrap_or_default();
            buffer.resize(bytes.max(buffer.len()), 0);
            buffer
        };
        tun.try_recv_into(&room, make, |filled| {
            packets.extend(filled.packets().map(|range| (buffers.len(), range)));
            buffers.push(filled.buffer);
        })?;
        Ok(())
    }
}
