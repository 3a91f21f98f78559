//! Tests the sending side with a mock kernel that rejects messages and fails in the middle of a list.

use std::collections::VecDeque;

use super::*;

const EIO: i32 = 5;
const EBADF: i32 = 9;
const EINVAL: i32 = 22;
const ECONNREFUSED: i32 = 111;

/// A mock kernel with one scripted result per call: the maximum number of messages to accept, or an error.
#[derive(Default)]
struct Mock {
    answers: VecDeque<Result<usize, i32>>,
    /// Datagrams sent so far.
    sent: Vec<Vec<u8>>,
    /// Error code for segmented messages, or `None` to accept them.
    rejects_segments: Option<i32>,
}

impl Transport for Mock {
    fn send_batch(&mut self, messages: &[Message<'_>]) -> io::Result<usize> {
        let room = match self.answers.pop_front() {
            Some(Ok(0)) => return Err(io::ErrorKind::WouldBlock.into()),
            Some(Ok(room)) => room,
            Some(Err(code)) => return Err(io::Error::from_raw_os_error(code)),
            None => usize::MAX,
        };
        let mut count = 0;
        for message in messages.iter().take(room) {
            let bytes: Vec<u8> = message.parts.iter().flat_map(|part| part.to_vec()).collect();
            match (message.segment_bytes, self.rejects_segments) {
                (Some(_), Some(code)) if count == 0 => {
                    return Err(io::Error::from_raw_os_error(code));
                }
                (Some(_), Some(_)) => break,
                (Some(size), None) => {
                    self.sent.extend(bytes.chunks(size.into()).map(<[u8]>::to_vec));
                }
                (None, _) => self.sent.push(bytes),
            }
            count += 1;
        }
        Ok(count)
    }
}

fn sending() -> Sending {
    Sending { segments: true, hop_limit: 64, stats: UdpStats::default() }
}

/// Returns payloads of unequal length, so that each needs a separate message.
fn payloads() -> Vec<Vec<u8>> {
    (1..=40_u8).map(|i| vec![i; i.into()]).collect()
}

fn list(payloads: &[Vec<u8>]) -> Vec<Datagram<'_>> {
    let to = "192.0.2.1:9".parse().unwrap();
    payloads.iter().map(|payload| Datagram::new(payload, to)).collect()
}

#[test]
fn an_error_after_datagrams_were_sent_leaves_exactly_the_others() {
    let payloads = payloads();
    let list = list(&payloads);
    for accepted in 0..40 {
        for code in [EBADF, 12] {
            let (mut sending, mut kernel) = (sending(), Mock::default());
            kernel.answers = (0..accepted).map(|_| Ok(1)).chain([Err(code)]).collect();
            let mut rest = &list[..];
            let error = sending.send(&mut kernel, &mut rest, MaySegment::Yes).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(code));
            assert_eq!((rest.len(), kernel.sent.len()), (40 - accepted, accepted));
            sending.send(&mut kernel, &mut rest, MaySegment::Yes).unwrap();
            assert_eq!(kernel.sent, payloads, "each once, in order");
            assert_eq!((sending.stats.sent, sending.stats.lost), (40, 0));
        }
    }
}

#[test]
fn a_full_socket_buffer_at_any_datagram_leaves_exactly_the_others() {
    let payloads = payloads();
    let list = list(&payloads);
    for accepted in 0..40 {
        let (mut sending, mut kernel) = (sending(), Mock::default());
        kernel.answers = (0..accepted).map(|_| Ok(1)).chain([Ok(0)]).collect();
        let mut rest = &list[..];
        sending.send(&mut kernel, &mut rest, MaySegment::Yes).unwrap();
        assert_eq!((rest.len(), kernel.sent.len()), (40 - accepted, accepted));
        sending.send(&mut kernel, &mut rest, MaySegment::Yes).unwrap();
        assert_eq!(kernel.sent, payloads);
    }
}

#[test]
fn an_icmp_error_of_an_earlier_datagram_loses_no_other_one() {
    let payloads = payloads();
    let list = list(&payloads);
    let (mut sending, mut kernel) = (sending(), Mock::default());
    kernel.answers = [Ok(1), Err(ECONNREFUSED), Ok(1), Err(ECONNREFUSED)].into();
    let mut rest = &list[..];
    sending.send(&mut kernel, &mut rest, MaySegment::Yes).unwrap();
    assert_eq!(kernel.sent, payloads);
    assert_eq!(sending.stats.lost, 0);
    // If the kernel rejects the same datagram twice, it counts as lost, so that the call terminates.
    kernel.answers = [Err(ECONNREFUSED), Err(ECONNREFUSED)].into();
    sending.send(&mut kernel, &mut &list[..1], MaySegment::Yes).unwrap();
    assert_eq!(sending.stats.lost, 1);
}

#[test]
fn segments_go_one_by_one_where_the_kernel_cannot_segment() {
    let (payload, small) = ([1, 2, 3, 4, 5, 6, 7, 8].map(|i| [i; 10]).concat(), [9; 3]);
    let to = "192.0.2.1:9".parse().unwrap();
    let list = [
        Datagram::new(&small, to),
        Datagram::new(&payload, to).segmented(30),
        Datagram::new(&small, to),
    ];
    let mut expected: Vec<Vec<u8>> = vec![small.to_vec()];
    expected.extend(payload.chunks(30).map(<[u8]>::to_vec));
    expected.push(small.to_vec());
    for (code, uncut_later) in [(None, 0), (Some(EIO), 0), (Some(EINVAL), 1)] {
        let mut sending = sending();
        let mut kernel = Mock { rejects_segments: code, ..Mock::default() };
        sending.send(&mut kernel, &mut &list[..], MaySegment::Yes).unwrap();
        assert_eq!(kernel.sent, expected, "{code:?}");
        let uncut = sending.stats.uncut;
        sending.send(&mut kernel, &mut &list[..], MaySegment::Yes).unwrap();
        assert_eq!(sending.stats.uncut - uncut, uncut_later, "{code:?}");
        assert_eq!((sending.stats.sent, sending.stats.lost), (10, 0), "{code:?}");
    }
}

#[test]
fn no_segment_is_sent_twice_when_the_socket_buffer_is_full() {
    let payload = [1, 2, 3, 4].map(|i| [i; 10]).concat();
    let to = "192.0.2.1:9".parse().unwrap();
    let list = [Datagram::new(&payload, to).segmented(10)];
    for accepted in 0..4 {
        let mut sending = Sending { segments: false, ..sending() };
        let answers = (0..accepted).map(|_| Ok(1)).chain([Ok(0)]).collect();
        let mut kernel = Mock { answers, ..Mock::default() };
        let mut rest = &list[..];
        sending.send(&mut kernel, &mut rest, MaySegment::Yes).unwrap();
        assert_eq!(rest.len(), usize::from(accepted == 0), "the entry waits, or is done");
        sending.send(&mut kernel, &mut rest, MaySegment::Yes).unwrap();
        let expected = if accepted == 0 { 4 } else { accepted };
        assert_eq!((kernel.sent.len(), sending.stats.lost), (expected, 4 - expected as u64));
    }
}
