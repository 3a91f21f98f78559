//! Tests TUN and TAP devices: adopted queues, several queues, offloads, and errors that a caller can tell apart.

use std::io::{self, IoSliceMut};
use std::os::fd::AsFd;

use grosso_sys::errno::ErrorClass;
use grosso_sys::interface::{Control, InterfaceName};
use grosso_sys::netlink::{LinkChange, Netlink};
use grosso_sys::packet::PacketSocket;
use grosso_sys::tun::{Features, Layer, Offloads, Tun, TunBuilder};

use super::{FRAME, assert_invalid, isolated, tap, with_header};

#[test]
fn an_inherited_descriptor_reports_its_device() {
    isolated(|control| {
        let made = tap(control, "tap0")?;
        made.set_header_bytes(12)?;
        let adopted = Tun::adopt(made.as_fd().try_clone_to_owned()?)?;
        assert_eq!((adopted.name(), adopted.layer()), (made.name(), Layer::Ethernet));
        assert_eq!((adopted.header_bytes()?, adopted.multi_queue()), (12, false));
        adopted.write(&[&[0; 12][..], &FRAME].concat())?;

        let name = InterfaceName::new("tun0")?;
        let plain = TunBuilder::tun(name).multi_queue(true).open()?;
        let adopted = Tun::adopt(plain.as_fd().try_clone_to_owned()?)?;
        assert_eq!((adopted.layer(), adopted.header_bytes()?), (Layer::Ip, 0));
        assert!(adopted.multi_queue());
        adopted.set_nonblocking(true)?;
        let empty = plain.read(&mut [0; 64]).unwrap_err();
        assert_eq!(ErrorClass::of(&empty), ErrorClass::Later);

        let null = std::fs::File::open("/dev/null")?;
        assert_eq!(Tun::adopt(null.into()).unwrap_err().raw_os_error(), Some(libc::ENOTTY));
        let unset = std::fs::File::options().read(true).write(true).open("/dev/net/tun")?;
        assert_eq!(ErrorClass::of(&Tun::adopt(unset.into()).unwrap_err()), ErrorClass::Gone);
        Ok(())
    });
}

#[test]
fn the_kernel_reports_its_features() {
    match Features::of_kernel() {
        Ok(features) => {
            assert!(features.virtio_header() && features.multi_queue() && features.napi())
        }
        Err(error) => super::skip(&format!("no /dev/net/tun: {error}")),
    }
}

#[test]
fn a_detached_queue_gets_nothing() {
    isolated(|control| {
        let name = InterfaceName::new("tap0")?;
        let builder = TunBuilder::tap(name).multi_queue(true).nonblocking(true);
        let queues = [builder.clone().open()?, builder.open()?];
        control.set_up(&name, true)?;
        queues[1].set_attached(false)?;
        assert_invalid(queues[1].set_attached(false));
        let socket = PacketSocket::builder().bind(&name)?;
        let mut buffer = [0; 256];
        for source in 0..32 {
            let mut frame = FRAME;
            frame[29] = source;
            socket.send(&frame)?;
            assert_eq!(queues[0].read(&mut buffer)?, FRAME.len());
        }
        queues[1].set_attached(true)?;
        let mut shares = [0, 0];
        for source in 0..64 {
            let mut frame = FRAME;
            frame[29] = source;
            socket.send(&frame)?;
            shares[usize::from(queues[0].read(&mut buffer).is_err())] += 1;
        }
        assert!(shares[0] > 0 && shares[1] > 0, "all 64 flows reached one queue: {shares:?}");
        Ok(())
    });
}

#[test]
fn v30_udp_and_tunnel_offloads_are_taken_with_what_they_need() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        let tcp = Offloads::CHECKSUM | Offloads::TCP_IPV4 | Offloads::TCP_IPV6;
        if tap.set_offloads(tcp | Offloads::UDP).is_err() {
            println!("skipped: UDP superframes want Linux 6.2");
            return Ok(());
        }
        assert_invalid(tap.set_offloads(Offloads::UDP));
        assert!((tcp | Offloads::UDP).contains(tcp));
        assert_eq!((tcp | Offloads::UDP) - Offloads::UDP, tcp);
        let tunnels = Offloads::UDP_TUNNEL | Offloads::UDP_TUNNEL_CHECKSUM;
        tap.set_header_bytes(24)?;
        if tap.set_offloads(tcp | tunnels).is_err() {
            println!("skipped: tunnel superframes want Linux 6.17");
            return Ok(());
        }
        assert_invalid(tap.set_offloads(Offloads::CHECKSUM | tunnels));
        assert_invalid(tap.set_offloads(tcp | Offloads::UDP_TUNNEL_CHECKSUM));
        Ok(())
    });
}

#[test]
fn errors_of_a_tap_are_distinguished() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        let class = |result: io::Result<usize>| ErrorClass::of(&result.unwrap_err());
        let packet = with_header(&FRAME);
        let mut bad = packet.clone();
        bad[1] = 99;
        assert_eq!(class(tap.write(&bad)), ErrorClass::Malformed);
        assert_eq!(class(tap.read(&mut [0; 64])), ErrorClass::Later);
        control.set_up(tap.name(), false)?;
        assert_eq!(class(tap.write(&packet)), ErrorClass::Down);
        control.set_up(tap.name(), true)?;
        tap.write(&packet)?;
        let index = control.index(tap.name())?;
        Netlink::new()?.delete_link(index)?;
        assert_eq!(class(tap.write(&packet)), ErrorClass::Gone);
        assert_eq!(class(tap.read(&mut [0; 64])), ErrorClass::Gone);
        assert_eq!(ErrorClass::of(&tap.set_carrier(true).unwrap_err()), ErrorClass::Gone);
        Ok(())
    });
}

#[test]
fn a_packet_is_read_into_parts() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        let socket = PacketSocket::builder().bind(tap.name())?;
        socket.send(&FRAME)?;
        let (mut header, mut ethernet, mut rest) = ([0xff; 10], [0; 14], [0; 100]);
        let mut parts = [&mut header[..], &mut ethernet, &mut rest].map(IoSliceMut::new);
        assert_eq!(tap.read_vectored(&mut parts)?, 10 + FRAME.len());
        assert_eq!((header, &ethernet[..], &rest[..40]), ([0; 10], &FRAME[..14], &FRAME[14..]));
        Ok(())
    });
}

#[test]
fn carrier_follows_and_a_device_persists_until_unset() {
    isolated(|control| {
        let made = tap(control, "tap0")?;
        let name = *made.name();
        let netlink = Netlink::new()?;
        for on in [false, true] {
            made.set_carrier(on)?;
            assert_eq!(netlink.link(&name)?.carrier, on);
        }
        made.set_send_buffer_bytes(1 << 20)?;
        made.set_persistent(true)?;
        drop(made);
        assert_eq!(netlink.link(&name)?.kind.as_deref(), Some("tun"));
        let again = TunBuilder::tap(name).virtio_header(true).open()?;
        again.set_persistent(false)?;
        drop(again);
        let gone = netlink.link(&name).unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(libc::ENODEV));
        Ok(())
    });
}

#[test]
fn a_tap_works_on_from_another_network() {
    isolated(|control| {
        let made = tap(control, "tap0")?;
        let elsewhere = match grosso_sys::namespace::NetworkNamespace::new() {
            Err(error) => {
                super::skip(&format!("no second network: {error}"));
                return Ok(());
            }
            Ok(namespace) => namespace,
        };
        let index = control.index(made.name())?;
        Netlink::new()?.change_link(index, LinkChange::new().namespace(elsewhere.as_fd()))?;
        let socket = elsewhere.run(|| {
            Control::new()?.set_up(made.name(), true)?;
            PacketSocket::builder().ignore_outgoing(true).bind(made.name())
        })??;
        made.write(&with_header(&FRAME))?;
        let received = socket.receive(&mut [0; 256])?.expect("a packet was received");
        assert_eq!(received.length, FRAME.len());
        assert_eq!(Tun::adopt(made.as_fd().try_clone_to_owned()?)?.name(), made.name());
        Ok(())
    });
}
