//! Rules about the code itself.

use std::path::{Path, PathBuf};

/// The flow of data, first to last. A module may use those before it, never those after.
const FLOW: [&str; 11] = [
    "git",
    "path",
    "fs",
    "scan",
    "store",
    "compare",
    "restore",
    "outside",
    "workspace",
    "session",
    "care",
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
                let text = std::fs::read_to_string(&path).unwrap();
                found.push((path.strip_prefix(root).unwrap().to_owned(), text));
            }
        }
    }
    found
}

fn stage_of(path: &Path) -> Option<usize> {
    let first = path.components().next()?.as_os_str().to_str()?;
    FLOW.iter().position(|stage| *stage == first.trim_end_matches(".rs"))
}

#[test]
fn no_module_reaches_forward() {
    for (path, text) in sources() {
        let Some(stage) = stage_of(&path) else { continue };
        for later in &FLOW[stage + 1..] {
            let used = text.contains(&format!("crate::{later}::"));
            assert!(!used, "{path:?} uses {later}, which comes later");
        }
    }
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

/// What `cargo deny` would say without a network: licences, sources and minimum versions.
#[test]
fn dependencies_are_licensed_pinned_and_new_enough() {
    let output = crate::lab::cargo(&["metadata", "--format-version", "1", "--locked", "--offline"]);
    let metadata: serde_json::Value = serde_json::from_slice(&output).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 50);
    for package in packages {
        let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
        let (name, version, license) = (text("name"), text("version"), text("license"));
        assert!(is_allowed(&license), "{name} is licensed {license:?}");
        let source = text("source");
        // Our own crates have no source; nothing comes from a git address.
        assert!(source.is_empty() || source.starts_with("registry+"), "{name} is from {source}");
        if let Some((_, minimum)) = MINIMUMS.iter().find(|(known, _)| *known == name) {
            assert!(numbers(&version) >= numbers(minimum), "{name} {version} is below {minimum}");
        }
    }
}

/// Versions below have published holes.
const MINIMUMS: [(&str, &str); 8] = [
    ("gix-fs", "0.21.1"),
    ("gix-features", "0.41.0"),
    ("gix-date", "0.12.0"),
    ("gix-path", "0.10.11"),
    ("gix-index", "0.58.0"),
    ("gix-validate", "0.13.0"),
    ("memmap2", "0.9.11"),
    ("gix-attributes", "0.22.3"),
];

fn numbers(version: &str) -> Vec<u64> {
    version.split(['.', '-', '+']).map_while(|part| part.parse().ok()).collect()
}

/// Whether one of the alternatives, with all its parts, is among the licences we accept.
fn is_allowed(license: &str) -> bool {
    const ALLOWED: [&str; 7] = [
        "MIT",
        "Apache-2.0",
        "Apache-2.0 WITH LLVM-exception",
        "Unlicense",
        "Zlib",
        "Unicode-3.0",
        "BSD-3-Clause",
    ];
    let plain = license.replace(['(', ')'], "");
    plain.split(" AND ").all(|part| {
        part.split(" OR ")
            .flat_map(|part| part.split('/'))
            .any(|license| ALLOWED.contains(&license.trim()))
    })
}

/// The document that says which test proves what names only tests that exist.
#[test]
fn the_evidence_names_real_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let evidence = std::fs::read_to_string(root.join("docs/evidence.md")).unwrap();
    let mut code = String::new();
    for dir in [
        "crates/ctrlz/tests/it",
        "crates/ctrlz-cli/tests/it",
        "crates/ctrlz-cli/tests/torture",
        "crates/ctrlz-cli/tests/torture/authors",
        "crates/ctrlz-cli/tests/torture/databases",
        "crates/ctrlz-server/tests/it",
        "crates/ctrlz-agents/src",
        "crates/ctrlz/src/git",
        "crates/ctrlz/src/fs",
        "crates/ctrlz/src/scan",
        "crates/ctrlz/src/store",
        "crates/ctrlz/src/care",
    ] {
        for entry in std::fs::read_dir(root.join(dir)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "rs") {
                code.push_str(&std::fs::read_to_string(path).unwrap());
            }
        }
    }
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
const WRITERS: [(&str, &str); 21] = [
    ("ctrlz/src/restore/", "the files of users: the only code that does"),
    ("ctrlz/src/store/", "the store"),
    ("ctrlz/src/fs/dir.rs", "nothing itself; defines the calls on directory handles"),
    ("ctrlz/src/fs/private.rs", "the store's files, and exports under temporary names"),
    ("ctrlz/src/care/import.rs", "the directory that an import waits in, beside the store"),
    ("ctrlz/src/care/rewrite.rs", "refs and notes of the store"),
    ("ctrlz/src/outside/capture.rs", "captures, in the store"),
    ("ctrlz/src/scan/watch.rs", "the watcher's cookie files, in the store"),
    ("ctrlz/src/session/fork.rs", "an empty directory that the user names, to restore into"),
    ("ctrlz/src/session/plans.rs", "remembered plans, in the store"),
    ("ctrlz/src/workspace/ask.rs", "the watcher's socket, in the store"),
    ("ctrlz/src/workspace/watcher.rs", "the watcher's notes, in the store"),
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
    for name in ["ctrlz", "ctrlz-agents", "ctrlz-cli", "ctrlz-server", "ctrlz-wire"] {
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
