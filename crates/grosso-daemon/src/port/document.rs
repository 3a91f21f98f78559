//! Writes the tables of ports and of their options for `docs/configuration.md`.

use super::registry::{KINDS, key_names, kinds_with};

/// Returns the head and the rows of each port table in the documentation, as Markdown.
pub fn port_tables() -> [(&'static str, String); 2] {
    let kinds = KINDS.iter().map(|kind| format!("| {} | {} |\n", kind.examples, kind.meaning));
    let rows: String = key_names().into_iter().map(row).collect();
    [
        ("| string | device |\n|---|---|\n", kinds.collect()),
        ("| key | ports | meaning | default |\n|---|---|---|---|\n", rows + COMMON),
    ]
}

/// Returns the table row that describes an option, with the default for each kind of port that has the option.
fn row(name: &str) -> String {
    let mut ports = Vec::new();
    let (mut meaning, mut defaults) = ("", Vec::<(&str, Vec<String>)>::new());
    for kind in kinds_with(name) {
        let word = format!("`{}`", kind.word);
        ports.push(word.clone());
        let Some(setting) = kind.settings.iter().find(|setting| setting.name == name) else {
            continue;
        };
        meaning = setting.meaning;
        match defaults.iter_mut().find(|(default, _)| *default == setting.default) {
            Some((_, words)) => words.push(word),
            None => defaults.push((setting.default, vec![word])),
        }
    }
    let defaults = defaults.iter().enumerate().map(|(index, (default, words))| match index {
        0 => (*default).to_owned(),
        _ => format!("; {}: {default}", words.join(", ")),
    });
    let defaults: String = defaults.collect();
    format!("| `{name}` | {} | {meaning} | {defaults} |\n", ports.join(", "))
}

/// Options that all ports have. Their values are separate tables.
const COMMON: &str = "\
| `features` | all | ethtool's names or `sg`, `tx`, `gso`, `tso`, each `true` or `false`: offloads that Grosso uses \
and, at a TUN or TAP device, offers to the stack | all that the device has; `unix`, `vhost-user`: those in `offloads` |
| `fragments` | all | reassemble and create [IP fragments](#fragments) | fragments pass unchanged |
| `esp` | all | encrypt and decrypt with [ESP](#esp) | packets pass unchanged |
";

#[cfg(test)]
mod tests {
    use std::{env, fs, path::Path};

    use super::*;

    #[test]
    fn the_document_lists_every_port_and_its_options() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
        let document = fs::read_to_string(&path).unwrap();
        let mut expected = document.clone();
        for (head, rows) in port_tables() {
            let (before, rest) = expected.split_once(head).unwrap();
            let (_, after) = rest.split_once("\n\n").unwrap();
            expected = format!("{before}{head}{rows}\n{after}");
        }
        if env::var_os("GROSSO_WRITE_DOCUMENTS").is_some() {
            fs::write(&path, &expected).unwrap();
        } else {
            let command = "GROSSO_WRITE_DOCUMENTS=1 cargo test -p grosso-daemon port::document";
            assert!(document == expected, "outdated tables; write them with {command}");
        }
    }
}
