//! Pairs of connected ports in memory, for tests and for programs that already hold the packets.

use std::{
    cell::RefCell,
    collections::VecDeque,
    rc::{Rc, Weak},
};

use grosso::{Frame, Meta, features::Device};
use grosso_wire::LinkType;

use crate::{
    buffer::PortBuffer,
    port::{Port, PortError, Transmitted},
};

/// One endpoint of a link in memory.
///
/// Each direction holds a limited number of frames. While a direction is full, it accepts no frame. Returned buffers
/// are reused, so a link does not allocate memory in the long run.
///
/// ```
/// use grosso::{LinkType, Meta, features::{Device, Features}};
/// use grosso_io::{Port, memory::wire};
///
/// let (mut near, mut far) = wire(LinkType::Ethernet, Device::new(Features::NONE), 64);
/// near.transmit(&[&[0; 60]], &Meta::default())?;
/// let received = far.receive(0, 64, &mut |frame| println!("{} bytes", frame.buffer.as_ref().len()))?;
/// assert_eq!(received, 1);
/// # Ok::<(), grosso_io::PortError>(())
/// ```
#[derive(Debug)]
pub struct MemoryPort {
    link: LinkType,
    device: Device,
    incoming: Rc<RefCell<Transit>>,
    outgoing: Weak<RefCell<Transit>>,
    taken: VecDeque<Frame<Vec<u8>>>,
}

/// The frames in transit in one direction, and spare buffers.
#[derive(Debug)]
struct Transit {
    frames: VecDeque<Frame<Vec<u8>>>,
    spare: Vec<Vec<u8>>,
    limit: usize,
}

/// Creates two connected ports that hold at most `frames_max` frames per direction.
///
/// Both ports have the features of `device`. With [`grosso::features::Features::NONE`], they accept only plain packets.
#[must_use]
pub fn wire(link: LinkType, device: Device, frames_max: usize) -> (MemoryPort, MemoryPort) {
    let direction = || {
        let (frames, spare) = (VecDeque::with_capacity(frames_max), Vec::new());
        Rc::new(RefCell::new(Transit { frames, spare, limit: frames_max }))
    };
    let (left, right) = (direction(), direction());
    let end = |incoming: &Rc<RefCell<Transit>>, outgoing: &Rc<RefCell<Transit>>| MemoryPort {
        link,
        device,
        incoming: Rc::clone(incoming),
        outgoing: Rc::downgrade(outgoing),
        taken: VecDeque::new(),
    };
    (end(&left, &right), end(&right, &left))
}

impl Port for MemoryPort {
    fn link(&self) -> LinkType {
        self.link
    }

    fn device(&self) -> Device {
        self.device
    }

    fn receive(
        &mut self,
        _now_ns: u64,
        max: usize,
        each: &mut dyn FnMut(Frame<PortBuffer>),
    ) -> Result<usize, PortError> {
        let mut incoming = self.incoming.borrow_mut();
        let count = incoming.frames.len().min(max);
        self.taken.extend(incoming.frames.drain(..count));
        // The borrow ends here, because `each` may send through the same link.
        drop(incoming);
        while let Some(frame) = self.taken.pop_front() {
            each(Frame { buffer: frame.buffer.into(), meta: frame.meta });
        }
        Ok(count)
    }

    fn recycle(&mut self, buffer: PortBuffer) {
        let Some(mut bytes) = buffer.into_own() else { return };
        let mut incoming = self.incoming.borrow_mut();
        if incoming.spare.len() < incoming.limit {
            bytes.clear();
            incoming.spare.push(bytes);
        }
    }

    fn transmit(&mut self, slices: &[&[u8]], meta: &Meta) -> Result<Transmitted, PortError> {
        let outgoing = self.outgoing.upgrade().ok_or(PortError::Closed)?;
        let mut outgoing = outgoing.borrow_mut();
        if outgoing.frames.len() >= outgoing.limit {
            return Ok(Transmitted::NoRoom);
        }
        let mut buffer = outgoing.spare.pop().unwrap_or_default();
        slices.iter().for_each(|slice| buffer.extend_from_slice(slice));
        outgoing.frames.push_back(Frame { buffer, meta: *meta });
        Ok(Transmitted::Taken)
    }

    fn flush(&mut self) -> Result<Transmitted, PortError> {
        Ok(Transmitted::Taken)
    }

    fn is_finished(&self) -> bool {
        self.outgoing.strong_count() == 0 && self.incoming.borrow().frames.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use grosso::{
        Meta,
        features::{Device, Features},
    };
    use grosso_wire::LinkType;

    use super::{MemoryPort, wire};
    use crate::port::{Port, PortError, Transmitted};

    fn receive(port: &mut MemoryPort, max: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        port.receive(0, max, &mut |frame| frames.extend(frame.buffer.into_own())).unwrap();
        frames
    }

    fn plain(frames_max: usize) -> (MemoryPort, MemoryPort) {
        wire(LinkType::Ethernet, Device::new(Features::NONE), frames_max)
    }

    #[test]
    fn slices_arrive_as_one_frame_and_in_order() {
        let (mut left, mut right) = plain(4);
        let meta = Meta { hash: Some(7), ..Meta::default() };
        assert_eq!(left.transmit(&[b"ab", b"", b"c"], &meta).unwrap(), Transmitted::Taken);
        assert_eq!(left.transmit(&[b"d"], &meta).unwrap(), Transmitted::Taken);
        assert_eq!(receive(&mut right, 1), [b"abc"]);
        assert_eq!(receive(&mut right, 9), [b"d"]);
        assert!(receive(&mut left, 9).is_empty());
    }

    #[test]
    fn a_full_wire_takes_nothing_until_there_is_room() {
        let (mut left, mut right) = plain(2);
        for _ in 0..2 {
            assert_eq!(left.transmit(&[b"x"], &Meta::default()).unwrap(), Transmitted::Taken);
        }
        assert_eq!(left.transmit(&[b"y"], &Meta::default()).unwrap(), Transmitted::NoRoom);
        assert_eq!(receive(&mut right, 1), [b"x"]);
        assert_eq!(left.transmit(&[b"y"], &Meta::default()).unwrap(), Transmitted::Taken);
        assert_eq!(receive(&mut right, 9), [b"x", b"y"]);
    }

    #[test]
    fn recycled_buffers_carry_the_next_frames() {
        let (mut left, mut right) = plain(2);
        assert_eq!(left.transmit(&[b"first"], &Meta::default()).unwrap(), Transmitted::Taken);
        let [buffer] = receive(&mut right, 1).try_into().unwrap();
        let place = buffer.as_ptr();
        right.recycle(buffer.into());
        assert_eq!(left.transmit(&[b"next"], &Meta::default()).unwrap(), Transmitted::Taken);
        let [buffer] = receive(&mut right, 1).try_into().unwrap();
        assert_eq!((buffer.as_slice(), buffer.as_ptr()), (&b"next"[..], place));
    }

    #[test]
    fn the_end_that_is_left_drains_what_was_sent_and_then_is_finished() {
        let (mut left, mut right) = plain(2);
        assert_eq!(left.transmit(&[b"last"], &Meta::default()).unwrap(), Transmitted::Taken);
        drop(left);
        assert!(!right.is_finished());
        assert_eq!(receive(&mut right, 9), [b"last"]);
        assert!(right.is_finished());
        let refused = right.transmit(&[b"?"], &Meta::default());
        assert!(matches!(refused, Err(PortError::Closed)), "{refused:?}");
    }
}
