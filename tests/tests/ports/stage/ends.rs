//! Two hosts with the same stages, and a link between them.

use grosso::{
    Frame, Meta,
    features::{Device, Features},
    tunnel::esp::{EspMode, KeyMaterial, SecurityAssociation},
};
use grosso_io::{
    Port, PortBuffer, PortError, Transmitted, delegate_port,
    memory::{MemoryPort, wire},
    stage::{EspOptions, EspStage, Fragmentation, FragmentationOptions},
};
use grosso_wire::LinkType;

pub(crate) type Host = EspStage<Fragmentation<MemoryPort>>;

/// Returns the two endpoints of an Ethernet link that holds at most `frames_max` frames.
pub(crate) fn ethernet(frames_max: usize) -> (MemoryPort, MemoryPort) {
    wire(LinkType::Ethernet, Device::new(Features::NONE), frames_max)
}

pub(crate) fn association(spi: u32, mode: EspMode) -> SecurityAssociation {
    let key = [spi as u8; 20];
    SecurityAssociation::new(spi, mode, KeyMaterial::aes_gcm(&key).unwrap())
}

/// Returns options that fragment to `mtu` bytes and reassemble.
pub(crate) fn fragments(mtu: u16) -> FragmentationOptions {
    let mut options = FragmentationOptions::new(7);
    options.mtu = Some(mtu);
    options
}

/// Creates two hosts that use ESP in transport mode, over a wire of MTU 1500.
pub(crate) fn hosts(frames_max: usize) -> (Host, Host) {
    let (left, right) = ethernet(frames_max);
    let host = |port, out, back| {
        let port = Fragmentation::new(port, &fragments(1500)).unwrap();
        let (out, back) =
            (association(out, EspMode::Transport), association(back, EspMode::Transport));
        EspStage::new(port, EspOptions::new(out, back, 0)).unwrap()
    };
    (host(left, 0x101, 0x102), host(right, 0x102, 0x101))
}

/// Sends a frame as one slice.
pub(crate) fn send(port: &mut impl Port, frame: &[u8]) -> Transmitted {
    port.transmit(&[frame], &Meta::default()).unwrap()
}

/// Receives all available frames from a port.
pub(crate) fn receive<P: Port>(port: &mut P, now_ns: u64) -> Vec<(Vec<u8>, Meta)> {
    let mut frames = Vec::new();
    loop {
        let mut buffers = Vec::new();
        port.receive(now_ns, 64, &mut |frame| {
            frames.push((frame.buffer.as_ref().to_vec(), frame.meta));
            buffers.push(frame.buffer);
        })
        .unwrap();
        buffers.into_iter().for_each(|buffer| port.recycle(buffer));
        if port.deadline() != Some(0) {
            return frames;
        }
    }
}

/// Returns the value of a port's counter.
pub(crate) fn counter(port: &mut impl Port, name: &str) -> u64 {
    let mut found = None;
    port.counters(&mut |counter, value| {
        if counter.name == name {
            found = Some(value);
        }
    });
    found.unwrap_or_else(|| panic!("no counter {name}"))
}

/// A port that occasionally has no room, and counts the buffers that it lends.
#[derive(Debug)]
pub(crate) struct Reluctant<P> {
    pub(crate) port: P,
    dice: fastrand::Rng,
    /// Fraction of frames refused at the first attempt, as if there were no room.
    refusing: f64,
    /// Buffers that were handed out and have not been returned yet.
    pub(crate) outside: usize,
    /// Every accepted frame.
    pub(crate) sent: Vec<Vec<u8>>,
}

impl<P: Port> Reluctant<P> {
    pub(crate) fn new(port: P, refusing: f64) -> Self {
        let dice = fastrand::Rng::with_seed(3);
        Self { port, dice, refusing, outside: 0, sent: Vec::new() }
    }
}

impl<P: Port> Port for Reluctant<P> {
    delegate_port!(port: link, device, flush);

    fn receive(
        &mut self,
        now_ns: u64,
        max: usize,
        each: &mut dyn FnMut(Frame<PortBuffer>),
    ) -> Result<usize, PortError> {
        let count = self.port.receive(now_ns, max, each)?;
        self.outside += count;
        Ok(count)
    }

    fn recycle(&mut self, buffer: PortBuffer) {
        self.outside -= 1;
        self.port.recycle(buffer);
    }

    fn transmit(&mut self, slices: &[&[u8]], meta: &Meta) -> Result<Transmitted, PortError> {
        if self.dice.f64() < self.refusing {
            return Ok(Transmitted::NoRoom);
        }
        let transmitted = self.port.transmit(slices, meta)?;
        if transmitted == Transmitted::Taken {
            self.sent.push(slices.concat());
        }
        Ok(transmitted)
    }
}

/// Sends a frame as a path does: retries until there is room, and then flushes the port.
pub(crate) fn insist(port: &mut impl Port, frame: &[u8], meta: &Meta) {
    while port.transmit(&[frame], meta).unwrap() == Transmitted::NoRoom {}
    while port.flush().unwrap() == Transmitted::NoRoom {}
}
