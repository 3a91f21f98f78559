//! Claims on keys and interfaces. A claim shows other programs on the host that the key or interface is in use.
//!
//! A claim is a listening Unix socket without a file, named after the key's fingerprint or the interface. The socket is
//! visible to all users of a network namespace, regardless of their directories, and disappears when its program ends.
//! A claim counts only if it is held by root or by this user (ADR 0217). The key file is locked as well, and programs
//! in other network namespaces see that lock.

use std::{
    fs::{File, TryLockError},
    io,
    path::Path,
};

use grosso_sys::{
    claim::{Claim, claim as claim_name},
    path,
};

use super::keys::{Key, Keys};

/// Claims both keys of a pair until the result is dropped. Each key is claimed for its direction only, because the peer
/// may be on the same host. Calls `note` for each key that another user claims. The error is
/// [`io::ErrorKind::WouldBlock`] if another port has claimed one of the keys.
pub(super) fn claim(
    keys: &Keys,
    file: Option<&Path>,
    note: &dyn Fn(String),
) -> io::Result<Vec<File>> {
    let mut claims = Vec::new();
    for (key, direction) in [(&keys.outbound, "out"), (&keys.inbound, "in")] {
        claims.extend(named(key, direction, note)?);
    }
    if let Some(path) = file {
        let file = path::open(path)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => taken("the key file"),
            TryLockError::Error(error) => error,
        })?;
        claims.push(file);
    }
    Ok(claims)
}

/// Claims an interface until the result is dropped. The error is [`io::ErrorKind::AddrInUse`] if another path has
/// claimed it. `Ok(None)` means that another user has claimed it.
pub(super) fn interface(name: &str) -> io::Result<Option<File>> {
    match claim_name(&format!("grosso-interface-{name}"))? {
        Claim::Held(socket) => Ok(Some(socket.into())),
        Claim::Taken => Err(io::ErrorKind::AddrInUse.into()),
        Claim::Doubtful { .. } => Ok(None),
    }
}

fn named(key: &Key, direction: &str, note: &dyn Fn(String)) -> io::Result<Option<File>> {
    let name = format!("grosso-esp-{direction}-{:032x}", key.fingerprint(direction));
    match claim_name(&name)? {
        Claim::Held(socket) => Ok(Some(socket.into())),
        Claim::Taken => Err(taken(&format!("the key \"{direction}\""))),
        Claim::Doubtful { user } => {
            let user =
                user.map_or_else(|| "another user".to_owned(), |user| format!("user {user}"));
            note(format!(
                "esp: a program run by {user} reports that it uses the same key \"{direction}\". This path \
                 keeps running. If the report is true, make new keys for both endpoints"
            ));
            Ok(None)
        }
    }
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
        let first = claim(&keys(1, 2), None, &|_| ()).unwrap();
        let other_end = claim(&keys(2, 1), None, &|_| ()).unwrap();
        for (inbound, outbound, which) in [(1, 2, "out"), (3, 2, "out"), (1, 3, "in")] {
            let error = claim(&keys(inbound, outbound), None, &|_| ()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            assert!(error.to_string().ends_with(&format!("the key \"{which}\"")), "{error}");
        }
        drop(first);
        assert!(claim(&keys(1, 2), None, &|_| ()).is_ok());
        drop(other_end);
    }

    #[test]
    fn a_key_file_is_locked_as_well() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let _first = claim(&keys(4, 5), Some(file.path()), &|_| ()).unwrap();
        let error = claim(&keys(6, 7), Some(file.path()), &|_| ()).unwrap_err();
        assert!(error.to_string().ends_with("the key file"), "{error}");
    }
}
