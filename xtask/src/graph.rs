//! The modules of a crate and the modules that each of them uses, read from its sources.
//!
//! Paths in `use` declarations, types and expressions are resolved to the file that defines the
//! item, through any number of re-exports. Calls of methods count if the receiver is `self` or a
//! variable named like the type, and only one module defines an inherent method of that name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use syn::visit::{self, Visit};

/// A module path without the crate, such as `["fs", "dir"]`. The crate root is empty.
pub type Module = Vec<String>;

/// Uses of other modules by module, each with the names that are used.
pub type Uses = BTreeMap<Module, BTreeMap<Module, BTreeSet<String>>>;

/// The uses between the modules of a crate, without test code.
#[derive(Debug, Default)]
pub struct Graph {
    /// Uses of items by their paths.
    pub paths: Uses,
    /// Calls of inherent methods.
    pub calls: Uses,
}

/// Reads the modules below the directory `src`.
///
/// # Errors
/// If a file cannot be read or parsed.
pub fn read_graph(src: &Path) -> Result<Graph, String> {
    let mut files = BTreeMap::new();
    read(src, &Module::new(), &mut files)?;
    let mut named: BTreeMap<&Module, Names> = BTreeMap::new();
    for (module, file) in &files {
        let mut names = Names::of(module, &files);
        names.visit_file(file);
        named.insert(module, names);
    }
    let methods = methods_by_module(&named);
    let resolver = Resolver { files: &files, named: &named };
    let mut graph = Graph::default();
    for (module, names) in &named {
        let paths = names.paths.iter();
        let paths = paths.filter_map(|path| Some((resolver.definition(path, 0)?, path.join("::"))));
        graph.paths.insert((*module).clone(), others(module, paths));
        let defined = |call| methods.get(call).copied().flatten().cloned();
        let calls = names.calls.iter();
        let calls =
            calls.filter_map(|call| Some((defined(call)?, call.0.clone() + "::" + &call.1)));
        graph.calls.insert((*module).clone(), others(module, calls));
    }
    Ok(graph)
}

/// Collects the names by module, except those of the module itself.
fn others(
    module: &Module,
    names: impl Iterator<Item = (Module, String)>,
) -> BTreeMap<Module, BTreeSet<String>> {
    let mut found: BTreeMap<Module, BTreeSet<String>> = BTreeMap::new();
    for (target, name) in names.filter(|(target, _)| target != module) {
        found.entry(target).or_default().insert(name);
    }
    found
}

/// Returns the groups of modules that use each other, directly or indirectly.
pub fn cycles(uses: &Uses) -> Vec<Vec<Module>> {
    let reachable: BTreeMap<&Module, BTreeSet<&Module>> =
        uses.keys().map(|module| (module, reachable(uses, module))).collect();
    let mut grouped: BTreeSet<&Module> = BTreeSet::new();
    let mut groups = Vec::new();
    for (module, targets) in &reachable {
        if !targets.contains(module) || grouped.contains(module) {
            continue;
        }
        let is_mutual = |other: &&&Module| reachable[**other].contains(module);
        let group: Vec<&Module> = targets.iter().filter(is_mutual).copied().collect();
        grouped.extend(&group);
        groups.push(group.into_iter().cloned().collect());
    }
    groups
}

fn reachable<'a>(uses: &'a Uses, from: &Module) -> BTreeSet<&'a Module> {
    let mut found = BTreeSet::new();
    let mut next: Vec<&Module> = uses[from].keys().collect();
    while let Some(module) = next.pop() {
        if found.insert(module) {
            next.extend(uses.get(module).into_iter().flat_map(BTreeMap::keys));
        }
    }
    found
}

/// Parses the files below a directory.
fn read(
    dir: &Path,
    module: &Module,
    files: &mut BTreeMap<Module, syn::File>,
) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot read {}: {error}", dir.display());
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let child = || module.iter().cloned().chain([stem.clone()]).collect();
        if path.is_dir() {
            read(&path, &child(), files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).map_err(failed)?;
            let file = syn::parse_file(&text);
            let file = file.map_err(|error| format!("{}: {error}", path.display()))?;
            let is_parent = ["mod", "lib", "main"].contains(&stem.as_str());
            files.insert(if is_parent { module.clone() } else { child() }, file);
        }
    }
    Ok(())
}

/// Maps each inherent method to the module that defines it, or to `None` if there are several.
fn methods_by_module<'a>(
    named: &BTreeMap<&'a Module, Names>,
) -> BTreeMap<(String, String), Option<&'a Module>> {
    let mut methods = BTreeMap::new();
    for (module, names) in named {
        for method in &names.methods {
            let target = methods.entry(method.clone()).or_insert(Some(*module));
            *target = target.filter(|known| known == module);
        }
    }
    methods
}

struct Resolver<'a> {
    files: &'a BTreeMap<Module, syn::File>,
    named: &'a BTreeMap<&'a Module, Names>,
}

impl Resolver<'_> {
    /// Returns the module that defines the item at an absolute path.
    fn definition(&self, path: &[String], depth: usize) -> Option<Module> {
        let length =
            (0..=path.len()).rev().find(|length| self.files.contains_key(&path[..*length]));
        let (module, rest) = path.split_at(length?);
        let module = module.to_vec();
        let exported = rest.first().and_then(|name| self.named[&module].exports.get(name));
        match exported {
            // Longer chains of re-exports would be a cycle.
            Some(target) if depth < 16 => {
                self.definition(&[target.as_slice(), &rest[1..]].concat(), depth + 1)
            }
            _ => Some(module),
        }
    }
}

/// Names that occur in a file.
struct Names {
    module: Module,
    children: BTreeSet<String>,
    /// Absolute paths of items of this crate.
    paths: BTreeSet<Vec<String>>,
    /// Re-exported names with their absolute paths.
    exports: BTreeMap<String, Vec<String>>,
    /// Types and inherent methods defined here, and those called here.
    methods: BTreeSet<(String, String)>,
    calls: BTreeSet<(String, String)>,
    /// The type whose `impl` block is being visited.
    receiver: Option<String>,
}

impl Names {
    fn of(module: &Module, files: &BTreeMap<Module, syn::File>) -> Names {
        let children =
            files.keys().filter(|file| file.split_last().is_some_and(|it| it.1 == module));
        Names {
            module: module.clone(),
            children: children.filter_map(|child| child.last().cloned()).collect(),
            paths: BTreeSet::new(),
            exports: BTreeMap::new(),
            methods: BTreeSet::new(),
            calls: BTreeSet::new(),
            receiver: None,
        }
    }

    /// Returns the absolute form of a path, or `None` if it names no item of this crate.
    fn absolute(&self, path: &[String]) -> Option<Vec<String>> {
        let above = path.iter().take_while(|part| *part == "super").count();
        let base = match path.first()?.as_str() {
            "crate" => return Some(path[1..].to_vec()),
            "super" => &self.module[..self.module.len().checked_sub(above)?],
            "self" => &self.module[..],
            child if self.children.contains(child) => &self.module[..],
            _ => return None,
        };
        let rest = &path[above.max(usize::from(path[0] == "self"))..];
        Some([base, rest].concat())
    }

    fn add_use(&mut self, before: &[String], tree: &syn::UseTree, is_export: bool) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        let (path, name) = match tree {
            syn::UseTree::Path(path) => {
                return self.add_use(&with(&path.ident), &path.tree, is_export);
            }
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|item| self.add_use(before, item, is_export));
                return;
            }
            syn::UseTree::Name(name) if name.ident == "self" => {
                (before.to_vec(), before.last().cloned())
            }
            syn::UseTree::Name(name) => (with(&name.ident), Some(name.ident.to_string())),
            syn::UseTree::Rename(rename) => (with(&rename.ident), Some(rename.rename.to_string())),
            syn::UseTree::Glob(_) => (before.to_vec(), None),
        };
        let Some(path) = self.absolute(&path) else { return };
        // A module that re-exports an item of a module inside of it does not depend on that item.
        if !(is_export && path.starts_with(&self.module)) {
            self.paths.insert(path.clone());
        }
        if let Some(name) = name.filter(|_| is_export) {
            self.exports.insert(name, path);
        }
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string() == "test",
        syn::Meta::NameValue(_) => false,
    })
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let is_export = !matches!(item.vis, syn::Visibility::Inherited);
        self.add_use(&[], &item.tree, is_export);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let of_type = match &*item.self_ty {
            syn::Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
            _ => None,
        };
        if let (None, Some(name)) = (&item.trait_, &of_type) {
            self.methods.extend(item.items.iter().filter_map(|item| match item {
                syn::ImplItem::Fn(method) => Some((name.clone(), method.sig.ident.to_string())),
                _ => None,
            }));
        }
        let outer = std::mem::replace(&mut self.receiver, of_type);
        visit::visit_item_impl(self, item);
        self.receiver = outer;
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let receiver = match &*call.receiver {
            syn::Expr::Path(path) => path.path.get_ident().map(ToString::to_string),
            syn::Expr::Field(field) => match &field.member {
                syn::Member::Named(name) => Some(name.to_string()),
                syn::Member::Unnamed(_) => None,
            },
            _ => None,
        };
        let of_type = match receiver.as_deref() {
            Some("self") => self.receiver.clone(),
            Some(name) => Some(type_named(name)),
            None => None,
        };
        self.calls.extend(of_type.map(|name| (name, call.method.to_string())));
        visit::visit_expr_method_call(self, call);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Vec<String> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        if parts.len() > 1 {
            self.paths.extend(self.absolute(&parts));
        }
        visit::visit_path(self, path);
    }
}

/// Returns the name of a type that a variable may be named after: `user_repo` → `UserRepo`.
fn type_named(variable: &str) -> String {
    let capital = |part: &str| {
        let mut letters = part.chars();
        letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect::<String>()
    };
    variable.split('_').map(capital).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(test: &str, files: &[(&str, &str)]) -> Graph {
        let dir = std::env::temp_dir().join(format!("ctrlz-graph-{}-{test}", std::process::id()));
        for (name, text) in files {
            let path = dir.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let found = read_graph(&dir);
        std::fs::remove_dir_all(&dir).unwrap();
        found.unwrap()
    }

    fn module(path: &str) -> Module {
        path.split("::").map(str::to_owned).collect()
    }

    #[test]
    fn uses_are_resolved_through_re_exports() {
        let found = sources(
            "paths",
            &[
                ("lib.rs", "mod low; mod high;"),
                ("low/mod.rs", "mod part; pub(crate) use part::Thing;"),
                ("low/part.rs", "pub(crate) struct Thing;"),
                (
                    "high.rs",
                    "use crate::low::Thing; #[cfg(test)] mod tests { use crate::nothing::X; }",
                ),
            ],
        );
        let targets: Vec<&Module> = found.paths[&module("high")].keys().collect();
        assert_eq!(targets, [&module("low::part")]);
        assert!(found.paths[&module("low")].is_empty());
        assert!(cycles(&found.paths).is_empty());
    }

    #[test]
    fn methods_in_other_modules_count_and_cycles_are_found() {
        let found = sources(
            "calls",
            &[
                ("lib.rs", "mod front; mod back; mod apart;"),
                (
                    "front.rs",
                    "pub(crate) struct Front; use crate::back; impl Front { fn run(&self) { self.finish() } }",
                ),
                ("back.rs", "use crate::front::Front; impl Front { fn finish(&self) {} }"),
                ("apart.rs", "fn call(front: &crate::front::Front) { front.finish() }"),
            ],
        );
        assert!(found.calls[&module("front")].contains_key(&module("back")));
        assert!(found.calls[&module("apart")].contains_key(&module("back")));
        assert!(cycles(&found.calls).is_empty());
        assert_eq!(cycles(&found.paths), [vec![module("back"), module("front")]]);
    }
}
