//! Tests network namespaces that threads and programs enter, and user namespaces.

use std::io;
use std::os::fd::AsFd;
use std::process::Command;

use grosso_sys::interface::{Control, InterfaceName, write_attribute};
use grosso_sys::namespace::{
    NetworkNamespace, network_cookie, show_network_in_sysfs, user_namespace_refusal,
};
use grosso_sys::netlink::{LinkChange, Netlink};

use super::{isolated, skip};

#[test]
fn a_network_is_entered_by_a_thread_and_by_a_program() {
    isolated(|_| {
        let here = NetworkNamespace::current()?;
        let there = NetworkNamespace::new()?;
        assert!(!here.is_same(&there)?);
        assert!(here.is_same(&NetworkNamespace::current()?)?, "the creator keeps its namespace");
        assert!(there.run(NetworkNamespace::current)??.is_same(&there)?);

        let name = InterfaceName::new("only-there")?;
        let peer = InterfaceName::new("peer")?;
        let change = LinkChange::new().namespace(there.as_fd());
        Netlink::new()?.add_veth((&name, change), (&peer, change))?;
        Control::new()?.index(&name).unwrap_err();
        // A socket opened in the other namespace also works in this one.
        there.run(Control::new)??.index(&name)?;

        let mut command = Command::new("cat");
        let listing = there.host(command.arg("/proc/self/net/dev"))?.output()?;
        let listing = String::from_utf8_lossy(&listing.stdout).into_owned();
        assert!(listing.contains("only-there") && !listing.contains("tap"), "{listing}");
        Ok(())
    });
}

#[test]
fn no_network_has_the_number_of_one_that_is_gone() {
    isolated(|_| {
        let here = match network_cookie() {
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
                skip("the number of a network wants Linux 5.14");
                return Ok(());
            }
            number => number?,
        };
        assert_eq!(NetworkNamespace::current()?.run(network_cookie)??, here);
        let mut seen = vec![here];
        for _ in 0..8 {
            let number = NetworkNamespace::new()?.run(network_cookie)??;
            assert!(!seen.contains(&number), "{number}: {seen:?}");
            seen.push(number);
        }
        Ok(())
    });
}

#[test]
fn sysfs_shows_the_network_that_was_entered() {
    isolated(|_| {
        let there = NetworkNamespace::new()?;
        let names = ["one", "two"].map(|name| InterfaceName::new(name).unwrap());
        let change = LinkChange::new().namespace(there.as_fd());
        Netlink::new()?.add_veth((&names[0], change), (&names[1], change))?;
        let alias = there.run(|| -> io::Result<String> {
            show_network_in_sysfs()?;
            write_attribute(&names[0], "ifalias", "seen")?;
            std::fs::read_to_string("/sys/class/net/one/ifalias")
        })??;
        assert_eq!(alias, "seen\n");
        assert!(!std::fs::exists("/sys/class/net/one")?);
        Ok(())
    });
}

#[test]
fn the_network_of_a_process_is_that_of_its_first_thread() {
    let own = NetworkNamespace::of_process(std::process::id()).unwrap();
    assert!(own.is_same(&NetworkNamespace::current().unwrap()).unwrap());
    assert_eq!(NetworkNamespace::of_process(0).unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_missing_user_namespace_is_reported_with_the_remedy() {
    match user_namespace_refusal().unwrap() {
        None => {
            // `unshare` also creates a user namespace, so it must agree with the result.
            let tried = Command::new("unshare").args(["-Urn", "true"]).status();
            assert!(tried.map_or(true, |status| status.success()));
        }
        Some(refusal) => skip(&format!("{refusal}; {:?}", refusal.remedy())),
    }
}
