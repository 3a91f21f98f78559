//! Offloads that were requested but are not available.

use grosso::{features::Features, reasons};

use super::options::TunOptions;

reasons! {
    /// Offload that the options request but the device lacks. The packets are the same without it, but each costs more
    /// CPU time.
    ///
    /// ```
    /// use grosso_tun::Fallback;
    ///
    /// assert_eq!(Fallback::Refused.name(), "refused");
    /// ```
    Fallback {
        /// The device has no virtio header, because the program that created the device did not request one. Every
        /// packet needs its own system call.
        NoVirtioHeader = "no_virtio_header",
        /// The kernel has no UDP superframes for TUN (before Linux 6.2). Every datagram needs its own system call.
        NoUdpSegmentation = "no_udp_segmentation",
        /// The kernel rejected a superframe. Packets of that kind have been sent one by one since then.
        Refused = "refused",
    }
}

/// Requested offloads that were already missing when the device was opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Missing {
    virtio_header: bool,
    udp_segmentation: bool,
}

impl Missing {
    /// Compares the options with the device: whether it has a virtio header, and which offloads it supports in each
    /// direction.
    pub(super) fn of(
        options: &TunOptions,
        has_header: bool,
        sends: Features,
        receives: Features,
    ) -> Self {
        let wanted = options.wanted();
        let udp = |wanted: Features, active: Features| {
            wanted.active().contains(Features::UDP_SEGMENTATION)
                && !active.contains(Features::UDP_SEGMENTATION)
        };
        Self {
            virtio_header: !has_header && wanted != Features::NONE,
            udp_segmentation: udp(options.sends, sends) || udp(options.receives, receives),
        }
    }

    /// Returns all fallbacks. `is_refused` says whether the kernel has rejected a superframe.
    pub(super) fn fallbacks(self, is_refused: bool) -> impl Iterator<Item = Fallback> {
        let missing = [
            (Fallback::NoVirtioHeader, self.virtio_header),
            (Fallback::NoUdpSegmentation, self.udp_segmentation),
            (Fallback::Refused, is_refused),
        ];
        missing.into_iter().filter_map(|(fallback, is_missing)| is_missing.then_some(fallback))
    }
}
