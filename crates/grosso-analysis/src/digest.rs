//! Computes the SHA-256 of the input in parallel with everything else.

use std::{
    sync::mpsc::{Receiver, SyncSender, channel, sync_channel},
    thread::{self, JoinHandle},
};

use sha2::{Digest as _, Sha256};

/// SHA-256 digest computed on a separate thread, because hashing takes longer than everything else that most commands
/// do.
#[derive(Debug)]
pub struct Digest {
    blocks: SyncSender<Vec<u8>>,
    /// Hashed blocks, ready to be refilled.
    spare: Receiver<Vec<u8>>,
    worker: JoinHandle<String>,
}

impl Digest {
    /// Starts the digest of an input; `None` if no more threads can be started.
    pub fn start() -> Option<Self> {
        let (blocks, incoming) = sync_channel::<Vec<u8>>(BLOCKS_MAX);
        let (done, spare) = channel();
        let hash = move || {
            let mut sha256 = Sha256::new();
            for block in incoming {
                sha256.update(&block);
                // Nobody receives spare blocks after the last block.
                let _ = done.send(block);
            }
            sha256.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
        };
        let worker = thread::Builder::new().name("sha256".into()).spawn(hash).ok()?;
        Some(Self { blocks, spare, worker })
    }

    /// Adds bytes. Blocks while too many earlier blocks are still unhashed.
    pub fn update(&mut self, bytes: &[u8]) {
        let mut block = self.spare.try_recv().unwrap_or_default();
        block.clear();
        block.extend_from_slice(bytes);
        // Fails only if the worker has ended, which `finish` reports.
        let _ = self.blocks.send(block);
    }

    /// Returns the digest in hexadecimal.
    pub fn finish(self) -> Option<String> {
        drop(self.blocks);
        self.worker.join().ok()
    }
}

/// Maximum number of blocks in flight. Each holds one read of 1 MiB.
const BLOCKS_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use super::Digest;

    #[test]
    fn pieces_hash_like_the_whole() {
        let mut digest = Digest::start().unwrap();
        for piece in ["a", "b", "", "c"] {
            digest.update(piece.as_bytes());
        }
        // FIPS 180-2, appendix B.1.
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest.finish().as_deref(), Some(expected));
    }
}
