//! Trials of `lab tunnels` on the running kernel.

use std::{io, sync::atomic::AtomicBool};

use grosso_lab::{
    netns::{Device, Family},
    traffic::Traffic,
    trial::{Extent, TrialError},
    tunnel::Tunnel,
    tunnels::{TunnelCarrier, TunnelSetting, TunnelTrial, WatchedPath, measure},
};
use grosso_sys::scheduling::allowed_processors;

use super::linux::skip;

pub(super) fn every_byte_arrives_and_checksums_left_to_the_peer_are_not_computed(device: Device) {
    tunnels_of(device).for_each(|tunnel| partial_checksums_are_not_computed(device, tunnel));
}

fn tunnels_of(device: Device) -> impl Iterator<Item = Tunnel> {
    Tunnel::ALL.into_iter().filter(move |t| device == Device::Tap || t.is_ethernet())
}

fn partial_checksums_are_not_computed(device: Device, tunnel: Tunnel) {
    let watched = |remote_checksum| {
        let setting = setting(device, tunnel);
        let measured = trial(&TunnelSetting { remote_checksum, watched: true, ..setting });
        measured.watched.unwrap().paths
    };
    let is_summed = |path: &WatchedPath| path.checksums_seconds > 0.0;
    let without = watched(false);
    assert!(without.iter().all(is_summed), "{tunnel}: {without:?}");
    assert!(without.iter().all(|path| path.tunnel_seconds > 0.0), "{tunnel}: {without:?}");
    if tunnel.has_remote_checksum() {
        let with = watched(true);
        let shares = [with, without].map(|paths| paths.map(|path| path.checksums_seconds));
        assert!(shares[0][0] < shares[1][0] / 4.0, "{tunnel}: {shares:?}");
        assert!(shares[0][1] < shares[1][1] / 4.0, "{tunnel}: {shares:?}");
    }
}

pub(super) fn files_pass_over_ipv6_and_sums_left_are_made_where_that_is_asked(device: Device) {
    for tunnel in tunnels_of(device) {
        let (outer, traffic) = (Family::V6, Traffic::TcpSendfile);
        trial(&TunnelSetting { outer, traffic, ..setting(device, tunnel) });
    }
    let received = |carrier| {
        let setting = setting(device, Tunnel::Vxlan);
        let setting = TunnelSetting { remote_checksum: true, carrier, watched: true, ..setting };
        trial(&setting).watched.unwrap().paths[1].checksums_seconds
    };
    let (summed, left) = (received(TunnelCarrier::Completes), received(TunnelCarrier::Grosso));
    assert!(left < summed / 4.0, "{summed} and {left} s");
}

pub(super) fn requests_are_answered_through_a_tunnel(device: Device) {
    for tunnel in tunnels_of(device) {
        let (traffic, extent) = (Traffic::TcpRequests, Extent::Bytes(1000));
        let measured = trial(&TunnelSetting { traffic, extent, ..setting(device, tunnel) });
        assert!(measured.latencies.len() as u64 >= measured.units, "{tunnel}: {measured:?}");
        assert!(measured.units >= 1000, "{tunnel}: {measured:?}");
    }
}

pub(super) fn without_offloads_every_packet_passes_by_itself(device: Device) {
    let extent = Extent::Bytes(BYTES / 8);
    let plain = |carrier| {
        let setting = TunnelSetting { carrier, extent, ..setting(device, Tunnel::Vxlan) };
        let measured = trial(&setting);
        measured.cpu.total() / measured.gigabytes()
    };
    assert!(plain(TunnelCarrier::Plain) > plain(TunnelCarrier::Grosso));
}

/// Checks that the same traffic can use the kernel's own VXLAN device over the same wire.
pub(super) fn the_kernel_s_vxlan_carries_the_same() {
    let setting =
        TunnelSetting { carrier: TunnelCarrier::Kernel, ..setting(Device::Veth, Tunnel::Vxlan) };
    match measure(&setting, &AtomicBool::new(false)) {
        Err(TrialError::Io(error)) if error.kind() == io::ErrorKind::Unsupported => {
            skip("the kernel has no VXLAN");
        }
        measured => {
            let measured = measured.unwrap();
            assert!(measured.bytes >= BYTES && measured.checksum_errors == 0, "{measured:?}");
            let paths = [measured.cpu.path_a, measured.cpu.path_b];
            assert_eq!((paths, measured.watched), ([0.0, 0.0], None));
            assert!(measured.cpu.sender > 0.0 && measured.cpu.receiver > 0.0, "{measured:?}");
        }
    }
}

fn trial(setting: &TunnelSetting) -> TunnelTrial {
    let measured = measure(setting, &AtomicBool::new(false));
    let measured = measured.unwrap_or_else(|error| panic!("{setting:?}: {error}"));
    assert_eq!(measured.checksum_errors, 0, "{setting:?}");
    let cpu = measured.cpu;
    assert!(cpu.path_a > 0.0 && cpu.path_b > 0.0, "{measured:?}");
    measured
}

fn setting(device: Device, tunnel: Tunnel) -> TunnelSetting {
    let processor = *allowed_processors().unwrap().last().unwrap();
    TunnelSetting {
        tunnel,
        outer: Family::V4,
        remote_checksum: false,
        carrier: TunnelCarrier::Grosso,
        traffic: Traffic::TcpStream,
        streams: 4,
        device,
        processors: [processor; 3],
        congestion: "cubic".into(),
        extent: Extent::Bytes(BYTES),
        compare: true,
        watched: false,
    }
}

const BYTES: u64 = 32 << 20;
