//! TUN and TAP devices on Linux and Android: opening them, and configuring their network interfaces. Error messages
//! contain the cause.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use grosso_io::{
    Port,
    live::{LiveEvent, TapOptions, TapPort, TapReader, TapWriter},
};
use grosso_sys::{
    errno::ErrorClass,
    ethtool,
    interface::{Control, InterfaceName},
    netlink::Netlink,
    tun::{self, Tun as Queue},
    wait::{Interest, wait_for},
};

use super::{
    Opened,
    fallback::Missing,
    options::{Layer, Persistence, Queues, TunOptions},
};

/// Receiving half of a device on Linux.
pub(super) type Reader = TapReader;
/// Sending half of a device on Linux.
pub(crate) type Writer = TapWriter;
/// Network interface.
pub(super) type Link = KernelLink;

/// Opens a queue; see [`Tun::open`](super::Tun::open).
pub(super) fn open(name: &str, options: &TunOptions) -> io::Result<Opened> {
    let layer = match options.layer {
        Layer::Ethernet => tun::Layer::Ethernet,
        Layer::Ip => tun::Layer::Ip,
    };
    let port = TapPort::open(name, layer, &port_options(options));
    opened(port.map_err(|error| explained(name, options, error))?, options)
}

/// Adopts a queue; see [`Tun::adopt`](super::Tun::adopt).
pub(super) fn adopt(file: OwnedFd, options: &TunOptions) -> io::Result<Opened> {
    opened(TapPort::adopt(file, &port_options(options))?, options)
}

fn opened(port: TapPort, options: &TunOptions) -> io::Result<Opened> {
    let has_header = port.form().is_some();
    let missing =
        Missing::of(options, has_header, Port::device(&port).features, port.receive_features());
    let name = port.name().to_owned();
    let (reader, writer) = port.split();
    let queue = Arc::clone(reader.tun());
    let link = KernelLink { queue, control: Arc::new(Control::new()?) };
    Ok(Opened { reader, writer, link, missing, name })
}

fn port_options(options: &TunOptions) -> TapOptions {
    let mut port = TapOptions::default();
    port.transmit = options.sends;
    port.receive = options.receives;
    port.multi_queue = options.queues == Queues::Several;
    port.persistent = match options.persistence {
        Persistence::Unchanged => None,
        Persistence::Temporary => Some(false),
        Persistence::Persistent => Some(true),
    };
    port
}

/// Waits until the device has a frame.
pub(super) fn wait_to_receive(reader: &mut Reader) -> io::Result<()> {
    wait_for(&[(reader.tun().as_fd(), Interest::READ)], None).map(drop)
}

/// Waits until the device has room.
pub(super) fn wait_to_send(writer: &Writer) -> io::Result<()> {
    wait_for(&[(writer.tun().as_fd(), Interest::WRITE)], None).map(drop)
}

/// Returns whether the kernel has rejected a superframe.
pub(super) fn is_refused(writer: &Writer) -> bool {
    writer.stats().events(LiveEvent::TransmitNarrowed) > 0
}

/// Returns `error` with a message that explains the cause and the remedy.
fn explained(name: &str, options: &TunOptions, error: io::Error) -> io::Error {
    let why = match (ErrorClass::of(&error), error.kind()) {
        (_, io::ErrorKind::NotFound) => {
            "the kernel has no TUN driver: load it with `modprobe tun`".to_owned()
        }
        (ErrorClass::Forbidden, _) => "CAP_NET_ADMIN is required: run as root".to_owned(),
        (ErrorClass::Later, io::ErrorKind::ResourceBusy) => {
            "another program has opened the device: stop that program, or choose another name"
                .to_owned()
        }
        (ErrorClass::Malformed, _) => match InterfaceName::new(name) {
            Ok(interface) => conflict(&interface, options),
            Err(invalid) => return invalid,
        },
        _ => error.to_string(),
    };
    io::Error::new(error.kind(), format!("{name}: cannot open the device: {why}"))
}

/// Returns the reason why the kernel refused to open an existing interface with `EINVAL`.
fn conflict(name: &InterfaceName, options: &TunOptions) -> String {
    let driver = Control::new().and_then(|control| ethtool::driver(&control, name));
    let Ok(driver) = driver else { return "the kernel rejects the options".to_owned() };
    if driver.name != "tun" {
        return format!("the existing device uses the driver {}: choose another name", driver.name);
    }
    match (driver.bus.as_str(), options.layer, options.queues) {
        ("tap", Layer::Ip, _) => {
            "the existing device is a TAP device: use Layer::Ethernet, or choose another name"
                .to_owned()
        }
        ("tun", Layer::Ethernet, _) => {
            "the existing device is a TUN device: use Layer::Ip, or choose another name".to_owned()
        }
        (_, _, Queues::One) => {
            "the existing device is a multi-queue device: use Queues::Several, or choose another name"
                .to_owned()
        }
        (_, _, Queues::Several) => {
            "the existing device is a single-queue device: use Queues::One, or choose another name"
                .to_owned()
        }
    }
}

/// Network interface of a queue. The value keeps the queue open.
#[derive(Clone, Debug)]
pub(super) struct KernelLink {
    queue: Arc<Queue>,
    control: Arc<Control>,
}

impl KernelLink {
    /// Returns the current name.
    pub(super) fn name(&self) -> io::Result<String> {
        Ok(self.current()?.as_str().to_owned())
    }

    /// Returns the interface index.
    pub(super) fn index(&self) -> io::Result<u32> {
        let name = self.current()?;
        self.control.index(&name).map_err(|error| failed(&name, "read the index", error))
    }

    /// Returns the MTU in bytes.
    pub(super) fn mtu(&self) -> io::Result<u32> {
        let name = self.current()?;
        self.control.mtu(&name).map_err(|error| failed(&name, "read the MTU", error))
    }

    /// Sets the MTU in bytes.
    pub(super) fn set_mtu(&self, bytes: u16) -> io::Result<()> {
        let name = self.current()?;
        let action = format!("set the MTU to {bytes} bytes");
        self.control.set_mtu(&name, bytes).map_err(|error| failed(&name, &action, error))
    }

    /// Applies the options that concern the interface.
    pub(super) fn configure(&self, options: &TunOptions) -> io::Result<()> {
        if let Some(mtu) = options.mtu {
            self.set_mtu(mtu)?;
        }
        if options.addresses.is_empty() && !options.is_up {
            return Ok(());
        }
        let name = self.current()?;
        if !options.addresses.is_empty() {
            let (index, netlink) = (self.index()?, Netlink::new()?);
            for &(address, prefix) in &options.addresses {
                let action = format!("add the address {address}/{prefix}");
                match netlink.add_address(index, address, prefix) {
                    // A persistent device keeps its addresses.
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    result => result.map_err(|error| failed(&name, &action, error))?,
                }
            }
        }
        match options.is_up {
            true => {
                self.control.set_up(&name, true).map_err(|error| failed(&name, "bring up", error))
            }
            false => Ok(()),
        }
    }

    fn current(&self) -> io::Result<InterfaceName> {
        let name = self.queue.current_name();
        name.map_err(|error| failed(self.queue.name(), "find the interface", error))
    }
}

/// Adds the interface name and the attempted action to an error.
fn failed(name: &InterfaceName, action: &str, error: io::Error) -> io::Error {
    let kind = match ErrorClass::of(&error) {
        ErrorClass::Gone => io::ErrorKind::NotFound,
        _ => error.kind(),
    };
    io::Error::new(kind, format!("{name}: cannot {action}: {error}"))
}
