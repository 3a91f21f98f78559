//! Compresses the documents in `schemas`, which `grosso schema` prints, to a tenth of their size. Also sets the number
//! of concurrent tests of the command.
#![allow(clippy::disallowed_methods, reason = "a build script reads its own package")]

use std::{env, fs, io, io::Write, path::PathBuf, thread};

use flate2::{Compression, write::DeflateEncoder};

fn main() -> io::Result<()> {
    count_threads_of_tests();
    pack_schemas()
}

/// Makes Cargo start the tests with more threads than there are CPUs: tests with hosts and guests mostly wait, and
/// those that measure have a CPU to themselves, however many run (ADR 0190). A number in the environment takes
/// precedence.
fn count_threads_of_tests() {
    println!("cargo::rerun-if-env-changed={TEST_THREADS}");
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let usual = (TESTS_A_PROCESSOR * processors).to_string();
    let threads = env::var(TEST_THREADS).unwrap_or(usual);
    println!("cargo::rustc-env={TEST_THREADS}={threads}");
}

fn pack_schemas() -> io::Result<()> {
    println!("cargo::rerun-if-changed=schemas");
    let folder = env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("OUT_DIR is not set"))?;
    let packed = fs::File::create(PathBuf::from(folder).join("schemas.deflate"))?;
    let mut packed = DeflateEncoder::new(packed, Compression::best());
    let paths: io::Result<Vec<PathBuf>> =
        fs::read_dir("schemas")?.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut paths = paths?;
    paths.sort();
    let mut before = '{';
    for path in paths {
        let name = path.file_stem().unwrap_or_default().display();
        write!(packed, "{before}\"{name}\":{}", fs::read_to_string(&path)?)?;
        before = ',';
    }
    packed.write_all(b"}")?;
    packed.finish().map(drop)
}

/// Environment variable of Rust's test harness with the number of concurrent tests.
const TEST_THREADS: &str = "RUST_TEST_THREADS";
/// Concurrent tests per CPU.
const TESTS_A_PROCESSOR: usize = 3;
