//! Tests that the library's keywords match the command line's options.

use std::collections::BTreeSet;

use clap::CommandFactory;
use grosso_analysis::keywords::Call;

use super::Arguments;

/// Options that exist only on the command line, because they concern the command's output or name a file (`-r`).
const COMMAND_LINE_ONLY: &[&str] = &["json", "quiet", "color", "help", "read"];

#[test]
fn both_front_ends_have_the_same_options() {
    for name in [
        "inspect",
        "coalesce",
        "segment",
        "wire",
        "reassemble",
        "decap",
        "fragment",
        "csum verify",
        "csum fix",
        "explain",
        "whatif",
        "export",
        "merge",
        "profiles",
    ] {
        let mut command = Arguments::command();
        command.build();
        for word in name.split(' ') {
            command = command.find_subcommand(word).unwrap().clone();
        }
        let of_line = command.get_arguments().filter_map(|one| one.get_long());
        let of_line: BTreeSet<_> = of_line.filter(|one| !COMMAND_LINE_ONLY.contains(one)).collect();
        // The last option is unknown, so the hint in the error lists all options of the command.
        let table = ("parquet", name == "export");
        let needed = [("mtu", name == "fragment"), ("number", name == "explain"), table];
        let needed = needed.into_iter().filter(|(_, is_needed)| *is_needed);
        let mut options: Vec<_> =
            needed.map(|(one, _)| (one.into(), Some("1280".into()))).collect();
        options.push(("0".into(), None));
        let call = Call { command: name.into(), options, ..Call::default() };
        let hint = call.report().unwrap_err().hint.unwrap();
        let of_library = hint.split("--").skip(1).map(|one| one.trim_end_matches(", "));
        assert_eq!(of_library.collect::<BTreeSet<_>>(), of_line, "{name}");
    }
}
