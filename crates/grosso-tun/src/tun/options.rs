//! Options for opening a device.

use std::net::IpAddr;

use grosso::features::Features;

use crate::joiner::Trust;

/// Options for opening a [`Tun`](crate::Tun). The default is a TUN device that verifies packets to send and returns
/// plain packets.
///
/// ```
/// use grosso_tun::TunOptions;
///
/// let options = TunOptions::new()
///     .address("10.8.0.1".parse().unwrap(), 24)
///     .mtu(1420)
///     .up();
/// # let _ = options;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunOptions {
    pub(super) layer: Layer,
    pub(super) takes: Features,
    pub(super) sends: Features,
    pub(super) receives: Features,
    pub(super) trust: Trust,
    pub(super) persistence: Persistence,
    pub(super) queues: Queues,
    pub(super) mtu: Option<u16>,
    pub(super) addresses: Vec<(IpAddr, u8)>,
    pub(super) is_up: bool,
}

/// Layer of the packets that a device carries.
///
/// ```
/// use grosso_tun::{Layer, TunOptions};
///
/// let options = TunOptions::new().layer(Layer::Ethernet);
/// # let _ = options;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// Ethernet frames: a TAP device.
    Ethernet,
    /// IP packets: a TUN device.
    Ip,
}

/// Lifetime of a device.
///
/// ```
/// use grosso_tun::{Persistence, TunOptions};
///
/// let options = TunOptions::new().persistence(Persistence::Persistent);
/// # let _ = options;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Persistence {
    /// An existing device keeps its setting. A new device is removed when its last queue is closed.
    #[default]
    Unchanged,
    /// The device is removed when its last queue is closed.
    Temporary,
    /// The device continues to exist after the program ends.
    Persistent,
}

/// Number of queues that a device can have.
///
/// ```
/// use grosso_tun::{Queues, TunOptions};
///
/// let options = TunOptions::new().queues(Queues::Several);
/// # let _ = options;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Queues {
    /// One queue.
    #[default]
    One,
    /// Several queues (`IFF_MULTI_QUEUE`); every queue must be opened with this setting.
    Several,
}

impl Default for TunOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl TunOptions {
    /// Returns the default options.
    ///
    /// ```
    /// let options = grosso_tun::TunOptions::new();
    /// # assert_eq!(options, Default::default());
    /// ```
    #[must_use]
    pub const fn new() -> Self {
        Self {
            layer: Layer::Ip,
            takes: Features::NONE,
            sends: Features::ALL,
            receives: Features::ALL,
            trust: Trust::Verify,
            persistence: Persistence::Unchanged,
            queues: Queues::One,
            mtu: None,
            addresses: Vec::new(),
            is_up: false,
        }
    }

    /// Sets whether the device carries IP packets (TUN, the default) or Ethernet frames (TAP).
    ///
    /// ```
    /// use grosso_tun::{Layer, TunOptions};
    ///
    /// let options = TunOptions::new().layer(Layer::Ethernet);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn layer(self, layer: Layer) -> Self {
        Self { layer, ..self }
    }

    /// Sets the offloads that the caller of [`Tun::recv`](crate::Tun::recv) can handle: superframes and partial
    /// checksums. With [`Features::NONE`], the default, `recv` returns complete packets only.
    ///
    /// ```
    /// use grosso_tun::{Features, TunOptions};
    ///
    /// let options = TunOptions::new().takes(Features::CHECKSUM_GENERIC);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn takes(self, takes: Features) -> Self {
        Self { takes, ..self }
    }

    /// Limits the offloads for packets to send. With [`Features::NONE`], every packet is written separately, with a
    /// complete checksum. The default is every offload that the kernel supports.
    ///
    /// ```
    /// use grosso_tun::{Features, TunOptions};
    ///
    /// let options = TunOptions::new().sends(Features::NONE);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn sends(self, sends: Features) -> Self {
        Self { sends, ..self }
    }

    /// Limits the offloads that the kernel uses for packets that this program receives, like `ethtool -K` on the
    /// device. With [`Features::NONE`], the kernel itself segments superframes and completes checksums. The default is
    /// every offload that the kernel supports.
    ///
    /// ```
    /// use grosso_tun::{Features, TunOptions};
    ///
    /// let options = TunOptions::new().receives(Features::NONE);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn receives(self, receives: Features) -> Self {
        Self { receives, ..self }
    }

    /// Sets whether to verify the checksums of packets to send; see "Trust" in the crate documentation.
    ///
    /// ```
    /// use grosso_tun::{Trust, TunOptions};
    ///
    /// let options = TunOptions::new().trust(Trust::Authenticated);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn trust(self, trust: Trust) -> Self {
        Self { trust, ..self }
    }

    /// Sets whether the device continues to exist after the program ends.
    ///
    /// ```
    /// use grosso_tun::{Persistence, TunOptions};
    ///
    /// let options = TunOptions::new().persistence(Persistence::Temporary);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn persistence(self, persistence: Persistence) -> Self {
        Self { persistence, ..self }
    }

    /// Sets whether the device can have several queues. [`Tun::open_queues`](crate::Tun::open_queues) sets this option
    /// automatically.
    ///
    /// ```
    /// use grosso_tun::{Queues, TunOptions};
    ///
    /// let options = TunOptions::new().queues(Queues::Several);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn queues(self, queues: Queues) -> Self {
        Self { queues, ..self }
    }

    /// Sets the MTU in bytes when the device is opened. By default, an existing device keeps its MTU, and a new device
    /// has an MTU of 1500.
    ///
    /// ```
    /// let options = grosso_tun::TunOptions::new().mtu(1420);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn mtu(self, bytes: u16) -> Self {
        Self { mtu: Some(bytes), ..self }
    }

    /// Adds an address with its prefix length in bits when the device is opened. Call this function again for each
    /// further address.
    ///
    /// ```
    /// let options = grosso_tun::TunOptions::new()
    ///     .address("10.8.0.1".parse().unwrap(), 24)
    ///     .address("fd00::1".parse().unwrap(), 64);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn address(mut self, address: IpAddr, prefix_bits: u8) -> Self {
        self.addresses.push((address, prefix_bits));
        self
    }

    /// Brings the interface up when the device is opened, after MTU and addresses are set.
    ///
    /// ```
    /// let options = grosso_tun::TunOptions::new().up();
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn up(self) -> Self {
        Self { is_up: true, ..self }
    }

    /// Returns the offloads that the caller wants in at least one direction.
    pub(super) fn wanted(&self) -> Features {
        self.sends | self.receives
    }
}
