//! Offloads that the kernel lacks.

use grosso::{features::Features, reasons};
use grosso_io::Port;
use grosso_io::live::TapPort;

use super::options::TunOptions;

reasons! {
    /// An offload that the options request and the device lacks. Its packets are the same without it, but each costs
    /// more CPU time.
    ///
    /// ```
    /// use grosso_tun::Fallback;
    ///
    /// assert_eq!(Fallback::Refused.name(), "refused");
    /// ```
    Fallback {
        /// The device has no virtio header, because the program that created it did not ask for one: every packet needs
        /// its own system call.
        NoVirtioHeader = "no_virtio_header",
        /// The kernel has no UDP superframes for TUN (before Linux 6.2): every datagram needs its own system call.
        NoUdpSegmentation = "no_udp_segmentation",
        /// The kernel rejected a superframe. Packets of that kind have been sent one by one since then.
        Refused = "refused",
    }
}

/// Offloads that were requested and are missing since the device was opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Missing {
    virtio_header: bool,
    udp_segmentation: bool,
}

impl Missing {
    pub(super) fn of(port: &TapPort, options: &TunOptions) -> Self {
        let wanted = options.wanted();
        let udp = |wanted: Features, active: Features| {
            wanted.active().contains(Features::UDP_SEGMENTATION)
                && !active.contains(Features::UDP_SEGMENTATION)
        };
        Self {
            virtio_header: port.form().is_none() && wanted != Features::NONE,
            udp_segmentation: udp(options.sends, Port::device(port).features)
                || udp(options.receives, port.receive_features()),
        }
    }

    /// Returns all fallbacks; `is_refused` says whether the kernel has rejected a superframe.
    pub(super) fn fallbacks(self, is_refused: bool) -> impl Iterator<Item = Fallback> {
        let missing = [
            (Fallback::NoVirtioHeader, self.virtio_header),
            (Fallback::NoUdpSegmentation, self.udp_segmentation),
            (Fallback::Refused, is_refused),
        ];
        missing.into_iter().filter_map(|(fallback, is_missing)| is_missing.then_some(fallback))
    }
}
