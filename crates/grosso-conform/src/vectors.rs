//! Test vectors of coalescing, as described in `docs/conformance.md`. The package contains the vectors of the
//! repository's `vectors/`.

use grosso_capture::{CaptureReader, Entry};
use grosso_report::error::Failure;
use serde::Deserialize;

/// Packets of one poll.
#[derive(Debug)]
pub struct Vector {
    /// Name of the vector.
    pub name: String,
    /// Rules that the vector tests.
    pub rules: Vec<String>,
    /// Description of the test, as a sentence.
    pub shows: String,
    /// The packets.
    pub frames: Vec<Vec<u8>>,
    /// Frames of each flow, by index, in order of arrival.
    pub flows: Vec<Vec<usize>>,
    /// Number of packets that can merge with an earlier one.
    pub joins: usize,
}

/// Returns all vectors.
///
/// # Errors
///
/// Returns an internal failure if the vectors of this crate cannot be read.
pub fn vectors() -> Result<Vec<Vector>, Failure> {
    let page: VectorPage = serde_json::from_str(include_str!("coalesce.json"))
        .map_err(|error| Failure::internal(format!("cannot read the test vectors: {error}")))?;
    let frames = frames(include_bytes!("coalesce.pcap"))?;
    Ok(page.vectors.into_iter().map(|row| row.vector(&frames)).collect())
}

fn frames(mut capture: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
    let failed = |error| Failure::capture("the frames of the vectors", &error);
    let mut reader = CaptureReader::new(&mut capture).map_err(failed)?;
    let mut frames = Vec::new();
    while let Some(entry) = reader.next().map_err(failed)? {
        if let Entry::Packet(packet) = entry {
            frames.push(packet.data.to_vec());
        }
    }
    Ok(frames)
}

#[derive(Deserialize)]
struct VectorPage {
    vectors: Vec<VectorRow>,
}

#[derive(Deserialize)]
struct VectorRow {
    name: String,
    rules: Vec<String>,
    shows: String,
    r#in: VectorSpan,
    #[serde(default)]
    flows: Vec<Vec<usize>>,
    out: Vec<VectorTrain>,
}

/// Frames by number, counted from 1.
#[derive(Deserialize)]
struct VectorSpan {
    first: usize,
    last: usize,
}

#[derive(Deserialize)]
struct VectorTrain {
    packets: Vec<usize>,
}

impl VectorRow {
    fn vector(self, frames: &[Vec<u8>]) -> Vector {
        let VectorSpan { first, last } = self.r#in;
        let mut flows = self.flows;
        if flows.is_empty() {
            flows.push((first..=last).collect());
        }
        flows.iter_mut().flatten().for_each(|number| *number -= first);
        Vector {
            name: self.name,
            rules: self.rules,
            shows: self.shows,
            frames: frames[first - 1..last].to_vec(),
            flows,
            joins: self.out.iter().map(|train| train.packets.len() - 1).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_packets_each_of_one_flow() {
        let vectors = vectors().unwrap();
        assert!(vectors.len() >= 90, "{}", vectors.len());
        for vector in vectors {
            let mut all = vector.flows.concat();
            all.sort_unstable();
            assert!(all.iter().copied().eq(0..vector.frames.len()), "{}", vector.name);
            assert!(!vector.rules.is_empty() && !vector.shows.is_empty(), "{}", vector.name);
        }
    }
}
