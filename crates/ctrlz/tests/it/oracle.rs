//! Plain git is the oracle: same files, same tree hash; its tools read our store.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use crate::lab::{Lab, assert_fsck_clean, assert_same, git, manifest};

/// A file of a generated tree.
#[derive(Clone, Debug)]
enum Leaf {
    File(Vec<u8>, bool),
    Link(String),
}

fn leaf() -> impl Strategy<Value = Leaf> {
    prop_oneof![
        4 => (proptest::collection::vec(any::<u8>(), 0..60), any::<bool>())
            .prop_map(|(bytes, executable)| Leaf::File(bytes, executable)),
        1 => "[a-z./]{1,12}".prop_map(Leaf::Link),
    ]
}

/// Names whose order in a tree is not their order as text.
fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[ab]{1,2}(\\.|-|0)?[ab]?".prop_map(String::into_bytes),
        proptest::collection::vec(1_u8..=255, 1..6),
    ]
}

fn tree() -> impl Strategy<Value = Vec<(Vec<Vec<u8>>, Leaf)>> {
    proptest::collection::vec((proptest::collection::vec(name(), 1..4), leaf()), 0..12)
}

/// Writes the entries of a tree. Entries that an earlier one blocks are skipped.
fn materialise(root: &Path, tree: &[(Vec<Vec<u8>>, Leaf)]) {
    for (parts, leaf) in tree {
        let usable = |part: &Vec<u8>| {
            !part.contains(&b'/') && part != b"." && part != b".." && !looks_like_git(part)
        };
        if !parts.iter().all(usable) {
            continue;
        }
        let mut path = root.to_owned();
        path.extend(parts.iter().map(|part| std::ffi::OsStr::from_bytes(part)));
        if path.symlink_metadata().is_ok() {
            continue;
        }
        // A file or a symlink may exist where a directory is needed.
        let parent = path.parent().unwrap();
        let blocked = parent
            .ancestors()
            .take_while(|above| *above != root)
            .any(|above| above.symlink_metadata().is_ok_and(|meta| !meta.is_dir()));
        if blocked || std::fs::create_dir_all(parent).is_err() {
            continue;
        }
        match leaf {
            Leaf::File(bytes, executable) => {
                std::fs::write(&path, bytes).unwrap();
                if *executable {
                    use std::os::unix::fs::PermissionsExt;
                    let mode = std::fs::Permissions::from_mode(0o755);
                    std::fs::set_permissions(&path, mode).unwrap();
                }
            }
            Leaf::Link(target) => std::os::unix::fs::symlink(target, &path).unwrap(),
        }
    }
}

fn looks_like_git(name: &[u8]) -> bool {
    let lower = name.to_ascii_lowercase();
    lower.starts_with(b".git") || lower.starts_with(b"git~") || lower.contains(&b'\\')
}

fn cases() -> u32 {
    let slow = std::env::var_os("RUN_SLOW_TESTS").is_some();
    if slow { 5_000 } else { 300 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn generated_trees_have_the_same_hash_as_in_git(tree in tree()) {
        let lab = Lab::new();
        materialise(&lab.root(), &tree);
        let snapshot = lab.track();
        prop_assert_eq!(&snapshot.skipped, &[]);
        prop_assert_eq!(snapshot.hash.to_string(), lab.git_tree());
    }
}

/// Returns source trees that exist on every machine that can run these tests.
fn installed_sources() -> Vec<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home =
        home.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")));
    let registry = home.map(|home| home.join("registry/src")).unwrap_or_default();
    let index = std::fs::read_dir(&registry).into_iter().flatten().flatten().next();
    let crates = index.map(|index| index.path()).unwrap_or_default();
    let wanted = ["rustix-1.", "gix-pack-", "regex-syntax-", "serde_json-"];
    let mut found: Vec<PathBuf> = std::fs::read_dir(&crates)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy();
            wanted.iter().any(|wanted| name.starts_with(wanted))
        })
        .collect();
    let perl = std::fs::read_dir("/usr/share/perl").into_iter().flatten().flatten();
    found.extend(
        perl.map(|entry| entry.path())
            .filter(|path| path.symlink_metadata().is_ok_and(|meta| meta.is_dir())),
    );
    found.sort();
    found
}

#[test]
fn real_source_trees_have_the_same_hash_as_in_git_and_are_restored() {
    let sources = installed_sources();
    assert!(sources.len() >= 3, "{sources:?}");
    for source in sources {
        let lab = Lab::new();
        crate::lab::run(
            &lab.root(),
            "cp",
            &["-a".as_ref(), source.join(".").as_os_str(), ".".as_ref()],
        );
        let snapshot = lab.track();
        assert_eq!(snapshot.hash.to_string(), lab.git_tree(), "{source:?}");
        assert_eq!(lab.track().hash, snapshot.hash);
        let before = lab.manifest();
        // Files that the source's own rules ignore are not in the snapshot and stay.
        for file in lab.workspace().files(&snapshot.hash).unwrap() {
            std::fs::remove_file(lab.root().join(file.path.as_path())).unwrap();
        }
        let report = lab.restore(snapshot.hash);
        assert!(report.is_complete(), "{source:?}: {:?}", report.kept);
        assert_same(&lab.manifest(), &before, &format!("{source:?}"));
        assert_fsck_clean(&lab.store());
    }
}

#[test]
fn plain_git_restores_a_snapshot() {
    let lab = Lab::new();
    lab.write("a", "one\r\n");
    lab.write("dir/b", "two");
    lab.write(".gitattributes", "* text=auto eol=crlf ident filter=none\n");
    lab.chmod("dir/b", 0o755);
    lab.link("a", "link");
    let hash = lab.hash().to_string();
    let other = tempfile::tempdir().unwrap();
    let index = other.path().join("index");
    let out = other.path().join("out");
    std::fs::create_dir(&out).unwrap();
    let store = lab.store();
    for args in [&["read-tree", &hash][..], &["checkout-index", "-a", "-f"]] {
        let status = crate::lab::git_command(
            &out,
            &[&["--git-dir", store.to_str().unwrap(), "--work-tree", "."][..], args].concat(),
        )
        .env("GIT_INDEX_FILE", &index)
        .status()
        .unwrap();
        assert!(status.success(), "{args:?}");
    }
    assert_eq!(manifest(&out), lab.manifest(), "raw bytes, regardless of attributes");
}

#[test]
fn plain_git_reads_the_log_and_its_gc_loses_nothing() {
    let lab = Lab::new();
    let mut states = Vec::new();
    for number in 0..20 {
        lab.write("a", format!("state {number}\n"));
        lab.write(&format!("dir{}/f{number}", number % 3), "x".repeat(number * 50));
        std::fs::create_dir_all(lab.path(&format!("empty{number}"))).unwrap();
        states.push((lab.hash(), lab.manifest()));
    }
    let log = lab.store_git(&["log", "--all", "-p", "--format=%an %s"]);
    assert!(log.contains("+state 19"), "{log}");
    lab.store_git(&["gc", "-q", "--prune=now", "--aggressive"]);
    assert_fsck_clean(&lab.store());
    for (hash, manifest) in states {
        lab.restore_exact(hash);
        assert_eq!(lab.manifest(), manifest);
    }
    assert_fsck_clean(&lab.store());
}

#[test]
fn files_that_git_writes_into_the_store_are_private() {
    let lab = Lab::new();
    lab.write("a", "one");
    lab.track();
    lab.store_git(&["gc", "-q", "--prune=now"]);
    lab.store_git(&["repack", "-q", "-a", "-d"]);
    assert_private(&lab.options.data_dir);
}

/// Asserts that group and others have no permissions on any file or directory.
pub(crate) fn assert_private(root: &Path) {
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        use std::os::unix::fs::MetadataExt;
        assert_eq!(dir.metadata().unwrap().mode() & 0o077, 0, "{dir:?}");
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            if meta.is_dir() {
                dirs.push(path);
            } else {
                assert_eq!(meta.mode() & 0o077, 0, "{path:?}");
            }
        }
    }
}

#[test]
fn a_store_can_be_cloned() {
    let lab = Lab::new();
    for number in 0..300 {
        // Enough unusual permissions to move the metadata out of the commit header.
        lab.write(&format!("f{number}"), "x");
        if number % 2 == 0 {
            lab.chmod(&format!("f{number}"), 0o600);
        }
    }
    let hash = lab.hash();
    let copy = lab.dir().join("copy");
    git(lab.dir(), &["clone", "-q", "--mirror", lab.store().to_str().unwrap(), "copy"]);
    assert_eq!(git(&copy, &["cat-file", "-t", &hash.to_string()]).trim(), "tree");
    assert_fsck_clean(&copy);
    let parents = git(&copy, &["log", "--all", "--format=%s", "--no-walk"]);
    assert_eq!(parents, "baseline\n");
}
