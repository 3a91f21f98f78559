//! Tables of text.

/// Checks that the tables of invented figures equal the ones in `tests/tables`.
#[cfg(test)]
#[track_caller]
pub(crate) fn assert_kept(name: &str, findings: &impl crate::report::Findings) {
    let mut text = String::new();
    findings.write(&mut text);
    assert_text_kept(name, &text);
}

/// Checks that a text equals the one in `tests/tables`.
#[cfg(test)]
#[track_caller]
pub(crate) fn assert_text_kept(name: &str, text: &str) {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tables");
    let path = folder.join(name).with_extension("txt");
    if std::env::var_os("GROSSO_WRITE_DOCUMENTS").is_some() {
        std::fs::write(&path, text).unwrap();
        return;
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let command = "GROSSO_WRITE_DOCUMENTS=1 cargo test -p grosso-lab --lib";
    assert!(kept == text, "{}: if the change is wanted, run {command}\n{text}", path.display());
}
