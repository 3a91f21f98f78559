//! Claims to keys and interfaces, by which programs on a host see that another one uses the same.
//!
//! A claim is a Unix socket without a file, named by the key's fingerprint or by the interface: it is there for all
//! users of a network namespace, whatever their directories, and is gone when its program ends, in whatever way. The
//! key file is locked too, which programs in other network namespaces see.

use std::{
    fs::File,
    io,
    os::{
        fd::OwnedFd,
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram},
    },
    path::Path,
};

use super::keys::{Key, Keys};

/// Claims both keys of a pair, each for its direction, until the result is dropped: the other end of the pair may be
/// on the same host. The error is [`io::ErrorKind::WouldBlock`] if another port has claimed one of them.
pub(super) fn claim(keys: &Keys, file: Option<&Path>) -> io::Result<Vec<File>> {
    let mut claims = vec![named(&keys.outbound, "out")?, named(&keys.inbound, "in")?];
    if let Some(path) = file {
        let file = File::open(path)?;
        file.try_lock().map_err(|error| match error {
            std::fs::TryLockError::WouldBlock => taken("the key file"),
            std::fs::TryLockError::Error(error) => error,
        })?;
        claims.push(file);
    }
    Ok(claims)
}

/// Claims an interface until the result is dropped. The error is [`io::ErrorKind::AddrInUse`] if another path has it,
/// or a program says so: anybody may, so that nothing is refused for it.
pub(super) fn interface(name: &str) -> io::Result<File> {
    bind(&format!("grosso-interface-{name}"))
}

fn named(key: &Key, direction: &str) -> io::Result<File> {
    let name = format!("grosso-esp-{direction}-{:032x}", key.fingerprint(direction));
    bind(&name).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => taken(&format!("the key \"{direction}\"")),
        _ => error,
    })
}

fn bind(name: &str) -> io::Result<File> {
    let address = SocketAddr::from_abstract_name(name)?;
    let socket = UnixDatagram::bind_addr(&address)?;
    Ok(File::from(OwnedFd::from(socket)))
}

fn taken(what: &str) -> io::Error {
    let message = format!("another port or program on this host uses {what}");
    io::Error::new(io::ErrorKind::WouldBlock, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(inbound: u8, outbound: u8) -> Keys {
        let digits = |byte: u8| format!("{byte:02x}").repeat(20);
        let text = format!("in {}\nout {}\n", digits(inbound), digits(outbound));
        Keys::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_key_is_claimed_once_for_each_direction_until_its_port_ends() {
        let first = claim(&keys(1, 2), None).unwrap();
        let other_end = claim(&keys(2, 1), None).unwrap();
        for (inbound, outbound, which) in [(1, 2, "out"), (3, 2, "out"), (1, 3, "in")] {
            let error = claim(&keys(inbound, outbound), None).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            assert!(error.to_string().ends_with(&format!("the key \"{which}\"")), "{error}");
        }
        drop(first);
        assert!(claim(&keys(1, 2), None).is_ok());
        drop(other_end);
    }

    #[test]
    fn a_key_file_is_locked_as_well() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let _first = claim(&keys(4, 5), Some(file.path())).unwrap();
        let error = claim(&keys(6, 7), Some(file.path())).unwrap_err();
        assert!(error.to_string().ends_with("the key file"), "{error}");
    }
}
