//! Layouts shared with C.

use core::ffi::{c_int, c_void};

use grosso::{Meta, meta::GsoSize, vnet::understand};
use grosso_wire::{
    LinkType, Ports, Stack, dissect_into,
    virtio::{Form, VirtioHeader},
};

use crate::error::{Failure, GROSSO_ERROR_ARGUMENT, GROSSO_ERROR_VNET};

/// Frames start with an IP header, as on a TUN device.
pub const GROSSO_LINK_IP: u32 = 0;
/// Frames start with an Ethernet header, as on a TAP device.
pub const GROSSO_LINK_ETHERNET: u32 = 1;

/// Merge UDP datagrams as well; the receiver of the frames must support USO.
pub const GROSSO_UDP: u32 = 1;
/// Skip checksum verification of frames without a virtio header, for example because an AEAD has authenticated them.
pub const GROSSO_TRUSTED: u32 = 2;

/// Maximum number of pieces per take callback: one less than writev() accepts (IOV_MAX), so that the caller can put a
/// piece in front.
pub const GROSSO_PIECES_MAX: usize = 1023;

/// `struct virtio_net_hdr_mrg_rxbuf`: 12 bytes in native byte order.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vnet {
    /// 1: the checksum is partial; 2: the checksum is verified.
    pub flags: u8,
    /// 0: a packet; 1: TCP over IPv4; 4: TCP over IPv6; 5: UDP; with 0x80, only the first packet has CWR. Other values
    /// are rejected, including 3 (UFO).
    pub gso_type: u8,
    /// Length of the headers in bytes, which is only a hint.
    pub header_length: u16,
    /// Number of payload bytes in every packet except the last.
    pub gso_size: u16,
    /// Offset of the first summed byte from the start of the frame.
    pub checksum_start: u16,
    /// Offset of the checksum field from `checksum_start`.
    pub checksum_offset: u16,
    /// Number of buffers, which is 1 on output and ignored on input.
    pub buffers: u16,
}

/// Callback that receives a frame and its virtio header. The frame has at most `GROSSO_PIECES_MAX` pieces; the first
/// contains all headers. The memory is valid only during the call. A frame that no virtio header can describe, for
/// example a superframe whose checksums were not verified, is delivered as separate packets.
pub type Take = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        pieces: *const libc::iovec,
        count: usize,
        vnet: *const Vnet,
    ),
>;
/// Callback that releases a frame that the library no longer holds; `user` is the pointer that was pushed with it.
pub type Release = Option<unsafe extern "C" fn(context: *mut c_void, user: *mut c_void)>;
/// Callback that receives one packet of a superframe.
pub type Packet =
    Option<unsafe extern "C" fn(context: *mut c_void, bytes: *const c_void, len: usize)>;

/// Options of a handle. Set all bytes to zero first, then `size`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// `sizeof` of this structure, which identifies its version.
    pub size: u32,
    /// `GROSSO_LINK_IP` or `GROSSO_LINK_ETHERNET`.
    pub link: u32,
    /// `GROSSO_UDP` and `GROSSO_TRUSTED`.
    pub flags: u32,
    /// Must be zero.
    pub reserved: u32,
    /// Random key for hash tables, which prevents attacks by chosen collisions.
    pub seed: u64,
    /// First argument of all callbacks.
    pub context: *mut c_void,
    /// Callback that receives frames; must not be null.
    pub take: Take,
    /// Callback that releases buffers; may be null.
    pub release: Release,
}

/// Maximum size in bytes of the options in later versions.
const OPTIONS_BYTES_MAX: usize = 4096;

impl Options {
    /// Reads the caller's options. Options of a later version are accepted if all fields unknown to this version are
    /// zero.
    ///
    /// # Safety
    /// The pointer must be null or point to as many initialized bytes as its first four bytes state.
    pub(crate) unsafe fn read(from: *const Self) -> Result<Self, Failure> {
        let wrong = Failure(GROSSO_ERROR_ARGUMENT);
        if from.is_null() {
            return Err(wrong);
        }
        // SAFETY: the pointer is not null, so by this function's contract it points to at least the four bytes of
        // `size`.
        let size = unsafe { from.cast::<u32>().read_unaligned() } as usize;
        if !(size_of::<Self>()..=OPTIONS_BYTES_MAX).contains(&size) {
            return Err(wrong);
        }
        // SAFETY: by this function's contract the pointer points to `size` initialized bytes that are not written
        // during the call.
        let bytes = unsafe { core::slice::from_raw_parts(from.cast::<u8>(), size) };
        if bytes[size_of::<Self>()..].iter().any(|&byte| byte != 0) {
            return Err(wrong);
        }
        // SAFETY: `size` is at least the size of this type, whose fields are numbers, pointers, and functions that may
        // be null.
        let options = unsafe { from.read_unaligned() };
        let known = options.flags & !(GROSSO_UDP | GROSSO_TRUSTED) == 0 && options.reserved == 0;
        if known && options.take.is_some() { Ok(options) } else { Err(wrong) }
    }

    pub(crate) const fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
}

/// Converts the caller's link type.
pub(crate) fn link(number: u32) -> Result<LinkType, Failure> {
    match number {
        GROSSO_LINK_IP => Ok(LinkType::Raw),
        GROSSO_LINK_ETHERNET => Ok(LinkType::Ethernet),
        _ => Err(Failure(GROSSO_ERROR_ARGUMENT)),
    }
}

impl Vnet {
    /// Returns the metadata that this header describes for a frame.
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
            // The receivers of these frames do not fragment datagrams.
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

/// Returns the version of the library: 0xMMmmpp for major, minor and patch.
#[unsafe(no_mangle)]
pub extern "C" fn grosso_version() -> c_int {
    0x00_01_00
}
