//! Ingress from a device: the metadata from a virtio header.

use grosso::{
    Meta,
    vnet::{VnetError, understand, understand_packet},
};
use grosso_wire::{
    LinkType, Ports, Stack, dissect_into, ethernet,
    virtio::{Form, GSO_NONE, Order, VirtioHeader, field},
};

/// Reads the virtio headers of received frames and trusts no field.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) link: LinkType,
    pub(super) form: Option<Form>,
    ports: Ports,
    stack: Stack,
}

impl Incoming {
    pub(super) fn new(link: LinkType, ports: Ports, form: Option<Form>) -> Self {
        Self { link, form, ports, stack: Stack::new(0) }
    }

    /// Returns the number of bytes before a frame.
    pub(super) fn header_len(&self) -> usize {
        self.form.map_or(0, Form::len)
    }

    /// Returns the metadata of a frame from its virtio header, if the device has virtio headers.
    pub(super) fn understand(&mut self, packet: &[u8]) -> Result<Meta, VnetError> {
        let Some(form) = self.form else { return self.without_header(packet) };
        let behind = packet.get(form.len()..).unwrap_or_default();
        self.understand_apart(packet, behind, form)
    }

    /// Returns the metadata of a frame whose virtio header is stored separately.
    #[inline]
    pub(super) fn understand_apart(
        &mut self,
        header: &[u8],
        frame: &[u8],
        form: Form,
    ) -> Result<Meta, VnetError> {
        if header.get(field::GSO_TYPE.start).is_some_and(|&kind| kind != GSO_NONE) {
            self.dissect_superframe(frame);
        }
        let header = VirtioHeader::parse(header, form, Order::NATIVE);
        let (header, _) = header.map_err(|_| VnetError::Short)?;
        understand(&header, frame, self.link, &self.stack, form)
    }

    /// Works like [`Self::understand_apart`], for a frame that is not a superframe; returns `None` for a superframe, or
    /// without a virtio header.
    #[inline(always)]
    pub(super) fn understand_packet_apart(
        &self,
        header: &[u8],
        packet: &[u8],
    ) -> Option<Result<Meta, VnetError>> {
        let (header, _) = VirtioHeader::parse(header, self.form?, Order::NATIVE).ok()?;
        let is_packet = header.gso_type == GSO_NONE;
        is_packet.then(|| understand_packet(&header, packet.len(), self.link))
    }

    #[inline(never)]
    fn dissect_superframe(&mut self, frame: &[u8]) {
        self.dissect(frame);
    }

    /// Returns the headers of a frame, up to the first header that cannot be dissected.
    pub(super) fn dissect(&mut self, frame: &[u8]) -> &Stack {
        dissect_into(frame, self.link, &self.ports, &mut self.stack);
        &self.stack
    }

    fn without_header(&self, frame: &[u8]) -> Result<Meta, VnetError> {
        let is_short = self.link == LinkType::Ethernet && frame.len() < ethernet::HEADER_LEN;
        if is_short { Err(VnetError::Short) } else { Ok(Meta::default()) }
    }
}
