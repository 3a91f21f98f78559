//! Converts socket addresses to the kernel's format and back.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Socket address in the layout of `struct sockaddr_in` or `struct sockaddr_in6`: family and port, followed by the
/// family's own fields.
#[repr(C, align(4))]
#[derive(Clone, Copy, Debug)]
pub(super) struct Address {
    family: libc::sa_family_t,
    port: [u8; 2],
    rest: [u8; 24],
}

impl Address {
    /// Empty address that the kernel can replace with an address of any family.
    pub(super) const EMPTY: Self = Self { family: 0, port: [0; 2], rest: [0; 24] };
    /// Number of bytes that the kernel may write.
    pub(super) const CAPACITY: usize = size_of::<Self>();

    /// Returns the number of bytes that the kernel reads from the address.
    pub(super) fn len(&self) -> usize {
        match i32::from(self.family) {
            libc::AF_INET => size_of::<libc::sockaddr_in>(),
            _ => size_of::<libc::sockaddr_in6>(),
        }
    }

    /// Parses an address of `written` bytes from the kernel. Returns `None` if the address is incomplete or of another
    /// family.
    pub(super) fn parse(&self, written: usize) -> Option<SocketAddr> {
        if written < self.len() {
            return None;
        }
        let port = u16::from_be_bytes(self.port);
        let ip: IpAddr = match i32::from(self.family) {
            libc::AF_INET => Ipv4Addr::from(*self.rest.first_chunk::<4>()?).into(),
            libc::AF_INET6 => Ipv6Addr::from(*self.rest[FLOW_BYTES..].first_chunk::<16>()?).into(),
            _ => return None,
        };
        Some(SocketAddr::new(ip, port))
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        let mut rest = [0; 24];
        let family = match address {
            SocketAddr::V4(v4) => {
                rest[..4].copy_from_slice(&v4.ip().octets());
                libc::AF_INET
            }
            SocketAddr::V6(v6) => {
                rest[FLOW_BYTES..20].copy_from_slice(&v6.ip().octets());
                rest[20..].copy_from_slice(&v6.scope_id().to_ne_bytes());
                libc::AF_INET6
            }
        };
        Self { family: family as libc::sa_family_t, port: address.port().to_be_bytes(), rest }
    }
}

/// Length of `sin6_flowinfo`, which precedes the address, in bytes.
const FLOW_BYTES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_laid_out_as_the_kernel_has_it() {
        assert_eq!(Address::CAPACITY, size_of::<libc::sockaddr_in6>());
        assert_eq!(align_of::<Address>(), align_of::<libc::sockaddr_in6>());
        for text in ["192.0.2.1:4789", "[2001:db8::1]:6081"] {
            let address: SocketAddr = text.parse().unwrap();
            let laid_out = Address::from(address);
            assert_eq!(laid_out.parse(laid_out.len()), Some(address));
            assert_eq!(laid_out.parse(laid_out.len() - 1), None);
        }
        assert_eq!(Address::EMPTY.parse(Address::CAPACITY), None);
    }
}
