//! Delivery of frames to the caller's callbacks.

use core::ffi::c_void;
use std::io;

use grosso::{
    Meta,
    checksum::Checksum,
    features::{Device, Features},
    segment::{Outgoing, Segments},
    vnet::describe,
};
use grosso_io::{PortError, Transmitted, port::Transmit};
use grosso_wire::{
    LinkType, Ports, Stack,
    virtio::{FLAG_DATA_VALID, Form, VirtioHeader},
};

use crate::{
    lent::Lent,
    types::{GROSSO_PIECES_MAX, GROSSO_UDP, Options, Release, Take, Vnet},
};

/// Callbacks of a handle.
#[derive(Debug)]
pub(crate) struct Sink {
    context: *mut c_void,
    take: Take,
    release: Release,
    link: LinkType,
    device: Device,
    stack: Stack,
    /// Headers of a frame whose checksum must be changed.
    head: Vec<u8>,
    pieces: Vec<libc::iovec>,
    /// Bytes in the pieces beyond [`GROSSO_PIECES_MAX`].
    rest: Vec<u8>,
}

impl Sink {
    pub(crate) fn new(options: &Options, link: LinkType) -> Self {
        let mut features = Features::SCATTER_GATHER
            | Features::CHECKSUM_GENERIC
            | Features::TCP_SEGMENTATION
            | Features::TCP_ECN_SEGMENTATION
            | Features::TCP6_SEGMENTATION
            | Features::GSO_ROBUST;
        if options.has(GROSSO_UDP) {
            features |= Features::UDP_SEGMENTATION;
        }
        Self {
            context: options.context,
            take: options.take,
            release: options.release,
            link,
            device: Device::new(features),
            stack: Stack::new(0),
            head: Vec::new(),
            pieces: Vec::new(),
            rest: Vec::new(),
        }
    }

    /// Releases a buffer to the caller.
    pub(crate) fn release(&self, Lent { user, .. }: Lent) {
        if let Some(release) = self.release {
            // SAFETY: the caller provided the function for this context, and `user` for this buffer. The buffer is not
            // read any more, because its value was moved in here.
            unsafe { release(self.context, user) };
        }
    }

    /// Returns the virtio header of a frame, including its checksum state. The frame stays unchanged, except that a
    /// superframe with a verified checksum gets a partial one in a copy of its headers.
    fn header(&mut self, slices: &[&[u8]], meta: &Meta) -> Result<VirtioHeader, PortError> {
        self.head.clear();
        let mut header = VirtioHeader { buffers: 1, ..VirtioHeader::default() };
        if matches!(meta.checksum, Checksum::Unnecessary { .. }) {
            header.flags = FLAG_DATA_VALID;
        }
        if meta.gso.is_none() && !matches!(meta.checksum, Checksum::Partial { .. }) {
            return Ok(header);
        }
        let head = slices.first().copied().unwrap_or_default();
        let len = slices.iter().map(|slice| slice.len()).sum();
        meta.dissect_into(head, self.link, &Ports::ASSIGNED, &mut self.stack);
        let described = describe(head, len, &self.stack, meta, Form::Buffers);
        let described = described.map_err(|error| PortError::Device {
            name: "the caller".into(),
            action: "take a frame",
            source: io::Error::new(io::ErrorKind::InvalidData, error.sentence()),
        })?;
        if let Some((at, pseudo_sum)) = described.pseudo_sum {
            self.head.extend_from_slice(head.get(..self.stack.header_len()).unwrap_or_default());
            if let Some(field) = self.head.get_mut(at..at + 2) {
                field.copy_from_slice(&pseudo_sum);
            }
        }
        Ok(described.header)
    }

    /// Delivers a frame to the caller. Headers that [`Self::header`] changed replace the frame's own.
    fn give(&mut self, slices: &[&[u8]], header: VirtioHeader) {
        let Some(take) = self.take else { return };
        let vnet = Vnet::from(header);
        let mut copied = self.head.len();
        let behind = slices.iter().map(|slice| slice.get(core::mem::take(&mut copied)..));
        let head = Some(&self.head[..]).filter(|head| !head.is_empty());
        let mut pieces = head.into_iter().chain(behind.map(Option::unwrap_or_default));
        let piece = |piece: &[u8]| libc::iovec {
            iov_base: piece.as_ptr().cast_mut().cast(),
            iov_len: piece.len(),
        };
        self.pieces.clear();
        self.pieces.extend(pieces.by_ref().take(GROSSO_PIECES_MAX - 1).map(piece));
        self.rest.clear();
        pieces.for_each(|piece| self.rest.extend_from_slice(piece));
        self.pieces.extend(Some(&self.rest[..]).filter(|rest| !rest.is_empty()).map(piece));
        // SAFETY: the caller provided the function for this context; the pieces, their bytes and the header outlive the
        // call.
        unsafe { take(self.context, self.pieces.as_ptr(), self.pieces.len(), &raw const vnet) };
    }

    /// Delivers the packets of a superframe that no virtio header can describe, or fails with `refused`.
    fn cut(&mut self, slices: &[&[u8]], meta: &Meta, refused: PortError) -> Result<(), PortError> {
        let (link, ports) = (self.link, Ports::ASSIGNED);
        let Ok(mut segments) = Segments::new(slices, meta, link, &ports, Outgoing::COMPLETE) else {
            return Err(refused);
        };
        let mut buffer = vec![0; segments.packet_len_max()];
        while let Ok(Some(segment)) = segments.write_next(&mut buffer) {
            let packet = buffer.get(..segment.len()).unwrap_or_default();
            let header = self.header(&[packet], &segment.meta)?;
            self.give(&[packet], header);
        }
        Ok(())
    }
}

impl Transmit for Sink {
    fn device(&self) -> Device {
        self.device
    }

    fn transmit(&mut self, slices: &[&[u8]], meta: &Meta) -> Result<Transmitted, PortError> {
        match self.header(slices, meta) {
            Ok(header) => self.give(slices, header),
            Err(refused) => self.cut(slices, meta, refused)?,
        }
        Ok(Transmitted::Taken)
    }

    fn flush(&mut self) -> Result<Transmitted, PortError> {
        Ok(Transmitted::Taken)
    }
}
