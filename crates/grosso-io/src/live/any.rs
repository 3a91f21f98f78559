//! A live port whose kind is chosen at run time. It gives all data paths one Rust type, instead of one type for each
//! pair of port kinds.

use std::{io, os::fd::RawFd};

use grosso_sys::{
    errno::ErrorClass,
    inherited_fd,
    packet::{Fanout, FanoutRule},
    tun::Layer,
};

use super::{LiveStats, PacketOptions, PacketPort, TapOptions, TapPort, UnixOptions, UnixPort};
#[cfg(feature = "vhost")]
use super::{VhostOptions, VhostPort};
#[cfg(all(target_os = "linux", feature = "xdp"))]
use super::{XdpPort, XdpPortOptions};
use crate::{delegate_port, port::Port};

/// Device or socket to open as a port, with its options.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Opening {
    /// A TUN or TAP device, which is created if it does not exist.
    Tun {
        /// Interface name; the kernel replaces `%d` with a number.
        name: String,
        /// Ethernet for a TAP device, IP for a TUN device.
        layer: Layer,
        /// Options of the port; `multi_queue` is ignored, because it follows from the number of queues.
        options: TapOptions,
    },
    /// A queue of a TUN or TAP device that another program opened and passed on as a descriptor.
    Passed {
        /// Descriptor number. The descriptor stays open.
        number: RawFd,
        /// Options of the port.
        options: TapOptions,
    },
    /// An interface, accessed through packet sockets.
    Packet {
        /// Interface name.
        name: String,
        /// Options of the port. Several queues share the frames by flow hash.
        options: PacketOptions,
    },
    /// A Unix socket.
    Unix(UnixOptions),
    /// A vhost-user network device of a VM.
    #[cfg(feature = "vhost")]
    Vhost(VhostOptions),
    /// Queues of an interface, accessed through AF_XDP sockets.
    #[cfg(all(target_os = "linux", feature = "xdp"))]
    Xdp {
        /// Interface name.
        name: String,
        /// Options of the port, including its first queue.
        options: XdpPortOptions,
    },
}

impl Opening {
    /// Opens `queues` queues of the device in the calling thread's network namespace.
    ///
    /// # Errors
    /// Returns any error from the ports, and [`io::ErrorKind::InvalidInput`] if more than one queue is requested for an
    /// inherited descriptor.
    pub fn open(&self, queues: usize) -> io::Result<Vec<LivePort>> {
        match self {
            Self::Tun { name, layer, options } => open_tun(name, *layer, *options, queues),
            Self::Passed { number, options } if queues == 1 => {
                let port = TapPort::adopt(inherited_fd::duplicate(*number)?, options)?;
                Ok(vec![LivePort::Tun(port)])
            }
            Self::Passed { .. } => {
                let why = "a descriptor has only one queue";
                Err(io::Error::new(io::ErrorKind::InvalidInput, why))
            }
            Self::Unix(options) if queues == 1 => {
                Ok(vec![LivePort::Unix(Box::new(UnixPort::open(options)?))])
            }
            Self::Unix(_) => {
                Err(io::Error::new(io::ErrorKind::InvalidInput, "a socket has only one queue"))
            }
            #[cfg(feature = "vhost")]
            Self::Vhost(options) if queues == 1 => {
                Ok(vec![LivePort::Vhost(Box::new(VhostPort::open(options)?))])
            }
            #[cfg(feature = "vhost")]
            Self::Vhost(_) => {
                Err(io::Error::new(io::ErrorKind::InvalidInput, "a VM device has only one queue"))
            }
            Self::Packet { name, options } => open_packet(name, *options, queues),
            #[cfg(all(target_os = "linux", feature = "xdp"))]
            Self::Xdp { name, options } => {
                let queues = u32::try_from(queues).unwrap_or(u32::MAX);
                let ports = XdpPort::open_queues(name, options, queues)?;
                Ok(ports.into_iter().map(LivePort::Xdp).collect())
            }
        }
    }
}

/// One queue of a live port of any kind.
#[derive(Debug)]
#[non_exhaustive]
pub enum LivePort {
    /// A TUN or TAP device.
    Tun(TapPort),
    /// An interface, accessed through packet sockets.
    Packet(PacketPort),
    /// A Unix socket.
    Unix(Box<UnixPort>),
    /// A vhost-user network device of a VM.
    #[cfg(feature = "vhost")]
    Vhost(Box<VhostPort>),
    /// An interface, accessed through an AF_XDP socket.
    #[cfg(all(target_os = "linux", feature = "xdp"))]
    Xdp(XdpPort),
}

/// Evaluates an expression for the port, whatever its kind.
macro_rules! with {
    ($self:expr, $port:ident => $result:expr) => {
        match $self {
            LivePort::Tun($port) => $result,
            LivePort::Packet($port) => $result,
            LivePort::Unix($port) => $result,
            #[cfg(feature = "vhost")]
            LivePort::Vhost($port) => $result,
            #[cfg(all(target_os = "linux", feature = "xdp"))]
            LivePort::Xdp($port) => $result,
        }
    };
}

impl LivePort {
    /// Returns the device name, with `%d` replaced by the kernel.
    #[must_use]
    pub fn name(&self) -> &str {
        with!(self, port => port.name())
    }

    /// Returns the counters of this port, including frames that the kernel dropped because a buffer was full.
    ///
    /// # Errors
    /// Returns any error from `getsockopt(2)`.
    pub fn stats(&mut self) -> io::Result<LiveStats> {
        match self {
            Self::Tun(port) => Ok(port.stats()),
            Self::Packet(port) => port.stats(),
            Self::Unix(port) => Ok(*port.stats()),
            #[cfg(feature = "vhost")]
            Self::Vhost(port) => Ok(*port.stats()),
            #[cfg(all(target_os = "linux", feature = "xdp"))]
            Self::Xdp(port) => Ok(*port.stats()),
        }
    }
}

impl Port for LivePort {
    delegate_port!(with!: link, device, receive, recycle, transmit, flush, deadline, descriptors);
    delegate_port!(with!: path_mtu, counters, is_finished);
}

fn open_tun(
    name: &str,
    layer: Layer,
    mut options: TapOptions,
    queues: usize,
) -> io::Result<Vec<LivePort>> {
    options.multi_queue = queues > 1;
    let first = match TapPort::open(name, layer, &options) {
        // A device that was created with several queues can be opened only with the multi-queue flag, even for one
        // queue.
        Err(error) if queues == 1 && ErrorClass::of(&error) == ErrorClass::Malformed => {
            options.multi_queue = true;
            TapPort::open(name, layer, &options).map_err(|_| error)
        }
        result => result,
    }?;
    let name = first.name().to_owned();
    let mut ports = vec![LivePort::Tun(first)];
    for _ in 1..queues {
        ports.push(LivePort::Tun(TapPort::open(&name, layer, &options)?));
    }
    Ok(ports)
}

fn open_packet(name: &str, mut options: PacketOptions, queues: usize) -> io::Result<Vec<LivePort>> {
    if queues > 1 {
        options.fanout = Some(Fanout::new(FanoutRule::FlowHash));
    }
    let first = PacketPort::open(name, &options)?;
    if let (Some(fanout), Some(group)) = (options.fanout, first.fanout_group()?) {
        options.fanout = Some(fanout.join(group));
    }
    let mut ports = vec![LivePort::Packet(first)];
    for _ in 1..queues {
        ports.push(LivePort::Packet(PacketPort::open(name, &options)?));
    }
    Ok(ports)
}
