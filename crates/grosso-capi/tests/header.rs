//! Tests that the C header matches the sources.
#![cfg(unix)]
#![allow(clippy::disallowed_methods, reason = "tests make their files themselves")]

use std::{fs, path::Path};

/// Source files whose declarations are in the header, in the header's order.
const SOURCES: &[&str] = &["error", "types", "coalescer", "reassembler", "packet"];

#[test]
fn the_header_is_current() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(here.join("cbindgen.toml")).unwrap();
    let sources = SOURCES.iter().map(|name| here.join("src").join(name).with_extension("rs"));
    let builder = sources.fold(cbindgen::Builder::new().with_config(config), |builder, source| {
        builder.with_src(source)
    });
    let mut made = Vec::new();
    builder.generate().unwrap().write(&mut made);
    let file = here.join("include/grosso.h");
    if std::env::var_os("GROSSO_WRITE_DOCUMENTS").is_some() {
        fs::write(&file, &made).unwrap();
    }
    let committed = fs::read(&file).unwrap_or_default();
    assert!(
        made == committed,
        "run this test with GROSSO_WRITE_DOCUMENTS=1, and review the changes"
    );
}
