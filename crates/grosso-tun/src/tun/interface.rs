//! Network interface of a device.

use std::io;

use super::{options::TunOptions, system};

/// Network interface of a device: its name, index and MTU. The interface belongs to the network namespace in which the
/// device was opened. Clones refer to the same interface and keep the queue open.
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
    link: system::Link,
}

impl Interface {
    pub(super) fn new(link: system::Link) -> Self {
        Self { link }
    }

    /// Returns the current name, which another program may have changed since the device was opened.
    ///
    /// # Errors
    /// Returns `NotFound` if the device is gone.
    ///
    /// ```no_run
    /// # use grosso_tun::{Tun, TunOptions};
    /// # let tun: Tun = Tun::open("vpn%d", &TunOptions::new())?;
    /// println!("opened as {}, now {}", tun.name(), tun.interface().name()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn name(&self) -> io::Result<String> {
        self.link.name()
    }

    /// Returns the interface index, for example for routes.
    ///
    /// # Errors
    /// Returns `NotFound` if the device is gone.
    ///
    /// ```no_run
    /// # use grosso_tun::{Tun, TunOptions};
    /// # let tun: Tun = Tun::open("vpn%d", &TunOptions::new())?;
    /// let index = tun.interface().index()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn index(&self) -> io::Result<u32> {
        self.link.index()
    }

    /// Returns the MTU in bytes.
    ///
    /// # Errors
    /// Returns `NotFound` if the device is gone.
    ///
    /// ```no_run
    /// # use grosso_tun::{Tun, TunOptions};
    /// # let tun: Tun = Tun::open("vpn%d", &TunOptions::new())?;
    /// assert_eq!(tun.interface().mtu()?, 1500);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn mtu(&self) -> io::Result<u32> {
        self.link.mtu()
    }

    /// Sets the MTU in bytes.
    ///
    /// # Errors
    /// Returns `InvalidInput` below 68 bytes, or below 1280 bytes while the interface has IPv6; `NotFound` if the
    /// device is gone; or `EPERM` without `CAP_NET_ADMIN`.
    ///
    /// ```no_run
    /// # use grosso_tun::{Tun, TunOptions};
    /// # let tun: Tun = Tun::open("vpn%d", &TunOptions::new())?;
    /// tun.interface().set_mtu(1420)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_mtu(&self, bytes: u16) -> io::Result<()> {
        self.link.set_mtu(bytes)
    }

    /// Applies the options that concern the interface.
    pub(super) fn configure(&self, options: &TunOptions) -> io::Result<()> {
        self.link.configure(options)
    }
}
