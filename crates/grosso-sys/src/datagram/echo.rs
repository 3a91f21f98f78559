//! Sends echo requests of a chosen length, and receives the replies.

use core::net::{IpAddr, SocketAddr};
use std::io;
use std::os::fd::OwnedFd;

use rustix::net::ipproto::{ICMP, ICMPV6};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::net::{bind, recvfrom, sendto, socket_with};

use super::set;
use crate::filter::{
    DROP, INDEX_OF_IPV4, JUMP_IF_EQUAL, LOAD_BYTE_INDEXED, LOAD_INDEX, LOAD_WORD_INDEXED, RETURN,
    TAKE, attach, instruction,
};
use crate::secret::random;

/// A raw socket for echo requests (RFC 792, RFC 4443 section 4). The requests have DF set and ignore the kernel's path
/// MTU. Genuine answers contain a secret; the kernel drops all others, so that a flood of forged answers cannot
/// displace genuine ones.
#[derive(Debug)]
pub struct EchoSocket {
    file: OwnedFd,
    local: IpAddr,
    secret: [u8; 8],
    packet: Vec<u8>,
}

impl EchoSocket {
    /// Opens a nonblocking socket at this address.
    ///
    /// # Errors
    ///
    /// Returns any error from `socket(2)` or `bind(2)`, for example `EPERM` without `CAP_NET_RAW`.
    pub fn open(local: IpAddr) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (family, protocol) = match local {
            IpAddr::V4(_) => (AddressFamily::INET, ICMP),
            IpAddr::V6(_) => (AddressFamily::INET6, ICMPV6),
        };
        let file = socket_with(family, SocketType::RAW, flags, Some(protocol))?;
        let secret = random()?;
        attach(&file, &answers_with(secret, local.is_ipv4()))?;
        let (level, option, value) = match local {
            IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE),
            IpAddr::V6(_) => {
                (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)
            }
        };
        set(&file, level, option, value)?;
        bind(&file, &SocketAddr::new(local, 0))?;
        Ok(Self { file, local, secret: secret.to_be_bytes(), packet: Vec::new() })
    }

    /// Sends echo request `number` in a packet of `length` bytes, including the IP header.
    ///
    /// # Errors
    ///
    /// Returns any error from `sendto(2)`, for example `EMSGSIZE` above the link MTU.
    pub fn ask(&mut self, remote: IpAddr, number: u64, length: usize) -> io::Result<()> {
        let (request, header) = match self.local {
            IpAddr::V4(_) => (ECHO_REQUEST, IPV4_BYTES),
            IpAddr::V6(_) => (ECHO_REQUEST_V6, IPV6_BYTES),
        };
        self.packet.clear();
        self.packet.extend([request, 0, 0, 0]);
        self.packet.extend(&self.secret[..2]);
        self.packet.extend((number as u16).to_be_bytes());
        self.packet.extend(self.secret);
        self.packet.extend(number.to_be_bytes());
        self.packet.resize(length.saturating_sub(header).max(ANSWER_BYTES), 0);
        // The kernel computes the checksum of ICMPv6 only.
        if self.local.is_ipv4() {
            let checksum = checksum(&self.packet).to_be_bytes();
            self.packet[2..4].copy_from_slice(&checksum);
        }
        sendto(&self.file, &self.packet, SendFlags::empty(), &SocketAddr::new(remote, 0))?;
        Ok(())
    }

    /// Passes the source and number of each answer to `each`; reads at most `max` messages.
    pub fn answers(&mut self, max: usize, mut each: impl FnMut(IpAddr, u64)) {
        let mut buffer = [0; IPV4_BYTES_MAX + ANSWER_BYTES];
        for _ in 0..max {
            // A socket error says nothing about the paths.
            let Ok((length, _, Some(source))) =
                recvfrom(&self.file, &mut buffer[..], RecvFlags::empty())
            else {
                return;
            };
            let message = buffer.get(..length).unwrap_or_default();
            if let (Ok(source), Some(number)) = (SocketAddr::try_from(source), self.parse(message))
            {
                each(source.ip(), number);
            }
        }
    }

    /// Informs the kernel that no packet longer than `mtu` bytes reaches a remote host: sends this host the message
    /// that a router would send about a packet from the UDP socket at `witness`. Supports only IPv6.
    ///
    /// # Errors
    ///
    /// Returns [`io::ErrorKind::InvalidInput`] for IPv4 addresses, or any error from `sendto(2)`.
    pub(super) fn send_mtu_error(
        &self,
        witness: SocketAddr,
        remote: SocketAddr,
        mtu: u16,
    ) -> io::Result<()> {
        let (IpAddr::V6(near), IpAddr::V6(far)) = (witness.ip(), remote.ip()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let mut message = vec![PACKET_TOO_BIG, 0, 0, 0];
        message.extend(u32::from(mtu).to_be_bytes());
        message.extend([0x60, 0, 0, 0]);
        message.extend(mtu.to_be_bytes());
        message.extend([libc::IPPROTO_UDP as u8, 64]);
        message.extend([near.octets(), far.octets()].concat());
        for number in [witness.port(), remote.port(), mtu, 0] {
            message.extend(number.to_be_bytes());
        }
        sendto(&self.file, &message, SendFlags::empty(), &SocketAddr::new(near.into(), 0))?;
        Ok(())
    }

    /// Returns the number in an answer to one of this socket's requests. IPv4 raw sockets also receive the IP header.
    fn parse(&self, message: &[u8]) -> Option<u64> {
        let header = match self.local {
            IpAddr::V4(_) => usize::from(message.first()? & 0xf) * 4,
            IpAddr::V6(_) => 0,
        };
        let answer = message.get(header..)?.first_chunk::<ANSWER_BYTES>()?;
        (answer[8..16] == self.secret).then_some(u64::from_be_bytes(*answer.last_chunk()?))
    }
}

/// Returns a filter that accepts only answers with this secret. For IPv4 raw sockets the filter starts at the IP
/// header, for IPv6 raw sockets at the ICMP header.
fn answers_with(secret: u64, is_ipv4: bool) -> [libc::sock_filter; 9] {
    let (index, answer) = match is_ipv4 {
        true => (INDEX_OF_IPV4, ECHO_REPLY),
        false => (LOAD_INDEX, ECHO_REPLY_V6),
    };
    [
        instruction(index, 0, 0, 0),
        instruction(LOAD_BYTE_INDEXED, 0, 0, 0),
        instruction(JUMP_IF_EQUAL, 0, 5, answer.into()),
        instruction(LOAD_WORD_INDEXED, 0, 0, 8),
        instruction(JUMP_IF_EQUAL, 0, 3, (secret >> 32) as u32),
        instruction(LOAD_WORD_INDEXED, 0, 0, 12),
        instruction(JUMP_IF_EQUAL, 0, 1, secret as u32),
        instruction(RETURN, 0, 0, TAKE),
        instruction(RETURN, 0, 0, DROP),
    ]
}

/// Returns the Internet checksum (RFC 1071) of a packet of at most 65535 bytes.
fn checksum(message: &[u8]) -> u16 {
    let word = |bytes: &[u8]| match bytes {
        [high, low] => u32::from(u16::from_be_bytes([*high, *low])),
        _ => bytes.first().map_or(0, |high| u32::from(*high) << 8),
    };
    let sum: u32 = message.chunks(2).map(word).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum + (sum >> 16)) as u16)
}

const ECHO_REPLY: u8 = 0;
const ECHO_REQUEST: u8 = 8;
const ECHO_REQUEST_V6: u8 = 128;
const ECHO_REPLY_V6: u8 = 129;
const PACKET_TOO_BIG: u8 = 2;
const IPV4_BYTES: usize = 20;
const IPV4_BYTES_MAX: usize = 60;
const IPV6_BYTES: usize = 40;
/// Number of bytes read from an answer: its header, the secret and the number.
const ANSWER_BYTES: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_answers_requests_of_any_length() {
        for host in ["127.0.0.1", "::1"] {
            let host: IpAddr = host.parse().unwrap();
            let mut socket = match EchoSocket::open(host) {
                Ok(socket) => socket,
                Err(error) => return println!("skipped: no raw socket: {error}"),
            };
            let other = EchoSocket::open(host).unwrap();
            for (number, length) in [(1, 0), (2, 1279), (3, 1500), (1 << 40, 9000)] {
                socket.ask(host, number, length).unwrap();
                let mut answers = Vec::new();
                while answers.is_empty() {
                    socket.answers(4, |source, number| answers.push((source, number)));
                }
                assert_eq!(answers, [(host, number)]);
            }
            let (mut buffer, flags) = ([0; 64], RecvFlags::empty());
            let kept = recvfrom(&other.file, &mut buffer[..], flags).map(|(length, ..)| length);
            assert_eq!(
                kept,
                Err(rustix::io::Errno::AGAIN),
                "answers to another socket are not received"
            );
        }
    }
}
