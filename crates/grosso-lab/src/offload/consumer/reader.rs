//! Consumers of trains, which read either only the headers or every byte.

use std::{io, path::PathBuf, thread, time::Duration};

use grosso::{Delivery, Meta};
use grosso_checksum::Sum;
use grosso_io::{
    Port, PortBuffer, Transmitted,
    live::{MODE, UnixRole, VhostOptions, VhostPort, VhostSide},
};
use grosso_sys::path;
use grosso_wire::{LinkType, Ports, Stack};
use schemars::JsonSchema;
use serde::Serialize;

/// The part of a packet that a consumer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReaderKind {
    /// Only the headers.
    Headers,
    /// Every byte, directly in the receive buffer.
    EveryByte,
    /// Every byte, in the driver of a VM's device with shared memory (vhost-user).
    VhostUser,
}

impl ReaderKind {
    /// Returns the name of the reader's row.
    pub(in super::super) const fn name(self) -> &'static str {
        match self {
            Self::Headers => "only headers",
            Self::EveryByte => "every byte",
            Self::VhostUser => "vhost-user",
        }
    }
}

/// A consumer with the state that it needs.
#[derive(Debug)]
pub(super) enum Reader {
    Memory(MemoryReader),
    VhostUser(Box<Machine>),
}

/// A consumer that reads trains in their receive buffers.
#[derive(Debug)]
pub(super) enum MemoryReader {
    Headers(Box<Stack>),
    EveryByte,
}

/// Number of received bytes, the sum of the bytes that were read, and the number of header bytes that were parsed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Consumed {
    pub(super) bytes: u64,
    pub(super) sum: Sum,
    pub(super) header_bytes: usize,
}

impl Reader {
    /// Returns all readers that can run on this machine.
    pub(super) fn all() -> Vec<Self> {
        let machine = Machine::open().ok().map(|machine| Self::VhostUser(Box::new(machine)));
        MemoryReader::all().map(Self::Memory).into_iter().chain(machine).collect()
    }

    pub(super) const fn kind(&self) -> ReaderKind {
        match self {
            Self::Memory(reader) => reader.kind(),
            Self::VhostUser(_) => ReaderKind::VhostUser,
        }
    }

    pub(super) fn consume(&mut self, delivery: &Delivery<'_, PortBuffer>) -> Consumed {
        match self {
            Self::Memory(reader) => reader.consume(delivery),
            Self::VhostUser(machine) => machine.carry(delivery),
        }
    }
}

impl MemoryReader {
    pub(super) fn all() -> [Self; 2] {
        [Self::Headers(Box::new(Stack::new(0))), Self::EveryByte]
    }

    pub(super) const fn kind(&self) -> ReaderKind {
        match self {
            Self::Headers(_) => ReaderKind::Headers,
            Self::EveryByte => ReaderKind::EveryByte,
        }
    }

    /// Reads a train as one superframe, which has one header and the payload of each packet as a slice.
    pub(super) fn consume(&mut self, delivery: &Delivery<'_, PortBuffer>) -> Consumed {
        let mut consumed = Consumed { bytes: delivery.len as u64, ..Consumed::default() };
        match self {
            Self::Headers(stack) => {
                let head = delivery.slices().next().unwrap_or_default();
                consumed.header_bytes = parse(head, &delivery.meta, stack);
            }
            // The bytes are summed, as in a receiver that verifies checksums.
            Self::EveryByte => consumed.sum = Sum::of_parts(delivery.slices()),
        }
        consumed
    }

    /// Reads a train as a list of whole packets: the receive buffers, in which each packet keeps its own headers. The
    /// number of bytes is that of the superframe, so that both forms of a train count the same data.
    pub(super) fn consume_list(&mut self, delivery: &Delivery<'_, PortBuffer>) -> Consumed {
        let mut consumed = Consumed { bytes: delivery.len as u64, ..Consumed::default() };
        let packets = delivery.parts().map(|part| part.buffer.as_ref());
        match self {
            Self::Headers(stack) => {
                let lengths = packets.map(|packet| parse(packet, &Meta::default(), stack));
                consumed.header_bytes = lengths.sum();
            }
            Self::EveryByte => consumed.sum = Sum::of_parts(packets),
        }
        consumed
    }
}

/// Parses the headers of a frame, and returns their length.
fn parse(frame: &[u8], meta: &Meta, stack: &mut Stack) -> usize {
    meta.dissect_into(frame, LinkType::Ethernet, &Ports::ASSIGNED, stack);
    stack.header_len()
}

/// Both endpoints of a VM's device: the device and its driver, on one thread.
#[derive(Debug)]
pub(super) struct Machine {
    device: VhostPort,
    driver: VhostPort,
    received: Vec<PortBuffer>,
}

impl Machine {
    /// Opens both endpoints and connects them to each other.
    fn open() -> io::Result<Self> {
        let folder = Folder::new()?;
        let mut options = VhostOptions::new(folder.0.join("machine"));
        let device = VhostPort::open(&options)?;
        options.side = VhostSide::Driver;
        options.role = UnixRole::Connect { local: None, mode: MODE };
        let driver = VhostPort::open(&options)?;
        let mut machine = Self { device, driver, received: Vec::new() };
        for _ in 0..LOOKS_MAX {
            if machine.agree()? {
                return Ok(machine);
            }
            thread::sleep(LOOK_AGAIN);
        }
        Err(io::ErrorKind::NotConnected.into())
    }

    /// Makes both endpoints process their messages, and returns whether their rings have started.
    fn agree(&mut self) -> io::Result<bool> {
        for end in [&mut self.device, &mut self.driver] {
            end.receive(0, 1, &mut |_| ()).map_err(io::Error::other)?;
        }
        Ok(self.device.frames_kick().is_some() && self.driver.frames_kick().is_some())
    }

    /// Passes a train to the VM's device; the driver reads everything that arrives.
    fn carry(&mut self, delivery: &Delivery<'_, PortBuffer>) -> Consumed {
        let Self { device, driver, received } = self;
        let slices: Vec<&[u8]> = delivery.slices().collect();
        let sent = device.transmit(&slices, &delivery.meta).and_then(|_| device.flush());
        // Only frames that the device has accepted are counted.
        if matches!(sent, Ok(Transmitted::Taken)) {
            let _ = driver.receive(0, FRAMES_MAX, &mut |frame| received.push(frame.buffer));
        }
        let bytes = received.iter().map(|buffer| buffer.as_ref().len() as u64).sum();
        let sum = Sum::of_parts(received.iter().map(AsRef::as_ref));
        driver.recycle_all(received);
        Consumed { bytes, sum, header_bytes: 0 }
    }
}

/// Directory that contains the socket through which the two endpoints connect. It is not needed afterward.
#[derive(Debug)]
struct Folder(PathBuf);

impl Folder {
    fn new() -> io::Result<Self> {
        let name = format!("grosso-lab-{:016x}", fastrand::u64(..));
        let path = std::env::temp_dir().join(name);
        // Creates a new directory that only this user can access.
        path::create_directory(&path, 0o700)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // The directory contains only the socket, so it does no harm if it remains.
        let _ = path::remove_directory(&self.0);
    }
}

/// Maximum number of frames that the driver receives at once.
const FRAMES_MAX: usize = 64;
/// Maximum number of attempts to connect.
const LOOKS_MAX: u32 = 2000;
/// Time between two attempts to connect.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
