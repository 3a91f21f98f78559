//! A port that reads frames from one capture and writes frames to another.

use std::io::{Read, Write};

use grosso::{
    Frame, Meta,
    features::{Device, Features},
};
use grosso_wire::{LinkType, Ports, Stack, dissect_into};

use crate::{
    buffer::PortBuffer,
    port::{Port, PortError, Transmitted},
};
use grosso_capture::{CaptureError, CaptureReader, CaptureWriter, Entry, PacketMeta};

/// Port that reads frames from one capture and writes to another.
///
/// Accepts superframes and partial checksums, because pcapng can describe them. Skips blocks without a packet, and
/// packets with another link type, because all frames of a port have the same link type.
#[derive(Debug)]
pub struct CapturePort<R, W: Write> {
    reader: Option<CaptureReader<R>>,
    writer: Option<CaptureWriter<W>>,
    link: LinkType,
    ports: Ports,
    stack: Stack,
    spare: Vec<Vec<u8>>,
    scratch: Vec<u8>,
}

impl<R: Read, W: Write> CapturePort<R, W> {
    /// Creates a port that reads the packets of link type `link` from one capture and writes to another. If the reader
    /// or the writer is `None`, the port cannot receive or transmit, respectively.
    #[must_use]
    pub fn new(
        reader: Option<CaptureReader<R>>,
        writer: Option<CaptureWriter<W>>,
        link: LinkType,
        ports: Ports,
    ) -> Self {
        let (stack, spare, scratch) = (Stack::new(0), Vec::new(), Vec::new());
        Self { reader, writer, link, ports, stack, spare, scratch }
    }

    /// Completes the written capture and returns its sink. Returns `None` if the port writes no capture.
    ///
    /// # Errors
    /// Returns errors from the writer.
    pub fn finish(self) -> Result<Option<W>, CaptureError> {
        self.writer.map(CaptureWriter::finish).transpose()
    }
}

impl<R: Read, W: Write> Port for CapturePort<R, W> {
    fn link(&self) -> LinkType {
        self.link
    }

    fn device(&self) -> Device {
        let mut device = Device::new(Features::ALL);
        device.gso_max_size = u32::MAX;
        device
    }

    fn receive(
        &mut self,
        _now_ns: u64,
        max: usize,
        each: &mut dyn FnMut(Frame<PortBuffer>),
    ) -> Result<usize, PortError> {
        let Self { reader: Some(reader), link, ports, stack, spare, .. } = self else {
            return Ok(0);
        };
        let mut count = 0;
        while count < max {
            let Some(entry) = reader.next()? else {
                self.reader = None;
                break;
            };
            let Entry::Packet(packet) = entry else { continue };
            if LinkType::from_pcap(packet.description.link_type) != Some(*link) {
                continue;
            }
            let said = packet.meta();
            let mut meta = match &said.offload {
                Some(offload) => {
                    dissect_into(packet.data, *link, &offload.ports(ports), stack);
                    offload.meta_of(stack)
                }
                None => Meta::default(),
            };
            meta.timestamp_ns = packet.timestamp_ns;
            let mut buffer = spare.pop().unwrap_or_default();
            buffer.extend_from_slice(packet.data);
            each(Frame { buffer: buffer.into(), meta });
            count += 1;
        }
        Ok(count)
    }

    fn recycle(&mut self, buffer: PortBuffer) {
        if let Some(mut bytes) = buffer.into_own()
            && self.spare.len() < SPARE_MAX
        {
            bytes.clear();
            self.spare.push(bytes);
        }
    }

    fn transmit(&mut self, slices: &[&[u8]], meta: &Meta) -> Result<Transmitted, PortError> {
        let Some(writer) = &mut self.writer else { return Err(PortError::OneWay("send")) };
        self.scratch.clear();
        slices.iter().for_each(|slice| self.scratch.extend_from_slice(slice));
        let said =
            PacketMeta::of_frame(&self.scratch, meta, self.link, &self.ports, &mut self.stack);
        writer.write_packet(&said, &self.scratch)?;
        Ok(Transmitted::Taken)
    }

    fn flush(&mut self) -> Result<Transmitted, PortError> {
        if let Some(writer) = &mut self.writer {
            writer.flush()?;
        }
        Ok(Transmitted::Taken)
    }

    fn is_finished(&self) -> bool {
        self.reader.is_none()
    }
}

/// Maximum number of buffers kept for reuse.
const SPARE_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use grosso::{Frame, Meta};
    use grosso_testkit::Packet;
    use grosso_wire::{LinkType, Ports};

    use super::CapturePort;
    use crate::{
        buffer::PortBuffer,
        path::{Direction, PathOptions},
        port::{Port, PortError, Transmitted},
    };
    use grosso_capture::{CaptureReader, CaptureWriter, Format, WriterOptions};

    fn segment(i: u32) -> Vec<u8> {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(i as u16));
        packet.tcp(|t| t.sequence(i * 700)).payload_len(700).build()
    }

    fn port(read: &[u8]) -> CapturePort<&[u8], Vec<u8>> {
        let writer = CaptureWriter::new(Vec::new(), WriterOptions::new(Format::Pcapng));
        let reader = CaptureReader::new(read).unwrap();
        CapturePort::new(Some(reader), Some(writer), LinkType::Ethernet, Ports::ASSIGNED)
    }

    fn write_only() -> CapturePort<&'static [u8], Vec<u8>> {
        let writer = CaptureWriter::new(Vec::new(), WriterOptions::new(Format::Pcapng));
        CapturePort::new(None, Some(writer), LinkType::Ethernet, Ports::ASSIGNED)
    }

    fn frames(capture: &[u8]) -> Vec<(Vec<u8>, Meta)> {
        let mut frames = Vec::new();
        let mut port = port(capture);
        while !port.is_finished() {
            let mut each = |frame: Frame<PortBuffer>| {
                frames.push((frame.buffer.as_ref().to_vec(), frame.meta));
            };
            port.receive(0, 10, &mut each).unwrap();
        }
        frames
    }

    #[test]
    fn a_capture_goes_through_a_path_and_comes_back_from_the_file_that_it_made() {
        let mut source = write_only();
        let packets: Vec<_> = (0..40).map(segment).collect();
        for (i, packet) in packets.iter().enumerate() {
            let meta = Meta { timestamp_ns: Some(i as u64 * 1000), ..Meta::default() };
            assert_eq!(source.transmit(&[packet], &meta).unwrap(), Transmitted::Taken);
        }
        let capture = source.finish().unwrap().unwrap();

        let (mut from, mut to) = (port(&capture), write_only());
        let mut options = PathOptions::new(1);
        options.budget_frames = 50;
        let mut direction = Direction::new(options, LinkType::Ethernet, to.device());
        while !from.is_finished() {
            direction.poll(&mut from, &mut to, 0).unwrap();
        }
        direction.finish(&mut from, &mut to).unwrap();
        let joined = to.finish().unwrap().unwrap();

        let superframes = frames(&joined);
        let segments: Vec<_> = superframes.iter().map(|(_, m)| m.gso.map(|g| g.segments)).collect();
        assert_eq!(segments, [Some(40)]);
        assert_eq!(superframes[0].1.timestamp_ns, Some(0));
    }

    #[test]
    fn a_port_without_an_output_file_reports_that_it_does_not_send() {
        let capture = write_only().finish().unwrap().unwrap();
        let reader = CaptureReader::new(&capture[..]).unwrap();
        let mut port: CapturePort<_, Vec<u8>> =
            CapturePort::new(Some(reader), None, LinkType::Ethernet, Ports::NONE);
        let refused = port.transmit(&[&segment(0)], &Meta::default());
        assert!(matches!(refused, Err(PortError::OneWay("send"))), "{refused:?}");
    }
}
