//! A model of a NIC with its own receive buffers. Every packet is copied into a buffer; a real NIC does this by DMA, or
//! its driver receives directly into the stack's packet buffers.

use grosso::Frame;
use grosso_io::{Port, PortBuffer, PortError, delegate_port, port::PortCounter};

/// A port that receives into its own buffers, possibly few.
///
/// A buffer is in use from the arrival of its packet until it is [recycled](Port::recycle). A packet that arrives while
/// all buffers are in use is dropped and counted, as `rx_no_buffer_count` and `rx_out_of_buffer` in `ethtool -S` do.
#[derive(Debug)]
pub struct Nic<P: Port> {
    port: P,
    /// Maximum number of buffers that may be in use at the same time.
    buffers_max: usize,
    in_use: usize,
    in_use_max: usize,
    /// Number of packets that were dropped because no buffer was free.
    dropped: u64,
    /// Returned buffers that can be reused: at most as many as were ever in use at the same time.
    spare: Vec<Vec<u8>>,
    /// The inner port's buffers whose packets have been copied, until they can be returned to that port.
    copied: Vec<PortBuffer>,
}

impl<P: Port> Nic<P> {
    /// Creates a NIC in front of a port, with this many buffers; `None` for no limit.
    #[must_use]
    pub fn new(port: P, buffers: Option<usize>) -> Self {
        Self {
            port,
            buffers_max: buffers.unwrap_or(usize::MAX),
            in_use: 0,
            in_use_max: 0,
            dropped: 0,
            spare: Vec::new(),
            copied: Vec::new(),
        }
    }

    /// Returns the inner port.
    pub fn inner(&mut self) -> &mut P {
        &mut self.port
    }

    /// Returns the number of packets dropped because no buffer was free.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns the maximum number of buffers that have been in use at the same time.
    #[must_use]
    pub fn in_use_max(&self) -> usize {
        self.in_use_max
    }
}

impl<P: Port> Port for Nic<P> {
    delegate_port!(port: link, device, transmit, flush, deadline, descriptors, path_mtu, is_finished);

    /// Receives at most `max` packets from the wire, and passes on those for which there are free buffers.
    fn receive(
        &mut self,
        now_ns: u64,
        max: usize,
        each: &mut dyn FnMut(Frame<PortBuffer>),
    ) -> Result<usize, PortError> {
        let Self { port, buffers_max, in_use, in_use_max, dropped, spare, copied } = self;
        let mut received = 0;
        let result = port.receive(now_ns, max, &mut |frame| {
            if *in_use >= *buffers_max {
                *dropped += 1;
            } else {
                *in_use += 1;
                *in_use_max = (*in_use_max).max(*in_use);
                received += 1;
                let mut buffer = spare.pop().unwrap_or_default();
                buffer.clear();
                buffer.extend_from_slice(frame.buffer.as_ref());
                each(Frame { buffer: buffer.into(), meta: frame.meta });
            }
            copied.push(frame.buffer);
        });
        copied.drain(..).for_each(|buffer| port.recycle(buffer));
        result.map(|_| received)
    }

    fn recycle(&mut self, buffer: PortBuffer) {
        if let Some(bytes) = buffer.into_own() {
            self.in_use -= 1;
            self.spare.push(bytes);
        }
    }

    fn counters(&mut self, each: &mut dyn FnMut(PortCounter, u64)) {
        self.port.counters(each);
        each(NO_BUFFER, self.dropped);
    }
}

/// The NIC's counter of dropped packets.
const NO_BUFFER: PortCounter = PortCounter {
    name: "rx_no_buffer",
    is_loss: true,
    sentence: "A packet arrived when every receive buffer was in use.",
};

#[cfg(test)]
mod tests {
    use grosso::{
        Meta,
        features::{Device, Features},
    };
    use grosso_io::{
        Transmitted,
        memory::{MemoryPort, wire},
    };
    use grosso_wire::LinkType;

    use super::*;

    fn nic(buffers: Option<usize>) -> (MemoryPort, Nic<MemoryPort>) {
        let (near, far) = wire(LinkType::Ethernet, Device::new(Features::NONE), 1000);
        (near, Nic::new(far, buffers))
    }

    fn send(wire: &mut MemoryPort, packets: core::ops::Range<u8>) {
        for number in packets {
            assert_eq!(
                wire.transmit(&[&[number; 60]], &Meta::default()).unwrap(),
                Transmitted::Taken
            );
        }
    }

    /// Polls the NIC for at most `max` packets and returns those that it delivers.
    fn receive(nic: &mut Nic<MemoryPort>, max: usize) -> Vec<PortBuffer> {
        let mut received = Vec::new();
        let count = nic.receive(0, max, &mut |frame| received.push(frame.buffer)).unwrap();
        assert_eq!(count, received.len());
        received
    }

    fn numbers(buffers: &[PortBuffer]) -> Vec<u8> {
        buffers.iter().map(|buffer| buffer.as_ref()[0]).collect()
    }

    fn no_buffer(nic: &mut Nic<MemoryPort>) -> u64 {
        let mut counted = None;
        nic.counters(&mut |counter, value| {
            if counter.name == "rx_no_buffer" {
                assert!(counter.is_loss);
                counted = Some(value);
            }
        });
        counted.unwrap()
    }

    #[test]
    fn packets_are_dropped_while_every_buffer_is_in_use_and_only_then() {
        let (mut wire, mut nic) = nic(Some(4));
        send(&mut wire, 0..6);
        let held = receive(&mut nic, 64);
        assert_eq!(numbers(&held), [0, 1, 2, 3], "the last two frames find no buffer");
        assert_eq!(no_buffer(&mut nic), 2);
        send(&mut wire, 6..8);
        assert!(receive(&mut nic, 64).is_empty(), "dropped frames are removed from the wire");
        assert_eq!(no_buffer(&mut nic), 4);
        held.into_iter().take(3).for_each(|buffer| nic.recycle(buffer));
        send(&mut wire, 8..12);
        let again = receive(&mut nic, 64);
        assert_eq!(numbers(&again), [8, 9, 10], "one buffer is still in use");
        assert_eq!((nic.dropped(), nic.in_use_max()), (5, 4));
    }

    #[test]
    fn buffers_are_conserved_however_they_come_and_go() {
        let (mut wire, mut nic) = nic(Some(7));
        let mut dice = fastrand::Rng::with_seed(7);
        let (mut held, mut sent, mut received) = (Vec::new(), 0, 0);
        for _ in 0..1000 {
            let packets = dice.u8(0..12);
            send(&mut wire, 0..packets);
            sent += u64::from(packets);
            let free = 7 - held.len();
            let came = receive(&mut nic, 64);
            assert_eq!(came.len(), free.min(packets.into()));
            received += came.len() as u64;
            held.extend(came);
            for _ in 0..dice.usize(0..=held.len()) {
                nic.recycle(held.swap_remove(dice.usize(0..held.len())));
            }
            assert_eq!(nic.in_use, held.len());
            assert!(nic.in_use + nic.spare.len() <= 7, "no more than seven buffers exist");
            assert_eq!(sent, received + nic.dropped());
        }
        assert!(nic.dropped() > 0 && nic.in_use_max() == 7);
    }

    #[test]
    fn without_a_bound_every_packet_finds_a_buffer() {
        let (mut wire, mut nic) = nic(None);
        let mut held = Vec::new();
        for _ in 0..50 {
            send(&mut wire, 0..100);
            held.extend(receive(&mut nic, 100));
        }
        assert_eq!((held.len(), nic.dropped(), nic.in_use_max()), (5000, 0, 5000));
    }

    #[test]
    fn no_more_is_taken_off_the_wire_than_was_asked_for() {
        let (mut wire, mut nic) = nic(Some(2));
        send(&mut wire, 0..5);
        let held = receive(&mut nic, 3);
        assert_eq!((numbers(&held), nic.dropped()), (vec![0, 1], 1));
        held.into_iter().for_each(|buffer| nic.recycle(buffer));
        assert_eq!(numbers(&receive(&mut nic, 3)), [3, 4]);
    }
}
