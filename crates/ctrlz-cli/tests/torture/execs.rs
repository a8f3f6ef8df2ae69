//! `ctrlz` executes no other program, neither in a plain project nor in a hostile one.

use std::os::unix::fs::PermissionsExt;

use xtask::Row;

use crate::checker::{self, Holds as _};
use crate::lab::{Lab, command, has, run};

fn check_one_exec(lab: &Lab) {
    let mut row = Row::of(8, "commands in plain and hostile repositories, one exec each");
    lab.write("file", "then");
    checker::nothing_executed(lab, &["track"]).holds("the first track");
    let then = lab.track();
    lab.write("file", "now");
    lab.write("made", "now");
    for args in [
        &["track"][..],
        &["patch", &then],
        &["diff", &then],
        &["diff", "--full", "--json", &then],
        &["status"],
        &["restore", "--exact", &then],
        &["track", "--rehash"],
    ] {
        checker::nothing_executed(lab, args).holds("a command");
        row.done();
    }
}

#[test]
fn a_plain_project_executes_nothing() {
    if has("strace") {
        check_one_exec(&Lab::new());
    }
}

#[test]
fn a_hostile_repository_executes_nothing() {
    if !has("strace") || !has("git") {
        return;
    }
    let lab = Lab::new();
    let git = |args: &[&str]| run(command("git").arg("-C").arg(&lab.work).args(args)).ok();
    git(&["init", "-q", "-b", "main"]);
    lab.write("file", "committed");
    git(&["add", "-A"]);
    let who = ["-c", "user.name=a", "-c", "user.email=b"];
    git(&[&who[..], &["commit", "-q", "-m", "first"]].concat());
    let trap = lab.dir().join("outside/sprung");
    make_hostile(&lab, trap.to_str().unwrap());
    check_one_exec(&lab);
    assert!(!trap.exists(), "something of the repository's was executed");
}

/// Configures programs in every place where git would run them: filters, drivers, hooks, monitors,
/// pagers.
fn make_hostile(lab: &Lab, trap: &str) {
    let run = format!("touch {trap}");
    let config = format!(
        "[core]\n\tfsmonitor = {run}\n\thooksPath = .git/hooks\n\tpager = {run}\n\teditor = {run}\n\
         \tsshCommand = {run}\n[filter \"x\"]\n\tclean = {run}\n\tsmudge = {run}\n\
         \tprocess = {run}\n\trequired = true\n[diff \"x\"]\n\tcommand = {run}\n\
         \ttextconv = {run}\n[merge \"x\"]\n\tdriver = {run}\n[diff]\n\texternal = {run}\n\
         [alias]\n\tstatus = !{run}\n"
    );
    let path = lab.work.join(".git/config");
    let old = std::fs::read_to_string(&path).unwrap();
    std::fs::write(path, old + &config).unwrap();
    lab.write(".gitattributes", "* filter=x diff=x merge=x ident eol=crlf\n");
    for hook in ["post-index-change", "pre-commit", "post-checkout", "reference-transaction"] {
        let path = lab.work.join(".git/hooks").join(hook);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, format!("#!/bin/sh\n{run}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
}
