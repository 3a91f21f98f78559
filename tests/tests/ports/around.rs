//! Tests ports that wrap another port. They must pass on the inner port's answers, except for queries that they answer
//! themselves.

#![cfg(unix)]

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

use grosso::{
    Frame, Meta,
    features::{Device, Features},
};
use grosso_capture::{CaptureWriter, Format, WriterOptions};
use grosso_io::{
    Port, PortBuffer, PortError, Transmitted, delegate_port,
    impair::{Impair, Impairment},
    port::PortCounter,
    record::{Record, RecordOptions},
    stage::{Fragmentation, FragmentationOptions, Stages},
};
use grosso_wire::LinkType;

/// A port with a distinct answer for every query.
struct Talkative {
    from: io::PipeReader,
    to: io::PipeWriter,
}

impl Talkative {
    fn new() -> Self {
        let (from, to) = io::pipe().unwrap();
        Self { from, to }
    }
}

const COUNTER: PortCounter =
    PortCounter { name: "said", is_loss: true, sentence: "It was asked what it counts." };

impl Port for Talkative {
    fn link(&self) -> LinkType {
        LinkType::Raw
    }

    fn device(&self) -> Device {
        Device::new(Features::CHECKSUM_GENERIC)
    }

    fn receive(
        &mut self,
        _now_ns: u64,
        _max: usize,
        _each: &mut dyn FnMut(Frame<PortBuffer>),
    ) -> Result<usize, PortError> {
        Ok(0)
    }

    fn recycle(&mut self, _buffer: PortBuffer) {}

    fn transmit(&mut self, _slices: &[&[u8]], _meta: &Meta) -> Result<Transmitted, PortError> {
        Ok(Transmitted::NoRoom)
    }

    fn flush(&mut self) -> Result<Transmitted, PortError> {
        Ok(Transmitted::NoRoom)
    }

    fn deadline(&self) -> Option<u64> {
        Some(5)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.from.as_fd())
    }

    fn transmit_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.to.as_fd())
    }

    fn frames_kick(&self) -> Option<BorrowedFd<'_>> {
        Some(self.to.as_fd())
    }

    fn room_kick(&self) -> Option<BorrowedFd<'_>> {
        Some(self.from.as_fd())
    }

    fn path_mtu(&self) -> Option<usize> {
        Some(1400)
    }

    fn path_hint(&self) -> Option<usize> {
        Some(1300)
    }

    fn path_proven(&self) -> Option<usize> {
        Some(1350)
    }

    fn counters(&mut self, each: &mut dyn FnMut(PortCounter, u64)) {
        each(COUNTER, 7);
    }

    fn is_finished(&self) -> bool {
        true
    }
}

/// A port that only wraps another port.
struct Bare(Vec<Talkative>);

macro_rules! of_bare {
    ($bare:expr, $port:ident => $act:expr) => {{
        let $port = &mut $bare.0[0];
        $act
    }};
}

macro_rules! of_shared {
    ($bare:expr, $port:ident => $act:expr) => {{
        let $port = &$bare.0[0];
        $act
    }};
}

impl Port for Bare {
    delegate_port!(of_bare!: receive, recycle, transmit, flush, counters);
    delegate_port!(of_shared!: link, device, deadline, descriptors, path_mtu, is_finished);
}

/// Sends every query to a port that wraps a [`Talkative`].
fn ask<P: Port>(name: &str, around: impl FnOnce(Talkative) -> P) {
    let inside = Talkative::new();
    let descriptors = [inside.from.as_raw_fd(), inside.to.as_raw_fd()];
    let mut port = around(inside);
    assert_eq!(port.receive(0, 1, &mut |_| {}).unwrap(), 0, "{name}");
    assert_eq!(port.link(), LinkType::Raw, "{name}");
    assert!(port.device().features.contains(Features::CHECKSUM_GENERIC), "{name}");
    assert_eq!(port.transmit(&[b"x"], &Meta::default()).unwrap(), Transmitted::NoRoom, "{name}");
    assert_eq!(port.flush().unwrap(), Transmitted::NoRoom, "{name}");
    assert_eq!(port.deadline(), Some(5), "{name}");
    let found = [port.descriptor(), port.transmit_descriptor()];
    assert_eq!(found.map(|file| file.unwrap().as_raw_fd()), descriptors, "{name}");
    let found = [port.room_kick(), port.frames_kick()];
    assert_eq!(found.map(|file| file.unwrap().as_raw_fd()), descriptors, "{name}");
    assert_eq!((port.path_mtu(), port.path_hint()), (Some(1400), Some(1300)), "{name}");
    assert_eq!(port.path_proven(), Some(1350), "{name}");
    let mut said = 0;
    port.counters(&mut |counter, value| said += if counter == COUNTER { value } else { 0 });
    assert_eq!(said, 7, "{name}");
    assert!(port.is_finished(), "{name}");
}

#[test]
fn the_outer_port_has_the_properties_of_the_inner_one() {
    ask("itself", |port| port);
    ask("bare", |port| Bare(vec![port]));
    ask("impair", |port| Impair::new(port, Impairment::default()));
    let writer = || CaptureWriter::new(io::sink(), WriterOptions::new(Format::Pcapng));
    let record = |port| Record::start(port, writer(), &RecordOptions::default()).unwrap();
    ask("record", record);
    let options = FragmentationOptions::new(1);
    ask("fragmentation", |port| Fragmentation::new(port, &options).unwrap());
    ask("stages", |port| Stages::new(port, &options, None).unwrap());
}
