//! The only program that AF_XDP needs, loaded with raw `bpf(2)`: it redirects each packet to the socket of its queue.
//!
//! The program has only five instructions, so it needs neither a compiler nor an object file. The descriptor of the
//! link keeps the program attached; when it closes, even because of a crash, the program is detached.

use core::ffi::c_long;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::XdpSocket;
use crate::abi;

/// Maximum number of sockets per program. Each queue has one socket.
pub const QUEUES_MAX: u32 = 64;

/// Point in the receive path at which a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachMode {
    /// In the driver, before the kernel allocates a packet buffer. A veth device then makes its peer segment
    /// superframes, so that only frames of the MTU's size arrive.
    Native,
    /// After the kernel has allocated a packet buffer. Every device supports this mode. Superframes from a peer with
    /// TCP offload arrive whole, and are dropped because they do not fit in a chunk.
    Generic,
}

/// An attached program that redirects packets to AF_XDP sockets. Packets on a queue without a socket pass to the
/// kernel's stack.
#[derive(Debug)]
pub struct Redirect {
    sockets: OwnedFd,
    /// Link that keeps the program attached.
    _link: OwnedFd,
    mode: AttachMode,
}

impl Redirect {
    /// Attaches the program to an interface in the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// Returns `EPERM` without `CAP_BPF` and `CAP_NET_ADMIN` in the *initial* user namespace, `EOPNOTSUPP` if the
    /// driver has no native mode, `EBUSY` or `EEXIST` if a program is attached, or `EINVAL` on kernels before 5.9.
    pub fn attach(index: u32, mode: AttachMode) -> io::Result<Self> {
        let sockets = socket_map()?;
        // A program not marked as able to handle multi-buffer packets is refused on a veth with a
        // large MTU; a kernel before 5.18 does not support the flag.
        let program = match load(&sockets, abi::BPF_F_XDP_HAS_FRAGS) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => load(&sockets, 0),
            result => result,
        }?;
        let flags = match mode {
            AttachMode::Native => abi::XDP_FLAGS_DRV_MODE,
            AttachMode::Generic => abi::XDP_FLAGS_SKB_MODE,
        };
        let request = LinkCreate {
            program: descriptor(&program),
            interface: index,
            attach_type: abi::BPF_XDP,
            flags,
        };
        // SAFETY: the request holds no address.
        let link = unsafe { bpf_descriptor(abi::BPF_LINK_CREATE, &request) }?;
        Ok(Self { sockets, _link: link, mode })
    }

    /// Redirects the packets on a queue to a socket, which must be bound to that queue. The packets pass to the stack
    /// again when the socket closes.
    ///
    /// # Errors
    ///
    /// Returns `E2BIG` for a queue of [`QUEUES_MAX`] or more.
    pub fn set_socket(&self, queue: u32, socket: &XdpSocket) -> io::Result<()> {
        let value = socket.file.as_raw_fd().cast_unsigned();
        let request = MapUpdate {
            map: descriptor(&self.sockets),
            padding: 0,
            key: (&raw const queue).expose_provenance() as u64,
            value: (&raw const value).expose_provenance() as u64,
            flags: 0,
        };
        // SAFETY: the map's keys and values are four bytes long, as are the two variables whose addresses are in the
        // request.
        unsafe { bpf(abi::BPF_MAP_UPDATE_ELEM, &request) }?;
        Ok(())
    }

    /// Returns the point in the receive path at which the program runs.
    pub fn mode(&self) -> AttachMode {
        self.mode
    }
}

/// Creates a BPF map that assigns an AF_XDP socket to each queue.
fn socket_map() -> io::Result<OwnedFd> {
    let request = MapCreate {
        kind: abi::BPF_MAP_TYPE_XSKMAP,
        key_bytes: 4,
        value_bytes: 4,
        entries: QUEUES_MAX,
        flags: 0,
    };
    // SAFETY: the request holds no address.
    unsafe { bpf_descriptor(abi::BPF_MAP_CREATE, &request) }
}

fn load(sockets: &OwnedFd, flags: u32) -> io::Result<OwnedFd> {
    let program = redirect_program(sockets.as_raw_fd());
    let licence = c"MIT";
    let request = ProgramLoad {
        kind: abi::BPF_PROG_TYPE_XDP,
        instructions: program.len() as u32,
        program: program.as_ptr().expose_provenance() as u64,
        licence: licence.as_ptr().expose_provenance() as u64,
        log_level: 0,
        log_bytes: 0,
        log: 0,
        kernel_version: 0,
        flags,
    };
    // SAFETY: the request holds the number of instructions and a zero-terminated string; both live until the call
    // returns.
    unsafe { bpf_descriptor(abi::BPF_PROG_LOAD, &request) }
}

/// Returns the program `return bpf_redirect_map(sockets, context->rx_queue_index, XDP_PASS)`. Loading a 64-bit constant
/// takes two slots.
fn redirect_program(sockets: i32) -> [[u8; 8]; 6] {
    [
        // r2 = *(u32 *)(r1 + 16), the queue in `struct xdp_md`.
        instruction(0x61, 2, 1, 16, 0),
        // r1 = the map, by its descriptor.
        instruction(0x18, 1, 1, 0, sockets),
        instruction(0, 0, 0, 0, 0),
        // r3 = XDP_PASS, the verdict for a queue without a socket.
        instruction(0xb7, 3, 0, 0, 2),
        // r0 = bpf_redirect_map(r1, r2, r3).
        instruction(0x85, 0, 0, 0, 51),
        // return r0.
        instruction(0x95, 0, 0, 0, 0),
    ]
}

/// Encodes a `struct bpf_insn`: code, two 4-bit registers, offset, constant.
fn instruction(code: u8, to: u8, from: u8, offset: i16, constant: i32) -> [u8; 8] {
    let registers = if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
    let mut bytes = [code, registers, 0, 0, 0, 0, 0, 0];
    bytes[2..4].copy_from_slice(&offset.to_ne_bytes());
    bytes[4..].copy_from_slice(&constant.to_ne_bytes());
    bytes
}

#[repr(C)]
struct MapCreate {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
}

#[repr(C)]
struct ProgramLoad {
    kind: u32,
    instructions: u32,
    program: u64,
    licence: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
}

#[repr(C)]
struct MapUpdate {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

fn descriptor(file: &OwnedFd) -> u32 {
    file.as_raw_fd().cast_unsigned()
}

/// Executes a `bpf(2)` command that returns a descriptor, which closes on exec.
///
/// # Safety
///
/// The caller must meet the requirements of [`bpf`]. In addition, the command must return a new descriptor.
unsafe fn bpf_descriptor<Request>(command: i32, request: &Request) -> io::Result<OwnedFd> {
    // SAFETY: the caller guarantees the request.
    let file = unsafe { bpf(command, request) }?;
    let file = i32::try_from(file).map_err(io::Error::other)?;
    // SAFETY: the kernel has just created the descriptor for this caller.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

/// Calls `bpf(2)`.
///
/// # Safety
///
/// `Request` must be the beginning of `union bpf_attr` for the command, and every address in it must refer to memory
/// that the command may read or write.
unsafe fn bpf<Request>(command: i32, request: &Request) -> io::Result<c_long> {
    let bytes = size_of::<Request>();
    // SAFETY: the kernel reads as many bytes as stated; the caller guarantees the rest.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, core::ptr::from_ref(request), bytes) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn the_program_is_what_an_assembler_makes_of_it() {
        let words = redirect_program(9).map(u64::from_le_bytes);
        let expected = [
            0x0000_0000_0010_1261,
            0x0000_0009_0000_1118,
            0,
            0x0000_0002_0000_03b7,
            0x0000_0033_0000_0085,
            0x95,
        ];
        assert_eq!(words, expected);
    }

    #[test]
    fn requests_are_laid_out_as_the_kernel_expects() {
        assert_eq!(size_of::<MapCreate>(), 20);
        assert_eq!(size_of::<ProgramLoad>(), 48);
        assert_eq!(size_of::<MapUpdate>(), 32);
        assert_eq!(size_of::<LinkCreate>(), 16);
    }
}
