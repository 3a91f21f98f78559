//! Finds limits set by the two hosts: the receive window, the sending application, and the congestion window.

use super::{Basis, Cause, Finding, View};

/// Finds periods in which the receiver closed its window.
pub(super) fn find_closed(view: &View<'_>, findings: &mut Vec<Finding>) {
    let figures = view.figures;
    let zero_ns = view.stream.zero_ns_until(view.last_ns);
    if figures.zero_windows > 0 && zero_ns >= figures.duration_ns() / ZERO_SHARE {
        let found = view.found(Cause::ZeroWindow, Basis::Window, figures.zero_windows);
        findings.push(Finding { time_ns: Some(zero_ns), ..found });
    }
}

/// Finds what limits a direction that has no faults.
pub(super) fn find_limits(view: &View<'_>, findings: &mut Vec<Finding>) {
    let figures = view.figures;
    let active_ns = view.active_ns();
    let (window, round_trip_ns) = (figures.window_mean(), view.round_trip_mean_ns);
    if figures.paused_ns > figures.duration_ns() / 2 && figures.pauses >= PAUSES_MIN {
        let found = view.found(Cause::Application, Basis::Sequence, figures.pauses);
        findings.push(Finding { time_ns: Some(figures.paused_ns), ..found });
    } else if window > 0 && round_trip_ns > 0 && figures.bytes >= WINDOWS_MIN * window {
        let in_flight =
            u128::from(figures.bytes) * u128::from(round_trip_ns) / u128::from(active_ns.max(1));
        if in_flight * 10 >= u128::from(window) * 6 {
            let found = view.found(Cause::ReceiveWindow, Basis::Window, figures.packets);
            findings.push(Finding { bytes: Some(window), ..found });
        }
    }
    let announced = [figures.mss, view.peer.figures.mss].map(u32::from);
    let is_small = announced[0] > 0 && announced[0] * 4 < announced[1] * 3;
    if is_small && figures.packets >= PACKETS_MIN && figures.segment_max <= announced[0] {
        let found = view.found(Cause::SmallMss, Basis::Sizes, figures.packets);
        findings.push(Finding { bytes: Some(announced[0].into()), ..found });
    }
}

/// Finds a sender that waits for acknowledgments although the window is open and no queue fills up. Such a sender is
/// limited by its congestion window or its send buffer.
pub(super) fn find_congestion(view: &View<'_>, findings: &mut Vec<Finding>) {
    let (figures, active_ns) = (view.figures, view.active_ns());
    let (near, far) = (view.peer, view.stream);
    // The longer part of the round trip is the one with the queue.
    let longer = if near.echo_ns > far.echo_ns { near } else { far };
    let is_limited = figures.waits >= WAITS_MIN && figures.waited_ns >= active_ns / 2;
    if is_limited && figures.packets >= PACKETS_MIN && longer.is_echo_steady() {
        let found = view.found(Cause::CongestionWindow, Basis::Timing, figures.waits);
        let round_trips = active_ns / view.round_trip_mean_ns.max(1);
        findings.push(Finding {
            bytes: Some(figures.bytes / round_trips.max(1)),
            time_ns: Some(figures.waited_ns),
            ..found
        });
    }
}

/// Minimum number of waits for acknowledgments. A short transfer may end in slow start.
const WAITS_MIN: u32 = 12;
/// Inverse of the minimum share of time with a closed window.
const ZERO_SHARE: u64 = 50;
/// Minimum number of pauses before the application is reported as the limit.
const PAUSES_MIN: u32 = 3;
/// Minimum number of packets before a small MSS or the congestion window is reported as a limit.
const PACKETS_MIN: u32 = 64;
/// Minimum amount of data before the window is reported as the limit, in multiples of the receive window.
const WINDOWS_MIN: u64 = 8;
