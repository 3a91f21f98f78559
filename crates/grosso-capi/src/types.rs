//! Layouts that both sides share.

use core::ffi::{c_int, c_void};

use grosso::{Meta, meta::GsoSize, vnet::understand};
use grosso_wire::{
    LinkType, Ports, Stack, dissect_into,
    virtio::{Form, VirtioHeader},
};

use crate::error::{Failure, GROSSO_ERROR_ARGUMENT, GROSSO_ERROR_VNET};

/// Frames that begin with an IP header, as a TUN device has them.
pub const GROSSO_LINK_IP: u32 = 0;
/// Frames that begin with an Ethernet header, as a TAP device has them.
pub const GROSSO_LINK_ETHERNET: u32 = 1;

/// Datagrams of UDP are joined too: the taker can cut them (USO).
pub const GROSSO_UDP: u32 = 1;
/// The checksums of frames without a virtio header are verified already, such as by an AEAD.
pub const GROSSO_TRUSTED: u32 = 2;

/// Most pieces of a frame that a take callback is given: with a piece of the caller's in front, as many as one writev()
/// takes (IOV_MAX).
pub const GROSSO_PIECES_MAX: usize = 1023;

/// `struct virtio_net_hdr_mrg_rxbuf`: 12 bytes, in the order of this machine's bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vnet {
    /// 1: the checksum is to be completed; 2: it is verified.
    pub flags: u8,
    /// 0: a packet; 1: TCP in IPv4; 4: TCP in IPv6; 5: UDP; with 0x80, the first packet has CWR. Others are refused, 3
    /// too: datagrams that are to leave in fragments (UFO).
    pub gso_type: u8,
    /// Bytes of the headers; a hint.
    pub header_length: u16,
    /// Bytes of payload in each packet but the last.
    pub gso_size: u16,
    /// Place in the frame from which on bytes are summed.
    pub checksum_start: u16,
    /// Place of the checksum, from there on.
    pub checksum_offset: u16,
    /// 1, and not read.
    pub buffers: u16,
}

/// Takes a frame: its bytes in pieces, at most `GROSSO_PIECES_MAX`, the headers in the first; and what is known about
/// it. All of it is the library's and gone once the function returns. A frame that no virtio header describes, such as
/// a superframe whose checksums nobody vouches for, comes as its packets.
pub type Take = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        pieces: *const libc::iovec,
        count: usize,
        vnet: *const Vnet,
    ),
>;
/// Takes back a frame that the library holds no more, by the pointer that came with it.
pub type Release = Option<unsafe extern "C" fn(context: *mut c_void, user: *mut c_void)>;
/// Takes a packet that was cut.
pub type Packet =
    Option<unsafe extern "C" fn(context: *mut c_void, bytes: *const c_void, len: usize)>;

/// Options of a handle. Set everything to zero first, then `size`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// `sizeof` of this structure, by which old programs are told from new ones.
    pub size: u32,
    /// `GROSSO_LINK_IP` or `GROSSO_LINK_ETHERNET`.
    pub link: u32,
    /// `GROSSO_UDP`, `GROSSO_TRUSTED`.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
    /// A random number, so that nobody can choose packets that meet in one place of a table.
    pub seed: u64,
    /// The first argument of the callbacks.
    pub context: *mut c_void,
    /// Takes frames; not null.
    pub take: Take,
    /// Takes buffers back; null if nobody wants to know.
    pub release: Release,
}

/// Bytes that options of a later version may have at most.
const OPTIONS_BYTES_MAX: usize = 4096;

impl Options {
    /// Options of a caller, of this version or of a later one that asks for nothing new.
    ///
    /// # Safety
    /// The pointer is null, or leads to as many initialised bytes as its first four say.
    pub(crate) unsafe fn read(from: *const Self) -> Result<Self, Failure> {
        let wrong = Failure(GROSSO_ERROR_ARGUMENT);
        if from.is_null() {
            return Err(wrong);
        }
        // SAFETY: not null, and so by this function's contract at least the four bytes of `size` are there.
        let size = unsafe { from.cast::<u32>().read_unaligned() } as usize;
        if !(size_of::<Self>()..=OPTIONS_BYTES_MAX).contains(&size) {
            return Err(wrong);
        }
        // SAFETY: by this function's contract `size` bytes are there and initialised, and nobody writes meanwhile.
        let bytes = unsafe { core::slice::from_raw_parts(from.cast::<u8>(), size) };
        if bytes[size_of::<Self>()..].iter().any(|&byte| byte != 0) {
            return Err(wrong);
        }
        // SAFETY: `size` is at least that of this type, whose fields are numbers, pointers, and functions or null.
        let options = unsafe { from.read_unaligned() };
        let known = options.flags & !(GROSSO_UDP | GROSSO_TRUSTED) == 0 && options.reserved == 0;
        if known && options.take.is_some() { Ok(options) } else { Err(wrong) }
    }

    pub(crate) const fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
}

/// The link type of a caller's number.
pub(crate) fn link(number: u32) -> Result<LinkType, Failure> {
    match number {
        GROSSO_LINK_IP => Ok(LinkType::Raw),
        GROSSO_LINK_ETHERNET => Ok(LinkType::Ethernet),
        _ => Err(Failure(GROSSO_ERROR_ARGUMENT)),
    }
}

impl Vnet {
    /// Metadata that this header gives for a frame.
    pub(crate) fn meta(
        &self,
        frame: &[u8],
        link: LinkType,
        stack: &mut Stack,
    ) -> Result<Meta, Failure> {
        dissect_into(frame, link, &Ports::ASSIGNED, stack);
        let header = VirtioHeader {
            flags: self.flags,
            gso_type: self.gso_type,
            header_length: self.header_length,
            gso_size: self.gso_size,
            checksum_start: self.checksum_start,
            checksum_offset: self.checksum_offset,
            ..VirtioHeader::default()
        };
        let refused = Failure(GROSSO_ERROR_VNET);
        let meta = understand(&header, frame, link, stack, Form::Buffers).map_err(|_| refused)?;
        match meta.gso.map(|gso| gso.size) {
            // No taker of these frames fragments datagrams.
            Some(GsoSize::Fragments(_)) => Err(refused),
            _ => Ok(meta),
        }
    }
}

impl From<VirtioHeader> for Vnet {
    fn from(header: VirtioHeader) -> Self {
        Self {
            flags: header.flags,
            gso_type: header.gso_type,
            header_length: header.header_length,
            gso_size: header.gso_size,
            checksum_start: header.checksum_start,
            checksum_offset: header.checksum_offset,
            buffers: header.buffers,
        }
    }
}

/// The version of the library: 0xMMmmpp, major, minor and patch.
#[unsafe(no_mangle)]
pub extern "C" fn grosso_version() -> c_int {
    0x00_01_00
}
