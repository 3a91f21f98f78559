//! Offloads that the kernel lacks.

use grosso::{features::Features, reasons};
use grosso_io::{
    Port,
    live::{LiveEvent, TapPort},
};

reasons! {
    /// An offload that the device does without. Packets are the same; each costs more.
    Fallback {
        /// The device has no virtio header, because another program made it without: every packet is
        /// written by itself.
        NoVirtioHeader = "no-virtio-header",
        /// No UDP superframes (they need Linux 6.2): datagrams are written one by one.
        NoUdpSegmentation = "no-udp-segmentation",
        /// The kernel refused a superframe in use, and the packets of such are written one by one since.
        Refused = "refused",
    }
}

impl Fallback {
    /// Whether a device does without it now.
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
