//! A port whose packets are copied out of their receive buffers at once, as by a driver that
//! receives straight into the packet buffers of its stack.

use grosso::{Frame, Meta, features::Device};
use grosso_io::{Port, PortError, Transmitted};
use grosso_wire::LinkType;
use std::os::fd::BorrowedFd;

/// Copies what a port receives.
#[derive(Debug)]
pub struct Copied<P> {
    port: P,
    /// Copies that came back.
    spare: Vec<Vec<u8>>,
}

impl<P: Port> Copied<P> {
    /// Of a port.
    #[must_use]
    pub fn new(port: P) -> Self {
        Self { port, spare: Vec::new() }
    }

    /// The port behind.
    pub fn inner(&mut self) -> &mut P {
        &mut self.port
    }
}

impl<P: Port> Port for Copied<P> {
    type Buffer = Vec<u8>;

    fn link(&self) -> LinkType {
        self.port.link()
    }

    fn device(&self) -> Device {
        self.port.device()
    }

    fn receive(
        &mut self,
        now_ns: u64,
        max: usize,
        each: &mut dyn FnMut(Frame<Vec<u8>>),
    ) -> Result<usize, PortError> {
        let Self { port, spare } = self;
        port.receive(now_ns, max, &mut |frame| {
            let mut copy = spare.pop().unwrap_or_default();
            copy.clear();
            copy.extend_from_slice(frame.buffer.as_ref());
            each(Frame { buffer: copy, meta: frame.meta });
        })
    }

    /// The copy is used again; as many are kept as were ever under way.
    fn recycle(&mut self, buffer: Vec<u8>) {
        self.spare.push(buffer);
    }

    fn transmit(&mut self, slices: &[&[u8]], meta: &Meta) -> Result<Transmitted, PortError> {
        self.port.transmit(slices, meta)
    }

    fn flush(&mut self) -> Result<Transmitted, PortError> {
        self.port.flush()
    }

    fn deadline(&self) -> Option<u64> {
        self.port.deadline()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.port.descriptor()
    }

    fn transmit_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.port.transmit_descriptor()
    }

    fn is_finished(&self) -> bool {
        self.port.is_finished()
    }
}
