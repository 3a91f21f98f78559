//! Table R4 as published.

use schemars::JsonSchema;
use serde::Serialize;

use crate::tunnel::Tunnel;

/// A row of table R4 as published in 2014.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct PublishedTunnel {
    /// The tunnel.
    pub tunnel: Tunnel,
    /// Whether inner checksums were left to the peer.
    pub remote_checksum: Option<bool>,
    /// Total throughput of 200 streams in Mb/s.
    pub megabits_a_second: u32,
    /// Load on the sender's CPUs in percent.
    pub tx_cpu_percent: f64,
    /// Load on the receiver's CPUs in percent.
    pub rx_cpu_percent: f64,
    /// Requests per second.
    pub transactions_a_second: u32,
    /// Load on the CPUs during requests in percent.
    pub requests_cpu_percent: f64,
    /// The 90th, 95th and 99th percentiles of latency in microseconds.
    pub latency_us: [u16; 3],
}

const fn published(
    tunnel: Tunnel,
    remote_checksum: Option<bool>,
    (megabits_a_second, tx_cpu_percent, rx_cpu_percent): (u32, f64, f64),
    (transactions_a_second, requests_cpu_percent): (u32, f64),
    latency_us: [u16; 3],
) -> PublishedTunnel {
    PublishedTunnel {
        tunnel,
        remote_checksum,
        megabits_a_second,
        tx_cpu_percent,
        rx_cpu_percent,
        transactions_a_second,
        requests_cpu_percent,
        latency_us,
    }
}

/// Results with 200 streams, a 40 Gb/s NIC and the outer checksum (November 2014).
pub(super) const PUBLISHED: [PublishedTunnel; 7] = {
    use Tunnel::{GreGue, IpipGue, SitGue, Vxlan};
    let (on, off) = (Some(true), Some(false));
    [
        published(GreGue, on, (36380, 9.71, 7.42), (1_951_270, 77.79), [91, 144, 216]),
        published(GreGue, off, (36591, 12.40, 7.36), (1_954_580, 78.70), [89, 152, 297]),
        published(IpipGue, on, (36486, 10.30, 7.43), (1_987_350, 77.80), [87, 153, 270]),
        published(IpipGue, off, (36694, 12.47, 7.49), (1_987_370, 77.98), [87, 150, 287]),
        published(SitGue, on, (35971, 9.68, 7.36), (1_888_420, 79.32), [94, 158, 295]),
        published(SitGue, off, (36177, 12.95, 8.04), (1_903_380, 80.23), [94, 149, 226]),
        published(Vxlan, None, (36230, 35.03, 20.85), (2_080_630, 77.36), [84, 146, 270]),
    ]
};
