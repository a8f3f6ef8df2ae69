//! Rules about the code itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use xtask::graph::{Graph, Module};

/// The flow of data, first to last. A module may use those before it, never those after.
const FLOW: [&str; 20] = [
    "clock",
    "git",
    "path",
    "fs",
    "scan",
    "pack",
    "store",
    "gc",
    "log",
    "watch",
    "compare",
    "options",
    "hold",
    "record",
    "restore",
    "outside",
    "workspace",
    "session",
    "maintenance",
    "exchange",
];

fn sources() -> Vec<(PathBuf, String)> {
    sources_below(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"))
}

fn sources_below(root: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                // Pictures and stores made by 0.1.0 are no text.
                let Ok(text) = std::fs::read_to_string(&path) else { continue };
                found.push((path.strip_prefix(root).unwrap().to_owned(), text));
            }
        }
    }
    found
}

fn graph() -> Graph {
    xtask::graph::read_graph(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap()
}

/// Returns the position of a module's room in `FLOW`.
fn room(module: &Module) -> Option<usize> {
    FLOW.iter().position(|room| module.first().is_some_and(|first| first == room))
}

/// The only calls of later rooms: opening a work tree checks whether its store is trusted, which
/// imports the history of a store that is not trusted.
const CALLS_OF_LATER_ROOMS: [&str; 3] =
    ["Workspace::create_store", "Workspace::needs_trust", "Workspace::prepare_store"];

#[test]
fn no_room_uses_a_later_one() {
    let graph = graph();
    let mut found = BTreeSet::new();
    for (module, targets) in graph.paths.iter().chain(&graph.calls) {
        for (target, names) in targets {
            if room(module).is_some() && room(module) < room(target) {
                found.extend(names.clone());
            }
        }
    }
    let allowed = CALLS_OF_LATER_ROOMS.map(str::to_owned);
    assert_eq!(found, BTreeSet::from(allowed), "uses of later rooms");
}

/// Groups of modules that still use each other, by their first module and their number. The list
/// may only become shorter.
const CYCLES: [(&str, usize); 0] = [];

#[test]
fn modules_use_each_other_in_one_direction() {
    let uses = graph().paths;
    let groups = xtask::graph::cycles(&uses);
    let found: Vec<_> = groups.iter().map(|group| (group[0].join("::"), group.len())).collect();
    let known = CYCLES.map(|(first, modules)| (first.to_owned(), modules));
    let mut edges = Vec::new();
    for group in &groups {
        for module in group {
            for (target, names) in uses[module].iter().filter(|(target, _)| group.contains(target))
            {
                edges.push(format!("{} -> {}: {names:?}", module.join("::"), target.join("::")));
            }
        }
    }
    assert_eq!(found, known, "{edges:#?}");
}

#[test]
fn one_module_names_gitoxide() {
    for (path, text) in sources() {
        let named = text.contains("gix_");
        assert!(!named || path.starts_with("git"), "{path:?}");
    }
}

#[test]
fn nothing_starts_a_process_or_reads_the_environment() {
    for (path, text) in sources() {
        for forbidden in ["process::Command", "std::env::", "println!", "eprintln!"] {
            assert!(!text.contains(forbidden), "{path:?} has {forbidden}");
        }
        // The exceptions remove unfinished and unwanted stores, under names that nobody else uses.
        let recursive = text.contains("remove_dir_all");
        let allowed = path.ends_with("store/layout.rs") || path.ends_with("fs/private.rs");
        assert!(!recursive || allowed, "{path:?}");
    }
}

#[test]
fn every_file_says_what_it_is_for() {
    for (path, text) in sources() {
        assert!(text.starts_with("//! "), "{path:?}");
    }
}

/// Enforces the rules of `deny.toml`, except advisories: those need a database from the network.
#[test]
fn dependencies_follow_deny_toml() {
    let rules = Rules::read();
    let output = crate::lab::cargo(&["metadata", "--format-version", "1", "--locked", "--offline"]);
    let metadata: serde_json::Value = serde_json::from_slice(&output).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 50);
    let mut versions: BTreeMap<String, usize> = BTreeMap::new();
    let mut skipped = 0;
    for package in packages {
        let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
        let (name, version, license) = (text("name"), text("version"), text("license"));
        assert!(rules.allow_license(&license), "{name} is licensed {license:?}");
        let source = text("source");
        let is_known = |registry: &String| source.strip_prefix("registry+") == Some(registry);
        // Our own crates have no source.
        let is_allowed = source.is_empty() || rules.registries.iter().any(is_known);
        assert!(is_allowed, "{name} is from {source}");
        for (_, limit) in rules.deny.iter().filter(|(denied, _)| *denied == name) {
            let limit =
                limit.strip_prefix('<').expect("`deny` has the first version without the hole");
            assert!(numbers(&version) >= numbers(limit), "{name} {version} is below {limit}");
        }
        let plain = version.split('+').next().unwrap_or_default().to_owned();
        if rules.skip.contains(&(name.clone(), plain)) {
            skipped += 1;
        } else {
            *versions.entry(name).or_default() += 1;
        }
    }
    versions.retain(|_, count| *count > 1);
    assert!(versions.is_empty(), "in several versions: {versions:?}");
    assert_eq!(skipped, rules.skip.len(), "`skip` has versions that are not used any more");
}

/// Licences of the packages in the page are from the same list and are passed on with the program.
#[test]
fn the_packages_of_the_page_follow_deny_toml() {
    let rules = Rules::read();
    let lock = std::fs::read_to_string(root().join("web/package-lock.json")).unwrap();
    let lock: serde_json::Value = serde_json::from_str(&lock).unwrap();
    let notice = root().join("crates/ctrlz-server/assets/licences.txt");
    let notice = std::fs::read_to_string(notice).unwrap();
    let packages = lock["packages"].as_object().unwrap().iter();
    let bundled = packages.filter(|(_, package)| package["dev"] != true);
    let bundled: Vec<_> = bundled
        .filter_map(|(path, package)| Some((path.strip_prefix("node_modules/")?, package)))
        .collect();
    assert!(bundled.len() > 5);
    for (name, package) in bundled {
        let license = package["license"].as_str().unwrap_or_default();
        assert!(rules.allow_license(license), "{name} is licensed {license:?}");
        let is_code = !name.starts_with("@types/");
        assert!(!is_code || notice.lines().any(|line| line == name), "{name} is not in the notice");
    }
}

/// The rules of `deny.toml`.
struct Rules {
    licenses: Vec<String>,
    registries: Vec<String>,
    /// Crates and versions.
    skip: Vec<(String, String)>,
    /// Crates and limits such as `<1.2.3`.
    deny: Vec<(String, String)>,
}

impl Rules {
    fn read() -> Rules {
        let text = std::fs::read_to_string(root().join("deny.toml")).unwrap();
        let rules: toml::Table = text.parse().unwrap();
        let list = |table: &str, key: &str| rules[table][key].as_array().unwrap().clone();
        let texts = |table: &str, key: &str| {
            list(table, key).iter().map(|text| text.as_str().unwrap().to_owned()).collect()
        };
        let crates = |key: &str| {
            let parse = |entry: &toml::Value| {
                let (name, version) =
                    entry["crate"].as_str().unwrap().split_once(['@', ':']).unwrap();
                (name.to_owned(), version.to_owned())
            };
            list("bans", key).iter().map(parse).collect()
        };
        Rules {
            licenses: texts("licenses", "allow"),
            registries: texts("sources", "allow-registry"),
            skip: crates("skip"),
            deny: crates("deny"),
        }
    }

    /// Whether one of the alternatives is allowed, in every part of a licence expression.
    fn allow_license(&self, license: &str) -> bool {
        let plain = license.replace(['(', ')'], "");
        plain.split(" AND ").all(|part| {
            part.split(" OR ")
                .flat_map(|part| part.split('/'))
                .any(|license| self.licenses.iter().any(|allowed| allowed == license.trim()))
        })
    }
}

fn numbers(version: &str) -> Vec<u64> {
    version.split(['.', '-', '+']).map_while(|part| part.parse().ok()).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The document that says which test proves what names only tests that exist.
#[test]
fn the_evidence_names_real_tests() {
    let root = root();
    let evidence = std::fs::read_to_string(root.join("docs/evidence.md")).unwrap();
    let all = sources_below(&root.join("crates"));
    let rust = all.iter().filter(|(path, _)| path.extension().is_some_and(|end| end == "rs"));
    let code: String = rust.map(|(_, text)| text.as_str()).collect();
    let mut named = 0;
    for quoted in evidence.split('`').skip(1).step_by(2) {
        let is_test = quoted.contains('_')
            && quoted.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        if is_test {
            named += 1;
            assert!(code.contains(&format!("fn {quoted}(")), "no test is called {quoted}");
        }
    }
    assert!(named > 60, "{named}");
}

/// Calls that create, write, rename, remove or chmod something.
const WRITING: [&str; 44] = [
    "fs::write(",
    "fs::rename(",
    "fs::remove_file(",
    "fs::remove_dir(",
    "fs::remove_dir_all(",
    "fs::copy(",
    "fs::create_dir(",
    "fs::create_dir_all(",
    "fs::set_permissions(",
    "fs::hard_link(",
    "fs::soft_link(",
    "fs::chown(",
    "fs::lchown(",
    "fs::symlink(",
    "(symlink(",
    " symlink(",
    "File::create(",
    "File::create_new(",
    "File::options(",
    "OpenOptions::new(",
    "DirBuilder::new(",
    ".create_file(",
    ".create_dir(",
    ".create_symlink(",
    ".remove_file(",
    ".remove_dir(",
    ".rename_new(",
    ".exchange(",
    ".set_mode_of_dir(",
    ".set_exact_mode_of_dir(",
    ".set_owner_of(",
    ".set_owner(",
    ".set_permissions(",
    ".set_times(",
    ".set_len(",
    " set_mode(",
    "(set_mode(",
    "rustix::fs::renameat",
    "rustix::fs::unlinkat",
    "rustix::fs::mkdirat",
    "rustix::fs::symlinkat",
    "rustix::fs::linkat",
    "rustix::fs::fchmod",
    "rustix::fs::chownat",
];

/// The only files that may contain such calls, and what they write.
const WRITERS: [(&str, &str); 22] = [
    ("ctrlz/src/restore/", "the files of users: the only code that does"),
    ("ctrlz/src/store/", "the store"),
    ("ctrlz/src/pack/", "packs of the store, and objects that it is given"),
    ("ctrlz/src/fs/dir.rs", "nothing itself; defines the calls on directory handles"),
    ("ctrlz/src/fs/private.rs", "the store's files, and exports under temporary names"),
    ("ctrlz/src/exchange/replacement.rs", "names of stores that are set aside"),
    ("ctrlz/src/exchange/adoption.rs", "notes in the store"),
    ("ctrlz/src/exchange/bundle.rs", "the directory that an import waits in, beside the store"),
    ("ctrlz/src/exchange/bundle_writer.rs", "exports under temporary names"),
    ("ctrlz/src/exchange/acceptance.rs", "the directory of an imported log, in the store"),
    ("ctrlz/src/session/fork.rs", "an empty directory that the user names, to restore into"),
    ("ctrlz/src/session/plans.rs", "remembered plans, in the store"),
    ("ctrlz/src/watch/", "the watcher's directory, in the store"),
    ("ctrlz/src/parsers.rs", "temporary files of tests; not part of the library"),
    ("ctrlz-agents/src/hook/", "notes about sessions and failures, in the data directory"),
    ("ctrlz-agents/src/install/", "the configuration of agents, when `install` is run"),
    ("ctrlz-agents/src/private.rs", "notes, in the data directory"),
    ("ctrlz-cli/src/commands/demo.rs", "a project of its own, in a temporary directory"),
    ("ctrlz-cli/src/commands/install.rs", "the same as ctrlz-agents/src/install/"),
    ("ctrlz-cli/src/commands/ui.rs", "the page that signs a browser in, in the data directory"),
    ("ctrlz-cli/src/small_file.rs", "nothing; opens small files for reading"),
    ("ctrlz-server/src/files.rs", "the server's token and address, in the data directory"),
];

/// The files of users are written by `restore/` alone; everything else writes files of ours, in the
/// places that [`WRITERS`] lists.
#[test]
fn only_restore_writes_the_files_of_users() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut used = vec![false; WRITERS.len()];
    for name in ["ctrlz", "ctrlz-agents", "ctrlz-cli", "ctrlz-server", "ctrlz-api"] {
        for (path, text) in sources_below(&crates.join(name).join("src")) {
            let path = format!("{name}/src/{}", path.display());
            let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
            let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
            for line in lines {
                let Some(call) = WRITING.iter().find(|call| line.contains(*call)) else { continue };
                let allowed = WRITERS.iter().position(|(file, _)| path.starts_with(file));
                let allowed = allowed.unwrap_or_else(|| panic!("{path} has {call}: {line}"));
                used[allowed] = true;
            }
        }
    }
    let unused = WRITERS.iter().zip(used).filter(|(_, used)| !used);
    let unused: Vec<&str> = unused.map(|((file, _), _)| *file).collect();
    assert!(unused.is_empty(), "nothing is written any more by {unused:?}");
}
