//! Checks the examples in the documentation of `grosso-tun`: every public item has one, and each is short.

use std::path::Path;

use syn::{Attribute, Expr, ExprLit, ImplItem, Item, Lit, Meta, UseTree, Visibility};

use crate::tidy::{assert_none, files, is_rust, read, root, shown};

/// Maximum number of lines of an example, without hidden and empty ones.
const LINES_MAX: usize = 6;

#[test]
fn every_public_item_of_grosso_tun_has_a_short_example() {
    let crates = root().join("crates");
    let source = crates.join("grosso-tun/src");
    let mut wrong = Vec::new();
    let mut found = 0;
    for path in files(&source).iter().filter(|path| is_rust(path)) {
        for (name, documents) in public_items(path) {
            found += 1;
            wrong.extend(judged(&documents).map(|why| format!("{}: `{name}` {why}", shown(path))));
        }
    }
    assert!(found > 100, "{found} items");
    // Items of other crates that this crate re-exports are checked too.
    for (package, name) in re_exports(&source.join("lib.rs")) {
        let sources = files(&crates.join(&package).join("src"));
        let documents: Vec<_> = sources
            .iter()
            .filter(|path| is_rust(path))
            .flat_map(|path| public_items(path))
            .filter(|(item, _)| *item == name)
            .map(|(_, documents)| documents)
            .collect();
        let has_example = documents.iter().any(|documents| judged(documents).next().is_none());
        if !has_example {
            wrong.push(format!(
                "{package}: `{name}`, which grosso-tun re-exports, has no short one"
            ));
        }
    }
    assert_none(&wrong, "write an example of at most six lines");
}

#[test]
fn a_missing_or_long_example_is_found() {
    let visible = |lines: usize| {
        let code: String = (0..lines).map(|i| format!("line({i});\n")).collect();
        format!("Text.\n```no_run\n# hidden();\n\n{code}```\n")
    };
    assert_eq!(judged(&visible(LINES_MAX)).next(), None);
    assert!(judged(&visible(LINES_MAX + 1)).next().is_some());
    assert!(judged("Text.\n").next().is_some());
    assert!(judged("Text.\n```text\na table\n```\n").next().is_some());
}

/// Returns the reason why the documentation of an item is insufficient.
fn judged(documents: &str) -> impl Iterator<Item = String> + use<> {
    let mut examples = Vec::new();
    let mut inside = None;
    for line in documents.lines().map(str::trim) {
        match (line.strip_prefix("```"), &mut inside) {
            (Some(kind), None) => inside = Some((kind != "text", 0)),
            (Some(_), Some(example)) => {
                examples.push(*example);
                inside = None;
            }
            (None, Some((_, lines))) => {
                *lines += usize::from(!line.is_empty() && line != "#" && !line.starts_with("# "));
            }
            (None, None) => {}
        }
    }
    let longest = examples.iter().filter(|(is_code, _)| *is_code).map(|&(_, lines)| lines).max();
    match longest {
        None => Some("has no example".to_owned()),
        Some(lines) if lines > LINES_MAX => Some(format!("has an example of {lines} lines")),
        Some(_) => None,
    }
    .into_iter()
}

/// Returns the names and the documentation of the public items and methods of a file.
fn public_items(path: &Path) -> Vec<(String, String)> {
    let file = syn::parse_file(&read(path));
    let file = file.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut found = Vec::new();
    let mut add = |visibility: &Visibility, name: String, attributes: &[Attribute]| {
        if matches!(visibility, Visibility::Public(_)) {
            found.push((name, documentation(attributes)));
        }
    };
    for item in &file.items {
        match item {
            Item::Const(item) => add(&item.vis, item.ident.to_string(), &item.attrs),
            Item::Enum(item) => add(&item.vis, item.ident.to_string(), &item.attrs),
            Item::Fn(item) => add(&item.vis, item.sig.ident.to_string(), &item.attrs),
            Item::Struct(item) => add(&item.vis, item.ident.to_string(), &item.attrs),
            Item::Trait(item) => add(&item.vis, item.ident.to_string(), &item.attrs),
            Item::Type(item) => add(&item.vis, item.ident.to_string(), &item.attrs),
            Item::Impl(item) if item.trait_.is_none() => {
                for item in &item.items {
                    if let ImplItem::Fn(function) = item {
                        add(&function.vis, function.sig.ident.to_string(), &function.attrs);
                    }
                }
            }
            _ => {}
        }
    }
    found
}

/// Returns the text of the doc comments among the attributes.
fn documentation(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    });
    lines.flat_map(|line| [line, "\n".to_owned()]).collect()
}

/// Returns the package and the name of each item that a crate root re-exports from another workspace crate.
fn re_exports(root: &Path) -> Vec<(String, String)> {
    let file = syn::parse_file(&read(root)).expect("Rust");
    let mut found = Vec::new();
    for item in &file.items {
        if let Item::Use(item) = item
            && let Visibility::Public(_) = item.vis
            && let UseTree::Path(path) = &item.tree
            && path.ident.to_string().starts_with("grosso")
        {
            let package = path.ident.to_string().replace('_', "-");
            let mut trees = vec![&*path.tree];
            while let Some(tree) = trees.pop() {
                match tree {
                    UseTree::Path(path) => trees.push(&path.tree),
                    UseTree::Group(group) => trees.extend(&group.items),
                    UseTree::Name(name) => found.push((package.clone(), name.ident.to_string())),
                    UseTree::Rename(name) => found.push((package.clone(), name.ident.to_string())),
                    UseTree::Glob(_) => panic!("{}: name what is exported", root.display()),
                }
            }
        }
    }
    found
}
