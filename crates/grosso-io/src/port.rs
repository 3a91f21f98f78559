//! The trait that all sources and sinks of packets implement.

use grosso::{Frame, Meta, features::Device};
use grosso_wire::LinkType;

use crate::buffer::PortBuffer;

/// A source and sink of packets: a device, a capture, or memory.
///
/// A port passes received frames in buffers, which the caller returns with [`Port::recycle`]. It accepts frames to
/// transmit as slices, headers first, so that a superframe is copied at most once, by the port itself.
/// [`MemoryPort`](crate::memory::MemoryPort) has an example.
pub trait Port {
    /// Returns the link type of all frames.
    fn link(&self) -> LinkType;

    /// Returns the offload features and size limits of the port.
    fn device(&self) -> Device;

    /// Passes at most `max` of the frames that have arrived to `each`, in order, and returns their number. The call
    /// never blocks. A result of 0 means that no frame has arrived, or, once [`Port::is_finished`] returns true, that
    /// no frame will ever arrive. `now_ns` is the caller's time in nanoseconds.
    ///
    /// # Errors
    /// Returns an error if the port has failed. Frames that were passed to `each` before that remain valid.
    fn receive(
        &mut self,
        now_ns: u64,
        max: usize,
        each: &mut dyn FnMut(Frame<PortBuffer>),
    ) -> Result<usize, PortError>;

    /// Takes back a buffer that the port passed to the caller.
    fn recycle(&mut self, buffer: PortBuffer);

    /// Takes back all buffers in the list and empties it, so that a batch needs only one call.
    fn recycle_all(&mut self, buffers: &mut Vec<PortBuffer>) {
        buffers.drain(..).for_each(|buffer| self.recycle(buffer));
    }

    /// Transmits the frame formed by `slices`, or returns [`Transmitted::NoRoom`] without accepting it. An accepted
    /// frame is sent by the next [`Port::flush`] at the latest.
    ///
    /// # Errors
    /// Returns an error if the port has failed or can never accept this frame.
    fn transmit(&mut self, slices: &[&[u8]], meta: &Meta) -> Result<Transmitted, PortError>;

    /// Sends accepted frames that have not been sent yet. [`Transmitted::NoRoom`] means that some frames are still
    /// queued.
    ///
    /// # Errors
    /// Returns an error if the port has failed.
    fn flush(&mut self) -> Result<Transmitted, PortError>;

    /// Returns the time of the port's next internal work, for example the delivery of a delayed frame, in the caller's
    /// nanoseconds.
    fn deadline(&self) -> Option<u64> {
        None
    }

    /// Returns a descriptor that becomes readable when frames arrive, or `None` for ports without such a descriptor,
    /// for example ports in memory.
    #[cfg(unix)]
    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }

    /// Returns a descriptor that becomes writable when there is room after [`Transmitted::NoRoom`]. The default is
    /// [`Port::descriptor`].
    #[cfg(unix)]
    fn transmit_descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.descriptor()
    }

    /// Returns another descriptor that becomes readable when frames arrive. Only a port that uses the first descriptor
    /// for control messages has one, for example a vhost-user port, whose peer signals frames with a kick.
    #[cfg(unix)]
    fn frames_kick(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }

    /// Returns a descriptor that becomes readable when there is room after [`Transmitted::NoRoom`], for a port whose
    /// peer signals room. Such a port has no descriptor that becomes writable.
    #[cfg(unix)]
    fn room_kick(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }

    /// Returns the maximum length in bytes of packets to the remote endpoint, including the IP header. Returns `None`
    /// if the port has no remote endpoint. The length may change, but never because of unauthenticated messages.
    fn path_mtu(&self) -> Option<usize> {
        None
    }

    /// Returns the path MTU that ICMP messages report, or `None` if no path MTU is known. The messages may be forged.
    /// The value may be less than [`Port::path_mtu`].
    fn path_hint(&self) -> Option<usize> {
        None
    }

    /// Returns the path MTU if probes, or an ICMP message that quotes a sent packet, have proven that longer packets do
    /// not arrive.
    fn path_proven(&self) -> Option<usize> {
        None
    }

    /// Passes the port's own counters to `each`. They count losses and other events since the port was opened.
    fn counters(&mut self, each: &mut dyn FnMut(PortCounter, u64)) {
        let _ = each;
    }

    /// Returns whether no further frame will ever arrive.
    fn is_finished(&self) -> bool {
        false
    }
}

/// The transmit side of a port. Every [`Port`] implements this trait. Code that only transmits can accept a `dyn
/// Transmit`, and is then compiled once for all ports.
pub trait Transmit {
    /// Returns the features of the receiver, as [`Port::device`] does.
    fn device(&self) -> Device;

    /// Transmits a frame, as [`Port::transmit`] does.
    ///
    /// # Errors
    /// Returns the same errors as [`Port::transmit`].
    fn transmit(&mut self, slices: &[&[u8]], meta: &Meta) -> Result<Transmitted, PortError>;

    /// Sends accepted frames, as [`Port::flush`] does.
    ///
    /// # Errors
    /// Returns the same errors as [`Port::flush`].
    fn flush(&mut self) -> Result<Transmitted, PortError>;
}

impl<P: Port> Transmit for P {
    fn device(&self) -> Device {
        Port::device(self)
    }

    fn transmit(&mut self, slices: &[&[u8]], meta: &Meta) -> Result<Transmitted, PortError> {
        Port::transmit(self, slices, meta)
    }

    fn flush(&mut self) -> Result<Transmitted, PortError> {
        Port::flush(self)
    }
}

/// A counter of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortCounter {
    /// Short name, unique within the port: lower-case words joined by underscores.
    pub name: &'static str,
    /// Whether the counter counts lost frames.
    pub is_loss: bool,
    /// Description as a sentence.
    pub sentence: &'static str,
}

/// Result of transmitting a frame.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transmitted {
    /// The port accepted the frame.
    Taken,
    /// The port has no room at the moment. Offer the same frame again later.
    NoRoom,
}

/// Error after which a port is unusable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// Error from the capture behind the port.
    #[cfg(feature = "capture")]
    #[error(transparent)]
    Capture(#[from] grosso_capture::CaptureError),
    /// The peer of the port is gone.
    #[error("the peer of the port disconnected")]
    Closed,
    /// The port can only send and was asked to receive, or can only receive and was asked to send.
    #[error("the port cannot {0}")]
    OneWay(&'static str),
    /// The device behind the port was removed, or this queue of the device was detached.
    #[error("{name}: the device was removed")]
    Gone {
        /// Device name.
        name: String,
    },
    /// The device behind the port reported an error.
    #[error("{name}: cannot {action}: {source}")]
    Device {
        /// Device name.
        name: String,
        /// Operation that failed.
        action: &'static str,
        /// Error from the kernel.
        source: std::io::Error,
    },
    /// The frame exceeds the port's limit.
    #[error("a frame of {len} bytes exceeds the port's maximum of {max} bytes")]
    TooLong {
        /// Length of the frame in bytes.
        len: usize,
        /// The port's limit in bytes.
        max: usize,
    },
}

/// Implements methods of [`Port`] for a port that wraps another, by calling the same method of the inner port.
///
/// The inner port is a field (`port:`), or is accessed through a macro that is called as `with!(self, port =>
/// port.link())` (`with!:`). In the list of methods, `descriptors` stands for all methods that return a descriptor.
/// Implement the methods that the wrapper changes next to the macro call. A method that is neither listed nor
/// implemented keeps the default implementation of the trait, which is rarely right for a wrapper.
///
/// ```
/// use grosso::Meta;
/// use grosso_io::{Port, PortError, port::Transmitted};
///
/// /// A port that counts the frames sent.
/// struct Counting<P> {
///     port: P,
///     frames: u64,
/// }
///
/// impl<P: Port> Port for Counting<P> {
///     grosso_io::delegate_port!(port: link, device, receive, recycle, flush);
///     grosso_io::delegate_port!(port: deadline, descriptors, path_mtu, counters, is_finished);
///
///     fn transmit(&mut self, slices: &[&[u8]], meta: &Meta) -> Result<Transmitted, PortError> {
///         let transmitted = self.port.transmit(slices, meta)?;
///         self.frames += u64::from(transmitted == Transmitted::Taken);
///         Ok(transmitted)
///     }
/// }
/// ```
#[macro_export]
macro_rules! delegate_port {
    ($macro:ident!: $($method:ident),+ $(,)?) => {
        $($crate::delegate_port!(@method $method {$macro!});)+
    };
    ($field:ident: $($method:ident),+ $(,)?) => {
        $($crate::delegate_port!(@method $method {$field});)+
    };
    (@call $this:ident {$macro:ident!} $method:ident($($argument:ident),*)) => {
        $macro!($this, port => port.$method($($argument),*))
    };
    (@call $this:ident {$field:ident} $method:ident($($argument:ident),*)) => {
        $this.$field.$method($($argument),*)
    };
    (@method link $to:tt) => {
        fn link(&self) -> ::grosso_wire::LinkType {
            $crate::delegate_port!(@call self $to link())
        }
    };
    (@method device $to:tt) => {
        fn device(&self) -> ::grosso::features::Device {
            $crate::delegate_port!(@call self $to device())
        }
    };
    (@method receive $to:tt) => {
        fn receive(
            &mut self,
            now_ns: u64,
            max: usize,
            each: &mut dyn FnMut(::grosso::Frame<$crate::PortBuffer>),
        ) -> Result<usize, $crate::port::PortError> {
            $crate::delegate_port!(@call self $to receive(now_ns, max, each))
        }
    };
    (@method recycle $to:tt) => {
        fn recycle(&mut self, buffer: $crate::PortBuffer) {
            $crate::delegate_port!(@call self $to recycle(buffer));
        }
    };
    (@method transmit $to:tt) => {
        fn transmit(
            &mut self,
            slices: &[&[u8]],
            meta: &::grosso::Meta,
        ) -> Result<$crate::port::Transmitted, $crate::port::PortError> {
            $crate::delegate_port!(@call self $to transmit(slices, meta))
        }
    };
    (@method flush $to:tt) => {
        fn flush(&mut self) -> Result<$crate::port::Transmitted, $crate::port::PortError> {
            $crate::delegate_port!(@call self $to flush())
        }
    };
    (@method deadline $to:tt) => {
        fn deadline(&self) -> Option<u64> {
            $crate::delegate_port!(@call self $to deadline())
        }
    };
    (@method descriptors $to:tt) => {
        #[cfg(unix)]
        fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
            $crate::delegate_port!(@call self $to descriptor())
        }

        #[cfg(unix)]
        fn transmit_descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
            $crate::delegate_port!(@call self $to transmit_descriptor())
        }

        #[cfg(unix)]
        fn frames_kick(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
            $crate::delegate_port!(@call self $to frames_kick())
        }

        #[cfg(unix)]
        fn room_kick(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
            $crate::delegate_port!(@call self $to room_kick())
        }
    };
    (@method path_mtu $to:tt) => {
        fn path_mtu(&self) -> Option<usize> {
            $crate::delegate_port!(@call self $to path_mtu())
        }

        fn path_hint(&self) -> Option<usize> {
            $crate::delegate_port!(@call self $to path_hint())
        }

        fn path_proven(&self) -> Option<usize> {
            $crate::delegate_port!(@call self $to path_proven())
        }
    };
    (@method counters $to:tt) => {
        fn counters(&mut self, each: &mut dyn FnMut($crate::port::PortCounter, u64)) {
            $crate::delegate_port!(@call self $to counters(each));
        }
    };
    (@method is_finished $to:tt) => {
        fn is_finished(&self) -> bool {
            $crate::delegate_port!(@call self $to is_finished())
        }
    };
}
