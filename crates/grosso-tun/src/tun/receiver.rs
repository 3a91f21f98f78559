//! Receiving half of a device.

use std::io;
#[cfg(unix)]
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use grosso::{Meta, Ports, features::Device};
#[cfg(any(target_os = "linux", target_os = "android"))]
use grosso_io::live::LiveStats;
use grosso_io::{PortBuffer, PortError, Transmitted, egress::Egress, port::Transmit};
use grosso_wire::Stack;

use super::{
    failed,
    interface::Interface,
    room::{FRAMES_MAX, Filled, Room, fill},
    system,
};

/// Receiving half of a [`Tun`](crate::Tun).
///
/// ```no_run
/// use grosso_tun::{Tun, TunOptions};
///
/// let (mut receiver, _sender) = Tun::<Vec<u8>>::open("vpn%d", &TunOptions::new())?.split();
/// receiver.recv(|packet, _meta| println!("{} bytes", packet.len()))?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct TunReceiver {
    port: system::Reader,
    /// Egress that segments received frames for the caller.
    inlet: Egress,
    takes: Device,
    stack: Stack,
    /// Vectors kept for their capacity.
    received: Vec<PortBuffer>,
    whole: Vec<u8>,
    interface: Interface,
}

impl TunReceiver {
    pub(super) fn new(port: system::Reader, takes: Device, interface: Interface) -> Self {
        Self {
            inlet: Egress::new(port.link(), takes, Ports::ASSIGNED),
            takes,
            stack: Stack::new(0),
            received: Vec::new(),
            whole: Vec::new(),
            interface,
            port,
        }
    }

    /// Waits for frames from the device and calls `each` with every frame and its metadata.
    /// [`TunOptions::takes`](crate::TunOptions::takes) determines whether `each` receives packets or superframes.
    /// Returns the number of frames read from the device.
    ///
    /// # Errors
    /// Returns `NotFound` if the device is gone, or another error from `read(2)`. Frames that were already passed to
    /// `each` are not repeated.
    ///
    /// ```no_run
    /// # use grosso_tun::{Tun, TunOptions};
    /// # let (mut receiver, _) = Tun::<Vec<u8>>::open("vpn0", &TunOptions::new())?.split();
    /// receiver.recv(|packet, _meta| println!("{} bytes", packet.len()))?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn recv(&mut self, each: impl FnMut(&[u8], &Meta)) -> io::Result<usize> {
        self.recv_up_to(FRAMES_MAX, each)
    }

    /// Receives frames as [`TunReceiver::recv`] does, but at most `frames` of them (at least 1). A superframe can
    /// contain hundreds of packets; with a limit of 1, the caller can send these packets before the next frame is read.
    ///
    /// # Errors
    /// Returns the same errors as [`TunReceiver::recv`].
    ///
    /// ```no_run
    /// # use grosso_tun::{Tun, TunOptions};
    /// # let (mut receiver, _) = Tun::<Vec<u8>>::open("vpn0", &TunOptions::new())?.split();
    /// receiver.recv_up_to(1, |packet, _meta| println!("{} bytes", packet.len()))?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn recv_up_to(
        &mut self,
        frames: usize,
        mut each: impl FnMut(&[u8], &Meta),
    ) -> io::Result<usize> {
        loop {
            match self.try_recv_up_to(frames, &mut each)? {
                0 => self.wait()?,
                frames => return Ok(frames),
            }
        }
    }

    /// Receives frames as [`TunReceiver::recv`] does, but never blocks. Returns 0 if the device has no frame.
    ///
    /// # Errors
    /// Returns the same errors as [`TunReceiver::recv`].
    ///
    /// ```no_run
    /// # use grosso_tun::{Tun, TunOptions};
    /// # let (mut receiver, _) = Tun::<Vec<u8>>::open("vpn0", &TunOptions::new())?.split();
    /// let frames = receiver.try_recv(|packet, _meta| println!("{} bytes", packet.len()))?;
    /// // if it is 0, wait until `receiver` is readable
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_recv(&mut self, each: impl FnMut(&[u8], &Meta)) -> io::Result<usize> {
        self.try_recv_up_to(FRAMES_MAX, each)
    }

    /// Receives frames as [`TunReceiver::recv_up_to`] does, but never blocks. Returns 0 if the device has no frame.
    ///
    /// # Errors
    /// Returns the same errors as [`TunReceiver::recv`].
    ///
    /// ```no_run
    /// # use grosso_tun::{Tun, TunOptions};
    /// # let (mut receiver, _) = Tun::<Vec<u8>>::open("vpn0", &TunOptions::new())?.split();
    /// let frames = receiver.try_recv_up_to(1, |packet, _| println!("{} bytes", packet.len()))?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_recv_up_to(
        &mut self,
        frames: usize,
        mut each: impl FnMut(&[u8], &Meta),
    ) -> io::Result<usize> {
        let Self { port, inlet, received, whole, takes, .. } = self;
        let mut caller = Caller { device: *takes, whole, each: &mut each };
        let frames = port.receive(frames.max(1), &mut |frame| {
            // The callback accepts every frame, so there is no result to check.
            let _ = inlet.send(&[frame.buffer.as_ref()], &frame.meta, &mut caller);
            received.push(frame.buffer);
        });
        port.recycle_all(received);
        frames.map_err(failed)
    }

    /// Waits for frames and copies their packets into the caller's buffers. `make` returns a buffer of at least the
    /// requested number of bytes; `out` receives each filled buffer. Returns the number of frames.
    ///
    /// # Errors
    /// Returns the same errors as [`TunReceiver::recv`], and `InvalidInput` if a buffer is too short. In that case, the
    /// rest of the frame is lost.
    ///
    /// ```no_run
    /// # use grosso_tun::{Room, Tun, TunOptions};
    /// # let (mut receiver, _) = Tun::<Vec<u8>>::open("vpn0", &TunOptions::new())?.split();
    /// let mut filled = Vec::new();
    /// receiver.recv_into(&Room::new(16, 16), |bytes| vec![0; bytes], |buffer| filled.push(buffer))?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn recv_into<B: AsMut<[u8]>>(
        &mut self,
        room: &Room,
        mut make: impl FnMut(usize) -> B,
        mut out: impl FnMut(Filled<B>),
    ) -> io::Result<usize> {
        loop {
            match self.try_recv_into(room, &mut make, &mut out)? {
                0 => self.wait()?,
                frames => return Ok(frames),
            }
        }
    }

    /// Receives frames as [`TunReceiver::recv_into`] does, but never blocks. Returns 0 if the device has no frame.
    ///
    /// # Errors
    /// Returns the same errors as [`TunReceiver::recv_into`].
    ///
    /// ```no_run
    /// # use grosso_tun::{Room, Tun, TunOptions};
    /// # let (mut receiver, _) = Tun::<Vec<u8>>::open("vpn0", &TunOptions::new())?.split();
    /// let mut filled = Vec::new();
    /// receiver.try_recv_into(&Room::new(0, 16), |bytes| vec![0; bytes], |buffer| filled.push(buffer))?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_recv_into<B: AsMut<[u8]>>(
        &mut self,
        room: &Room,
        mut make: impl FnMut(usize) -> B,
        mut out: impl FnMut(Filled<B>),
    ) -> io::Result<usize> {
        let Self { port, received, takes, stack, .. } = self;
        let link = port.link();
        let mut result = Ok(());
        let frames = port.receive(room.frames.max(1), &mut |frame| {
            let packet = frame.buffer.as_ref();
            let by = (&*takes, &mut *stack);
            let filled = fill(packet, &frame.meta, link, by, room, &mut make, &mut out);
            if result.is_ok() {
                result = filled;
            }
            received.push(frame.buffer);
        });
        port.recycle_all(received);
        result?;
        frames.map_err(failed)
    }

    /// Returns the network interface of the device.
    ///
    /// ```no_run
    /// # use grosso_tun::{Tun, TunOptions};
    /// # let (receiver, _) = Tun::<Vec<u8>>::open("vpn0", &TunOptions::new())?.split();
    /// println!("MTU {}", receiver.interface().mtu()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Returns the counters of frames that were dropped (Linux and Android).
    ///
    /// ```no_run
    /// # use grosso_tun::{Tun, TunOptions};
    /// # let (receiver, _) = Tun::<Vec<u8>>::open("vpn0", &TunOptions::new())?.split();
    /// receiver.stats().named().for_each(|(name, count)| println!("{name} {count}"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[cfg(any(target_os = "linux", target_os = "android"))]
    #[must_use]
    pub fn stats(&self) -> &LiveStats {
        self.port.stats()
    }

    fn wait(&mut self) -> io::Result<()> {
        system::wait_to_receive(&mut self.port)
    }
}

#[cfg(unix)]
impl AsFd for TunReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.port.tun().as_fd()
    }
}

#[cfg(unix)]
impl AsRawFd for TunReceiver {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// Port that passes each frame to the callback of a receive call.
struct Caller<'a> {
    device: Device,
    whole: &'a mut Vec<u8>,
    each: &'a mut dyn FnMut(&[u8], &Meta),
}

impl Transmit for Caller<'_> {
    fn device(&self) -> Device {
        self.device
    }

    fn transmit(&mut self, slices: &[&[u8]], meta: &Meta) -> Result<Transmitted, PortError> {
        match slices {
            [only] => (self.each)(only, meta),
            _ => {
                self.whole.clear();
                slices.iter().for_each(|slice| self.whole.extend_from_slice(slice));
                (self.each)(self.whole, meta);
            }
        }
        Ok(Transmitted::Taken)
    }

    fn flush(&mut self) -> Result<Transmitted, PortError> {
        Ok(Transmitted::Taken)
    }
}
