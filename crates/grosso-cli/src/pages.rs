//! Generates the manual pages and shell completions for packages from the command-line definition.

use std::{fs, io, path::Path};

use clap::CommandFactory;
use clap_complete::Shell;

use crate::commands::Arguments;

/// Shells for which packages have completions.
const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Fish, Shell::Zsh];

/// Writes a page for each command and subcommand to the subdirectory `man1`, and the completions to `completions`.
/// Completions have the file names that each shell expects.
///
/// # Errors
///
/// Fails if a directory or a file cannot be created.
#[expect(clippy::disallowed_methods, reason = "it is called when packages are built")]
pub fn write(folder: &Path) -> io::Result<()> {
    let (pages, completions) = (folder.join("man1"), folder.join("completions"));
    fs::create_dir_all(&pages)?;
    fs::create_dir_all(&completions)?;
    clap_mangen::generate_to(Arguments::command(), &pages)?;
    for shell in SHELLS {
        clap_complete::generate_to(shell, &mut Arguments::command(), "grosso", &completions)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn every_subcommand_has_a_page_and_no_page_is_of_another() {
        let folder = written();
        let entries = fs::read_dir(folder.path().join("man1")).unwrap();
        let mut pages: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        let mut wanted = Vec::new();
        names("grosso", &Arguments::command(), &mut wanted);
        pages.sort();
        wanted.sort();
        assert_eq!(pages, wanted);
        assert!(wanted.contains(&"grosso-csum-verify.1".to_owned()), "{wanted:?}");
    }

    #[test]
    fn pages_are_formatted_without_a_complaint() {
        let folder = written();
        if Command::new("groff").arg("--version").output().is_err() {
            println!("skipped: groff is not installed");
            return;
        }
        for entry in fs::read_dir(folder.path().join("man1")).unwrap() {
            let path = entry.unwrap().path();
            let mut groff = Command::new("groff");
            let output =
                groff.args(["-ww", "-man", "-Tascii", "-P-cbou"]).arg(&path).output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            assert!(output.status.success() && text.contains("SYNOPSIS"), "{path:?}: {text}");
            assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{path:?}");
        }
    }

    #[test]
    fn bash_completes_commands_and_options() {
        let script = "source \"$1\" && complete -p grosso &&
            COMP_WORDS=(grosso csum ver) COMP_CWORD=2 && _grosso grosso ver csum && echo \"${COMPREPLY[*]}\" &&
            COMP_WORDS=(grosso coalesce --prof) && _grosso grosso --prof coalesce && echo \"${COMPREPLY[*]}\"";
        let folder = written();
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-c", script, "bash"]);
        let Ok(output) = bash.arg(folder.path().join("completions/grosso.bash")).output() else {
            println!("skipped: bash is not installed");
            return;
        };
        let text = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(lines[0].contains("-F _grosso") && lines[0].ends_with("grosso"), "{text}{errors}");
        assert_eq!(lines[1..], ["verify", "--profile"], "{errors}");
    }

    fn written() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path()).unwrap();
        folder
    }

    fn names(name: &str, command: &clap::Command, into: &mut Vec<String>) {
        into.push(format!("{name}.1"));
        for subcommand in command.get_subcommands() {
            names(&format!("{name}-{}", subcommand.get_name()), subcommand, into);
        }
    }
}
