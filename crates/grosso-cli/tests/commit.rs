//! Tests that a build reports the commit from which it was built.

#[path = "../build/commit.rs"]
mod source;

use std::{fs, path::Path, process::Command};

fn git(directory: &Path, arguments: &[&str]) -> String {
    let mut git = Command::new("git");
    git.args(["-c", "user.name=test", "-c", "user.email=test@localhost"]).args(arguments);
    let output = git.current_dir(directory).output().expect("git is installed");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

/// Creates a Git repository with a package in the directory `place`, and returns the commit.
fn commit_in(root: &Path, place: &str) -> String {
    fs::create_dir_all(root.join(place)).unwrap();
    fs::write(root.join(place).join("Cargo.toml"), "").unwrap();
    fs::write(root.join("notes"), "").unwrap();
    git(root, &["init", "--quiet"]);
    git(root, &["add", "."]);
    git(root, &["commit", "--quiet", "--message=first"]);
    git(root, &["rev-parse", "HEAD"])[..12].to_owned()
}

#[test]
fn a_repository_states_its_commit_and_changes_of_its_sources() {
    let root = tempfile::tempdir().unwrap();
    let package = root.path().join("crates/grosso-cli");
    let commit = commit_in(root.path(), "crates/grosso-cli");
    assert_eq!(source::of(&package), Some(commit.clone()));
    let files = source::files(&package);
    assert!(files.iter().any(|file| file.ends_with("/logs/HEAD")), "{files:?}");
    fs::write(root.path().join("notes"), "not a source").unwrap();
    assert_eq!(source::of(&package), Some(commit.clone()));
    fs::write(package.join("Cargo.toml"), "[package]").unwrap();
    assert_eq!(source::of(&package), Some(format!("{commit} with changes")));
}

#[test]
fn the_commit_of_another_project_is_not_stated() {
    let root = tempfile::tempdir().unwrap();
    let package = root.path().join("vendor/grosso-cli");
    let other = commit_in(root.path(), "vendor/grosso-cli");
    assert_eq!((source::of(&package), source::files(&package)), (None, Vec::new()));
    // A package archive made by Cargo records the commit.
    let facts = |dirty| format!("{{\n  \"git\": {{\n    \"sha1\": \"{SHA1}\"{dirty}\n  }}\n}}");
    for (dirty, stated) in [("", "38c9ec082525"), (DIRTY, "38c9ec082525 with changes")] {
        fs::write(package.join(".cargo_vcs_info.json"), facts(dirty)).unwrap();
        assert_eq!(source::of(&package).as_deref(), Some(stated), "not {other}");
        assert_eq!(source::files(&package), Vec::<String>::new());
    }
    fs::write(package.join(".cargo_vcs_info.json"), "{}").unwrap();
    assert_eq!(source::of(&package), None);
}

const SHA1: &str = "38c9ec082525da7b0a8b11b66ef1bf91bc85226b";
/// The line in an archive whose files differ from the commit.
const DIRTY: &str = ",\n    \"dirty\": true";
