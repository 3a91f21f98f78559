//! Stages around a port: fragmentation, ESP and tunnels, each as a port itself.
//!
//! A stage works in both directions. [`Fragmentation`] reassembles received fragments and fragments
//! transmitted packets; `Secured` decrypts and encrypts. ESP in transport mode protects whole
//! datagrams, so the wire carries fragments of an ESP packet (RFC 4303 section 3.1.1), and the
//! order is `Secured<Fragmentation<P>>`.
//!
//! | module | job |
//! |---|---|
//! | `fragmentation` | fragmentation and reassembly, as a port |
//! | `joining`, `cutting` | its two halves |
//! | `identification` | unpredictable identifications of fragments |
//! | `secured` | ESP, as a port (feature `esp`, as the next and `stages`) |
//! | `sequence` | sequence numbers that persist between runs |
//! | `tunnelled` | a tunnel, as a port |
//! | `stages` | any of the stages, chosen at run time |
//! | `outbox` | queue of the frames made of one frame |

mod cutting;
mod fragmentation;
mod identification;
mod joining;
mod outbox;
#[cfg(feature = "esp")]
mod secured;
#[cfg(feature = "esp")]
mod sequence;
#[cfg(feature = "esp")]
mod stages;
mod tunnelled;

use core::ops::Range;

pub use self::{
    cutting::CuttingStats,
    fragmentation::{Fragmentation, FragmentationOptions, FragmentationStats},
    tunnelled::{
        EthernetLink, Forwarding, ICMP_BURST, ICMP_PER_SECOND, MTU_MIN_IPV4, MTU_MIN_IPV6,
        REMOTES_MAX, Remote, Tunnelled, TunnelledOptions, TunnelledStats,
    },
};

#[cfg(feature = "esp")]
pub use self::{
    secured::{Drops, Level, Secured, SecuredOptions, SecuredStats},
    sequence::{Numbers, SequenceFile},
    stages::Stages,
};

/// A buffer of the port behind a stage, or one of the stage's own.
#[derive(Debug)]
pub enum StageBuffer<B> {
    /// The buffer as received.
    Original(B),
    /// A part of the buffer as received.
    Part(B, Range<usize>),
    /// A frame that the stage made from the received one.
    Made(Made),
}

/// A frame made by a stage, in reusable memory.
#[derive(Debug)]
pub struct Made {
    bytes: Vec<u8>,
    /// Range of the frame in `bytes`.
    frame: Range<usize>,
}

impl From<Vec<u8>> for Made {
    fn from(bytes: Vec<u8>) -> Self {
        let frame = 0..bytes.len();
        Self { bytes, frame }
    }
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for StageBuffer<B> {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Original(buffer) => buffer.as_ref(),
            Self::Part(buffer, part) => buffer.as_ref().get(part.clone()).unwrap_or_default(),
            Self::Made(made) => made.bytes.get(made.frame.clone()).unwrap_or_default(),
        }
    }
}

/// Spare memory for frames.
#[derive(Debug, Default)]
struct Spare {
    buffers: Vec<Vec<u8>>,
}

impl Spare {
    /// An empty buffer, reused if there is a spare one.
    fn take(&mut self) -> Vec<u8> {
        self.buffers.pop().unwrap_or_default()
    }

    fn give(&mut self, Made { mut bytes, .. }: Made) {
        if self.buffers.len() < SPARE_BUFFERS_MAX {
            bytes.clear();
            self.buffers.push(bytes);
        }
    }
}

/// Greatest number of spare buffers of a stage: as many as a path receives in one poll, so that 64
/// KiB datagrams need at most 4 MiB.
const SPARE_BUFFERS_MAX: usize = 64;
