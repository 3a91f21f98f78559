//! Sends captured packets to a device that a monitoring program reads. The device is an interface of this host, or a
//! TAP device that Grosso creates.

use std::io::{self, IoSlice};

use grosso_sys::{
    errno::ErrorClass,
    interface::{Control, InterfaceName},
    packet::PacketSocket,
    tun::{Tun, TunBuilder},
};

use crate::{device, error::Failure};

/// Device to which packets are sent.
pub(super) struct MonitorPort {
    pub(super) name: String,
    far: Far,
    /// Packets to be sent with the next system call.
    waiting: Vec<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    pub(super) packets: u64,
    /// Number of packets that were dropped because the device had no room.
    pub(super) full: u64,
    /// Number of packets longer than the device's MTU.
    pub(super) too_long: u64,
    /// Number of packets that arrived after the device had disappeared.
    pub(super) gone: u64,
    /// Number of packets that the device refused for other reasons, for example because it was down.
    pub(super) refused: u64,
}

enum Far {
    Socket(PacketSocket),
    /// TAP device. The host receives its packets as if they came from a wire.
    Tap(Tun),
}

impl MonitorPort {
    /// Opens the interface with this name, or creates a TAP device if the name is `tap:NAME`.
    pub(super) fn open(word: &str, captured: &str) -> Result<Self, Failure> {
        let control = Control::new().map_err(|error| failed("opening a socket", &error))?;
        let (name, far) = match word.strip_prefix("tap:") {
            Some(name) => {
                let interface = InterfaceName::new(name).map_err(|_| {
                    let message = format!("capture: '{name}' is not a valid device name");
                    Failure::usage("usage.interface", message)
                })?;
                let open = || {
                    let tap = TunBuilder::tap(interface).nonblocking(true).open()?;
                    control.set_up(tap.name(), true)?;
                    Ok(tap)
                };
                let tap = open().map_err(|error: io::Error| {
                    device::refused("capture", &format!("creating {name}"), "net_admin", &error)
                })?;
                (tap.name().to_string(), Far::Tap(tap))
            }
            None => {
                if word == captured {
                    let message = format!("capture: --to {word} would capture its own output");
                    let hint = "use another device, or tap:NAME";
                    return Err(Failure::usage("usage.interface", message).hint(hint));
                }
                let name = device::find("capture", &control, word)?;
                let builder = PacketSocket::builder().transmit_only(true);
                let socket = builder.send_buffer_bytes(SEND_BYTES).bind(&name);
                let socket = socket.map_err(|error| failed(&format!("opening {name}"), &error))?;
                (name.to_string(), Far::Socket(socket))
            }
        };
        let (waiting, spare) = (Vec::new(), Vec::new());
        let (packets, full, too_long, gone, refused) = (0, 0, 0, 0, 0);
        Ok(Self { name, far, waiting, spare, packets, full, too_long, gone, refused })
    }

    pub(super) fn write(&mut self, data: &[u8]) {
        let mut packet = self.spare.pop().unwrap_or_default();
        packet.clear();
        packet.extend_from_slice(data);
        self.waiting.push(packet);
        if self.waiting.len() >= BATCH {
            self.flush();
        }
    }

    /// Sends the waiting packets. Packets that cannot be sent are counted and skipped, so they never delay the
    /// capture.
    pub(super) fn flush(&mut self) {
        let waiting = core::mem::take(&mut self.waiting);
        let mut from = 0;
        while from < waiting.len() {
            match self.send(&waiting[from..]) {
                Ok(sent) => {
                    self.packets += sent as u64;
                    from += sent.max(1);
                }
                Err(error) => {
                    let count = match ErrorClass::of(&error) {
                        ErrorClass::Later => &mut self.full,
                        ErrorClass::TooLong => &mut self.too_long,
                        ErrorClass::Gone => &mut self.gone,
                        _ => &mut self.refused,
                    };
                    *count += 1;
                    from += 1;
                }
            }
        }
        self.spare.extend(waiting);
    }

    fn send(&self, packets: &[Vec<u8>]) -> io::Result<usize> {
        match &self.far {
            Far::Tap(tap) => tap.write(&packets[0]).map(|_| 1),
            Far::Socket(socket) => {
                let slices: Vec<[IoSlice<'_>; 1]> =
                    packets.iter().map(|packet| [IoSlice::new(packet)]).collect();
                let slices: Vec<&[IoSlice<'_>]> = slices.iter().map(|slice| &slice[..]).collect();
                socket.send_batch(&slices)
            }
        }
    }
}

fn failed(what: &str, error: &io::Error) -> Failure {
    device::refused("capture", what, "net_raw", error)
}

/// Number of packets sent with one system call.
const BATCH: usize = 64;
/// Size of the send buffer in bytes. It limits how much data can wait in an interface's queue.
const SEND_BYTES: usize = 4 << 20;
