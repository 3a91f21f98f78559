//! Datagrams to send. Those with the same length and destination are grouped into one message, which the kernel
//! segments.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use grosso_sys::errno::{ErrorClass, is_device_failure};

/// Maximum number of datagrams per message (`UDP_MAX_SEGMENTS` in Linux 4.18 to 6.8; later kernels accept 128).
///
/// ```
/// use grosso_tun::{DATAGRAMS_MAX, Room};
///
/// let room = Room::new(16, 16).packets(DATAGRAMS_MAX);
/// # let _ = room;
/// ```
pub const DATAGRAMS_MAX: usize = 64;
/// Maximum payload of one message in bytes, equal to the payload of the longest UDP datagram over IPv4 (rule S21).
const BYTES_MAX: usize = 65_507;

/// Datagram to send, or several datagrams in one buffer.
///
/// ```
/// use grosso_tun::Datagram;
///
/// let to = "192.0.2.1:51820".parse().unwrap();
/// let datagram = Datagram::new(b"hello", to);
/// # assert_eq!(datagram.payload(), b"hello");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    payload: &'a [u8],
    to: SocketAddr,
    class: u8,
    source: Option<IpAddr>,
    /// Length in bytes of each datagram except the last, which may be shorter.
    segment_bytes: usize,
}

impl<'a> Datagram<'a> {
    /// Creates a datagram with traffic class 0. Datagrams of equal length to one destination share a message.
    ///
    /// ```
    /// # use grosso_tun::Datagram;
    /// let datagram = Datagram::new(b"hello", "192.0.2.1:51820".parse().unwrap());
    /// # assert_eq!(datagram.class(), 0);
    /// ```
    #[must_use]
    pub const fn new(payload: &'a [u8], to: SocketAddr) -> Self {
        Self { payload, to, class: 0, source: None, segment_bytes: usize::MAX }
    }

    /// Sets the traffic class: DSCP in the upper six bits, ECN in the lower two.
    ///
    /// ```
    /// # use grosso_tun::Datagram;
    /// let datagram = Datagram::new(b"hello", "192.0.2.1:51820".parse().unwrap()).with_class(2);
    /// # assert_eq!(datagram.class(), 2);
    /// ```
    #[must_use]
    pub const fn with_class(self, class: u8) -> Self {
        Self { class, ..self }
    }

    /// Sets the source address, which is useful on a host with several addresses. For a reply, use the
    /// [`Received::to`](crate::Received::to) of the received datagram.
    ///
    /// ```
    /// # use grosso_tun::Datagram;
    /// let to = "192.0.2.1:51820".parse().unwrap();
    /// let answer = Datagram::new(b"hello", to).with_source("192.0.2.7".parse().unwrap());
    /// # assert!(answer.source().is_some());
    /// ```
    #[must_use]
    pub const fn with_source(self, source: IpAddr) -> Self {
        Self { source: Some(source), ..self }
    }

    /// Declares that the payload contains several datagrams of `bytes` bytes each; the last may be shorter. It can
    /// contain at most [`DATAGRAMS_MAX`] datagrams and 65,507 bytes. It is sent with one system call, and the kernel
    /// splits it into datagrams (`UDP_SEGMENT`).
    ///
    /// ```
    /// # use grosso_tun::Datagram;
    /// let to = "192.0.2.1:51820".parse().unwrap();
    /// let three = Datagram::new(&[7; 3000], to).segmented(1200);
    /// # assert_eq!(three.count(), 3);
    /// ```
    #[must_use]
    pub const fn segmented(self, bytes: usize) -> Self {
        Self { segment_bytes: if bytes == 0 { usize::MAX } else { bytes }, ..self }
    }

    /// Returns the payload.
    ///
    /// ```
    /// # use grosso_tun::Datagram;
    /// # let to = "192.0.2.1:51820".parse().unwrap();
    /// assert_eq!(Datagram::new(b"hello", to).payload(), b"hello");
    /// ```
    #[must_use]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns the destination.
    ///
    /// ```
    /// # use grosso_tun::Datagram;
    /// # let to = "192.0.2.1:51820".parse().unwrap();
    /// assert_eq!(Datagram::new(b"hello", to).to(), to);
    /// ```
    #[must_use]
    pub const fn to(&self) -> SocketAddr {
        self.to
    }

    /// Returns the traffic class.
    ///
    /// ```
    /// # use grosso_tun::Datagram;
    /// # let to = "192.0.2.1:51820".parse().unwrap();
    /// assert_eq!(Datagram::new(b"hello", to).with_class(2).class(), 2);
    /// ```
    #[must_use]
    pub const fn class(&self) -> u8 {
        self.class
    }

    /// Returns the source address, if it was set.
    ///
    /// ```
    /// # use grosso_tun::Datagram;
    /// # let to = "192.0.2.1:51820".parse().unwrap();
    /// assert_eq!(Datagram::new(b"hello", to).source(), None);
    /// ```
    #[must_use]
    pub const fn source(&self) -> Option<IpAddr> {
        self.source
    }

    /// Returns the number of datagrams in the payload.
    ///
    /// ```
    /// # use grosso_tun::Datagram;
    /// # let to = "192.0.2.1:51820".parse().unwrap();
    /// assert_eq!(Datagram::new(&[7; 3000], to).segmented(1200).count(), 3);
    /// ```
    #[must_use]
    pub const fn count(&self) -> usize {
        let count = self.payload.len().div_ceil(self.segment_bytes);
        if count == 0 { 1 } else { count }
    }

    /// Returns the segment size for the kernel, if the payload contains several datagrams.
    pub(super) fn segment_bytes(&self) -> Option<u16> {
        (self.count() > 1).then(|| u16::try_from(self.segment_bytes).unwrap_or(u16::MAX))
    }

    /// Returns the datagrams one by one.
    pub(super) fn pieces(&self) -> impl Iterator<Item = Self> + use<'a> {
        let whole = *self;
        let pieces = whole.payload.chunks(whole.segment_bytes);
        pieces.map(move |payload| Self { payload, segment_bytes: usize::MAX, ..whole })
    }

    /// Checks the limits of one message.
    pub(super) fn check(&self) -> io::Result<()> {
        let (count, bytes) = (self.count(), self.payload.len());
        if count > 1 && (count > DATAGRAMS_MAX || bytes > BYTES_MAX) {
            let why = format!(
                "{count} segments of {bytes} bytes do not fit into one message: the limit is \
                 {DATAGRAMS_MAX} segments and {BYTES_MAX} bytes"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        Ok(())
    }
}

/// Returns how many of the first datagrams one message can carry: those with the same addresses, class and length. The
/// last one may be shorter, but not empty. A segmented datagram always gets its own message.
pub(super) fn alike(datagrams: &[Datagram<'_>]) -> usize {
    let Some(first) = datagrams.first() else { return 0 };
    let size = first.payload.len();
    let (mut count, mut bytes) = (1, size);
    if size == 0 || first.count() > 1 {
        return 1;
    }
    for next in &datagrams[1..datagrams.len().min(DATAGRAMS_MAX)] {
        let len = next.payload.len();
        bytes += len;
        let same = (next.to, next.class, next.source) == (first.to, first.class, first.source)
            && next.count() == 1;
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

/// Action to take after the kernel has rejected a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The socket buffer is full. Wait until there is room.
    Full,
    /// The kernel cannot segment on this route, for example because of IPsec or, before Linux 6.11, because the device
    /// has no checksum offload. Send datagrams one by one from now on.
    NoSegments,
    /// This message cannot be segmented, for example because its datagrams exceed the MTU. Send its datagrams one by
    /// one.
    ThisOne,
    /// This datagram is lost: it is too long, its destination is invalid, or the host is unreachable.
    Lost,
    /// The error was caused by an earlier datagram, and nothing was sent. Repeat the call.
    Earlier,
    /// The socket failed.
    Broken,
}

impl Refusal {
    /// Returns what to do about `error`, which the kernel returned for a message of `datagrams` datagrams.
    pub(super) fn of(error: &io::Error, datagrams: usize) -> Self {
        match (ErrorClass::of(error), datagrams) {
            (ErrorClass::Later, _) => Self::Full,
            // A socket returns EIO if the device cannot segment. ENETDOWN does not mean that, and an interface may come
            // up again.
            (ErrorClass::Down, 2..) if is_device_failure(error) => Self::NoSegments,
            (ErrorClass::Malformed | ErrorClass::TooLong | ErrorClass::Unsupported, 2..) => {
                Self::ThisOne
            }
            (ErrorClass::Malformed | ErrorClass::TooLong, _)
            | (ErrorClass::Unreachable | ErrorClass::Down | ErrorClass::Forbidden, _) => Self::Lost,
            // A connected socket reports ICMP errors caused by earlier datagrams.
            _ if error.kind() == io::ErrorKind::ConnectionRefused => Self::Earlier,
            _ => Self::Broken,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagrams(lengths: &[usize]) -> Vec<Datagram<'static>> {
        let to = "192.0.2.1:1".parse().unwrap();
        lengths.iter().map(|len| Datagram::new(&[7; 9000][..*len], to)).collect()
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
    fn a_segmented_datagram_has_its_own_message_and_limits() {
        let mut list = datagrams(&[1200, 1200, 1200]);
        list[1] = list[1].segmented(500);
        assert_eq!([alike(&list), alike(&list[1..])], [1, 1]);
        assert_eq!((list[1].count(), list[1].segment_bytes()), (3, Some(500)));
        assert!(list[1].pieces().map(|piece| piece.payload().len()).eq([500, 500, 200]));
        assert_eq!(list[0].segmented(1200).segment_bytes(), None);
        assert_eq!(list[0].segmented(0).count(), 1);
        list[0].segmented(19).check().unwrap();
        let error = list[0].segmented(18).check().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "67 segments: {error}");
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
        // These Linux error numbers are the same on every architecture on which the crate is tested.
        let [eio, eagain, einval, emsgsize, ebadf, eafnosupport] = [5, 11, 22, 90, 9, 97];
        let [enetdown, econnrefused] = [100, 111];
        assert_eq!(of(eio, 2), Refusal::NoSegments);
        assert_eq!(of(eio, 1), Refusal::Lost);
        assert_eq!(
            [of(enetdown, 1), of(enetdown, 2)],
            [Refusal::Lost; 2],
            "the device can come up again"
        );
        assert_eq!([of(einval, 2), of(emsgsize, 2)], [Refusal::ThisOne; 2]);
        assert_eq!([of(einval, 1), of(emsgsize, 1)], [Refusal::Lost; 2]);
        assert_eq!([of(eafnosupport, 1), of(eafnosupport, 2)], [Refusal::Lost; 2]);
        assert_eq!([of(eagain, 1), of(eagain, 2)], [Refusal::Full; 2]);
        assert_eq!([of(econnrefused, 1), of(econnrefused, 2)], [Refusal::Earlier; 2]);
        assert_eq!(of(ebadf, 2), Refusal::Broken);
    }
}
