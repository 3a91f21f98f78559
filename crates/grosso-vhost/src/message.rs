//! vhost-user messages, which consist of a header, a payload and file descriptors.

use std::{io, os::fd::OwnedFd};

use grosso_sys::{closer::PassedFile, unix_socket::UnixSocket};

use crate::{
    mapping::invalid,
    memory::{REGIONS_MAX, RegionPlace},
};

/// A received message: a request from the front end, or a reply from the back end.
#[derive(Debug)]
pub struct Message {
    /// Request number.
    pub request: u32,
    /// Whether the sender requests a reply.
    pub wants_reply: bool,
    /// The payload.
    pub payload: Vec<u8>,
    /// Files that were passed with the message.
    pub files: Vec<PassedFile>,
}

/// Request numbers.
pub mod request {
    /// Requests the device's features.
    pub const GET_FEATURES: u32 = 1;
    /// Sets the features that the guest has chosen.
    pub const SET_FEATURES: u32 = 2;
    /// Informs the back end that the front end takes ownership of the device.
    pub const SET_OWNER: u32 = 3;
    /// Informs the back end that the front end releases ownership of the device.
    pub const RESET_OWNER: u32 = 4;
    /// Sets the guest's memory table.
    pub const SET_MEM_TABLE: u32 = 5;
    /// Sets the dirty log.
    pub const SET_LOG_BASE: u32 = 6;
    /// Sets the number of entries in a ring.
    pub const SET_VRING_NUM: u32 = 8;
    /// Sets the addresses of a ring.
    pub const SET_VRING_ADDR: u32 = 9;
    /// Sets the index of a ring's next entry.
    pub const SET_VRING_BASE: u32 = 10;
    /// Stops a ring and requests the index of its next entry.
    pub const GET_VRING_BASE: u32 = 11;
    /// Sets the eventfd through which the driver signals new entries.
    pub const SET_VRING_KICK: u32 = 12;
    /// Sets the eventfd through which the device signals the driver.
    pub const SET_VRING_CALL: u32 = 13;
    /// Sets the eventfd through which the device signals errors.
    pub const SET_VRING_ERR: u32 = 14;
    /// Requests the protocol features.
    pub const GET_PROTOCOL_FEATURES: u32 = 15;
    /// Sets the protocol features that the front end has chosen.
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    /// Requests the number of rings.
    pub const GET_QUEUE_NUM: u32 = 17;
    /// Enables or disables a ring.
    pub const SET_VRING_ENABLE: u32 = 18;
}

/// Payload bit in a ring message that means that no descriptor is passed.
const NO_FILE: u64 = 1 << 8;

impl Message {
    /// Returns the payload as a number.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        Some(u64::from_ne_bytes(*self.payload.first_chunk()?))
    }

    /// Returns the payload as a ring index and a number.
    #[must_use]
    pub fn of_ring(&self) -> Option<(u32, u32)> {
        Some((self.long(0)?, self.long(4)?))
    }

    /// Returns the ring index and the passed eventfd. The eventfd is `None` if the front end passed none. Returns
    /// `None` if the payload and the passed files contradict each other.
    #[must_use]
    pub fn ring_file(&mut self) -> Option<(u32, Option<PassedFile>)> {
        let number = self.number()?;
        let file = self.files.pop();
        if file.is_some() == (number & NO_FILE != 0) {
            return None;
        }
        Some(((number & 0xff) as u32, file))
    }

    /// Returns the payload as a ring index, and the addresses of its descriptor table, used ring and available ring.
    #[must_use]
    pub fn ring_addresses(&self) -> Option<(u32, [u64; 3])> {
        Some((self.long(0)?, [self.quad(8)?, self.quad(16)?, self.quad(24)?]))
    }

    /// Returns the length and the offset of a dirty log from the payload, and the passed file that contains the log.
    #[must_use]
    pub fn dirty_log(&mut self) -> Option<(u64, u64, PassedFile)> {
        Some((self.quad(0)?, self.quad(8)?, self.files.pop()?))
    }

    /// Returns the payload as memory regions.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::InvalidInput`] for more than [`REGIONS_MAX`] regions, or
    /// [`io::ErrorKind::UnexpectedEof`] for fewer than declared.
    pub fn regions(&self) -> io::Result<Vec<RegionPlace>> {
        let short = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let count = self.long(0).ok_or_else(short)?;
        if count as usize > REGIONS_MAX {
            return Err(invalid(format!(
                "{count} memory regions exceed the maximum of {REGIONS_MAX}"
            )));
        }
        let region = |at| {
            let [guest, bytes] = [self.quad(at)?, self.quad(at + 8)?];
            Some(RegionPlace {
                guest,
                bytes,
                user: self.quad(at + 16)?,
                offset: self.quad(at + 24)?,
            })
        };
        (0..count as usize).map(|i| region(8 + 32 * i).ok_or_else(short)).collect()
    }

    fn long(&self, at: usize) -> Option<u32> {
        Some(u32::from_ne_bytes(*self.payload.get(at..)?.first_chunk()?))
    }

    fn quad(&self, at: usize) -> Option<u64> {
        Some(u64::from_ne_bytes(*self.payload.get(at..)?.first_chunk()?))
    }
}

/// A message to send, with its files.
#[derive(Debug)]
pub struct Letter {
    /// Header and payload.
    pub bytes: Vec<u8>,
    /// Files to pass, at most [`REGIONS_MAX`].
    pub files: Vec<OwnedFd>,
}

impl Letter {
    /// Creates a request.
    #[must_use]
    pub fn new(request: u32, payload: &[u8], files: Vec<OwnedFd>) -> Self {
        Self { bytes: with_header(request, VERSION, payload), files }
    }

    /// Returns the request number.
    #[must_use]
    pub fn request(&self) -> u32 {
        self.bytes.first_chunk().copied().map_or(0, u32::from_ne_bytes)
    }

    /// Adds a request for a reply to the message.
    #[must_use]
    pub fn to_be_answered(mut self) -> Self {
        if let Some(flags) = self.bytes.get_mut(4..8) {
            flags.copy_from_slice(&(VERSION | WANTS_REPLY).to_ne_bytes());
        }
        self
    }
}

/// Returns a payload that consists of a ring index and a number.
#[must_use]
pub fn pair(index: u32, value: u32) -> Vec<u8> {
    [index, value].map(u32::to_ne_bytes).concat()
}

/// Returns the bytes of a reply.
#[must_use]
pub fn reply(request: u32, payload: &[u8]) -> Vec<u8> {
    with_header(request, VERSION | IS_REPLY, payload)
}

fn with_header(request: u32, flags: u32, payload: &[u8]) -> Vec<u8> {
    let words = [request, flags, payload.len() as u32];
    words.iter().flat_map(|word| word.to_ne_bytes()).chain(payload.iter().copied()).collect()
}

/// A partially received message.
#[derive(Debug, Default)]
pub struct Inbox {
    bytes: Vec<u8>,
    files: Vec<PassedFile>,
}

impl Inbox {
    /// Returns the next message, or `None` if it is incomplete.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::UnexpectedEof`] if the peer disconnected, [`io::ErrorKind::InvalidData`] for another
    /// protocol version, a payload that is too long, or too many files, or any error from `recvmsg(2)`.
    pub fn next(&mut self, socket: &UnixSocket) -> io::Result<Option<Message>> {
        loop {
            let whole = match self.bytes.first_chunk::<HEADER_BYTES>() {
                None => HEADER_BYTES,
                Some(header) => HEADER_BYTES + payload_bytes(header)?,
            };
            // Nothing is read beyond this message, so that files passed with the next message are not attributed to
            // this one.
            let missing = whole - self.bytes.len();
            if missing == 0 {
                return Ok(Some(self.take()));
            }
            let mut piece = [0; PAYLOAD_MAX];
            let piece = &mut piece[..missing];
            match socket.receive_passed(piece, &mut self.files) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => self.bytes.extend_from_slice(&piece[..bytes]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
            if self.files.len() > REGIONS_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
    }

    fn take(&mut self) -> Message {
        let long =
            |at: usize| self.bytes[at..].first_chunk().copied().map_or(0, u32::from_ne_bytes);
        let (request, flags) = (long(0), long(4));
        let payload = self.bytes.get(HEADER_BYTES..).unwrap_or_default().to_vec();
        self.bytes.clear();
        let files = core::mem::take(&mut self.files);
        Message { request, wants_reply: flags & WANTS_REPLY != 0, payload, files }
    }
}

/// Returns the payload length in a header.
fn payload_bytes(header: &[u8; HEADER_BYTES]) -> io::Result<usize> {
    let long = |at: usize| header[at..].first_chunk().copied().map_or(0, u32::from_ne_bytes);
    match usize::try_from(long(8)) {
        Ok(bytes @ 0..=PAYLOAD_MAX) if long(4) & VERSION_MASK == VERSION => Ok(bytes),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

const HEADER_BYTES: usize = 12;
/// Maximum payload length in bytes; eight memory regions need 264.
const PAYLOAD_MAX: usize = 4096;
const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
const IS_REPLY: u32 = 1 << 2;
const WANTS_REPLY: u32 = 1 << 3;
