//! Hosts whose frames carry a VLAN tag in transit. The test itself inserts and removes the tag, between TAPs, because
//! the kernel may have no VLAN devices.
//!
//! ```text
//!  sender           bridge                     receiver
//!  s0 == tag == t1         t2 == no tag == d0
//!               superframes packets
//! ```

use std::{sync::Arc, thread};

use grosso_sys::{
    namespace::NetworkNamespace,
    tun::{Offloads, Tun, TunBuilder},
};

use super::law::{Measure, Twins};
use crate::{
    network::name,
    vantage::{BYTES, Chain, ip},
};

/// The hosts, and the bridge that tags their frames.
pub(crate) struct Tagged(Chain);

impl Tagged {
    /// Creates the hosts; `None` if the caller cannot create them.
    pub(crate) fn new(mtu: u32) -> Option<Self> {
        let chain = Chain::bare()?;
        let tap = |host: &NetworkNamespace, device: &str| {
            let open = || TunBuilder::tap(name(device)).virtio_header(true).open();
            let tun = host.run(open).unwrap().unwrap();
            // Tagged frames are longer by four bytes.
            ip(
                host,
                &format!(
                    "link set {device} mtu {} up",
                    mtu + if device.starts_with('t') { 4 } else { 0 }
                ),
            );
            Arc::new(tun)
        };
        let (s0, t1) = (tap(&chain.sender, "s0"), tap(&chain.bridge, "t1"));
        let (t2, d0) = (tap(&chain.bridge, "t2"), tap(&chain.receiver, "d0"));
        let superframes = Offloads::CHECKSUM | Offloads::TCP_IPV4 | Offloads::TCP_IPV6;
        s0.set_offloads(superframes).unwrap();
        chain.join(&["t1", "t2"]);
        chain.address();
        copy(&s0, &t1, tag);
        copy(&t1, &s0, untag);
        copy(&t2, &d0, untag);
        copy(&d0, &t2, tag);
        Some(Self(chain))
    }

    /// Captures a stream before and after the bridge.
    pub(crate) fn stream(&self, family: usize) -> Twins {
        let chain = &self.0;
        let devices = [(&chain.bridge, "t1"), (&chain.bridge, "t2")];
        let talk = || chain.stream(chain.ends(family), BYTES);
        let [host, wire] = chain.record(&devices, family, talk).try_into().unwrap();
        Twins { host, wire, measure: Measure::Innermost }
    }
}

/// Copies frames with their virtio headers from one TAP to another until the test process exits.
fn copy(from: &Arc<Tun>, to: &Arc<Tun>, change: fn(&mut Vec<u8>)) {
    let (from, to) = (Arc::clone(from), Arc::clone(to));
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 17];
        // A TAP is removed with its host.
        while let Ok(len) = from.read(&mut buffer) {
            let mut frame = buffer[..len].to_vec();
            change(&mut frame);
            // A TAP that is not up yet accepts nothing.
            let _ = to.write(&frame);
        }
    });
}

/// Inserts the tag after the addresses.
fn tag(frame: &mut Vec<u8>) {
    let at = VIRTIO_BYTES + 12;
    frame.splice(at..at, [0x81, 0, 0, 7]);
    shift(frame, 4);
}

/// Removes the tag; frames without a tag do not come from these hosts.
fn untag(frame: &mut Vec<u8>) {
    let at = VIRTIO_BYTES + 12;
    if frame[at..at + 2] == [0x81, 0] {
        frame.drain(at..at + 4);
        shift(frame, -4);
    }
}

/// Moves the offsets of a virtio header (header length and start of the checksum), if it has any.
fn shift(frame: &mut [u8], bytes: i16) {
    let needs_checksum = frame[0] & 1 != 0;
    for at in [2, 6] {
        let place = i16::from_ne_bytes([frame[at], frame[at + 1]]);
        if needs_checksum && place > 0 {
            frame[at..at + 2].copy_from_slice(&(place + bytes).to_ne_bytes());
        }
    }
}

/// The length of a virtio header, whose fields are in the host's byte order.
const VIRTIO_BYTES: usize = 10;
