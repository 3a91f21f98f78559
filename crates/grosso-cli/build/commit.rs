//! The commit from which the command is built.

use std::{fs, path::Path, process::Command};

/// Returns the abbreviated commit of a package, followed by [`CHANGED`] if sources differ from the commit. `None` if
/// the package is neither from an archive of Cargo nor in this project's repository.
pub(crate) fn of(package: &Path) -> Option<String> {
    // An archive may be unpacked in the repository of another project, whose commit means nothing here.
    match fs::read_to_string(package.join(".cargo_vcs_info.json")) {
        Ok(facts) => of_archive(&facts),
        Err(_) => of_repository(package),
    }
}

/// Returns the files and directories on which the commit of a package depends.
pub(crate) fn files(package: &Path) -> Vec<String> {
    if of_repository(package).is_none() {
        return Vec::new();
    }
    let records =
        ["HEAD", "logs/HEAD"].map(|name| git(package, &["rev-parse", "--git-path", name]));
    let records = records.into_iter().flatten().filter(|name| package.join(name).exists());
    records.chain(SOURCES.map(str::to_owned)).collect()
}

/// Returns the commit that `cargo package` recorded.
fn of_archive(facts: &str) -> Option<String> {
    let (_, rest) = facts.split_once("\"sha1\"")?;
    let commit = rest.split('"').nth(1)?.get(..LENGTH)?;
    let is_commit = commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    let changed = if facts.contains("\"dirty\": true") { CHANGED } else { "" };
    is_commit.then(|| format!("{commit}{changed}"))
}

fn of_repository(package: &Path) -> Option<String> {
    if git(package, &["rev-parse", "--show-prefix"])? != PLACE {
        return None;
    }
    let commit = git(package, &["rev-parse", "HEAD"])?;
    let status = ["status", "--porcelain", "--untracked-files=no", "--"];
    let changes = git(package, &[&status[..], &SOURCES].concat())?;
    let changed = if changes.is_empty() { "" } else { CHANGED };
    Some(format!("{}{changed}", commit.get(..LENGTH)?))
}

/// Runs git in a directory without writing to the repository; `None` if that fails.
fn git(directory: &Path, arguments: &[&str]) -> Option<String> {
    let mut git = Command::new("git");
    git.arg("--no-optional-locks").args(arguments).current_dir(directory);
    let output = git.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim_end().to_owned())
}

/// Mark of a build from sources that differ from the commit.
const CHANGED: &str = " with changes";
/// Number of hexadecimal digits of an abbreviated commit.
const LENGTH: usize = 12;
/// Directory of the package in the repository.
const PLACE: &str = "crates/grosso-cli/";
/// Sources of the command, relative to its package.
const SOURCES: [&str; 3] = ["..", "../../Cargo.toml", "../../Cargo.lock"];
