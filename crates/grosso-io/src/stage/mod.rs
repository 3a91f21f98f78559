//! Work on a port's own packets: fragments, ESP and tunnels, as ports around a port.
//!
//! A stage is symmetric. [`Fragmentation`] joins what the port behind it receives and cuts what it
//! sends; [`Secured`] decrypts and encrypts. ESP in transport mode protects whole datagrams, so on
//! the wire there are fragments of an ESP packet (RFC 4303 section 3.1.1) and the order is
//! `Secured<Fragmentation<P>>`.
//!
//! | module | job |
//! |---|---|
//! | `fragmentation` | fragments joined and made, as a port |
//! | `joining`, `cutting` | its two halves |
//! | `identification` | identifications of fragments that nobody guesses |
//! | `secured` | ESP, as a port |
//! | `sequence` | sequence numbers that outlive the program |
//! | `tunnelled` | a tunnel, as a port |
//! | `stages` | any of the stages, chosen at run time |
//! | `outbox` | frames made of one that wait for room |

mod cutting;
mod fragmentation;
mod identification;
mod joining;
mod outbox;
mod secured;
mod sequence;
mod stages;
mod tunnelled;

use core::ops::Range;

pub use self::{
    cutting::CuttingStats,
    fragmentation::{Fragmentation, FragmentationOptions, FragmentationStats},
    secured::{Drops, Level, Secured, SecuredOptions, SecuredStats},
    sequence::{Numbers, SequenceFile},
    stages::Stages,
    tunnelled::{
        EthernetLink, Forwarding, ICMP_BURST, ICMP_PER_SECOND, REMOTES_MAX, Remote, Tunnelled,
        TunnelledOptions, TunnelledStats,
    },
};

/// A buffer of the port behind a stage, or one of the stage's own.
#[derive(Debug)]
pub enum StageBuffer<B> {
    /// As it was received.
    Original(B),
    /// A part of what was received.
    Part(B, Range<usize>),
    /// What the stage made of what was received.
    Made(Made),
}

/// A frame that a stage made, in memory that it uses again.
#[derive(Debug)]
pub struct Made {
    bytes: Vec<u8>,
    /// Where in it the frame lies.
    frame: Range<usize>,
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

/// Memory of frames that were made, for more of them.
#[derive(Debug, Default)]
struct Spare {
    buffers: Vec<Vec<u8>>,
}

impl Spare {
    /// An empty buffer, of one that came back if there is any.
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

/// Most buffers that a stage keeps for later: as many as a path takes in one poll, so that 64 KB
/// datagrams need no more than 4 MiB.
const SPARE_BUFFERS_MAX: usize = 64;
