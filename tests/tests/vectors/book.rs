//! Reads and writes a pair of files: vectors in JSON, and their frames in a capture.

use std::{env, fs, path::PathBuf};

use grosso_capture::{
    CaptureReader, CaptureWriter, Entry, Format, Interface, PacketMeta, WriterOptions,
};
use serde::Serialize;
use serde_json::{Value, json};

/// Format version of the files; `docs/conformance.md` describes it.
const FORMAT: &str = "grosso.vectors/1";
/// Link type of the captures: Ethernet.
const ETHERNET: u32 = 1;
/// Snap length in the header of the captures, in bytes.
const SNAPLEN: u32 = 262_144;
const ANEW: &str =
    "make it anew: GROSSO_WRITE_DOCUMENTS=1 cargo test -p grosso-tests --test engine vectors::";

/// A pair of files under construction.
pub(crate) struct Book {
    kind: &'static str,
    frames: Vec<Vec<u8>>,
    vectors: Vec<Value>,
}

/// The numbers of consecutive frames in the capture.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Span {
    first: usize,
    last: usize,
}

impl Span {
    /// Returns the number of the frame at an index.
    pub(crate) fn number(self, index: usize) -> usize {
        self.first + index
    }
}

impl Book {
    pub(crate) fn new(kind: &'static str) -> Self {
        Self { kind, frames: Vec::new(), vectors: Vec::new() }
    }

    /// Adds a frame and returns its number, which counts from 1 as Wireshark does.
    pub(crate) fn frame(&mut self, bytes: &[u8]) -> usize {
        self.frames.push(bytes.to_vec());
        self.frames.len()
    }

    /// Adds frames, at least one.
    pub(crate) fn frames(&mut self, frames: &[Vec<u8>]) -> Span {
        let first = self.frames.len() + 1;
        self.frames.extend_from_slice(frames);
        Span { first, last: self.frames.len() }
    }

    pub(crate) fn vector(&mut self, vector: &impl Serialize) {
        self.vectors.push(serde_json::to_value(vector).expect("JSON"));
    }

    /// Asserts that the files in the repository have these contents, or writes the files.
    pub(crate) fn assert_current(&self) {
        let page = json!({
            "format": FORMAT,
            "kind": self.kind,
            "frames": format!("{}.pcap", self.kind),
            "vectors": self.vectors,
        });
        let text = serde_json::to_string_pretty(&page).expect("JSON") + "\n";
        for (path, bytes) in
            [(path(self.kind, "json"), text.into_bytes()), (path(self.kind, "pcap"), self.pcap())]
        {
            if env::var_os("GROSSO_WRITE_DOCUMENTS").is_some() {
                fs::write(&path, &bytes).expect("a writable folder");
            }
            let found = fs::read(&path).unwrap_or_default();
            assert!(found == bytes, "{}: {ANEW}", path.display());
        }
    }

    fn pcap(&self) -> Vec<u8> {
        let mut options = WriterOptions::new(Format::Pcap);
        options.interface = Interface::new(ETHERNET);
        options.snaplen_min = SNAPLEN;
        let mut writer = CaptureWriter::new(Vec::new(), options);
        for (index, frame) in self.frames.iter().enumerate() {
            let timestamp_ns = Some(index as u64 * 1000);
            let meta = PacketMeta { timestamp_ns, ..PacketMeta::default() };
            writer.write_packet(&meta, frame).expect("a frame of a capture");
        }
        writer.finish().expect("a capture")
    }
}

/// A pair of files, as parsed by an independent reader.
pub(crate) struct Pair {
    pub(crate) vectors: Vec<Value>,
    frames: Vec<Vec<u8>>,
}

impl Pair {
    pub(crate) fn read(kind: &str) -> Self {
        let text = fs::read_to_string(path(kind, "json")).expect("the vectors");
        let page: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((&page["format"], &page["kind"]), (&json!(FORMAT), &json!(kind)));
        let name = page["frames"].as_str().expect("a name");
        let file = fs::File::open(folder().join(name)).expect("the capture");
        let mut reader = CaptureReader::new(file).expect("a capture");
        let mut frames = Vec::new();
        while let Some(entry) = reader.next().expect("a whole capture") {
            if let Entry::Packet(packet) = entry {
                frames.push(packet.data.to_vec());
            }
        }
        Self { vectors: page["vectors"].as_array().expect("a list").clone(), frames }
    }

    /// Returns the frame with this number.
    pub(crate) fn frame(&self, number: &Value) -> &[u8] {
        &self.frames[self.index(number)]
    }

    /// Returns the frames with these numbers: either a list, or the first and the last number.
    pub(crate) fn frames(&self, numbers: &Value) -> Vec<Vec<u8>> {
        match numbers.as_array() {
            Some(list) => list.iter().map(|number| self.frame(number).to_vec()).collect(),
            None => {
                self.frames[self.index(&numbers["first"])..=self.index(&numbers["last"])].to_vec()
            }
        }
    }

    fn index(&self, number: &Value) -> usize {
        number.as_u64().expect("a number") as usize - 1
    }
}

/// Returns a file of a pair.
pub(crate) fn path(kind: &str, extension: &str) -> PathBuf {
    folder().join(format!("{kind}.{extension}"))
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository").join("vectors")
}
