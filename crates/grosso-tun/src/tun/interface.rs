//! The network interface of a device.

use std::{io, sync::Arc};

use grosso_sys::{
    errno::ErrorClass,
    interface::{Control, InterfaceName},
    netlink::Netlink,
    tun::Tun as Queue,
};

use super::options::TunOptions;

/// The network interface of a device: its name, index and MTU. It belongs to the network namespace in which the device
/// was opened. Clones refer to the same interface and keep the queue open.
///
/// ```no_run
/// # use grosso_tun::{Tun, TunOptions};
/// # let tun: Tun = Tun::open("vpn%d", &TunOptions::new())?;
/// let interface = tun.interface().clone();
/// println!("{}: index {}", interface.name()?, interface.index()?);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Interface {
    queue: Arc<Queue>,
    control: Arc<Control>,
}

impl Interface {
    pub(super) fn new(queue: &Arc<Queue>) -> io::Result<Self> {
        Ok(Self { queue: Arc::clone(queue), control: Arc::new(Control::new()?) })
    }

    /// Returns the current name; another program may have renamed the interface.
    ///
    /// # Errors
    /// `NotFound` if the device is gone.
    ///
    /// ```no_run
    /// # use grosso_tun::{Tun, TunOptions};
    /// # let tun: Tun = Tun::open("vpn%d", &TunOptions::new())?;
    /// println!("opened as {}, now {}", tun.name(), tun.interface().name()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn name(&self) -> io::Result<String> {
        Ok(self.current()?.as_str().to_owned())
    }

    /// Returns the interface index, for example for routes.
    ///
    /// # Errors
    /// `NotFound` if the device is gone.
    ///
    /// ```no_run
    /// # use grosso_tun::{Tun, TunOptions};
    /// # let tun: Tun = Tun::open("vpn%d", &TunOptions::new())?;
    /// let index = tun.interface().index()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn index(&self) -> io::Result<u32> {
        let name = self.current()?;
        self.control.index(&name).map_err(|error| failed(&name, "read the index", error))
    }

    /// Returns the MTU in bytes.
    ///
    /// # Errors
    /// `NotFound` if the device is gone.
    ///
    /// ```no_run
    /// # use grosso_tun::{Tun, TunOptions};
    /// # let tun: Tun = Tun::open("vpn%d", &TunOptions::new())?;
    /// assert_eq!(tun.interface().mtu()?, 1500);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn mtu(&self) -> io::Result<u32> {
        let name = self.current()?;
        self.control.mtu(&name).map_err(|error| failed(&name, "read the MTU", error))
    }

    /// Sets the MTU in bytes.
    ///
    /// # Errors
    /// `InvalidInput` below 68 bytes, or below 1280 bytes while the interface has IPv6; `NotFound` if the device is
    /// gone; `EPERM` without `CAP_NET_ADMIN`.
    ///
    /// ```no_run
    /// # use grosso_tun::{Tun, TunOptions};
    /// # let tun: Tun = Tun::open("vpn%d", &TunOptions::new())?;
    /// tun.interface().set_mtu(1420)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_mtu(&self, bytes: u16) -> io::Result<()> {
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

/// Adds name and action to an error.
fn failed(name: &InterfaceName, action: &str, error: io::Error) -> io::Error {
    let kind = match ErrorClass::of(&error) {
        ErrorClass::Gone => io::ErrorKind::NotFound,
        _ => error.kind(),
    };
    io::Error::new(kind, format!("{name}: cannot {action}: {error}"))
}
