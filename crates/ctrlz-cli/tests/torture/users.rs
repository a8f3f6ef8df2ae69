//! Other users, restricted permissions, and limited resources.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::Duration;

use crate::disk::Mount;
use crate::lab::{Lab, command, ended, find, has, is_root, must, noise, run, sized, start};
use crate::manifest::Manifest;

fn nobodys_lab() -> Option<Lab> {
    (is_root() && has("setpriv")).then(|| Lab::new().run_by_nobody())
}

/// Writes a file in the work tree that belongs to the user `nobody`.
fn write_as_nobody(lab: &Lab, path: &str, text: impl AsRef<[u8]>) {
    lab.write(path, text);
    for part in
        std::path::Path::new(path).ancestors().filter(|part| *part != std::path::Path::new(""))
    {
        std::os::unix::fs::chown(lab.work.join(part), Some(65534), Some(65534)).unwrap();
    }
}

#[test]
fn a_store_is_private_whatever_the_umask() {
    for umask in ["000", "077", "0777"] {
        if !is_root() || !has("setpriv") {
            return;
        }
        // A small file system, so that a defect does not fill the machine.
        let lab = Lab::new();
        let mount = Mount::new(&["-t", "tmpfs", "-o", "nr_inodes=900", "tmpfs"], &lab.data);
        let lab = lab.mounted(mount).run_by_nobody();
        let script = format!("umask {umask}; exec \"$@\"");
        write_as_nobody(&lab, "dir/file", "then");
        let then = lab.scripted(&script, &["track"]).is(&[0], umask).hash().unwrap();
        let before = lab.manifest();
        write_as_nobody(&lab, "dir/file", "now");
        write_as_nobody(&lab, "made/since", "now");
        lab.scripted(&script, &["track"]).is(&[0], umask);
        lab.scripted(&script, &["restore", "--exact", &then]).is(&[0], umask);
        lab.manifest().assert_is(&before, &format!("umask {umask}"));
        let open = find(&lab.data, &|path| {
            let meta = path.symlink_metadata().unwrap();
            let mode = meta.mode() & 0o777;
            path != lab.data && mode != if meta.is_dir() { 0o700 } else { 0o600 }
        });
        let packs_are_read_only = |path: &std::path::PathBuf| {
            path.extension().is_some_and(|end| end == "pack" || end == "idx")
                && path.metadata().unwrap().mode() & 0o077 == 0
        };
        let open: Vec<_> = open.into_iter().filter(|path| !packs_are_read_only(path)).collect();
        assert!(open.is_empty(), "umask {umask}: {open:?}");
    }
}

#[test]
fn an_unreadable_file_is_reported_and_survives_a_restore() {
    let Some(lab) = nobodys_lab() else { return };
    write_as_nobody(&lab, "file", "then");
    write_as_nobody(&lab, "secret", "then");
    let then = lab.track();
    lab.chmod("secret", 0o000);
    write_as_nobody(&lab, "file", "now");
    let ended = lab.ctrlz(&["track"]).is(&[3], "an unreadable file");
    assert!(ended.stderr.contains("secret"), "{ended:?}");
    lab.ctrlz(&["restore", "--exact", &then]).is(&[0, 3], "an unreadable file");
    assert_eq!(std::fs::read(lab.work.join("secret")).unwrap(), b"then");
    assert_eq!(std::fs::read(lab.work.join("file")).unwrap(), b"then");
    lab.assert_tidy("an unreadable file");
}

#[test]
fn a_restore_leaves_and_reports_a_directory_that_cannot_be_written() {
    let Some(lab) = nobodys_lab() else { return };
    for path in ["a", "locked/b", "z"] {
        write_as_nobody(&lab, path, "then");
    }
    let then = lab.track();
    for path in ["a", "locked/b", "z"] {
        write_as_nobody(&lab, path, "now");
    }
    std::os::unix::fs::chown(lab.work.join("locked"), Some(0), Some(0)).unwrap();
    lab.track();
    let ended = lab.ctrlz(&["restore", "--exact", &then]).is(&[3], "a locked directory");
    assert!(ended.stdout.contains("locked/b"), "{ended:?}");
    let read = |path: &str| std::fs::read_to_string(lab.work.join(path)).unwrap();
    assert_eq!(
        (read("a"), read("locked/b"), read("z")),
        ("then".into(), "now".into(), "then".into())
    );
    lab.assert_tidy("a locked directory");
}

#[test]
fn restore_rolls_back_if_a_file_is_immutable() {
    if !is_root() || !has("chattr") {
        return;
    }
    // File attributes need a real disk.
    let dir = tempfile::tempdir().unwrap();
    let (work, data) = (dir.path().join("work"), dir.path().join("data"));
    let lab = Lab::with(dir, work, data);
    for path in ["a", "dir/fixed", "z"] {
        lab.write(path, "then");
    }
    let then = (lab.track(), lab.manifest());
    for path in ["a", "dir/fixed", "z"] {
        lab.write(path, "now");
    }
    lab.track();
    let now = lab.manifest();
    let fixed = lab.work.join("dir/fixed");
    let attribute = |what: &str| run(command("chattr").arg(what).arg(&fixed)).code() == Some(0);
    if !attribute("+i") {
        eprintln!("needs a file system with attributes: not run");
        xtask::not_run("needs a file system with attributes");
        return;
    }
    let ended = lab.ctrlz(&["restore", "--exact", &then.0]);
    let found = lab.manifest();
    assert!(attribute("-i"));
    assert!(ended.code().is_some_and(|code| code != 0), "{ended:?}");
    found.assert_is(&now, "an immutable file");
    lab.assert_tidy("an immutable file");
    lab.assert_restores(&then.0, &then.1, "no longer immutable");
}

#[test]
fn a_read_only_work_tree_is_recorded_and_left_alone() {
    if !is_root() {
        return;
    }
    let mut lab = Lab::new();
    lab.write("file", "then");
    let then = lab.track();
    lab.write("file", "now");
    let work = lab.work.to_str().unwrap().to_owned();
    let mount = Mount::new(&["--bind", &work], &lab.work);
    lab = lab.mounted(mount);
    must("mount", &["-o", "remount,bind,ro", &work]);
    lab.track();
    let now = lab.manifest();
    let ended = lab.ctrlz(&["restore", "--exact", &then]);
    assert!(ended.code().is_some_and(|code| code != 0 && code != 101), "{ended:?}");
    lab.manifest().assert_is(&now, "a read-only work tree");
    lab.unmount();
    lab.restore(&then);
    assert_eq!(std::fs::read(lab.work.join("file")).unwrap(), b"then");
    lab.assert_tidy("a read-only work tree");
}

#[test]
fn restore_by_root_gives_files_to_the_owner_of_the_work_tree() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    for path in ["file", "dir/sub/deep", "gone/file", "linked"] {
        write_as_nobody(&lab, path, "then");
    }
    std::os::unix::fs::chown(&lab.work, Some(65534), Some(65534)).unwrap();
    lab.remove("linked");
    lab.link("file", "linked");
    std::os::unix::fs::lchown(lab.work.join("linked"), Some(65534), Some(65534)).unwrap();
    let then = lab.track();
    write_as_nobody(&lab, "file", "now");
    for path in ["gone", "dir/sub", "linked"] {
        lab.remove(path);
    }
    lab.restore(&then);
    let not_theirs = find(&lab.work, &|path| path.symlink_metadata().unwrap().uid() != 65534);
    assert!(not_theirs.is_empty(), "belongs to root now: {not_theirs:?}");
}

#[test]
fn a_mount_inside_the_work_tree_is_skipped_and_reported() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    lab.write("file", "then");
    let then = lab.track();
    let mount = Mount::new(&["-t", "tmpfs", "-o", "size=1m", "tmpfs"], &lab.work.join("mounted"));
    let lab = lab.mounted(mount);
    lab.write("mounted/foreign", "not part of the project");
    lab.write("file", "now");
    let ended = lab.ctrlz(&["track"]).is(&[0, 3], "a mount inside");
    assert!(ended.stderr.contains("mounted"), "{ended:?}");
    assert!(!crate::lab::contains(&lab.all_objects(), b"not part of the project"));
    lab.ctrlz(&["restore", "--exact", &then]).is(&[0, 3], "a mount inside");
    assert_eq!(std::fs::read(lab.work.join("file")).unwrap(), b"then");
    assert!(lab.work.join("mounted/foreign").exists(), "a restore reached into a mount");
    lab.assert_tidy("a mount inside");
}

#[test]
fn closed_standard_streams_never_damage_the_store() {
    let lab = Lab::new();
    lab.write("file", "then");
    let then = (lab.track(), lab.manifest());
    for (at, streams) in
        ["<&-", ">&-", "2>&-", "<&- >&- 2>&-", ">/dev/full", "<&- >&-"].iter().enumerate()
    {
        for args in [&["track"][..], &["diff", &then.0], &["restore", "--exact", &then.0]] {
            lab.write("file", format!("round {at}"));
            lab.write("made", format!("round {at}"));
            // The redirection applies only to `ctrlz`: the streams of the shell are pipes of this
            // test.
            let ended = lab.scripted(&format!("exec \"$@\" {streams}"), args);
            assert!(ended.code().is_some_and(|code| code != 101), "{streams} {args:?}: {ended:?}");
            lab.track();
            lab.assert_tidy(&format!("{streams} {args:?}"));
        }
    }
    lab.assert_restores(&then.0, &then.1, "closed streams");
}

/// With few descriptors, a command succeeds correctly or reports an error.
#[test]
fn a_low_descriptor_limit_never_makes_a_wrong_snapshot() {
    let lab = Lab::new();
    for at in 0..60 {
        lab.write(&format!("a{}/b{}/c{at}", at % 4, at % 7), noise(at, 50));
    }
    let right = (lab.track(), lab.manifest());
    for limit in [8, 10, 12, 14, 16, 20, 24, 32] {
        crate::lab::remove(&lab.data);
        let script = format!("ulimit -n {limit}; exec \"$@\"");
        let ended = lab.scripted(&script, &["track"]);
        assert!(ended.code().is_some_and(|code| code != 101), "{limit}: {ended:?}");
        if ended.code() == Some(0) {
            assert_eq!(ended.hash().as_ref(), Some(&right.0), "{limit} descriptors");
        }
        assert_eq!(lab.track(), right.0, "after {limit} descriptors");
        lab.assert_tidy(&format!("{limit} descriptors"));
        lab.remove("a0");
        lab.track();
        let before = lab.manifest();
        let ended = lab.scripted(&script, &["restore", "--exact", &right.0]);
        // With too few descriptors to roll back, staged files stay until the next command.
        let found = Manifest::of_user_files(&lab.work);
        match ended.code() {
            Some(0) => found.assert_is(&right.1, &format!("{limit} descriptors")),
            _ => found.assert_is(&before, &format!("{limit} descriptors, refused")),
        }
        lab.assert_restores(&right.0, &right.1, &format!("after {limit} descriptors"));
        lab.assert_tidy(&format!("after {limit} descriptors"));
    }
}

/// A file size limit sends a signal or fails the write. In both cases no file is damaged.
#[test]
fn a_limit_on_file_sizes_never_damages_the_store() {
    let lab = Lab::new();
    lab.write("small", "then");
    let then = (lab.track(), lab.manifest());
    lab.write("large", noise(1, 200_000));
    for ignore in ["", "trap '' XFSZ; "] {
        let script = format!("{ignore}ulimit -f 8; exec \"$@\"");
        let ended = lab.scripted(&script, &["track"]);
        assert!(ended.code() != Some(0) && ended.code() != Some(101), "{ended:?}");
        assert_eq!(ended.hash(), None);
        lab.ctrlz(&["status"]).ok();
        lab.store_git(&["fsck", "--strict", "--no-dangling"]).ok();
    }
    let now = (lab.track(), lab.manifest());
    lab.assert_tidy("a limit on file sizes");
    lab.remove("large");
    lab.track();
    let before = lab.manifest();
    let script = "trap '' XFSZ; ulimit -f 8; exec \"$@\"";
    let ended = lab.scripted(script, &["restore", &now.0]);
    assert!(ended.code() != Some(0), "{ended:?}");
    lab.manifest().assert_is(&before, "a limit on file sizes");
    lab.assert_restores(&now.0, &now.1, "no limit");
    lab.assert_restores(&then.0, &then.1, "no limit");
}

/// A store of another user is neither used nor changed.
#[test]
fn a_store_of_another_user_is_refused() {
    let Some(lab) = nobodys_lab() else { return };
    write_as_nobody(&lab, "file", "then");
    lab.track();
    let before = Manifest::of(&lab.data);
    let store = lab.store();
    must("chown", &["-R", "12345:12345", store.to_str().unwrap()]);
    std::fs::set_permissions(&store, std::fs::Permissions::from_mode(0o777)).unwrap();
    let ended = lab.ctrlz(&["track"]);
    assert!(ended.code().is_some_and(|code| code != 0 && code != 101), "{ended:?}");
    std::fs::set_permissions(&store, std::fs::Permissions::from_mode(0o700)).unwrap();
    Manifest::of(&lab.data).assert_is(&before, "a store of another user");
}

/// A directory that a step made read-only does not prevent an undo, and is read-only again after
/// redo.
#[test]
fn read_only_directories_are_undone_and_redone() {
    let scripts = [
        "mkdir -p mod/x; echo 1 > mod/x/1; chmod 555 mod/x; echo 2 > file",
        "echo 2 > dir/1; chmod 555 dir",
        "chmod 755 closed; echo 2 > closed/1; echo 3 > closed/2; chmod 555 closed",
        "chmod 755 closed; rm -r closed; echo 2 > file",
    ];
    for script in scripts {
        let Some(lab) = nobodys_lab() else { return };
        for path in ["file", "dir/1", "closed/1"] {
            write_as_nobody(&lab, path, "1\n");
        }
        lab.chmod("closed", 0o555);
        let before = lab.manifest();
        lab.ctrlz(&["run", "--", "sh", "-c", script]).is(&[0], script);
        let after = lab.manifest();
        for _ in 0..2 {
            lab.ctrlz(&["undo", "--dry-run"]).is(&[0], script);
            lab.ctrlz(&["undo"]).is(&[0], script);
            lab.manifest().assert_is(&before, &format!("undo of {script}"));
            lab.ctrlz(&["redo"]).is(&[0], script);
            lab.manifest().assert_is(&after, &format!("redo of {script}"));
        }
    }
}

/// A directory of another user is left and reported, and the remaining paths are undone.
#[test]
fn read_only_directories_of_other_users_are_left_and_reported() {
    let Some(lab) = nobodys_lab() else { return };
    write_as_nobody(&lab, "file", "1\n");
    write_as_nobody(&lab, "dir/1", "1\n");
    lab.ctrlz(&["run", "--", "sh", "-c", "echo 2 > dir/1; echo 2 > file"]).ok();
    std::os::unix::fs::chown(lab.work.join("dir"), Some(0), Some(0)).unwrap();
    lab.ctrlz(&["undo", "--dry-run"]).is(&[3], "dry run");
    let undone = lab.ctrlz(&["undo"]).is(&[3], "undo");
    assert!(undone.stdout.contains("dir/1: its directory belongs to another user"), "{undone:?}");
    assert_eq!(std::fs::read_to_string(lab.work.join("file")).unwrap(), "1\n");
    std::os::unix::fs::chown(lab.work.join("dir"), Some(65534), Some(65534)).unwrap();
    lab.ctrlz(&["undo", "--", "dir/1"]).is(&[0], "again");
    assert_eq!(std::fs::read_to_string(lab.work.join("dir/1")).unwrap(), "1\n");
}

/// In a sticky directory, only the owner of a file may replace it. Later undos go further back.
#[test]
fn files_of_other_users_in_sticky_directories_are_left_and_reported() {
    let Some(lab) = nobodys_lab() else { return };
    write_as_nobody(&lab, "file", "1\n");
    write_as_nobody(&lab, "dir/1", "1\n");
    lab.ctrlz(&["run", "--", "sh", "-c", "echo 2 > file"]).ok();
    lab.ctrlz(&["run", "--", "sh", "-c", "echo 2 > dir/1"]).ok();
    for path in ["dir", "dir/1"] {
        std::os::unix::fs::chown(lab.work.join(path), Some(0), Some(0)).unwrap();
    }
    lab.chmod("dir", 0o1777);
    lab.chmod("dir/1", 0o666);
    let undone = lab.ctrlz(&["undo"]).is(&[3], "undo");
    assert!(undone.stdout.contains("dir/1: its directory belongs to another user"), "{undone:?}");
    assert!(!undone.stdout.contains("--force"), "{undone:?}");
    lab.ctrlz(&["undo"]).is(&[0], "further back");
    assert_eq!(std::fs::read_to_string(lab.work.join("file")).unwrap(), "1\n");
}

/// Files hidden by a mount are reported, and undone once they are visible again.
#[test]
fn files_hidden_by_a_later_mount_are_reported_and_undone_after_unmount() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    lab.write("a", "1\n");
    lab.ctrlz(&["run", "--", "sh", "-c", "mkdir m; echo 1 > m/1; echo 2 > a"]).ok();
    let mount = Mount::new(&["-t", "tmpfs", "tmpfs"], &lab.work.join("m"));
    let undone = lab.ctrlz(&["undo"]).is(&[3], "mounted");
    assert!(undone.stdout.contains("m/1"), "{undone:?}");
    drop(mount);
    lab.ctrlz(&["undo"]).is(&[0], "again");
    assert!(!lab.work.join("m").exists());
}

/// After a kill at any moment, the next command restores the complete state before or after the
/// undo, including the modes of read-only directories.
#[test]
fn a_killed_undo_keeps_read_only_directories_read_only() {
    let Some(lab) = nobodys_lab() else { return };
    for path in ["file", "closed/1", "closed/2", "other/1"] {
        write_as_nobody(&lab, path, "1\n");
    }
    lab.chmod("closed", 0o555);
    lab.track();
    let script = "chmod 755 closed; echo 2 | tee file closed/1 closed/2 other/1; echo 3 > closed/3; \
                  chmod 555 closed other";
    let before = lab.manifest();
    lab.ctrlz(&["run", "--", "sh", "-c", script]).ok();
    let after = lab.manifest();
    let mut was_killed = 0;
    for round in 0..sized(40, 1_000) {
        let mut undo = start(&mut lab.command(&["undo"]));
        std::thread::sleep(Duration::from_micros(round * 977 % 40_000));
        // The process may have exited already.
        drop(undo.kill());
        was_killed += u64::from(ended(undo).is_killed());
        lab.ctrlz(&["track"]).ok();
        let now = lab.manifest();
        let is_undone = now.difference(&before).is_empty();
        assert!(
            is_undone || now.difference(&after).is_empty(),
            "{round}: {}",
            now.difference(&after)
        );
        if is_undone {
            lab.ctrlz(&["redo"]).is(&[0], "after a kill");
            lab.manifest().assert_is(&after, "redone");
        }
    }
    assert!(was_killed > 0, "no undo was killed");
}
