//! Test vectors for each task, as described in `docs/conformance.md`. The package contains the vectors from the
//! repository's `vectors/`.

use grosso_capture::{CaptureReader, Entry};
use grosso_report::error::Failure;
use grosso_wire::virtio::HEADER_LEN;
use serde::Deserialize;

use crate::{framing::Framed, superframe::read};

/// Task of the program under test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Task {
    /// Merges packets into superframes.
    #[default]
    Coalesce,
    /// Splits superframes into packets.
    Segment,
    /// Reassembles IP fragments.
    Reassemble,
}

/// Test vector: the packets that a program receives in one poll, and the correct output.
#[derive(Debug)]
pub struct Vector {
    /// Name of the vector.
    pub name: String,
    /// Rules that the vector tests.
    pub rules: Vec<String>,
    /// Sentence that says what the vector tests.
    pub shows: String,
    /// Frames that the program under test receives as input.
    pub frames: Vec<Vec<u8>>,
    /// Virtio header of each input frame; zero except for superframes.
    pub header: [u8; HEADER_LEN],
    /// Correct outputs, if the input determines the output. There may be several, because a header does not say whether
    /// IP IDs are constant.
    pub expected: Vec<Vec<Vec<u8>>>,
    /// Whether the order of the packets in the output matters.
    pub is_ordered: bool,
    /// Indices of the frames in each flow, in order of arrival.
    pub flows: Vec<Vec<usize>>,
    /// Number of packets that can merge with an earlier one.
    pub joins: usize,
}

/// Returns all test vectors for coalescing.
///
/// # Errors
///
/// Returns an internal failure if this crate's vectors cannot be read.
pub fn vectors() -> Result<Vec<Vector>, Failure> {
    vectors_of(Task::Coalesce)
}

/// Returns all test vectors for `task`.
///
/// # Errors
///
/// Returns an internal failure if this crate's vectors cannot be read.
pub fn vectors_of(task: Task) -> Result<Vec<Vector>, Failure> {
    match task {
        Task::Coalesce => {
            let (rows, frames): (Vec<VectorRow>, _) =
                page(include_str!("coalesce.json"), include_bytes!("coalesce.pcap"))?;
            Ok(rows.into_iter().map(|row| row.vector(&frames)).collect())
        }
        Task::Segment => {
            let (rows, frames): (Vec<SegmentRow>, _) =
                page(include_str!("segment.json"), include_bytes!("segment.pcap"))?;
            rows.into_iter().map(|row| row.vector(&frames)).collect()
        }
        Task::Reassemble => {
            let (rows, frames): (Vec<ReassembleRow>, _) =
                page(include_str!("reassemble.json"), include_bytes!("reassemble.pcap"))?;
            Ok(rows.into_iter().map(|row| row.vector(&frames)).collect())
        }
    }
}

/// Reads a pair of files: one with rows, the other with frames.
fn page<T: for<'de> Deserialize<'de>>(
    json: &str,
    capture: &[u8],
) -> Result<(Vec<T>, Vec<Vec<u8>>), Failure> {
    let page: VectorPage<T> = serde_json::from_str(json).map_err(|error| unreadable(&error))?;
    Ok((page.vectors, frames(capture)?))
}

fn unreadable(error: &dyn core::fmt::Display) -> Failure {
    Failure::internal(format!("cannot read the test vectors: {error}"))
}

fn frames(mut capture: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
    let failed = |error| Failure::capture("frames of the test vectors", &error);
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
struct VectorPage<T> {
    vectors: Vec<T>,
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

/// Frames by number, starting at 1.
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
            header: [0; HEADER_LEN],
            expected: Vec::new(),
            is_ordered: true,
            flows,
            joins: self.out.iter().map(|train| train.packets.len() - 1).sum(),
        }
    }
}

#[derive(Deserialize)]
struct SegmentRow {
    name: String,
    rules: Vec<String>,
    shows: String,
    r#in: SegmentInput,
    out: VectorSpan,
}

#[derive(Deserialize)]
struct SegmentInput {
    frame: usize,
    superframe: VectorSuperframe,
}

#[derive(Deserialize)]
struct VectorSuperframe {
    /// Virtio header in hexadecimal.
    virtio: String,
}

impl SegmentRow {
    fn vector(self, frames: &[Vec<u8>]) -> Result<Vector, Failure> {
        let digits = &self.r#in.superframe.virtio;
        let mut header = [0; HEADER_LEN];
        for (byte, at) in header.iter_mut().zip((0..).step_by(2)) {
            let digits = digits.get(at..at + 2).unwrap_or_default();
            *byte = u8::from_str_radix(digits, 16).map_err(|error| unreadable(&error))?;
        }
        let frame = frames[self.r#in.frame - 1].clone();
        let out = &frames[self.out.first - 1..self.out.last];
        let record = Framed { header, frame };
        let heard = read(&record).map_err(|unsound| unreadable(&unsound.text))?;
        debug_assert!(heard.readings.iter().any(|reading| reading == out), "{}", self.name);
        Ok(Vector {
            name: self.name,
            rules: self.rules,
            shows: self.shows,
            frames: vec![record.frame],
            header,
            expected: heard.readings,
            is_ordered: true,
            flows: Vec::new(),
            joins: 0,
        })
    }
}

#[derive(Deserialize)]
struct ReassembleRow {
    name: String,
    rules: Vec<String>,
    shows: String,
    r#in: VectorSpan,
    /// Numbers of the reassembled datagrams.
    out: Vec<usize>,
}

impl ReassembleRow {
    fn vector(self, frames: &[Vec<u8>]) -> Vector {
        Vector {
            name: self.name,
            rules: self.rules,
            shows: self.shows,
            frames: frames[self.r#in.first - 1..self.r#in.last].to_vec(),
            header: [0; HEADER_LEN],
            expected: vec![self.out.iter().map(|number| frames[number - 1].clone()).collect()],
            is_ordered: false,
            flows: Vec::new(),
            joins: 0,
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

    #[test]
    fn every_task_has_cases_with_a_right_output() {
        for (task, least) in [(Task::Segment, 20), (Task::Reassemble, 20)] {
            let vectors = vectors_of(task).unwrap();
            assert!(vectors.len() >= least, "{task:?}: {}", vectors.len());
            assert!(vectors.iter().all(|vector| !vector.expected.is_empty()), "{task:?}");
        }
    }
}
