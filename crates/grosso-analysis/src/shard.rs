//! Divides the flows among several runs. Each run writes only the rows for its own flows.

use core::{fmt, net::IpAddr};

use schemars::JsonSchema;
use serde::Serialize;

/// Pair of values: one for the source, one for the destination.
type Pair<T> = (T, T);

/// A subset of the flows, selected by their hash.
///
/// Every run reads, classifies and merges all packets, so the rows for a flow do not depend on the number of shards.
/// The hash is the same for both directions of a flow, on all machines and in all releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Shard {
    /// Number of the shard, starting at 1.
    index: u32,
    /// Number of shards.
    of: u32,
}

impl Default for Shard {
    /// Returns a single shard that contains all flows.
    fn default() -> Self {
        Self { index: 1, of: 1 }
    }
}

impl Shard {
    /// Default value of the option: a single shard that contains all flows.
    pub const ONLY: &str = "1/1";

    /// Parses `I/N`.
    ///
    /// # Errors
    /// Fails if `text` is not a valid shard.
    pub fn parse(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').and_then(|(index, of)| {
            Some(Self { index: index.parse().ok()?, of: of.parse().ok()? })
        });
        let is_one = |shard: &Self| (1..=shard.of).contains(&shard.index) && shard.of <= SHARDS_MAX;
        numbers.filter(is_one).ok_or_else(|| {
            format!(
                "expected a shard I/N, for example 2/4, with I from 1 to N and N at most \
                 {SHARDS_MAX}"
            )
        })
    }

    /// Returns whether packets between these endpoints belong to the shard. Packets without ports, such as fragments,
    /// are assigned by their addresses. All packets without addresses belong to the same shard.
    pub fn has(self, addresses: Option<Pair<IpAddr>>, ports: Option<Pair<u16>>) -> bool {
        self.of == 1 || hash(addresses, ports) % u64::from(self.of) == u64::from(self.index - 1)
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

/// Returns the hash of a flow's endpoints. Their order does not matter, because the hash is the sum of the 64-bit
/// FNV-1a hashes of both.
fn hash(addresses: Option<Pair<IpAddr>>, ports: Option<Pair<u16>>) -> u64 {
    let Some((source, destination)) = addresses else { return 0 };
    let (source_port, destination_port) = ports.unwrap_or_default();
    let sum = end(source, source_port).wrapping_add(end(destination, destination_port));
    // The low bits of the sum depend only on the last bytes of both endpoints.
    sum ^ (sum >> 32)
}

fn end(address: IpAddr, port: u16) -> u64 {
    let bytes: ([u8; 16], usize) = match address {
        IpAddr::V4(address) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&address.octets());
            (bytes, 4)
        }
        IpAddr::V6(address) => (address.octets(), 16),
    };
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME);
    let hash = bytes.0[..bytes.1].iter().fold(FNV_OFFSET, step);
    port.to_be_bytes().iter().fold(hash, step)
}

/// Offset basis of 64-bit FNV-1a.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
/// Prime of the 64-bit FNV-1a hash.
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;
/// Maximum number of shards.
const SHARDS_MAX: u32 = 4096;

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;

    const ENDS: [IpAddr; 2] =
        [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2))];

    #[test]
    fn the_only_shard_is_the_default() {
        assert_eq!(Shard::parse(Shard::ONLY), Ok(Shard::default()));
    }

    #[test]
    fn both_directions_are_in_one_share_and_every_flow_in_one() {
        let mut flows = [0u32; 4];
        for port in 0..4000u16 {
            let there = (Some((ENDS[0], ENDS[1])), Some((port, 443)));
            let back = (Some((ENDS[1], ENDS[0])), Some((443, port)));
            let shards = (1..=4).map(|index| Shard { index, of: 4 });
            let having: Vec<u32> =
                shards.filter(|s| s.has(there.0, there.1)).map(|s| s.index).collect();
            let [one] = having[..] else { panic!("{port}: in {having:?}") };
            assert!(Shard { index: one, of: 4 }.has(back.0, back.1), "{port}");
            flows[one as usize - 1] += 1;
        }
        assert!(flows.iter().all(|&flows| flows > 800), "{flows:?}");
    }

    #[test]
    fn a_share_is_named_by_its_number_and_that_of_all() {
        assert_eq!(Shard::parse("2/4").unwrap().to_string(), "2/4");
        for wrong in ["", "1", "0/4", "5/4", "1/0", "1/5000", "a/b", "1/2/3"] {
            assert!(Shard::parse(wrong).is_err(), "{wrong}");
        }
        assert!(Shard { index: 1, of: 1 }.has(None, None));
    }
}
