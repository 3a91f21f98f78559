//! Offloads that the kernel lacks.

use grosso::{features::Features, reasons};
use grosso_io::{
    Port,
    live::{LiveEvent, TapPort},
};

reasons! {
    /// An offload that the device lacks. Its packets are the same without it, but each costs more CPU time.
    Fallback {
        /// The device has no virtio header, because the program that created it did not ask for one: every packet needs
        /// its own system call.
        NoVirtioHeader = "no-virtio-header",
        /// The kernel has no UDP superframes for TUN (before Linux 6.2): every datagram needs its own system call.
        NoUdpSegmentation = "no-udp-segmentation",
        /// The kernel rejected a superframe. Packets of that kind have been sent one by one since then.
        Refused = "refused",
    }
}

impl Fallback {
    /// Returns whether the device lacks this offload now.
    pub(crate) fn is_taken(self, port: &TapPort) -> bool {
        match self {
            Self::NoVirtioHeader => port.form().is_none(),
            Self::NoUdpSegmentation => {
                !Port::device(port).features.contains(Features::UDP_SEGMENTATION)
            }
            Self::Refused => port.stats().events(LiveEvent::TransmitNarrowed) > 0,
        }
    }
}
