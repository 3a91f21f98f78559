//! Tests that configure links, addresses, routes and neighbors, and then check how the kernel behaves.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::thread;

use grosso_sys::interface::{Control, InterfaceName};
use grosso_sys::namespace::NetworkNamespace;
use grosso_sys::netlink::{LinkChange, Netlink, VxlanEnds};

use super::{SOON, isolated};

#[test]
fn a_pair_across_two_networks_carries_tcp_of_both_families() {
    isolated(|_| {
        let [left, right] = [NetworkNamespace::new()?, NetworkNamespace::new()?];
        let name = InterfaceName::new("wire")?;
        let mut ipv6 = true;
        let end = |namespace, last| {
            LinkChange::new()
                .mtu(9000)
                .queues(2)
                .transmit_queue_length(77)
                .hardware_address([2, 0, 0, 0, 0, last])
                .namespace(namespace)
        };
        Netlink::new()?.add_veth((&name, end(left.as_fd(), 1)), (&name, end(right.as_fd(), 2)))?;
        for namespace in [&left, &right] {
            let netlink = namespace.run(Netlink::new)??;
            netlink.change_link(netlink.link(&name)?.index, LinkChange::new().up(true))?;
        }
        for (namespace, last) in [(&left, 1_u8), (&right, 2)] {
            let netlink = namespace.run(Netlink::new)??;
            let link = netlink.link(&name)?;
            assert!(link.up && link.carrier);
            assert_eq!(link.hardware_address, Some([2, 0, 0, 0, 0, last]));
            assert_eq!((link.mtu, link.transmit_queue_length), (9000, 77));
            assert_eq!((link.transmit_queues, link.receive_queues), (2, 2));
            assert_eq!(link.kind.as_deref(), Some("veth"));
            netlink.add_address(link.index, IpAddr::from([10, 0, 0, last]), 24)?;
            let address: IpAddr = format!("fd00::{last}").parse().unwrap();
            if let Err(error) = netlink.add_address(link.index, address, 64) {
                println!("skipped: no IPv6: {error}");
                ipv6 = false;
                continue;
            }
            let again = netlink.add_address(link.index, address, 64).unwrap_err();
            assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        }
        for address in if ipv6 { &["10.0.0.2:0", "[fd00::2]:0"][..] } else { &["10.0.0.2:0"] } {
            // The address could not be bound yet if duplicate address detection were still running.
            let listener = right.run(|| TcpListener::bind(address))??;
            let target = listener.local_addr()?;
            let server = thread::spawn(move || -> io::Result<String> {
                let mut text = String::new();
                listener.accept()?.0.read_to_string(&mut text)?;
                Ok(text)
            });
            left.run(|| {
                // IPv6 works only after the kernel has noticed the carrier, which takes up to a second.
                TcpStream::connect_timeout(&target, SOON)
                    .unwrap_or_else(|error| panic!("{target}: {error}"))
                    .write_all(b"across")
            })??;
            assert_eq!(server.join().unwrap()?, "across");
        }
        let sent = left.run(Netlink::new)??.link(&name)?.statistics;
        let received = right.run(Netlink::new)??.link(&name)?.statistics;
        assert!(sent.transmit_packets > 5 && sent.transmit_bytes > 300);
        // Both devices are still sending packets, and the two counters are read at different moments, so they need not
        // be equal.
        assert!(received.receive_packets > 5 && received.receive_bytes > 300);
        Ok(())
    });
}

#[test]
fn a_link_changes_at_once_and_reports_it() {
    isolated(|_| {
        let netlink = Netlink::new()?;
        let [one, two] = ["one", "two"].map(|name| InterfaceName::new(name).unwrap());
        netlink.add_veth((&one, LinkChange::new()), (&two, LinkChange::new()))?;
        let again = netlink.add_veth((&one, LinkChange::new()), (&two, LinkChange::new()));
        assert_eq!(again.unwrap_err().kind(), io::ErrorKind::AlreadyExists);

        let before = netlink.link(&one)?;
        assert!(!before.up && !before.carrier);
        let change = LinkChange::new()
            .up(true)
            .mtu(4000)
            .gso_max_size(30_000)
            .gso_max_segments(11)
            .gro_max_size(40_000);
        netlink.change_link(before.index, change)?;
        let after = netlink.link(&one)?;
        assert!(after.up);
        assert_eq!((after.mtu, after.index), (4000, before.index));
        assert_eq!((after.gso_max_size, after.gso_max_segments), (Some(30_000), Some(11)));
        assert_eq!(after.gro_max_size, Some(40_000));
        netlink.set_gro_max_size(before.index, 65_000, 50_000)?;
        let sizes = netlink.link(&one)?;
        assert_eq!((sizes.gro_max_size, sizes.gro_ipv4_max_size), (Some(65_000), Some(50_000)));

        let bad = netlink.change_link(before.index, LinkChange::new().mtu(1 << 20)).unwrap_err();
        assert_eq!(bad.kind(), io::ErrorKind::InvalidInput);
        let names: Vec<String> =
            netlink.links()?.iter().map(|link| link.name.to_string()).collect();
        assert!(names.contains(&"lo".to_owned()) && names.contains(&"one".to_owned()));
        netlink.change_link(before.index, LinkChange::new().up(false))?;
        assert!(!netlink.link(&one)?.up);
        netlink.delete_link(before.index)?;
        let gone = netlink.link(&two).unwrap_err();
        assert_eq!(
            gone.raw_os_error(),
            Some(libc::ENODEV),
            "deleting a veth device deletes its peer"
        );
        Ok(())
    });
}

#[test]
fn a_vxlan_device_is_made_where_it_belongs_and_its_socket_stays() {
    isolated(|_| {
        let other = NetworkNamespace::new()?;
        let netlink = Netlink::new()?;
        Control::new()?.set_up(&InterfaceName::new("lo")?, true)?;
        let name = InterfaceName::new("vx")?;
        let address = Ipv4Addr::LOCALHOST;
        let ends = VxlanEnds { identifier: 42, local: address, remote: address, port: 4799 };
        let change = LinkChange::new().namespace(other.as_fd()).up(true);
        if let Err(error) = netlink.add_vxlan_between((&name, change), &ends) {
            assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP));
            println!("skipped: the kernel has no VXLAN");
            return Ok(());
        }
        assert_eq!(netlink.link(&name).unwrap_err().raw_os_error(), Some(libc::ENODEV));
        let link = other.run(Netlink::new)??.link(&name)?;
        assert_eq!((link.kind.as_deref(), link.up), (Some("vxlan"), true));
        let taken = UdpSocket::bind((address, ends.port)).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse, "the device listens in this namespace");
        other.run(|| UdpSocket::bind(("0.0.0.0", ends.port)))??;
        Ok(())
    });
}

#[test]
fn more_links_than_one_answer_holds_are_all_listed() {
    isolated(|_| {
        let netlink = Netlink::new()?;
        for i in 0..60 {
            let [one, two] = [format!("a{i}"), format!("b{i}")].map(|n| InterfaceName::new(&n));
            netlink.add_veth((&one?, LinkChange::new()), (&two?, LinkChange::new()))?;
        }
        assert_eq!(
            netlink.links()?.iter().filter(|l| l.kind.as_deref() == Some("veth")).count(),
            120
        );
        Ok(())
    });
}

#[test]
fn routes_and_neighbors_are_as_configured() {
    isolated(|control| {
        let tap = super::tap(control, "tap0")?;
        let netlink = Netlink::new()?;
        let index = Control::new()?.index(tap.name())?;
        netlink.add_address(index, "10.1.0.1".parse().unwrap(), 24)?;
        let gateway: IpAddr = "10.1.0.254".parse().unwrap();
        netlink.add_route(index, ("0.0.0.0".parse().unwrap(), 0), Some(gateway))?;
        netlink.add_route(index, ("192.168.7.0".parse().unwrap(), 24), None)?;
        netlink.set_neighbour(index, gateway, [2, 0, 0, 0, 0, 0x99])?;
        netlink.set_neighbour(index, "192.168.7.5".parse().unwrap(), [2, 0, 0, 0, 0, 0x55])?;
        netlink.set_neighbour(index, "192.168.7.5".parse().unwrap(), [2, 0, 0, 0, 0, 0x56])?;

        let socket = UdpSocket::bind("10.1.0.1:0")?;
        let mut buffer = [0; 256];
        for (destination, last) in [("8.8.8.8:9", 0x99), ("192.168.7.5:9", 0x56)] {
            socket.send_to(b"x", destination)?;
            let length = tap.read(&mut buffer)?;
            assert_eq!(buffer[10..length][..6], [2, 0, 0, 0, 0, last], "{destination}");
        }
        let other_family: IpAddr = "fd00::1".parse().unwrap();
        let mixed = netlink.add_route(index, ("10.5.0.0".parse().unwrap(), 16), Some(other_family));
        assert_eq!(mixed.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        let unreachable: IpAddr = "10.77.0.1".parse().unwrap();
        netlink.add_route(index, ("10.5.0.0".parse().unwrap(), 16), Some(unreachable)).unwrap_err();
        Ok(())
    });
}
