//! Rules about the code itself.

use std::path::{Path, PathBuf};

/// The flow of data, first to last. A module may use those before it, never those after.
const FLOW: [&str; 8] = ["git", "path", "fs", "scan", "store", "compare", "restore", "workspace"];

fn sources() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    let mut dirs = vec![root.clone()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push((path.strip_prefix(&root).unwrap().to_owned(), text));
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
        // The exceptions remove unfinished stores, under names that nobody else uses.
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
