//! The sessions in README.md and the guide are true: each `$ grosso` command is run on the captures of the repository,
//! and its standard output is the text below it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The line that stands for the rest of an output.
const AND_SO_ON: &str = "...";

#[test]
fn the_readme_prints_what_it_shows() {
    assert_true("README.md", 2);
}

#[test]
fn the_guide_prints_what_it_shows() {
    assert_true("docs/guide.md", 10);
}

/// Runs the sessions of a document, at least that many, in a folder with nothing but the captures.
#[track_caller]
fn assert_true(document: &str, sessions_min: usize) {
    let text = fs::read_to_string(root().join(document)).expect("the document is there");
    let sessions = sessions(&text);
    assert!(sessions.len() >= sessions_min, "{document} has only {} sessions", sessions.len());
    let folder = tempfile::tempdir().expect("a folder");
    copy_captures(&folder.path().join("tests/captures"));
    let program = program();
    for Session { arguments, shown } in sessions {
        let output = Command::new(&program)
            .args(&arguments)
            .env("NO_COLOR", "1")
            .current_dir(folder.path())
            .output()
            .expect("the command runs");
        let printed = String::from_utf8(output.stdout).expect("text");
        let whole = shown.last().is_none_or(|line| *line != AND_SO_ON);
        let shown = if whole { &shown[..] } else { &shown[..shown.len() - 1] };
        let printed: Vec<&str> = printed.lines().collect();
        let compared = if whole { printed.len() } else { shown.len().min(printed.len()) };
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(shown, &printed[..compared], "{document}: grosso {arguments:?}: {errors}");
    }
}

/// A command, and its output according to the document.
struct Session<'a> {
    arguments: Vec<&'a str>,
    shown: Vec<&'a str>,
}

/// The `$ grosso` lines of all console blocks with the lines up to the next command. A command in a pipe, or without
/// output below it, is not run.
fn sessions(text: &str) -> Vec<Session<'_>> {
    let blocks = text.split("```console\n").skip(1).filter_map(|rest| rest.split("```").next());
    let commands = blocks.flat_map(|block| block.split("$ ").skip(1));
    let sessions = commands.filter_map(|session| {
        let (command, shown) = session.split_once('\n')?;
        let arguments = command.strip_prefix("grosso ")?.split_whitespace().collect();
        let shown = shown.trim_end().lines().collect();
        Some(Session { arguments, shown })
    });
    sessions
        .filter(|session| !session.shown.is_empty() && !session.arguments.contains(&"|"))
        .collect()
}

/// The path of the command, built as the tests are.
fn program() -> PathBuf {
    let output = Command::new(env!("CARGO"))
        .args(["build", "--package", "grosso-cli", "--message-format", "json"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let messages = String::from_utf8(output.stdout).expect("text");
    let path = messages.lines().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        message["executable"].as_str().map(PathBuf::from)
    });
    path.expect("cargo names the program")
}

fn copy_captures(to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(root().join("tests/captures")).expect("captures") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name");
        fs::copy(&path, to.join(name)).expect("a copy");
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}
