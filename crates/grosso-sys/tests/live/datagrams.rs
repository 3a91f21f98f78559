//! Tests that send datagrams over links with a given MTU.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::AsFd;

use grosso_sys::datagram::{Datagram, DatagramSocketBuilder, Protocol};
use grosso_sys::interface::InterfaceName;
use grosso_sys::netlink::{LinkChange, Netlink};
use grosso_sys::wait::{Interest, wait_for};

use super::{SOON, isolated};

/// Checks that packets longer than the link MTU are sent in fragments, whatever the known path MTU is: the MTU of a
/// link may shrink while a tunnel is in use.
#[test]
fn datagrams_over_ipv6_that_are_longer_than_the_link_arrive() {
    isolated(|control| {
        let name = InterfaceName::new("lo")?;
        Netlink::new()?.change_link(control.index(&name)?, LinkChange::new().mtu(1280).up(true))?;
        let open = || {
            let local = "[::1]:0".parse().expect("an address");
            DatagramSocketBuilder::new(Protocol::Udp, local).open()
        };
        let (mut near, mut far) = (open()?, open()?);
        let payload: Vec<u8> = (0..1400_u32).map(|i| i as u8).collect();
        for heeds_path in [false, true] {
            near.heed_path(heeds_path)?;
            let datagram = Datagram {
                parts: &[IoSlice::new(&payload)],
                destination: far.local(),
                traffic_class: 0,
                hop_limit: 64,
                segment_bytes: None,
                source: None,
            };
            let mut bytes = [0; 2048];
            let mut received = Vec::new();
            // The kernel drops packets while a CPU's receive queue is full, and all network namespaces share that
            // queue.
            for _ in 0..100 {
                assert_eq!(near.send_batch(std::slice::from_ref(&datagram))?, 1, "{heeds_path}");
                wait_for(&[(far.as_fd(), Interest::READ)], Some(SOON / 100))?;
                far.receive_batch(&mut [&mut [IoSliceMut::new(&mut bytes)]], &mut received)?;
                if !received.is_empty() {
                    break;
                }
            }
            assert_eq!(bytes[..received[0].length], payload, "{heeds_path}");
        }
        Ok(())
    });
}
