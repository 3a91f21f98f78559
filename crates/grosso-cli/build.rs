//! Compresses the documents in `schemas`, which `grosso schema` prints, to a tenth of their size. Also sets how many of
//! the command's tests run concurrently, and records the commit.
#![allow(clippy::disallowed_methods, reason = "a build script reads its own package")]

#[path = "build/commit.rs"]
mod commit;

use std::{
    env, fs,
    io::{self, Write},
    path::{Path, PathBuf},
    thread,
};

use flate2::{Compression, write::DeflateEncoder};

fn main() -> io::Result<()> {
    count_threads_of_tests();
    record_commit();
    pack_schemas()
}

/// Makes Cargo run more test threads than there are CPUs. Tests with hosts and guests mostly wait, and tests that
/// measure still have a CPU to themselves (ADR 0190). If the environment already sets a number, that takes precedence.
fn count_threads_of_tests() {
    println!("cargo::rerun-if-env-changed={TEST_THREADS}");
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let usual = (TESTS_A_PROCESSOR * processors).to_string();
    let threads = env::var(TEST_THREADS).unwrap_or(usual);
    println!("cargo::rustc-env={TEST_THREADS}={threads}");
}

/// Sets the commit that reports contain: the value of the environment variable if it is set. Otherwise, only an
/// optimized build asks git, because a binary that contains the commit has to be rebuilt after every commit (ADR 0290).
fn record_commit() {
    println!("cargo::rerun-if-env-changed={COMMIT}");
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let commit = match env::var(COMMIT) {
        Ok(commit) => Some(commit),
        Err(_) if env::var("PROFILE").is_ok_and(|profile| profile == "release") => {
            for file in commit::files(package) {
                println!("cargo::rerun-if-changed={file}");
            }
            commit::of(package)
        }
        Err(_) => None,
    };
    println!("cargo::rustc-env={COMMIT}={}", commit.as_deref().unwrap_or("unknown"));
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

/// Environment variable in which Rust's test harness looks for the number of concurrent tests.
const TEST_THREADS: &str = "RUST_TEST_THREADS";
/// Environment variable that holds the commit.
const COMMIT: &str = "GROSSO_COMMIT";
/// Number of concurrent tests per CPU.
const TESTS_A_PROCESSOR: usize = 3;
