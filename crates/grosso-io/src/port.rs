//! The trait of sources and sinks of packets.

use grosso::{Frame, Meta, features::Device};
use grosso_wire::LinkType;

use crate::buffer::PortBuffer;

/// A source and sink of packets: a device, a capture, or memory.
///
/// A port hands out frames in buffers, and every buffer is to be returned with [`Port::recycle`]. It
/// takes frames as slices, headers first, so that a superframe is copied at most once, by the port
/// itself.
pub trait Port {
    /// Link type: the first header of every frame.
    fn link(&self) -> LinkType;

    /// Features of the port: superframes, partial checksums, and the size limits.
    fn device(&self) -> Device;

    /// Hands out the frames that have arrived, at most `max`, in order, and returns their number.
    /// Never waits: 0 means none for now or, once [`Port::is_finished`], none ever. `now_ns` is the
    /// time of the caller's clock in nanoseconds.
    ///
    /// # Errors
    /// The port is broken. Frames handed out before stay valid.
    fn receive(
        &mut self,
        now_ns: u64,
        max: usize,
        each: &mut dyn FnMut(Frame<PortBuffer>),
    ) -> Result<usize, PortError>;

    /// Takes back a buffer that the port handed out.
    fn recycle(&mut self, buffer: PortBuffer);

    /// Takes back several buffers, and leaves the list empty: one call for a batch.
    fn recycle_all(&mut self, buffers: &mut Vec<PortBuffer>) {
        buffers.drain(..).for_each(|buffer| self.recycle(buffer));
    }

    /// Takes the frame that `slices` form together, or takes nothing and returns
    /// [`Transmitted::NoRoom`]. A frame taken is sent by the next [`Port::flush`] at the latest.
    ///
    /// # Errors
    /// The port is broken, or can never take this frame.
    fn transmit(&mut self, slices: &[&[u8]], meta: &Meta) -> Result<Transmitted, PortError>;

    /// Sends frames taken but not sent yet. [`Transmitted::NoRoom`] means that some of them still
    /// wait.
    ///
    /// # Errors
    /// The port is broken.
    fn flush(&mut self) -> Result<Transmitted, PortError>;

    /// Time at which the port has work of its own, in nanoseconds of the caller's clock, such as a
    /// delayed frame that arrives.
    fn deadline(&self) -> Option<u64> {
        None
    }

    /// Descriptor that becomes readable when frames arrive; `None` for ports without one, such as
    /// memory.
    #[cfg(unix)]
    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }

    /// Descriptor that becomes writable when there is room after [`Transmitted::NoRoom`]: the one
    /// for receiving, unless the port sends through another.
    #[cfg(unix)]
    fn transmit_descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.descriptor()
    }

    /// Another descriptor that becomes readable when frames arrive, for a port whose first one tells of messages about
    /// them: a virtual machine tells of frames by a kick.
    #[cfg(unix)]
    fn frames_kick(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }

    /// Descriptor that becomes readable when there is room after [`Transmitted::NoRoom`], for a port whose other end
    /// tells of it. There is none to become writable then.
    #[cfg(unix)]
    fn room_kick(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }

    /// The longest packet that leaves towards the other end, in bytes from its IP header on; `None`
    /// if the port knows no path. It may change, but not by what others say.
    fn path_mtu(&self) -> Option<usize> {
        None
    }

    /// The longest packet that reaches the other end, as ICMP messages say, which anybody may have
    /// sent; `None` if the port knows of none. It may be less than [`Port::path_mtu`].
    fn path_hint(&self) -> Option<usize> {
        None
    }

    /// The longest packet that reaches the other end, if it was proven that longer ones do not: by probes, or by an
    /// ICMP message that quotes a packet that was sent.
    fn path_proven(&self) -> Option<usize> {
        None
    }

    /// Reports the port's own counters since it was opened: losses, and other events.
    fn counters(&mut self, each: &mut dyn FnMut(PortCounter, u64)) {
        let _ = each;
    }

    /// Whether no further frame will ever arrive.
    fn is_finished(&self) -> bool {
        false
    }
}

/// The sending side of a port, whatever its buffers are: any [`Port`] is one. What sends to a port
/// of any kind is compiled once.
pub trait Transmit {
    /// As [`Port::device`].
    fn device(&self) -> Device;

    /// As [`Port::transmit`].
    ///
    /// # Errors
    /// As [`Port::transmit`].
    fn transmit(&mut self, slices: &[&[u8]], meta: &Meta) -> Result<Transmitted, PortError>;

    /// As [`Port::flush`].
    ///
    /// # Errors
    /// As [`Port::flush`].
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
    /// The short name: lower case, words joined by hyphens. Unique within a port.
    pub name: &'static str,
    /// Whether it counts lost frames.
    pub is_loss: bool,
    /// Description, as a sentence.
    pub sentence: &'static str,
}

/// Result of offering a frame to a port.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transmitted {
    /// The port took the frame.
    Taken,
    /// The port has no room now; the same frame may be offered again later.
    NoRoom,
}

/// Error that makes a port unusable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// Error of the capture behind the port.
    #[cfg(feature = "capture")]
    #[error(transparent)]
    Capture(#[from] grosso_capture::CaptureError),
    /// The other end of the port is gone.
    #[error("the peer of the port disconnected")]
    Closed,
    /// The port was asked to receive but only sends, or the reverse.
    #[error("the port cannot {0}")]
    OneWay(&'static str),
    /// The device behind the port was removed, or this queue of it was detached.
    #[error("{name}: the device was removed")]
    Gone {
        /// Its name.
        name: String,
    },
    /// The device behind the port reports an error.
    #[error("{name}: cannot {action}: {source}")]
    Device {
        /// Its name.
        name: String,
        /// The operation that failed.
        action: &'static str,
        /// Error of the kernel.
        source: std::io::Error,
    },
    /// The frame is longer than the port's limit.
    #[error("a frame of {len} bytes is longer than the {max} that the port takes")]
    TooLong {
        /// Length of the frame in bytes.
        len: usize,
        /// The port's limit in bytes.
        max: usize,
    },
}

/// Implements methods of [`Port`] for a port that wraps another, by calling the same
/// method of the other.
///
/// The wrapped port is a field (`port:`), or is found by a macro that is called as `with!(self,
/// port => port.link())` (`with!:`). `descriptors` stands for all methods that return one. Methods that
/// the wrapper changes are written out beside the macro. A method that is neither listed nor
/// written out falls back to the default of the trait, which is rarely right for a wrapper.
///
/// ```
/// use grosso::Meta;
/// use grosso_io::{Port, PortError, port::Transmitted};
///
/// /// A port that counts what it sends.
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
