//! Checks the structure of each crate: imports between modules form no cycle, and each name means only one type.
//!
//! A directory is a level. Each module in it, a file or a directory, may import modules below it, but none that imports
//! it. This test ignores references between a module and its own directory. The directories of the engine's `coalesce`
//! have a fixed order, and no module of the lab imports an experiment.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    slice,
};

use syn::{
    Attribute, File, Ident, Item, ItemEnum, ItemImpl, ItemMod, ItemStruct, ItemTrait, ItemUnion,
    ItemUse, Meta, MetaList, Token, UseTree, Visibility,
    punctuated::Punctuated,
    visit::{self, Visit},
};

/// Levels that still have cycles: the crate, and the directory relative to `src`. A row is removed once its last cycle
/// is gone.
const CIRCLES: &[(&str, &str)] = &[];

/// Crates in which a name still means several types, and the number of such names.
const AMBIGUOUS: &[(&str, usize)] = &[];

/// The directories of `coalesce` in the crate `grosso`: each imports only from the ones after it.
const COALESCE_DIRECTORIES: &[&str] =
    &["pipeline", "flows", "hold", "predict", "rx", "emit", "slots", "profile"];

#[test]
fn imports_form_no_circle() {
    let mut wrong = Vec::new();
    let mut found = BTreeSet::new();
    for (name, modules) in crates(&["benches", "benches/peers", "python"]) {
        for (level, imports) in levels(&modules) {
            let circles = circles(&imports);
            if !circles.is_empty() {
                found.insert((name.clone(), level.join("/")));
            }
            for circle in circles {
                let within =
                    |(from, to): &&(String, String)| circle.contains(from) && circle.contains(to);
                let arrows = imports.iter().filter(|(arrow, _)| within(arrow));
                let arrows = arrows.map(|((from, to), by)| format!("{from} -> {to} ({by})"));
                let arrows = arrows.collect::<Vec<_>>().join(", ");
                wrong.push((
                    name.clone(),
                    level.join("/"),
                    format!("{name}/src/{}: {arrows}", level.join("/")),
                ));
            }
        }
    }
    let listed = |name: &str, level: &str| CIRCLES.contains(&(name, level));
    let new: Vec<_> = wrong
        .iter()
        .filter(|(name, level, _)| !listed(name, level))
        .map(|(.., text)| text)
        .collect();
    assert!(
        new.is_empty(),
        "move the code that both modules need to a module below both:\n  {}\n",
        join(&new)
    );
    let gone =
        |(name, level): &&(&str, &str)| !found.contains(&((*name).to_owned(), (*level).to_owned()));
    let gone: Vec<_> = CIRCLES.iter().filter(gone).map(|row| format!("{row:?}")).collect();
    assert!(
        gone.is_empty(),
        "these levels have no cycles: remove them from the list:\n  {}\n",
        gone.join("\n  ")
    );
}

#[test]
fn a_name_means_one_type_in_a_crate() {
    for (name, modules) in crates(&[]) {
        let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for module in &modules {
            for defined in &module.types {
                places.entry(defined.clone()).or_default().push(shown(&module.path));
            }
        }
        places.retain(|_, places| places.len() > 1);
        let listed = AMBIGUOUS.iter().find(|(of, _)| *of == name).map_or(0, |&(_, names)| names);
        let rows: Vec<_> =
            places.iter().map(|(name, places)| format!("{name}: {}", places.join(", "))).collect();
        assert!(rows.len() <= listed, "{name}: give each type a unique name:\n  {}\n", join(&rows));
        assert!(
            rows.len() >= listed,
            "{name}: only {} are left: reduce the number in the list",
            rows.len()
        );
    }
}

#[test]
fn the_directories_of_coalesce_import_only_downwards() {
    let (_, modules) =
        crates(&[]).into_iter().find(|(name, _)| name == "grosso").expect("the engine");
    let found: BTreeSet<_> = modules
        .iter()
        .filter(|module| module.path.len() > 1 && module.path[0] == "coalesce")
        .map(|module| module.path[1].as_str())
        .collect();
    assert_eq!(found, COALESCE_DIRECTORIES.iter().copied().collect(), "the directories");
    let upward = upward("coalesce", COALESCE_DIRECTORIES, &modules);
    assert!(
        upward.is_empty(),
        "move the code that both need to the lower directory:\n  {}\n",
        join(&upward)
    );
    // The comment at the top of the root module lists the directories in the same order.
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let root = workspace.join("crates/grosso/src/coalesce/mod.rs");
    let head = fs::read_to_string(root).expect("the root module");
    let rows = head.lines().filter_map(|line| line.strip_prefix("//! | "));
    let names = rows.filter_map(|row| row.split_once(" |")).map(|(cell, _)| cell);
    let names = names.filter_map(|cell| cell.trim_matches(['[', ']']).strip_prefix('`'));
    let names: Vec<_> = names.map(|name| name.trim_end_matches('`')).collect();
    assert_eq!(names, COALESCE_DIRECTORIES, "the table in coalesce/mod.rs");
}

#[test]
fn no_module_of_the_lab_imports_an_experiment() {
    let (_, modules) =
        crates(&[]).into_iter().find(|(name, _)| name == "grosso-lab").expect("the lab");
    let experiments = experiments(&modules);
    assert!(experiments.len() >= 8, "every experiment is found: {experiments:?}");
    let found = imports_of(&experiments, &modules);
    assert!(
        found.is_empty(),
        "move the code that both need to a module that is no experiment:\n  {}\n",
        join(&found)
    );
}

/// Tests that an experiment is found by its trait, and that an import of it is found for every kind of path.
#[test]
fn an_import_of_an_experiment_is_found() {
    let source = "
        mod experiment { pub trait Experiment {} }
        mod shared { pub struct Tool; }
        mod one { mod parts { pub struct Figure; } pub use parts::Figure; pub struct One;
            impl crate::experiment::Experiment for One {} }
        mod two { use crate::{experiment::Experiment, shared::Tool}; pub struct Two;
            impl Experiment for Two {} IMPORT }
        pub use one::One;
    ";
    let found = |import: &str| {
        let mut modules = Vec::new();
        let source = syn::parse_str(&source.replace("IMPORT", import)).expect("Rust");
        add(Vec::new(), source, &mut modules);
        let experiments = experiments(&modules);
        assert_eq!(experiments, BTreeSet::from(["one", "two"].map(str::to_owned)));
        imports_of(&experiments, &modules)
    };
    assert!(found("").is_empty());
    assert!(found("#[cfg(test)] mod tests { use crate::one::One; }").is_empty());
    for import in [
        "use crate::one::Figure;",
        "mod inner { use super::super::one; }",
        "fn of() -> crate::one::Figure { crate::one::Figure }",
        "use crate::One;",
    ] {
        assert_eq!(found(import).len(), 1, "{import}: {:?}", found(import));
    }
}

/// Tests the three kinds of imports that break the order: of a higher directory, of the root module, and of a name that
/// the root module re-exports.
#[test]
fn an_upward_import_is_found() {
    let source = "
        mod room {
            pub use low::Lo;
            pub struct Root;
            mod high { use crate::room::low::Lo; pub struct Hi; }
            mod low { pub struct Lo; IMPORT mod inner { use super::Lo; } }
        }
        pub use room::high::Hi;
    ";
    let found = |import: &str| {
        let mut modules = Vec::new();
        let source = syn::parse_str(&source.replace("IMPORT", import)).expect("Rust");
        add(Vec::new(), source, &mut modules);
        upward("room", &["high", "low"], &modules)
    };
    assert!(found("").is_empty());
    for (import, path) in [
        ("use crate::room::high::Hi;", "crate::room::high::Hi"),
        ("fn of() -> super::high::Hi { super::high::Hi }", "super::high::Hi"),
        ("use crate::Hi;", "crate::Hi"),
        ("use super::Root;", "super::Root"),
        ("use crate::room::Lo;", "crate::room::Lo"),
    ] {
        assert_eq!(found(import), [format!("room::low: {path}")]);
    }
}

/// Tests a tree in which two modules import each other through a third one, with every kind of path.
#[test]
fn a_circle_is_found_through_paths_and_what_is_exported_again() {
    let source = "
        mod a { use super::b::Bee; pub struct Ay; }
        mod b { pub use self::inner::Bee; mod inner { pub struct Bee(crate::c::Sea); } }
        mod c { pub struct Sea; fn of() -> crate::Ay { crate::Ay } }
        mod d { use crate::{a, c}; #[cfg(test)] mod tests { use crate::e::Never; } }
        mod e { use crate::d::Dee; }
        pub use a::Ay;
    ";
    let mut modules = Vec::new();
    add(Vec::new(), syn::parse_str(source).expect("Rust"), &mut modules);
    let levels = levels(&modules);
    let found = circles(&levels[&Vec::new()]);
    assert_eq!(found, [BTreeSet::from(["a", "b", "c"].map(str::to_owned))]);
}

/// A module: a file, or part of one.
struct Module {
    /// Path of the module from its crate root.
    path: Vec<String>,
    /// Every path in the module, as written.
    paths: BTreeSet<Vec<String>>,
    /// Names under which the module re-exports items, each with the path of the item.
    exported: BTreeMap<String, Vec<String>>,
    /// Types and traits that the module defines.
    types: Vec<String>,
    /// Traits that the module implements.
    implements: BTreeSet<String>,
}

/// Returns the modules of every product crate, and of the directories `beside` the crates.
fn crates(beside: &[&str]) -> Vec<(String, Vec<Module>)> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let crates = fs::read_dir(workspace.join("crates")).expect("the crates");
    let crates = crates.map(|entry| entry.expect("an entry").path()).filter(|path| path.is_dir());
    let mut found = Vec::new();
    for path in crates.chain(beside.iter().map(|folder| workspace.join(folder))) {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let mut modules = Vec::new();
        // If a crate has a library, its program consists of a single call into the library.
        let roots = ["lib.rs", "main.rs"].map(|root| path.join("src").join(root));
        if let Some(root) = roots.iter().find(|root| root.is_file()) {
            read(root, &path.join("src"), Vec::new(), &mut modules);
        }
        assert!(!modules.is_empty(), "{name} has sources");
        found.push((name, modules));
    }
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    found
}

/// Reads a module's file, and the files of its submodules in `folder`. A macro may declare some of the modules.
fn read(file: &Path, folder: &Path, path: Vec<String>, modules: &mut Vec<Module>) {
    let text =
        fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let parsed =
        syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let mut declared = BTreeSet::new();
    for item in &parsed.items {
        let Item::Mod(ItemMod { attrs, ident, content: None, .. }) = item else { continue };
        let name = ident.to_string();
        if !is_for_tests(attrs) {
            let places: [PathBuf; 2] =
                [folder.join(format!("{name}.rs")), folder.join(&name).join("mod.rs")];
            let place = places.iter().find(|place| place.is_file());
            let place = place.unwrap_or_else(|| panic!("{}: mod {name}", file.display()));
            read(
                place,
                &folder.join(&name),
                [path.as_slice(), slice::from_ref(&name)].concat(),
                modules,
            );
        }
        declared.insert(name);
    }
    for (name, place) in files(folder) {
        // A directory with this name may belong to another module, which has a `path` attribute.
        let is_named = !place.ends_with("mod.rs") || text.contains(&format!(", mod {name}"));
        if is_named && declared.insert(name.clone()) {
            read(&place, &folder.join(&name), [path.as_slice(), &[name]].concat(), modules);
        }
    }
    add(path, parsed, modules);
}

/// Returns the files of modules in a directory, by module name.
fn files(folder: &Path) -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let files = paths.map(|path| if path.is_dir() { path.join("mod.rs") } else { path });
    let rust = files.filter(|path| path.is_file() && path.extension() == Some("rs".as_ref()));
    let name = |path: &Path| match path.ends_with("mod.rs") {
        true => path.parent().and_then(Path::file_name).map(ToOwned::to_owned),
        false => path.file_stem().map(ToOwned::to_owned),
    };
    rust.map(|path| (name(&path).expect("a name").to_string_lossy().into_owned(), path))
        .filter(|(name, _)| !["lib", "main", "mod"].contains(&name.as_str()))
        .collect()
}

/// Adds a module and the modules inside it.
fn add(path: Vec<String>, file: File, modules: &mut Vec<Module>) {
    let mut rest = Vec::new();
    for item in file.items {
        match item {
            Item::Mod(ItemMod { attrs, ident, content: Some((_, items)), .. })
                if !is_for_tests(&attrs) =>
            {
                let inside = File { shebang: None, attrs: Vec::new(), items };
                add([path.as_slice(), &[ident.to_string()]].concat(), inside, modules);
            }
            item => rest.push(item),
        }
    }
    let mut module = Module {
        path,
        paths: BTreeSet::new(),
        exported: BTreeMap::new(),
        types: Vec::new(),
        implements: BTreeSet::new(),
    };
    rest.iter().for_each(|item| module.visit_item(item));
    modules.push(module);
}

/// Returns whether an item is compiled only for tests: it has a `cfg` attribute that never holds without `test` or
/// `doctest`. An item under `cfg(any(test, feature = "..."))` is product code.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args().is_ok_and(|predicate: Meta| needs_tests(&predicate))
    })
}

/// Returns whether a `cfg` predicate cannot hold without `test` or `doctest`.
fn needs_tests(predicate: &Meta) -> bool {
    let inner = |list: &MetaList| {
        list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).unwrap_or_default()
    };
    match predicate {
        Meta::Path(path) => path.is_ident("test") || path.is_ident("doctest"),
        Meta::List(list) if list.path.is_ident("all") => inner(list).iter().any(needs_tests),
        Meta::List(list) if list.path.is_ident("any") => inner(list).iter().all(needs_tests),
        // This is product code, for example under `not(test)`.
        Meta::List(_) | Meta::NameValue(_) => false,
    }
}

/// Tests that the checks include product code under a `cfg` that tests also enable, and skip code that is compiled only
/// for tests.
#[test]
fn code_only_for_tests_is_distinguished_from_code_that_tests_enable() {
    let is_skipped = |attribute: &str| {
        let item: ItemMod = syn::parse_str(&format!("{attribute} mod a;")).expect("Rust");
        is_for_tests(&item.attrs)
    };
    for attribute in ["#[cfg(test)]", "#[cfg(doctest)]", "#[cfg(all(test, unix))]"] {
        assert!(is_skipped(attribute), "{attribute}");
    }
    for attribute in [
        "#[cfg(any(test, feature = \"library\"))]",
        "#[cfg(not(test))]",
        "#[cfg(feature = \"test\")]",
        "#[test_only]",
        "",
    ] {
        assert!(!is_skipped(attribute), "{attribute}");
    }
}

impl<'ast> Visit<'ast> for Module {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            Item::Mod(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !is_for_tests(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let is_exported = !matches!(item.vis, Visibility::Inherited);
        for (name, path) in names(&item.tree) {
            if is_exported {
                self.exported.insert(name, path.clone());
            }
            self.paths.insert(path);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        let name = item.trait_.as_ref().and_then(|(_, path, _)| path.segments.last());
        self.implements.extend(name.map(|name| name.ident.to_string()));
        visit::visit_item_impl(self, item);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.paths.insert(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_item_struct(&mut self, item: &'ast ItemStruct) {
        self.types.push(item.ident.to_string());
        visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast ItemEnum) {
        self.types.push(item.ident.to_string());
        visit::visit_item_enum(self, item);
    }

    fn visit_item_union(&mut self, item: &'ast ItemUnion) {
        self.types.push(item.ident.to_string());
        visit::visit_item_union(self, item);
    }

    fn visit_item_trait(&mut self, item: &'ast ItemTrait) {
        self.types.push(item.ident.to_string());
        visit::visit_item_trait(self, item);
    }
}

/// Returns the names that a `use` imports, each with its path.
fn names(tree: &UseTree) -> Vec<(String, Vec<String>)> {
    let alone = |ident: &Ident| vec![ident.to_string()];
    match tree {
        UseTree::Path(path) => {
            let inside = names(&path.tree).into_iter();
            inside.map(|(name, rest)| (name, [alone(&path.ident), rest].concat())).collect()
        }
        UseTree::Name(name) => vec![(name.ident.to_string(), alone(&name.ident))],
        UseTree::Rename(rename) => vec![(rename.rename.to_string(), alone(&rename.ident))],
        UseTree::Glob(_) => vec![("*".into(), Vec::new())],
        UseTree::Group(group) => group.items.iter().flat_map(names).collect(),
    }
}

/// Pairs of modules on one level, the first of which imports the second. Each has an example of a module with such an
/// import.
type Imports = BTreeMap<(String, String), String>;

/// Returns the imports between modules of the same directory, keyed by directory.
fn levels(modules: &[Module]) -> BTreeMap<Vec<String>, Imports> {
    let known: BTreeMap<_, _> =
        modules.iter().map(|module| (module.path.clone(), module)).collect();
    let mut levels: BTreeMap<Vec<String>, Imports> = BTreeMap::new();
    for module in modules {
        for path in &module.paths {
            let Some(target) =
                absolute(path, &module.path, &known).and_then(|path| defining(path, &known))
            else {
                continue;
            };
            let shared =
                module.path.iter().zip(&target).take_while(|(one, other)| one == other).count();
            if let (Some(from), Some(to)) = (module.path.get(shared), target.get(shared)) {
                let level = levels.entry(module.path[..shared].to_vec()).or_default();
                level.entry((from.clone(), to.clone())).or_insert_with(|| shown(&module.path));
            }
        }
    }
    levels
}

/// Returns the imports of modules below `directory` that lead from one of its directories to an earlier one in `order`,
/// or to `directory` itself.
fn upward(directory: &str, order: &[&str], modules: &[Module]) -> Vec<String> {
    let known: BTreeMap<_, _> =
        modules.iter().map(|module| (module.path.clone(), module)).collect();
    let position = |path: &[String]| {
        let name = path.get(1)?;
        order.iter().position(|known| known == name)
    };
    let mut found = Vec::new();
    for module in
        modules.iter().filter(|module| module.path.first().is_some_and(|top| top == directory))
    {
        let Some(own) = position(&module.path) else { continue };
        for path in &module.paths {
            let Some(written) = absolute(path, &module.path, &known) else { continue };
            let goes_up = |target: &[String]| {
                target.first().is_some_and(|top| top == directory)
                    && position(target).is_none_or(|other| other < own)
            };
            let target = defining(written.clone(), &known);
            if goes_up(&written) || target.is_some_and(|target| goes_up(&target)) {
                found.push(format!("{}: {}", shown(&module.path), path.join("::")));
            }
        }
    }
    found
}

/// Returns the modules below the root that implement `Experiment`, or contain a module that does.
fn experiments(modules: &[Module]) -> BTreeSet<String> {
    let found = modules.iter().filter(|module| module.implements.contains("Experiment"));
    found.filter_map(|module| module.path.first().cloned()).collect()
}

/// Returns the imports of these modules by other modules, except by the root module, which re-exports them.
fn imports_of(targets: &BTreeSet<String>, modules: &[Module]) -> Vec<String> {
    let known: BTreeMap<_, _> =
        modules.iter().map(|module| (module.path.clone(), module)).collect();
    let mut found = Vec::new();
    for module in modules {
        let Some(own) = module.path.first() else { continue };
        for path in &module.paths {
            let target = absolute(path, &module.path, &known);
            let target = target.and_then(|path| defining(path, &known));
            let target = target.and_then(|target| target.into_iter().next());
            if target.is_some_and(|target| target != *own && targets.contains(&target)) {
                found.push(format!("{}: {}", shown(&module.path), path.join("::")));
            }
        }
    }
    found
}

/// Returns a path relative to the root of the crate; `None` if it leads out of the crate or to a local name.
fn absolute(
    path: &[String],
    from: &[String],
    known: &BTreeMap<Vec<String>, &Module>,
) -> Option<Vec<String>> {
    let (first, rest) = path.split_first()?;
    match first.as_str() {
        "crate" => Some(rest.to_vec()),
        "self" => Some([from, rest].concat()),
        "super" => {
            let ups = path.iter().take_while(|name| *name == "super").count();
            Some([from.get(..from.len().checked_sub(ups)?)?, &path[ups..]].concat())
        }
        _ => Some([from, path].concat()).filter(|whole| known.contains_key(&whole[..=from.len()])),
    }
}

/// Returns the module that defines the target of a path, followed through re-exports.
fn defining(mut path: Vec<String>, known: &BTreeMap<Vec<String>, &Module>) -> Option<Vec<String>> {
    for _ in 0..EXPORTS_MAX {
        let len = (0..=path.len()).take_while(|&len| known.contains_key(&path[..len])).last()?;
        let (module, rest) = path.split_at(len);
        let again = rest.first().and_then(|name| known[module].exported.get(name));
        match again.and_then(|again| absolute(again, module, known)) {
            Some(next) => path = [next, rest[1..].to_vec()].concat(),
            None => return Some(module.to_vec()),
        }
    }
    None
}

/// Returns the largest sets of modules in which each module imports every other, directly or indirectly.
fn circles(imports: &Imports) -> Vec<BTreeSet<String>> {
    let reached = |from: &String| {
        let mut found = BTreeSet::new();
        let mut rest = vec![from];
        while let Some(name) = rest.pop() {
            let next = imports.keys().filter(|(of, _)| of == name).map(|(_, to)| to);
            rest.extend(next.filter(|to| found.insert((*to).clone())));
        }
        found
    };
    let names: BTreeSet<&String> = imports.keys().map(|(from, _)| from).collect();
    let reach: BTreeMap<&String, BTreeSet<String>> =
        names.iter().map(|name| (*name, reached(name))).collect();
    let in_circle = names.iter().filter(|name| reach[*name].contains(**name));
    let circle = |name: &&&String| {
        let others = reach[**name]
            .iter()
            .filter(|other| reach.get(other).is_some_and(|back| back.contains(**name)));
        others.cloned().collect::<BTreeSet<String>>()
    };
    in_circle.map(|name| circle(&name)).collect::<BTreeSet<_>>().into_iter().collect()
}

fn shown(path: &[String]) -> String {
    if path.is_empty() { "the root".into() } else { path.join("::") }
}

fn join<T: AsRef<str>>(rows: &[T]) -> String {
    rows.iter().map(AsRef::as_ref).collect::<Vec<_>>().join("\n  ")
}

/// Maximum number of re-exports of one name.
const EXPORTS_MAX: usize = 8;
