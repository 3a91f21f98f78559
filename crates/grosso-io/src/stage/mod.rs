//! Stages around a port: fragmentation, ESP and tunnels. Each stage is itself a port.
//!
//! A stage works in both directions. [`Fragmentation`] reassembles received fragments and fragments transmitted
//! packets; `EspStage` decrypts and encrypts. ESP in transport mode protects whole datagrams, so the wire carries
//! fragments of an ESP packet (RFC 4303 section 3.1.1), and the nesting is `EspStage<Fragmentation<P>>`.
//!
//! | module | job |
//! |---|---|
//! | `fragmentation` | fragmentation and reassembly, as a port |
//! | `joining`, `segmenting` | the two halves of fragmentation |
//! | `identification` | unpredictable identifications of fragments |
//! | `esp` | ESP, as a port (feature `esp`, also for `sequence` and `stages`) |
//! | `sequence` | sequence numbers that persist between runs |
//! | `tunnel` | a tunnel, as a port |
//! | `stages` | any of the stages, chosen at run time |
//! | `own_packets` | detection of a tunnel's own outer packets that return to it |
//! | `outbox` | queue of the packets made from one frame |

#[cfg(feature = "esp")]
mod esp;
mod fragmentation;
mod identification;
mod joining;
mod outbox;
mod own_packets;
#[cfg(feature = "esp")]
mod recorder;
mod segmenting;
#[cfg(feature = "esp")]
mod sequence;
#[cfg(feature = "esp")]
mod stages;
mod tunnel;

pub use self::{
    fragmentation::{Fragmentation, FragmentationOptions, FragmentationStats},
    segmenting::SegmentingStats,
    tunnel::{
        EthernetLink, Forwarding, ICMP_BURST, ICMP_PER_SECOND, MTU_MIN_IPV4, MTU_MIN_IPV6,
        REMOTES_MAX, Remote, TunnelOptions, TunnelStage, TunnelStageStats,
    },
};

#[cfg(all(feature = "esp", unix))]
pub use self::recorder::{ANSWER_WAIT, record};
#[cfg(feature = "esp")]
pub use self::{
    esp::{Drops, EspOptions, EspStage, EspStageStats, Level, Scarcity, ScarcityNotice},
    recorder::SequenceRecorder,
    sequence::{Numbers, SequenceFile},
    stages::Stages,
};
