//! Packs the documents in `schemas`, which `grosso schema` prints: they are ten times as long as what they become.

use std::{env, fs, io, io::Write, path::PathBuf};

use flate2::{Compression, write::DeflateEncoder};

fn main() -> io::Result<()> {
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
