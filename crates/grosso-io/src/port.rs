//! What a place for packets to come from and go to can do.

use grosso::{Frame, Meta, features::Device};
use grosso_wire::LinkType;

/// A place where packets come from and go to: a device, a capture, or memory.
///
/// A port hands out frames in buffers of its own kind and wants every buffer back. It takes frames
/// as slices, headers first, so that a superframe needs no copy before the port itself makes one.
pub trait Port {
    /// What the bytes of received frames lie in.
    type Buffer: AsRef<[u8]>;

    /// What frames start with.
    fn link(&self) -> LinkType;

    /// What the port can take: superframes, partial checksums, and how large.
    fn device(&self) -> Device;

    /// Hands out at most `max` frames that are there, in order, and says how many: without waiting,
    /// so zero means none for now or, where [`Port::is_finished`], none ever. `now_ns` is the time
    /// of the caller's clock.
    ///
    /// # Errors
    /// When the port is broken. Frames handed out before stay good.
    fn receive(
        &mut self,
        now_ns: u64,
        max: usize,
        each: &mut dyn FnMut(Frame<Self::Buffer>),
    ) -> Result<usize, PortError>;

    /// Takes a buffer back that it handed out.
    fn recycle(&mut self, buffer: Self::Buffer);

    /// Takes the frame that `slices` make together, or says that there is no room for it now; then
    /// nothing of it was taken. A frame is on its way at the latest after [`Port::flush`].
    ///
    /// # Errors
    /// When the port is broken, or can never take this frame.
    fn transmit(&mut self, slices: &[&[u8]], meta: &Meta) -> Result<Transmitted, PortError>;

    /// Sends what was taken and not sent yet. [`Transmitted::NoRoom`] means that some of it is
    /// still waiting.
    ///
    /// # Errors
    /// When the port is broken.
    fn flush(&mut self) -> Result<Transmitted, PortError>;

    /// When the port has something to do of itself, in nanoseconds of the caller's clock: a frame
    /// that it delays.
    fn deadline(&self) -> Option<u64> {
        None
    }

    /// What to wait on for frames to come; `None` where there is nothing to wait for, as in memory.
    #[cfg(unix)]
    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }

    /// What to wait on for room after [`Transmitted::NoRoom`]: what frames come from, unless they go elsewhere.
    #[cfg(unix)]
    fn transmit_descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.descriptor()
    }

    /// The longest packet that gets to the other end, in bytes from its IP header on; `None` where the port does not
    /// know of any path. It may change.
    fn path_mtu(&self) -> Option<usize> {
        None
    }

    /// Says what the port counted of itself since it was made: what was lost, and what is worth knowing.
    fn counters(&mut self, each: &mut dyn FnMut(PortCounter, u64)) {
        let _ = each;
    }

    /// Whether no frame will ever come again.
    fn is_finished(&self) -> bool {
        false
    }
}

/// Something that a port counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortCounter {
    /// The short name: lower case, words joined by hyphens. Of one port no two are the same.
    pub name: &'static str,
    /// Whether each time a frame was lost.
    pub is_loss: bool,
    /// What it is, as a sentence.
    pub sentence: &'static str,
}

/// Whether a port took a frame.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transmitted {
    /// It did.
    Taken,
    /// It has no room now; the same frame may be offered again later.
    NoRoom,
}

/// Why a port cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// The capture behind the port.
    #[error(transparent)]
    Capture(#[from] crate::capture::CaptureError),
    /// The other side of the port is gone.
    #[error("the other side of the port is gone")]
    Closed,
    /// The port was asked to receive and only sends, or the other way round.
    #[error("the port does not {0}")]
    OneWay(&'static str),
    /// The device behind the port was removed, or this queue of it was detached.
    #[error("{name}: the device is gone")]
    Gone {
        /// Its name.
        name: String,
    },
    /// The device behind the port refuses to work.
    #[error("{name}: cannot {action}: {source}")]
    Device {
        /// Its name.
        name: String,
        /// What was asked of it.
        action: &'static str,
        /// What the kernel says.
        source: std::io::Error,
    },
    /// The frame is longer than the port can ever take.
    #[error("a frame of {len} bytes is longer than the {max} that the port takes")]
    TooLong {
        /// Bytes of the frame.
        len: usize,
        /// Most bytes that the port takes.
        max: usize,
    },
}

/// For the `impl Port` of a port around another: these methods are what the other one does.
///
/// The other one is a field (`port:`), or what a macro finds that is called as `with!(self, port => port.link())`
/// (`with!:`). `descriptors` stands for both of them. What is not named here, such as what a port around another is
/// there for, is written out; what is neither has the meaning of [`Port`] itself, which of a port around another is
/// rarely right.
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
///     type Buffer = P::Buffer;
///
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
            each: &mut dyn FnMut(::grosso::Frame<Self::Buffer>),
        ) -> Result<usize, $crate::port::PortError> {
            $crate::delegate_port!(@call self $to receive(now_ns, max, each))
        }
    };
    (@method recycle $to:tt) => {
        fn recycle(&mut self, buffer: Self::Buffer) {
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
    };
    (@method path_mtu $to:tt) => {
        fn path_mtu(&self) -> Option<usize> {
            $crate::delegate_port!(@call self $to path_mtu())
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
