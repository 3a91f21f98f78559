//! Tests that cancel a call at every await point, on a port whose queue is full after a few packets.

use std::{collections::BTreeSet, os::unix::net::UnixDatagram};

use grosso::{LinkType, Meta, features::Device, features::Features};
use grosso_io::{PortError, Transmitted, port::Transmit};
use grosso_testkit::Watchdog;

use super::*;
use crate::{batch::Batch, joiner::Trust, tun::failed, tun::merger::Merger};

/// A port whose socket's peer reads only when the test tells it to.
struct Narrow(UnixDatagram);

impl Transmit for Narrow {
    fn device(&self) -> Device {
        Device::new(Features::NONE)
    }

    fn transmit(&mut self, slices: &[&[u8]], _: &Meta) -> Result<Transmitted, PortError> {
        match self.0.send(&slices.concat()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Transmitted::NoRoom),
            result => {
                result.unwrap();
                Ok(Transmitted::Taken)
            }
        }
    }

    fn flush(&mut self) -> Result<Transmitted, PortError> {
        Ok(Transmitted::Taken)
    }
}

/// Returns a merger that sends on a socket, the socket's peer, and the socket's registered descriptor, which is ready.
async fn narrow() -> (Merger<Vec<u8>, Narrow>, UnixDatagram, Readiness) {
    let (near, far) = UnixDatagram::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    far.set_nonblocking(true).unwrap();
    let [_, mut writes] = Readiness::register(&near).unwrap();
    writes.wait(|| Ok(Attempt::Done(()))).await.unwrap();
    (Merger::new(LinkType::Raw, Narrow(near), Trust::Verify), far, writes)
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let _watchdog = Watchdog::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    runtime.block_on(future)
}

/// Reads everything that has been sent.
fn drain(far: &UnixDatagram, received: &mut Vec<Vec<u8>>) {
    let mut buffer = vec![0; PACKET_BYTES];
    while let Ok(len) = far.recv(&mut buffer) {
        received.push(buffer[..len].to_vec());
    }
}

/// Polls a future until it is ready or has waited `waits` times, then drops it. Calls `resume` after each wait.
async fn cancelled_after<T>(
    waits: usize,
    future: impl Future<Output = T>,
    mut resume: impl FnMut(),
) -> Option<T> {
    let mut future = pin!(future);
    let mut left = waits;
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(result) => Poll::Ready(Some(result)),
        Poll::Pending if left == 0 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            resume();
            Poll::Pending
        }
    })
    .await
}

/// Length of a packet in bytes. About ten packets fill the socket buffer.
const PACKET_BYTES: usize = 20_000;

/// Returns packets from different flows, which cannot merge.
fn packets() -> Vec<Vec<u8>> {
    (0..100_u8).map(|i| vec![i; PACKET_BYTES]).collect()
}

#[test]
fn a_send_that_is_cancelled_at_any_wait_leaves_exactly_the_packets_that_were_not_sent() {
    block_on(async {
        let mut finished = false;
        for waits in 0.. {
            let (mut merger, far, mut readiness) = narrow().await;
            let (mut batch, mut received) = (Batch::from_iter(packets()), Vec::new());
            let send = poll_fn(|cx| {
                readiness
                    .poll(cx, || merger.try_send_all(&mut batch).map(Attempt::from).map_err(failed))
            });
            let result = cancelled_after(waits, send, || drain(&far, &mut received)).await;
            drain(&far, &mut received);
            assert_eq!(received.len() + batch.len(), packets().len(), "after {waits} waits");
            // The next call sends the remaining packets and does not send any packet twice.
            while !batch.is_empty() {
                merger.try_send(&mut batch).unwrap();
                drain(&far, &mut received);
            }
            assert_eq!(received, packets(), "after {waits} waits");
            if let Some(result) = result {
                result.unwrap();
                finished = waits > 1;
                break;
            }
        }
        assert!(finished, "the queue was full several times");
    });
}

#[test]
fn a_frame_whose_send_is_cancelled_was_not_accepted() {
    block_on(async {
        let (mut merger, far, mut readiness) = narrow().await;
        let meta = Meta::default();
        let mut accepted = Vec::new();
        for packet in packets() {
            let slices = [&packet[..]];
            let send = readiness
                .wait(|| merger.try_send_frame(&slices, &meta).map(Attempt::from).map_err(failed));
            match cancelled_after(0, send, || ()).await {
                Some(result) => result.unwrap(),
                None => break,
            }
            accepted.push(packet);
        }
        assert!((1..packets().len()).contains(&accepted.len()), "the queue was full");
        let mut received = Vec::new();
        while !merger.try_flush().unwrap() {
            drain(&far, &mut received);
        }
        drain(&far, &mut received);
        assert_eq!(received, accepted);
    });
}

#[test]
fn a_flush_that_is_cancelled_loses_no_segment() {
    block_on(async {
        let (mut merger, far, mut readiness) = narrow().await;
        let mut accepted = 0;
        while merger
            .try_send_frame(&[&[accepted; PACKET_BYTES]], &Meta::default())
            .unwrap()
            .is_some()
        {
            accepted += 1;
        }
        let mut flush = async |waits, received: &mut Vec<_>| {
            let flush =
                readiness.wait(|| Ok(merger.try_flush().map_err(failed)?.then_some(()).into()));
            cancelled_after(waits, flush, || drain(&far, received)).await.is_some()
        };
        let mut received = Vec::new();
        assert!(!flush(0, &mut received).await);
        assert!(flush(1, &mut received).await);
        drain(&far, &mut received);
        let distinct: BTreeSet<_> = received.iter().collect();
        assert_eq!((received.len(), distinct.len()), (accepted.into(), accepted.into()));
    });
}

#[test]
fn a_receive_that_is_cancelled_at_any_wait_has_received_nothing() {
    block_on(async {
        let (near, far) = UnixDatagram::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let [mut reads, _] = Readiness::register(&near).unwrap();
        let attempt = |received: &mut Vec<_>| {
            let mut buffer = [0; 64];
            match near.recv(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Attempt::NotReady),
                result => {
                    received.push(buffer[..result?].to_vec());
                    Ok(Attempt::Done(()))
                }
            }
        };
        for round in 0..3_u8 {
            let mut received = Vec::new();
            // Cancel the call once before a packet arrives, and once between the arrival and the next poll.
            let recv = reads.wait(|| attempt(&mut received));
            let result = cancelled_after(0, recv, || ()).await;
            assert!(result.is_none() && received.is_empty());
            far.send(&[round]).unwrap();
            // Another future is waiting now: the canceled one must not consume its wake-up.
            reads.wait(|| attempt(&mut received)).await.unwrap();
            assert_eq!(received, [[round]]);
        }
    });
}

/// Receiving one packet takes two reads, as with a plain descriptor: the first returns the packet, and the second finds
/// that there are no more.
#[test]
fn a_drained_descriptor_is_not_read_again_before_the_next_event() {
    block_on(async {
        let (near, far) = UnixDatagram::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let [mut reads, _] = Readiness::register(&near).unwrap();
        let mut received = Vec::new();
        let mut attempts = 0;
        let mut attempt = |late: Option<u8>| {
            attempts += 1;
            let before = received.len();
            drain(&near, &mut received);
            // This packet arrives after the last read, but before the readiness is cleared.
            late.iter().for_each(|byte| _ = far.send(&[*byte]).unwrap());
            Ok(Attempt::received(received.len() - before, 64))
        };
        far.send(&[1]).unwrap();
        reads.wait(|| attempt(Some(2))).await.unwrap();
        reads.wait(|| attempt(None)).await.unwrap();
        assert!(cancelled_after(0, reads.wait(|| attempt(None)), || ()).await.is_none());
        far.send(&[3]).unwrap();
        reads.wait(|| attempt(None)).await.unwrap();
        assert_eq!(received, [[1], [2], [3]]);
        assert_eq!(attempts, 3, "one per event");
    });
}
