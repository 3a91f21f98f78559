//! Claims on names. A process that has claimed an abstract socket name holds it until it exits or is killed.
//!
//! Every user of a network namespace can take a name. The holder of a name is therefore trusted only if the kernel
//! reports that it belongs to root or to the caller's user.

use std::{io, os::fd::OwnedFd};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, SocketFlags, SocketType, bind, connect, listen, socket_with,
        sockopt::socket_peercred,
    },
    process::geteuid,
};

use crate::{netlink::Netlink, path::socket::abstract_address};

/// Result of a claim.
#[derive(Debug)]
pub enum Claim {
    /// The caller has the name until this descriptor is closed.
    Held(OwnedFd),
    /// Another process, which runs as root or as the caller's user, holds the name.
    Taken,
    /// A process that is not trusted holds the name.
    Doubtful {
        /// User ID of the process, if the kernel reported it.
        user: Option<u32>,
    },
}

/// Claims a name. The call never blocks.
///
/// # Errors
/// Returns any error from `socket(2)`, `bind(2)` or `listen(2)`, except `EADDRINUSE`.
pub fn claim(name: &str) -> io::Result<Claim> {
    let address = abstract_address(name)?;
    for _ in 0..ATTEMPTS_MAX {
        let socket = stream()?;
        match bind(&socket, &address) {
            Err(Errno::ADDRINUSE) => {}
            result => {
                result?;
                listen(&socket, WAITING_MAX)?;
                return Ok(Claim::Held(socket));
            }
        }
        let user = match connect(&socket, &address) {
            Ok(()) => Some(socket_peercred(&socket)?.uid.as_raw()),
            // The holder may have exited, may not be listening, or may have too many queued connections.
            Err(_) => match owner(name) {
                Ok(None) => continue,
                Ok(user) => user,
                // Not every kernel answers this query.
                Err(_) => None,
            },
        };
        return Ok(match user {
            Some(user) if user == 0 || user == geteuid().as_raw() => Claim::Taken,
            user => Claim::Doubtful { user },
        });
    }
    Ok(Claim::Doubtful { user: None })
}

/// Returns the user who created the socket with an abstract name, or `None` if the name is free.
fn owner(name: &str) -> io::Result<Option<u32>> {
    let mut named = vec![0];
    named.extend_from_slice(name.as_bytes());
    Netlink::of_sockets()?.unix_stream_owner(&named)
}

fn stream() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// Maximum number of connections that the kernel queues for a claim. They are never accepted. If the queue is full, the
/// kernel's list of sockets shows who holds the name.
const WAITING_MAX: i32 = 4096;
/// Maximum number of attempts to claim a name if its holder exits each time before it can be queried.
const ATTEMPTS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use std::thread;

    use rustix::{
        net::SocketAddrUnix,
        process::{Gid, Uid},
        thread::{set_thread_res_gid, set_thread_res_uid},
    };

    use super::*;

    fn name(what: &str) -> String {
        format!("grosso-claim-test-{}-{what}", std::process::id())
    }

    fn address(name: &str) -> SocketAddrUnix {
        abstract_address(name).unwrap()
    }

    #[test]
    fn a_name_is_held_once_and_free_when_its_holder_ends() {
        let name = name("own");
        let Claim::Held(held) = claim(&name).unwrap() else { panic!("the name is free") };
        for _ in 0..100 {
            assert!(matches!(claim(&name).unwrap(), Claim::Taken));
        }
        drop(held);
        assert!(matches!(claim(&name).unwrap(), Claim::Held(_)));
    }

    #[test]
    fn a_holder_that_does_not_listen_yet_or_has_a_full_queue_is_believed_for_its_user() {
        let [bound, full] = ["bound", "full"].map(name);
        let early = stream().unwrap();
        bind(&early, &address(&bound)).unwrap();
        if owner(&bound).is_err() {
            println!("skipped: this kernel does not list Unix sockets (CONFIG_UNIX_DIAG)");
            return;
        }
        assert!(matches!(claim(&bound).unwrap(), Claim::Taken));

        let busy = stream().unwrap();
        bind(&busy, &address(&full)).unwrap();
        listen(&busy, 0).unwrap();
        let mut waiting = Vec::new();
        loop {
            let socket = stream().unwrap();
            match connect(&socket, &address(&full)) {
                Err(error) => break assert_eq!(error, Errno::AGAIN),
                Ok(()) => waiting.push(socket),
            }
        }
        assert!(matches!(claim(&full).unwrap(), Claim::Taken));
    }

    #[test]
    fn a_holder_that_is_neither_root_nor_the_caller_is_not_believed() {
        if !geteuid().is_root() {
            println!("skipped: only root can become another user");
            return;
        }
        let names = ["listens", "held"].map(name);
        let [listens, bound] = names.each_ref().map(|name| address(name));
        // The credentials are recorded when the socket starts to listen.
        let held = thread::spawn(move || {
            let (user, group) = (Uid::from_raw(12_345), Gid::from_raw(12_345));
            set_thread_res_gid(group, group, group).unwrap();
            set_thread_res_uid(user, user, user).unwrap();
            let sockets = [stream().unwrap(), stream().unwrap()];
            bind(&sockets[0], &listens).unwrap();
            listen(&sockets[0], WAITING_MAX).unwrap();
            bind(&sockets[1], &bound).unwrap();
            sockets
        });
        let _held = held.join().unwrap();
        for name in &names {
            let claimed = claim(name).unwrap();
            assert!(
                matches!(claimed, Claim::Doubtful { user: Some(12_345) | None }),
                "{claimed:?}"
            );
        }
        let listens = claim(&names[0]).unwrap();
        assert!(matches!(listens, Claim::Doubtful { user: Some(12_345) }), "{listens:?}");
    }
}
