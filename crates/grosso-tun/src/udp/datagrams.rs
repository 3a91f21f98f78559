//! Grouping of datagrams for one system call: equal datagrams share a message, which the kernel segments.

use std::{io, net::SocketAddr};

use grosso_sys::fault::Fault;

/// Maximum datagrams per message (`UDP_MAX_SEGMENTS` of Linux 4.18 to 6.8; later kernels accept 128).
pub const DATAGRAMS_MAX: usize = 64;
/// Maximum payload of one message in bytes: that of the longest IPv4 packet (rule S21).
const BYTES_MAX: usize = 65_507;

/// A datagram to send.
///
/// ```
/// use grosso_tun::Datagram;
///
/// let to = "192.0.2.1:51820".parse().unwrap();
/// let datagram = Datagram { payload: b"hello", to, class: 0 };
/// # assert_eq!(datagram.payload.len(), 5);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// UDP payload. Datagrams of equal length to one destination share a message.
    pub payload: &'a [u8],
    /// Destination address and port.
    pub to: SocketAddr,
    /// Traffic class: DSCP in the upper six bits, ECN in the lower two.
    pub class: u8,
}

/// Returns the number of leading datagrams that one message can carry: they have the same destination, class and
/// length, except that the last may be shorter, but not empty.
pub(crate) fn alike(datagrams: &[Datagram<'_>]) -> usize {
    let Some(first) = datagrams.first() else { return 0 };
    let size = first.payload.len();
    let (mut count, mut bytes) = (1, size);
    if size == 0 {
        return 1;
    }
    for next in &datagrams[1..datagrams.len().min(DATAGRAMS_MAX)] {
        let len = next.payload.len();
        bytes += len;
        let same = (next.to, next.class) == (first.to, first.class);
        if !same || len == 0 || len > size || bytes > BYTES_MAX {
            break;
        }
        count += 1;
        if len < size {
            break;
        }
    }
    count
}

/// Action after the kernel rejected a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The socket buffer is full: wait.
    Full,
    /// The route cannot segment, for example because its device has no checksum offload (before Linux 6.11) or because
    /// of IPsec: send datagrams one by one from now on.
    NoSegments,
    /// This message cannot be segmented, for example because its datagrams exceed the MTU: send its datagrams one by
    /// one.
    ThisOne,
    /// This datagram is lost: too long, to an invalid address, or to an unreachable host.
    Lost,
    /// The socket failed.
    Broken,
}

impl Refusal {
    /// Returns the action for `error` on a message of `datagrams` datagrams.
    pub(crate) fn of(error: &io::Error, datagrams: usize) -> Self {
        match (Fault::of(error), datagrams) {
            (Fault::Later, _) => Self::Full,
            // EIO; for a TUN device the same code says that it is down.
            (Fault::Down, 2..) => Self::NoSegments,
            (Fault::Malformed | Fault::TooLong | Fault::Unsupported, 2..) => Self::ThisOne,
            (Fault::Malformed | Fault::TooLong, _)
            | (Fault::Unreachable | Fault::Down | Fault::Forbidden, _) => Self::Lost,
            // The ICMP error of an earlier datagram, of which this call is only told.
            _ if error.kind() == io::ErrorKind::ConnectionRefused => Self::Lost,
            _ => Self::Broken,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagrams(lengths: &[usize]) -> Vec<Datagram<'static>> {
        let to = "192.0.2.1:1".parse().unwrap();
        lengths.iter().map(|len| Datagram { payload: &[7; 9000][..*len], to, class: 0 }).collect()
    }

    #[test]
    fn one_message_is_of_equal_datagrams_and_a_shorter_last() {
        assert_eq!(alike(&[]), 0);
        assert_eq!(alike(&datagrams(&[100, 100, 60, 60])), 3);
        assert_eq!(alike(&datagrams(&[100, 101])), 1);
        assert_eq!(alike(&datagrams(&[100, 0, 100])), 1, "an empty one would be lost");
        assert_eq!(alike(&datagrams(&[0, 0])), 1);
        assert_eq!(alike(&datagrams(&[100; 100])), DATAGRAMS_MAX);
        assert_eq!(alike(&datagrams(&[9000; 10])), 7, "65507 bytes");
    }

    #[test]
    fn marks_and_destinations_are_never_mixed() {
        let mut marked = datagrams(&[100, 100, 100]);
        marked[1].class = 3;
        assert_eq!(alike(&marked), 1);
        assert_eq!(alike(&marked[1..]), 1);
        let mut elsewhere = datagrams(&[100, 100, 100]);
        elsewhere[2].to = "192.0.2.2:1".parse().unwrap();
        assert_eq!(alike(&elsewhere), 2);
    }

    #[test]
    fn an_io_error_of_segments_ends_segmenting_and_of_one_datagram_does_not() {
        let of = |code, datagrams| Refusal::of(&io::Error::from_raw_os_error(code), datagrams);
        // Numbers of Linux on every machine that this crate is tested on.
        let [eio, eagain, einval, emsgsize, ebadf, eafnosupport] = [5, 11, 22, 90, 9, 97];
        assert_eq!(of(eio, 2), Refusal::NoSegments);
        assert_eq!(of(eio, 1), Refusal::Lost);
        assert_eq!([of(einval, 2), of(emsgsize, 2)], [Refusal::ThisOne; 2]);
        assert_eq!([of(einval, 1), of(emsgsize, 1)], [Refusal::Lost; 2]);
        assert_eq!([of(eafnosupport, 1), of(eafnosupport, 2)], [Refusal::Lost; 2]);
        assert_eq!([of(eagain, 1), of(eagain, 2)], [Refusal::Full; 2]);
        assert_eq!(of(ebadf, 2), Refusal::Broken);
    }
}
