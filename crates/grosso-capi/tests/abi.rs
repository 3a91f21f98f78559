//! Tests that the binary interface matches the recorded one: the exported symbols and the layouts of shared types.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]
#![allow(clippy::disallowed_methods, reason = "tests make their files themselves")]

use std::{
    fmt::Write,
    fs,
    mem::{offset_of, size_of},
    path::Path,
    process::Command,
};

use grosso_capi::types::{Options, Vnet};

/// Prints a type's size and the offsets of its fields, one per line.
macro_rules! layout {
    ($out:ident, $name:literal, $type:ty: $($field:ident),+) => {
        writeln!($out, "struct {} {}", $name, size_of::<$type>()).unwrap();
        $(writeln!($out, "  {} {}", stringify!($field), offset_of!($type, $field)).unwrap();)+
    };
}

fn layouts() -> String {
    let mut out = String::new();
    layout!(out, "grosso_vnet", Vnet:
        flags, gso_type, header_length, gso_size, checksum_start, checksum_offset, buffers);
    layout!(out, "grosso_options", Options:
        size, link, flags, reserved, seed, context, take, release);
    out
}

/// Returns the names of the functions that the header declares.
fn declared(header: &str) -> String {
    let words = header.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let mut rest = header;
    let mut names: Vec<&str> = Vec::new();
    for word in words.filter(|word| word.starts_with("grosso_")) {
        let at = rest.find(word).unwrap() + word.len();
        rest = &rest[at..];
        let declares = rest.starts_with('(') && !rest.starts_with("()");
        if declares || rest.starts_with("(void)") {
            names.push(word);
        }
    }
    names.sort_unstable();
    names.dedup();
    names.iter().map(|name| format!("symbol {name}\n")).collect()
}

#[test]
fn symbols_and_layouts_are_the_recorded_ones() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = fs::read_to_string(here.join("include/grosso.h")).unwrap();
    let found = declared(&header) + &layouts();
    let file = here.join("abi.txt");
    if std::env::var_os("GROSSO_WRITE_DOCUMENTS").is_some() {
        fs::write(&file, &found).unwrap();
    }
    let recorded = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        found == recorded,
        "existing programs may break: raise the version, or undo the change\n{found}"
    );
}

#[test]
fn the_library_exports_these_symbols_and_no_others() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let test = std::env::current_exe().unwrap();
    let library = test.parent().unwrap().join("libgrosso_capi.so");
    let Ok(output) = Command::new("nm").args(["-D", "--defined-only"]).arg(&library).output()
    else {
        println!("skipped: nm is not installed");
        assert!(std::env::var_os("GROSSO_SKIP_NOTHING").is_none(), "skipped: nm");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let mut names: Vec<&str> = text.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    names.sort_unstable();
    let exported: String = names.iter().map(|name| format!("symbol {name}\n")).collect();
    let recorded = fs::read_to_string(here.join("abi.txt")).unwrap();
    let recorded: String = recorded.lines().filter(|line| line.starts_with("symbol")).fold(
        String::new(),
        |mut all, line| {
            all += line;
            all.push('\n');
            all
        },
    );
    assert_eq!(exported, recorded);
}

/// Tests that the C compiler lays out the header's structures as recorded.
#[test]
fn c_lays_out_the_structures_alike() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut source = "#include <grosso.h>\n".to_owned();
    let mut name = String::new();
    for line in layouts().lines() {
        let mut words = line.split_whitespace();
        let (first, second) = (words.next().unwrap(), words.next().unwrap());
        let place = match words.next() {
            Some(size) => {
                name = format!("struct {second}");
                format!("sizeof({name}) == {size}")
            }
            None => format!("offsetof({name}, {first}) == {second}"),
        };
        writeln!(source, "_Static_assert({place}, \"{first} {second}\");").unwrap();
    }
    let file = std::env::temp_dir().join(format!("grosso-abi-{}.c", std::process::id()));
    fs::write(&file, source).unwrap();
    let mut command = Command::new("cc");
    command.args(["-std=c11", "-fsyntax-only", "-Wall", "-Werror", "-I"]);
    match command.arg(here.join("include")).arg(&file).status() {
        Ok(status) => assert!(status.success()),
        Err(error) => {
            println!("skipped: cc: {error}");
            assert!(std::env::var_os("GROSSO_SKIP_NOTHING").is_none(), "skipped: cc");
        }
    }
    fs::remove_file(&file).unwrap();
}
