//! Ports that exchange frames with the devices and sockets of a running Linux system.
//!
//! | port | frames come from and go to |
//! |---|---|
//! | [`TapPort`] | this host's network stack, through a TUN or TAP device |
//! | [`PacketPort`] | an interface, accessed through packet sockets and a mapped ring |
//! | `XdpPort` | an interface, through an AF_XDP socket (feature `xdp`) |
//! | [`UnixPort`] | a VM or another program, through a Unix socket |
//! | `VhostPort` | a VM, through shared memory (feature `vhost`) |
//! | [`UdpPort`] | another host, through UDP sockets: the outer packets of a tunnel |
//! | [`IpPort`] | another host, through raw IP sockets: the outer packets of a tunnel without UDP |
//! | [`LivePort`] | any of these, chosen at run time, with one queue or several |
//!
//! The features of a port are probed when it is opened, and again while it is used. If the kernel rejects a superframe,
//! the port sends its packets separately; if the kernel accepts these, the port reports fewer features from then on
//! (B31). Frames that cannot be sent or parsed are dropped and counted by reason; see [`LiveStats`].

mod any;
mod fair_ring;
mod incoming;
mod ip;
mod packet;
mod socket;
mod stats;
mod tap;
mod transmitter;
mod tx_offload;
mod udp;
mod unix;
#[cfg(feature = "vhost")]
mod vhost;
#[cfg(all(target_os = "linux", feature = "xdp"))]
mod xdp;

pub use any::{LivePort, Opening};
#[cfg(all(target_os = "linux", feature = "xdp"))]
pub use grosso_sys::xdp::XdpStatistics;
pub use ip::{IpOptions, IpPort};
pub use packet::{PacketOptions, PacketPort};
pub use socket::{SocketEvent, SocketStats};
pub use stats::{LiveEvent, LiveStats};
pub use tap::{TapOptions, TapPort, TapReader, TapWriter};
pub use udp::{SOURCE_PORTS_MAX, UdpOptions, UdpPort};
pub use unix::{MODE, UnixEvent, UnixOptions, UnixPort, UnixRole, UnixStats, usual_features};
#[cfg(feature = "vhost")]
pub use vhost::{MAPPED_BYTES_MAX, VhostEvent, VhostOptions, VhostPort, VhostSide, VhostStats};
#[cfg(all(target_os = "linux", feature = "xdp"))]
pub use xdp::{XdpPort, XdpPortOptions, kernel_counters};

use std::io;

use grosso_sys::errno::ErrorClass;

use crate::port::PortError;

/// Returns the port error for a device that is gone or has failed.
fn broken(name: &str, action: &'static str, source: io::Error) -> PortError {
    match ErrorClass::of(&source) {
        ErrorClass::Gone => PortError::Gone { name: name.to_owned() },
        _ => PortError::Device { name: name.to_owned(), action, source },
    }
}
