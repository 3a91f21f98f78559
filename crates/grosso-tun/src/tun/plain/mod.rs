//! Queue of a device without offloads, for utun on macOS and WinTUN on Windows. Each call transfers one IP packet.
//!
//! A superframe is written as one long IP packet with a complete checksum, as by [`Joiner`](crate::Joiner).

#[cfg(any(target_os = "macos", windows))]
pub(super) mod device;

use std::{io, sync::Arc};

use grosso::{
    Frame, LinkType, Meta,
    checksum::{Checksum, complete},
    features::{Device, Features},
};
use grosso_io::{PortBuffer, PortError, Transmitted, port::Transmit};

/// Maximum length of a packet in bytes.
const PACKET_BYTES_MAX: usize = 65_535;

/// Device that transfers one packet per call.
pub(crate) trait PacketDevice {
    /// Waits for a packet, receives it, and returns its length.
    fn recv(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Receives a packet and returns its length, or `WouldBlock` if there is none.
    fn try_recv(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Sends a packet, or returns `WouldBlock` if there is no room for it.
    fn try_send(&self, packet: &[u8]) -> io::Result<()>;
}

/// Receiving half.
#[derive(Debug)]
pub(super) struct PlainReader<D> {
    device: Arc<D>,
    name: String,
    packet: Vec<u8>,
    /// Length of the packet that [`PlainReader::wait`] received, or 0 if there is none.
    pending: usize,
    spare: Vec<Vec<u8>>,
}

impl<D: PacketDevice> PlainReader<D> {
    pub(super) fn new(device: Arc<D>, name: String) -> Self {
        let packet = vec![0; PACKET_BYTES_MAX];
        Self { device, name, packet, pending: 0, spare: Vec::new() }
    }

    /// Returns the link type of packets.
    #[allow(clippy::unused_self, reason = "readers of other systems have several link types")]
    pub(super) const fn link(&self) -> LinkType {
        LinkType::Raw
    }

    /// Waits for a packet, which the next [`PlainReader::receive`] returns.
    pub(super) fn wait(&mut self) -> io::Result<()> {
        if self.pending == 0 {
            self.pending = self.device.recv(&mut self.packet)?;
        }
        Ok(())
    }

    /// Passes at most `max` packets to `each` without waiting, and returns how many there were.
    pub(super) fn receive(
        &mut self,
        max: usize,
        each: &mut dyn FnMut(Frame<PortBuffer>),
    ) -> Result<usize, PortError> {
        for count in 0..max {
            let len = match core::mem::take(&mut self.pending) {
                0 => match self.device.try_recv(&mut self.packet) {
                    Ok(len) => len,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(count),
                    Err(error) => return Err(broken(&self.name, "receive", error)),
                },
                len => len,
            };
            let mut buffer = self.spare.pop().unwrap_or_default();
            buffer.clear();
            buffer.extend_from_slice(&self.packet[..len]);
            each(Frame { buffer: buffer.into(), meta: Meta::default() });
        }
        Ok(max)
    }

    /// Takes the buffers out of the list for reuse.
    pub(super) fn recycle_all(&mut self, buffers: &mut Vec<PortBuffer>) {
        self.spare.extend(buffers.drain(..).filter_map(PortBuffer::into_own));
    }
}

/// Sending half.
#[derive(Debug)]
pub(crate) struct PlainWriter<D> {
    device: Arc<D>,
    name: String,
    packet: Vec<u8>,
    features: Features,
}

impl<D: PacketDevice> PlainWriter<D> {
    /// Creates the sending half. `wanted` limits the kinds of superframes that are written as long packets.
    pub(super) fn new(device: Arc<D>, name: String, wanted: Features) -> Self {
        // To a receiver, a long TCP segment is equivalent to the packets from which it was merged. Merged UDP
        // datagrams, in contrast, would become a single, different datagram.
        let possible = Features::SCATTER_GATHER
            | Features::CHECKSUM_GENERIC
            | Features::TCP_SEGMENTATION
            | Features::TCP_ECN_SEGMENTATION
            | Features::TCP6_SEGMENTATION
            | Features::TCP_MANGLEID_SEGMENTATION
            | Features::GSO_ROBUST;
        Self { device, name, packet: Vec::new(), features: (possible & wanted).active() }
    }
}

impl<D: PacketDevice> Transmit for PlainWriter<D> {
    fn device(&self) -> Device {
        Device::new(self.features)
    }

    fn transmit(&mut self, slices: &[&[u8]], meta: &Meta) -> Result<Transmitted, PortError> {
        let Self { device, name, packet, .. } = self;
        packet.clear();
        slices.iter().for_each(|slice| packet.extend_from_slice(slice));
        if let Checksum::Partial { start, offset } = meta.checksum
            && complete(packet, start, offset).is_err()
        {
            let error = io::Error::from(io::ErrorKind::InvalidInput);
            return Err(broken(name, "complete a checksum beyond the packet", error));
        }
        match device.try_send(packet) {
            Ok(()) => Ok(Transmitted::Taken),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Transmitted::NoRoom),
            Err(error) => Err(broken(name, "send", error)),
        }
    }

    fn flush(&mut self) -> Result<Transmitted, PortError> {
        Ok(Transmitted::Taken)
    }
}

/// Returns the port error for a device that has failed or is gone.
fn broken(name: &str, action: &'static str, source: io::Error) -> PortError {
    match source.kind() {
        // WinTUN reports the removal of a device as an end-of-file error.
        io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof | io::ErrorKind::WriteZero => {
            PortError::Gone { name: name.to_owned() }
        }
        _ => PortError::Device { name: name.to_owned(), action, source },
    }
}

#[cfg(test)]
mod tests;
