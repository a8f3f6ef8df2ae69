//! Export and import: an import is verified and complete, or it changes nothing.

use std::path::{Path, PathBuf};

use ctrlz::{
    Error, ExchangeError, ExportOptions, Exported, OnPurged, Progress, PurgeOptions,
    RestoreOptions, SessionError, Workspace,
};

use crate::lab::{Lab, assert_fsck_clean, assert_same, git, git_command, manifest, tree_path};
use crate::moving::{step, track, undo};

fn export(lab: &Lab, options: &ExportOptions) -> (PathBuf, Exported) {
    let file = lab.beside("out.bundle");
    let exported = lab.workspace().transfer().export(&file, options, &Progress::default()).unwrap();
    (file, exported)
}

/// Returns a lab with steps, permissions, an empty directory, a symlink and an ignored secret.
fn busy_lab() -> Lab {
    let lab = Lab::new();
    lab.write("a.txt", "one\n");
    lab.write("deep/er/run.sh", "#!/bin/sh\n");
    lab.chmod("deep/er/run.sh", 0o750);
    lab.write("private.txt", "CANARY-REDACTED\n");
    lab.chmod("private.txt", 0o600);
    lab.link("a.txt", "link");
    std::fs::create_dir_all(lab.path("empty/dir")).unwrap();
    lab.write(".gitignore", "*.env\n");
    lab.write("x.env", "CANARY-IGNORED\n");
    step(&lab.workspace(), "first", "a.txt", "two\n");
    step(&lab.workspace(), "second", "b.txt", "new\n");
    lab
}

fn elsewhere(lab: &Lab) -> Workspace {
    let root = lab.beside("machine2/project");
    std::fs::create_dir_all(&root).unwrap();
    let mut options = lab.options.clone();
    options.data_dir = lab.beside("machine2/data");
    Workspace::open(&root, options).unwrap()
}

fn restore_newest(workspace: &Workspace) {
    let point = workspace.transfer().newest_received().unwrap();
    let options = RestoreOptions::default();
    let report = workspace.restore(point, &options, &Progress::default()).unwrap();
    assert!(report.is_complete(), "{report:?}");
}

fn refs_of(workspace: &Workspace) -> String {
    match workspace.store_path().unwrap() {
        Some(store) if store.exists() => git(&store, &["for-each-ref"]),
        _ => String::new(),
    }
}

#[test]
fn an_import_equals_the_export_and_can_be_undone() {
    let lab = busy_lab();
    let (file, exported) = export(&lab, &ExportOptions::default());
    let there = elsewhere(&lab);
    let imported = there.transfer().import(&file, OnPurged::Refuse, &Progress::default()).unwrap();
    assert!(imported.own && imported.operations == exported.operations, "{imported:?}");
    assert_eq!(imported.snapshot, exported.snapshot);
    assert_eq!(manifest(there.root()).0.len(), 0, "no file changes");
    let sessions = |workspace: &Workspace| -> Vec<String> {
        workspace.sessions(None).unwrap().into_iter().map(|session| session.session).collect()
    };
    assert_eq!(sessions(&there), sessions(&lab.workspace()));
    restore_newest(&there);
    let mut wanted = lab.manifest();
    wanted.0.remove(&b"x.env"[..]);
    assert_same(&manifest(there.root()), &wanted, "the other machine");
    assert_eq!(track(&there), exported.snapshot);
    undo(&there);
    assert!(!there.root().join("b.txt").exists());
    undo(&there);
    assert_eq!(std::fs::read_to_string(there.root().join("a.txt")).unwrap(), "one\n");
    assert_fsck_clean(&there.store_path().unwrap().unwrap());
    // A second import changes nothing.
    let refs = refs_of(&there);
    let again = there.transfer().import(&file, OnPurged::Refuse, &Progress::default()).unwrap();
    assert_eq!((again.operations, again.own), (0, true));
    assert_eq!(refs_of(&there), refs);
}

#[test]
fn plain_git_reads_an_export() {
    let lab = busy_lab();
    let (file, exported) = export(&lab, &ExportOptions::default());
    let file = file.to_str().unwrap();
    git(&lab.store(), &["bundle", "verify", file]);
    let clone = lab.beside("clone");
    git(&lab.beside(""), &["clone", "-q", file, clone.to_str().unwrap()]);
    assert_eq!(git(&clone, &["rev-parse", "HEAD^{tree}"]).trim(), exported.snapshot.to_string());
    assert_eq!(std::fs::read_to_string(clone.join("b.txt")).unwrap(), "new\n");
    git(&clone, &["fsck", "--strict"]);
}

/// Returns every object of a bundle, decompressed.
fn contents_of_bundle(lab: &Lab, file: &Path) -> String {
    let dir = lab.beside("looked-into");
    std::fs::create_dir_all(&dir).unwrap();
    git(&dir, &["init", "-q", "--bare"]);
    git(&dir, &["fetch", "-q", file.to_str().unwrap(), "+refs/*:refs/*"]);
    let list = git(&dir, &["cat-file", "--batch-all-objects", "--batch-check"]);
    let mut all = String::from_utf8_lossy(&std::fs::read(file).unwrap()).into_owned();
    for line in list.lines() {
        let id = line.split(' ').next().unwrap();
        let output = git_command(&dir, &["cat-file", "-p", id]).output().unwrap();
        all.push_str(&String::from_utf8_lossy(&output.stdout));
    }
    all
}

#[test]
fn an_export_contains_no_local_paths_and_no_ignored_files() {
    let lab = busy_lab();
    let (file, _) = export(&lab, &ExportOptions::default());
    let all = contents_of_bundle(&lab, &file);
    assert!(all.contains("CANARY-REDACTED"), "the helper reads file contents");
    assert!(!all.contains("CANARY-IGNORED"));
    assert!(!all.contains(lab.dir().to_str().unwrap()));
    let (file, _) = export(&lab, &ExportOptions { ignored: true, ..Default::default() });
    assert!(contents_of_bundle(&lab, &file).contains("CANARY-IGNORED"), "included on request");
    let there = elsewhere(&lab);
    assert!(
        there.transfer().import(&file, OnPurged::Refuse, &Progress::default()).unwrap().ignored
    );
}

#[test]
fn a_redacted_path_is_unknown_after_the_import() {
    let lab = busy_lab();
    let redact = vec![tree_path("private.txt"), tree_path("deep/er")];
    let (file, exported) = export(&lab, &ExportOptions { redact, ..Default::default() });
    assert!(!contents_of_bundle(&lab, &file).contains("CANARY-REDACTED"));
    let there = elsewhere(&lab);
    std::fs::write(there.root().join("private.txt"), "mine\n").unwrap();
    let imported = there.transfer().import(&file, OnPurged::Refuse, &Progress::default()).unwrap();
    assert_eq!(imported.redacted.len(), 2);
    let options = crate::lab::exact();
    there.restore(exported.snapshot, &options, &Progress::default()).unwrap();
    let mine = std::fs::read_to_string(there.root().join("private.txt")).unwrap();
    assert_eq!(mine, "mine\n", "a redacted path is not treated as absent");
    assert!(there.root().join("b.txt").exists());
    assert_fsck_clean(&there.store_path().unwrap().unwrap());
}

#[test]
fn a_redacted_path_is_left_out_of_the_ignored_files_too() {
    let lab = busy_lab();
    lab.write("deep/er/y.env", "CANARY-IGNORED\n");
    lab.write("kept.env", "CANARY-KEPT\n");
    step(&lab.workspace(), "third", "a.txt", "three\n");
    let redact = vec![tree_path("x.env"), tree_path("deep/er")];
    let options = ExportOptions { redact, ignored: true, ..Default::default() };
    let (file, _) = export(&lab, &options);
    let all = contents_of_bundle(&lab, &file);
    assert!(!all.contains("CANARY-IGNORED") && !all.contains("y.env"), "{all}");
    assert!(all.contains("CANARY-KEPT"), "{all}");
    let there = elsewhere(&lab);
    std::fs::write(there.root().join("x.env"), "mine\n").unwrap();
    assert!(
        there.transfer().import(&file, OnPurged::Refuse, &Progress::default()).unwrap().ignored
    );
    restore_newest(&there);
    let read = |name: &str| std::fs::read_to_string(there.root().join(name)).unwrap();
    assert_eq!(read("x.env"), "mine\n", "a redacted path is not treated as absent");
    assert_fsck_clean(&there.store_path().unwrap().unwrap());
}

#[test]
fn a_damaged_bundle_is_refused_and_nothing_changes() {
    let lab = busy_lab();
    let (file, _) = export(&lab, &ExportOptions::default());
    let good = std::fs::read(&file).unwrap();
    let there = elsewhere(&lab);
    std::fs::write(there.root().join("own.txt"), "own\n").unwrap();
    track(&there);
    let refs = refs_of(&there);
    let bad = lab.beside("bad.bundle");
    let refuse = |bytes: &[u8], what: &str| {
        std::fs::write(&bad, bytes).unwrap();
        let refused = there.transfer().import(&bad, OnPurged::Refuse, &Progress::default());
        assert!(
            matches!(refused, Err(Error::Exchange(ExchangeError::BadImport { .. }))),
            "{what}: {refused:?}"
        );
        assert_eq!(refs_of(&there), refs, "{what}");
    };
    for length in (0..good.len()).step_by(good.len() / 40) {
        refuse(&good[..length], &format!("cut to {length}"));
    }
    for at in (0..good.len()).step_by(good.len() / 60) {
        let mut flipped = good.clone();
        flipped[at] ^= 1 << (at % 8);
        refuse(&flipped, &format!("bit flipped at {at}"));
    }
    refuse(&[&good[..], b"more"].concat(), "trailing bytes");
    refuse(b"PACK", "not a bundle");
    let left: Vec<_> = std::fs::read_dir(there.store_path().unwrap().unwrap().join("ctrlz"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with(".ctrlz-store-"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    // The undamaged file is imported beside the existing log.
    let imported = there.transfer().import(&file, OnPurged::Refuse, &Progress::default()).unwrap();
    assert!(!imported.own && imported.operations > 0);
    assert_eq!(there.log(10).unwrap().len(), 1);
    assert_eq!(there.transfer().received_logs().unwrap().len(), 1);
    assert_eq!(there.sessions(Some(&imported.log)).unwrap().len(), 2);
    there.blame(&tree_path("a.txt"), Some(&imported.log)).unwrap();
    assert_eq!(
        there.transfer().import(&file, OnPurged::Refuse, &Progress::default()).unwrap().operations,
        0
    );
    assert_eq!(there.transfer().received_logs().unwrap().len(), 1);
    assert!(matches!(
        there.transfer().newest_received(),
        Err(Error::Exchange(ExchangeError::NothingPulled))
    ));
    assert_fsck_clean(&there.store_path().unwrap().unwrap());
}

#[test]
fn a_hostile_bundle_is_refused() {
    let lab = busy_lab();
    let repo = lab.beside("hostile");
    std::fs::create_dir_all(&repo).unwrap();
    git(&repo, &["init", "-q", "--bare"]);
    // An ordinary commit, and refs that point outside the refs directory.
    let tree = git(&repo, &["hash-object", "-t", "tree", "-w", "/dev/null"]);
    let commit = git(&repo, &["commit-tree", "-m", "x", tree.trim()]);
    for name in ["refs/ctrlz/abc/log", "refs/ctrlz/abc/manifest"] {
        git(&repo, &["update-ref", name, commit.trim()]);
    }
    let file = lab.beside("hostile.bundle");
    git(&repo, &["bundle", "create", "-q", file.to_str().unwrap(), "--all"]);
    let there = elsewhere(&lab);
    let refused = there.transfer().import(&file, OnPurged::Refuse, &Progress::default());
    assert!(
        matches!(refused, Err(Error::Exchange(ExchangeError::BadImport { .. }))),
        "{refused:?}"
    );
    let text = String::from_utf8_lossy(&std::fs::read(&file).unwrap()).into_owned();
    assert!(text.contains("refs/ctrlz/abc/log"));
    let bytes = std::fs::read(&file).unwrap();
    let at = bytes.windows(18).position(|part| part == b"refs/ctrlz/abc/log").unwrap();
    let mut climbing = bytes.clone();
    climbing[at..at + 18].copy_from_slice(b"refs/ctrlz/../logx");
    std::fs::write(&file, climbing).unwrap();
    let refused = there.transfer().import(&file, OnPurged::Refuse, &Progress::default());
    assert!(
        matches!(refused, Err(Error::Exchange(ExchangeError::BadImport { .. }))),
        "{refused:?}"
    );
    assert_eq!(refs_of(&there), "");
}

#[test]
fn segments_and_sessions_are_imported_and_the_log_continues() {
    let lab = Lab::new();
    lab.write("a.txt", "0\n");
    for number in 0..270 {
        lab.write("a.txt", format!("{number}\n"));
        track(&lab.workspace());
    }
    step(&lab.workspace(), "late", "b.txt", "late\n");
    let count = lab.workspace().log(1000).unwrap().len();
    let (file, exported) = export(&lab, &ExportOptions::default());
    assert_eq!(exported.operations, count as u64);
    let there = elsewhere(&lab);
    there.transfer().import(&file, OnPurged::Refuse, &Progress::default()).unwrap();
    assert_eq!(there.log(1000).unwrap().len(), count, "across segments");
    restore_newest(&there);
    for number in 0..270 {
        std::fs::write(there.root().join("a.txt"), format!("there {number}\n")).unwrap();
        track(&there);
    }
    assert!(there.log(2000).unwrap().len() > count + 270);
    let only = ExportOptions { session: Some("late".into()), ..Default::default() };
    let (_, limited) = export(&lab, &only);
    assert!(limited.operations < exported.operations, "{limited:?}");
    let unknown = ExportOptions { session: Some("never".into()), ..Default::default() };
    let refused =
        lab.workspace().transfer().export(&lab.beside("x.bundle"), &unknown, &Progress::default());
    assert!(matches!(refused, Err(Error::Session(SessionError::NoSuchSession { .. }))));
    assert!(!lab.beside("x.bundle").exists());
}

#[test]
fn an_import_with_purged_content_is_refused() {
    let lab = busy_lab();
    lab.write("deep/secret.txt", "CANARY-6e2 and a line\n");
    lab.track();
    let secret = lab.beside("the-secret");
    std::fs::write(&secret, "CANARY-6e2 and a line\n").unwrap();
    let options = ExportOptions::default();
    let (file, exported) = export(&lab, &options);
    lab.remove("deep/secret.txt");
    let path = tree_path("deep/secret.txt");
    let (keep, progress) = (PurgeOptions::default(), Progress::default());
    lab.workspace().maintenance().purge(&path, keep, &progress).unwrap();
    let tombstones = lab.store().join("ctrlz/tombstones");
    let mode = std::os::unix::fs::MetadataExt::mode(&tombstones.metadata().unwrap());
    assert_eq!(mode & 0o777, 0o600);
    let text = std::fs::read_to_string(&tombstones).unwrap();
    let content = git(&lab.beside(""), &["hash-object", secret.to_str().unwrap()]);
    assert!(!text.contains(content.trim()), "the plain id would confirm a guess: {text}");
    let before = (refs_of(&lab.workspace()), objects_of(&lab));
    let refused = lab.workspace().transfer().import(&file, OnPurged::Refuse, &progress);
    match &refused {
        Err(Error::Exchange(ExchangeError::BringsPurged { paths, .. })) => {
            assert_eq!(paths, std::slice::from_ref(&path));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!((refs_of(&lab.workspace()), objects_of(&lab)), before, "nothing changed");
    // A recreated file is captured as usual, and content that the store has may be imported.
    lab.write("deep/secret.txt", "CANARY-6e2 and a line\n");
    lab.track();
    let again = lab.workspace().transfer().import(&file, OnPurged::Refuse, &progress).unwrap();
    assert_eq!(again.operations, exported.operations);
    // An export contains no tombstones, so another store gets none.
    let there = elsewhere(&lab);
    let (clean, _) = export(&lab, &options);
    there.transfer().import(&clean, OnPurged::Refuse, &progress).unwrap();
    assert!(!there.store_path().unwrap().unwrap().join("ctrlz/tombstones").exists());
}

#[test]
fn purged_content_is_imported_if_allowed() {
    let lab = busy_lab();
    let (file, exported) = export(&lab, &ExportOptions::default());
    let (keep, progress) = (PurgeOptions::default(), Progress::default());
    lab.remove("private.txt");
    lab.workspace().maintenance().purge(&tree_path("private.txt"), keep, &progress).unwrap();
    let refused = lab.workspace().transfer().import(&file, OnPurged::Refuse, &progress);
    assert!(
        matches!(refused, Err(Error::Exchange(ExchangeError::BringsPurged { .. }))),
        "{refused:?}"
    );
    let imported = lab.workspace().transfer().import(&file, OnPurged::Allow, &progress).unwrap();
    assert_eq!(imported.operations, exported.operations);
    let bytes = lab.workspace().file_at(&exported.snapshot, &tree_path("private.txt")).unwrap();
    assert_eq!(bytes, b"CANARY-REDACTED\n");
}

/// Returns the names of all packs.
fn objects_of(lab: &Lab) -> Vec<std::ffi::OsString> {
    let packs = std::fs::read_dir(lab.store().join("objects/pack")).unwrap();
    let mut names: Vec<_> = packs.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

/// Exports a lab, rewrites its newest operation with `forge`, which gets the commit as text, and
/// pulls the result. Returns the error.
fn forged(lab: &Lab, name: &str, forge: impl Fn(&Path, &str) -> String) -> Error {
    let (file, _) = export(lab, &ExportOptions::default());
    let repo = lab.beside(name);
    git(lab.dir(), &["clone", "-q", "--mirror", file.to_str().unwrap(), repo.to_str().unwrap()]);
    let refs = git(&repo, &["for-each-ref", "--format=%(refname)", "refs/ctrlz"]);
    let log = refs.lines().find(|name| name.ends_with("/log")).unwrap();
    let commit = git(&repo, &["cat-file", "commit", log]);
    let forged = lab.beside(&format!("{name}.commit"));
    std::fs::write(&forged, forge(&repo, &commit)).unwrap();
    let id = git(&repo, &["hash-object", "-t", "commit", "-w", forged.to_str().unwrap()]);
    git(&repo, &["update-ref", log, id.trim()]);
    let there = elsewhere(lab);
    let exchange = there.transfer().begin_pull().unwrap();
    let refspec = format!("+{log}:{log}");
    git(exchange.git_dir(), &["fetch", "-q", repo.to_str().unwrap(), &refspec]);
    there
        .transfer()
        .finish_pull(&exchange, "repo", OnPurged::Refuse, &Progress::default())
        .unwrap_err()
}

#[test]
fn an_operation_of_an_unknown_version_is_refused() {
    let lab = busy_lab();
    for (version, why) in [("99", "later version"), ("2", "later version"), ("0", "no version")] {
        let header = format!("\"v\":{version}");
        let error = forged(&lab, version, |_, commit| commit.replacen("\"v\":1", &header, 1));
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[test]
fn an_operation_with_an_id_that_is_too_long_is_refused() {
    let lab = busy_lab();
    let session = "\"session\":\"second\"";
    for name in ["session", "message", "parent"] {
        let long = "x".repeat(2_000);
        let new = match name {
            "session" => format!("\"session\":\"{long}\""),
            "message" => format!("{session},\"message\":\"{long}\""),
            _ => format!("{session},\"parent\":{{\"session\":\"{long}\"}}"),
        };
        let error = forged(&lab, name, |_, commit| {
            assert!(commit.contains(session), "{commit}");
            commit.replacen(session, &new, 1)
        });
        assert!(error.to_string().contains("1024 bytes"), "{error}");
    }
}

/// The log was lost here, and a command records before `pull` has the lock.
#[test]
fn a_pull_keeps_a_log_that_was_begun_meanwhile() {
    let lab = busy_lab();
    let (file, _) = export(&lab, &ExportOptions::default());
    let refs = lab.store_git(&["for-each-ref", "--format=%(refname)", "refs/ctrlz"]);
    let log = refs.lines().find(|name| name.ends_with("/log")).unwrap().to_owned();
    let path = lab.store().join(&log);
    let id = log.split('/').nth(2).unwrap().to_owned();
    let newest = std::fs::read_to_string(&path).unwrap();
    let older = git(&lab.store(), &["rev-parse", &format!("{}^", newest.trim())]);
    std::fs::remove_dir_all(lab.store().join("refs/ctrlz").join(&id)).unwrap();
    let there = lab.workspace();
    let exchange = there.transfer().begin_pull().unwrap();
    let refspec = format!("+{log}:{log}");
    git(exchange.git_dir(), &["fetch", "-q", file.to_str().unwrap(), &refspec]);
    let lock = std::fs::File::open(lab.store().join(format!("ctrlz/wt/{id}/lock"))).unwrap();
    lock.lock().unwrap();
    std::thread::scope(|scope| {
        let pull = || {
            there
                .transfer()
                .finish_pull(&exchange, "repo", OnPurged::Refuse, &Progress::default())
                .unwrap()
        };
        let pulled = scope.spawn(pull);
        std::thread::sleep(std::time::Duration::from_millis(1500));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &older).unwrap();
        lock.unlock().unwrap();
        assert_eq!(pulled.join().unwrap().logs, []);
    });
    assert_eq!(std::fs::read_to_string(&path).unwrap(), older);
}

#[test]
fn symlink_targets_that_no_file_system_accepts_are_refused() {
    let lab = busy_lab();
    let targets = [Vec::new(), b"a\0b".to_vec(), vec![b'x'; 5_000]];
    for (at, target) in targets.iter().enumerate() {
        let error = forged(&lab, &format!("link{at}"), |repo, commit| {
            let (blob, tree) = (repo.join("blob"), repo.join("tree"));
            std::fs::write(&blob, target).unwrap();
            let id = git(repo, &["hash-object", "-w", blob.to_str().unwrap()]);
            let mut entry = b"120000 link\0".to_vec();
            let hex = id.trim().as_bytes().chunks(2);
            let byte = |pair: &[u8]| std::str::from_utf8(pair).unwrap().to_owned();
            entry.extend(hex.map(|pair| u8::from_str_radix(&byte(pair), 16).unwrap()));
            std::fs::write(&tree, entry).unwrap();
            let tree = git(repo, &["hash-object", "-t", "tree", "-w", tree.to_str().unwrap()]);
            let old = commit.lines().next().unwrap();
            commit.replacen(old, &format!("tree {}", tree.trim()), 1)
        });
        assert!(error.to_string().contains("symlink target"), "{error}");
    }
}

/// Returns a lab whose global excludes and `info/exclude` contain a word that must not be exported.
fn lab_with_private_rules() -> Lab {
    let mut lab = Lab::with_git(&[]);
    std::fs::write(lab.beside("global"), "canary-global*\n").unwrap();
    lab.options.excludes_file = Some(lab.beside("global"));
    lab.write(".git/info/exclude", "canary-info*\n");
    lab.write("a.txt", "one\n");
    lab.write("canary-global.txt", "mine\n");
    lab.write("canary-info.txt", "mine\n");
    lab
}

#[test]
fn private_ignore_rules_are_not_exported_and_files_they_hide_survive_a_restore() {
    let mut lab = lab_with_private_rules();
    lab.track();
    step(&lab.workspace(), "first", "b.txt", "new\n");
    for ignored in [false, true] {
        let (file, exported) = export(&lab, &ExportOptions { ignored, ..Default::default() });
        let all = contents_of_bundle(&lab, &file);
        assert!(all.contains("meta"), "the helper reads operations");
        if !ignored {
            assert!(!all.contains("canary"), "{all}");
        }
        std::fs::remove_dir_all(lab.beside("machine2")).ok();
        let there = elsewhere(&lab);
        there.transfer().import(&file, OnPurged::Refuse, &Progress::default()).unwrap();
        for name in ["canary-global.txt", "canary-info.txt", "unknown.txt"] {
            std::fs::write(there.root().join(name), "theirs\n").unwrap();
        }
        let progress = Progress::default();
        let options = crate::lab::exact();
        let report = there.restore(exported.snapshot, &options, &progress).unwrap();
        for name in ["canary-global.txt", "canary-info.txt", "unknown.txt"] {
            assert!(there.root().join(name).exists(), "{name}: {report:?}");
        }
        let unknown = report.kept.iter().find(|kept| kept.path.as_bytes() == b"unknown.txt");
        assert_eq!(unknown.unwrap().reason, ctrlz::KeptReason::RulesUnknown);
        assert_eq!(std::fs::read_to_string(there.root().join("b.txt")).unwrap(), "new\n");
    }
    // The exporting side knows the rules even after they changed.
    std::fs::write(lab.beside("global"), "").unwrap();
    lab.options.excludes_file = None;
    lab.write(".git/info/exclude", "");
    let first = lab.workspace().log(10).unwrap().last().unwrap().snapshot;
    lab.restore_exact(first);
    assert!(lab.exists("canary-global.txt") && lab.exists("canary-info.txt"));
    assert!(!lab.exists("b.txt"), "proven absent");
}

#[test]
fn the_default_info_exclude_file_hides_nothing() {
    let lab = Lab::with_git(&[]);
    git(&lab.root(), &["init", "-q"]);
    lab.write("a.txt", "one\n");
    lab.track();
    let (file, exported) = export(&lab, &ExportOptions::default());
    let there = elsewhere(&lab);
    there.transfer().import(&file, OnPurged::Refuse, &Progress::default()).unwrap();
    std::fs::write(there.root().join("b.txt"), "new\n").unwrap();
    there.restore(exported.snapshot, &crate::lab::exact(), &Progress::default()).unwrap();
    assert!(!there.root().join("b.txt").exists());
}

/// Rewrites the only operation of a log in the format of version 0.1.0, which contains the texts of
/// private ignore lists.
fn make_old(lab: &Lab) {
    let (store, commits) = (lab.store(), git(&lab.store(), &["for-each-ref", "refs/ctrlz"]));
    let name = commits.lines().find(|line| line.ends_with("/log")).unwrap();
    let name = name.split_whitespace().next_back().unwrap();
    let commit = git(&store, &["cat-file", "commit", name]);
    let start = commit.find("\"rules\":{").unwrap();
    let end = start + commit[start..].find('}').unwrap() + 1;
    let old = r#""rules":{"lists":["canary-global*\n","canary-info*\n"]}"#;
    let commit = format!("{}{old}{}", &commit[..start], &commit[end..]);
    std::fs::write(lab.beside("commit"), commit).unwrap();
    let file = lab.beside("commit");
    let id = git(&store, &["hash-object", "-t", "commit", "-w", file.to_str().unwrap()]);
    git(&store, &["update-ref", name, id.trim()]);
    assert!(git(&store, &["cat-file", "commit", name]).contains("canary-info"));
    for entry in std::fs::read_dir(store.join("ctrlz/wt")).unwrap() {
        std::fs::remove_file(entry.unwrap().path().join("log.index")).ok();
    }
    for entry in std::fs::read_dir(store.join("ctrlz")).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_str().unwrap().starts_with("rules_") {
            std::fs::remove_file(path).unwrap();
        }
    }
}

#[test]
fn operations_with_private_rules_are_rewritten_before_an_export() {
    let mut lab = lab_with_private_rules();
    let first = lab.hash();
    make_old(&lab);
    step(&lab.workspace(), "first", "b.txt", "new\n");
    let before: Vec<_> = lab.workspace().log(10).unwrap();
    let (file, _) = export(&lab, &ExportOptions::default());
    let all = contents_of_bundle(&lab, &file);
    assert!(all.contains("meta") && !all.contains("canary"), "{all}");
    let after: Vec<_> = lab.workspace().log(10).unwrap();
    let ids = |log: &[ctrlz::Operation]| -> Vec<_> {
        log.iter().map(|operation| (operation.id.clone(), operation.snapshot)).collect()
    };
    assert_eq!(ids(&before), ids(&after));
    assert_fsck_clean(&lab.store());
    // The rules of the first operation still apply.
    lab.options.excludes_file = None;
    lab.write(".git/info/exclude", "");
    lab.restore_exact(first);
    assert!(lab.exists("canary-global.txt") && lab.exists("canary-info.txt"));
    assert!(!lab.exists("b.txt"));
}
