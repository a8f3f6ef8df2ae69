//! Compares the files that git's configuration ignores with git itself.

use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::bench::{Bench, finish, program};

/// One way to configure an ignore file. In all texts `HOME` and `VALUE` are replaced.
#[derive(Clone, Default)]
struct Setup {
    /// Files below the home directory and the text that is appended to each.
    files: Vec<(&'static str, String)>,
    env: Vec<(&'static str, &'static str)>,
}

const CORE: &str = "[core]\n\texcludesFile = VALUE\n";
const OWN_CONFIG: &str = "project/.git/config";

/// Values of `core.excludesFile`. Each file ignores a name of its own; see [`prepare`].
const VALUES: [&str; 8] = [
    "relative",
    "~/tilde",
    "HOME/absolute",
    "\"HOME/absolute\" ; comment",
    "~/link",
    "project-relative/missing",
    "HOME/missing",
    "",
];

fn setups() -> Vec<Setup> {
    let files = |files: &[(&'static str, &str)]| Setup {
        files: files.iter().map(|(path, text)| (*path, (*text).to_owned())).collect(),
        env: Vec::new(),
    };
    let with =
        |setup: Setup, env: &[(&'static str, &'static str)]| Setup { env: env.to_vec(), ..setup };
    let include = |config, header: &str, path: &str| {
        files(&[(config, &format!("[{header}]\n\tpath = {path}\n")), ("parts/part", CORE)])
    };
    let user = || files(&[(".gitconfig", CORE)]);
    let mut setups = vec![
        Setup::default(),
        user(),
        files(&[(".config/git/config", CORE)]),
        with(files(&[("xdg/git/config", CORE)]), &[("XDG_CONFIG_HOME", "HOME/xdg")]),
        with(user(), &[("XDG_CONFIG_HOME", "HOME/xdg")]),
        with(user(), &[("XDG_CONFIG_HOME", "")]),
        with(files(&[("global", CORE)]), &[("GIT_CONFIG_GLOBAL", "HOME/global")]),
        with(user(), &[("GIT_CONFIG_GLOBAL", "HOME/no-such-file")]),
        with(user(), &[("GIT_CONFIG_GLOBAL", "")]),
        with(
            files(&[("system", CORE)]),
            &[("GIT_CONFIG_SYSTEM", "HOME/system"), ("GIT_CONFIG_NOSYSTEM", "0")],
        ),
        with(
            files(&[("system", CORE)]),
            &[("GIT_CONFIG_SYSTEM", "HOME/system"), ("GIT_CONFIG_NOSYSTEM", "yes")],
        ),
        include(".gitconfig", "include", "parts/part"),
        include(".gitconfig", "INCLUDE", "~/parts/part"),
        include(".gitconfig", "include", "HOME/parts/part"),
        include(".gitconfig", "include", "parts/missing"),
        include(".config/git/config", "include", "../../parts/part"),
        include(OWN_CONFIG, "include", "../../parts/part"),
        include(".gitconfig", "includeIf \"gitdir:~/project/\"", "~/parts/part"),
        include(".gitconfig", "includeIf \"gitdir:~/parts/../project/\"", "~/parts/part"),
        include(OWN_CONFIG, "includeIf \"onbranch:main\"", "~/parts/part"),
        include(OWN_CONFIG, "includeIf \"onbranch:other\"", "~/parts/part"),
        files(&[
            (".gitconfig", "[include]\n\tpath = parts/first\n"),
            ("parts/first", "[include]\n\tpath = second\n"),
            ("parts/second", CORE),
        ]),
        files(&[(OWN_CONFIG, CORE)]),
        files(&[
            (OWN_CONFIG, "[extensions]\n\tworktreeConfig = true\n"),
            ("project/.git/config.worktree", CORE),
        ]),
        files(&[
            (OWN_CONFIG, "[extensions]\n\tworktreeConfig = false\n"),
            ("project/.git/config.worktree", CORE),
        ]),
        with(Setup::default(), &[("XDG_CONFIG_HOME", "HOME/xdg")]),
        files(&[(".gitconfig", "[core \"x\"]\n\texcludesFile = VALUE\n[other]\n\tk = v\n")]),
    ];
    let conditions = [
        "gitdir:HOME/project/",
        "gitdir:HOME/project",
        "gitdir:HOME/project/.git",
        "gitdir:~/",
        "gitdir:~/project/",
        "gitdir:~/other/",
        "gitdir:~/proj*/",
        "gitdir:~/*/.git",
        "gitdir:~/*",
        "gitdir:project/",
        "gitdir:project/.git",
        "gitdir:roject/",
        "gitdir:**/project/**",
        "gitdir:./",
        "gitdir/i:./",
        "gitdir:./**",
        "gitdir:./project/",
        "gitdir:./other/",
        "gitdir:~/PROJECT/",
        "gitdir/i:~/PROJECT/",
        "gitdir/i:./PROJECT/",
        "onbranch:main",
        "onbranch:ma*",
        "onbranch:ma",
        "onbranch:main/",
        "hasconfig:remote.*.url:https://example.com/**",
        "hasconfig:remote.*.url:https://example.org/**",
        "unheard-of:main",
        "",
    ];
    setups.extend(conditions.map(|condition| {
        include(".gitconfig", &format!("includeIf \"{condition}\""), "parts/part")
    }));
    setups
}

/// Makes a repository, one ignore file for each kind of value, and files that they ignore.
fn prepare() -> Bench {
    let bench = Bench::new();
    bench.git(&["init", "-q", "-b", "main"]);
    bench.git(&["remote", "add", "origin", "https://example.com/a/b"]);
    for kind in ["default", "xdg", "relative", "tilde", "absolute", "link"] {
        bench.write(&format!("a.{kind}"), "x\n");
        bench.write(&format!("dir/{kind}.{kind}"), "x\n");
    }
    bench.write("a.txt", "x\n");
    bench.write("relative", "*.relative\n");
    let ignore_files = [
        (".config/git/ignore", "*.default\n"),
        ("xdg/git/ignore", "*.xdg\n"),
        ("tilde", "*.tilde\n"),
        ("absolute", "*.absolute\n"),
        ("target", "*.link\n"),
    ];
    for (path, text) in ignore_files {
        bench.write_home(path, text);
        std::fs::set_permissions(bench.home.join(path), PermissionsExt::from_mode(0o644)).unwrap();
    }
    symlink("target", bench.home.join("link")).unwrap();
    bench
}

/// Applies setups, each with its value, while `act` runs.
fn configured<T>(
    bench: &Bench,
    chosen: &[(&Setup, &str)],
    act: impl FnOnce(&dyn Fn(&mut Command)) -> T,
) -> T {
    let home = bench.home.to_str().unwrap();
    let own_config = bench.home.join(OWN_CONFIG);
    let before = std::fs::read(&own_config).unwrap();
    let mut written = BTreeSet::new();
    for (setup, value) in chosen {
        for (path, text) in &setup.files {
            let path = bench.home.join(path);
            let now = std::fs::read_to_string(&path).unwrap_or_default();
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let text = text.replace("VALUE", value).replace("HOME", home);
            std::fs::write(&path, now + &text).unwrap();
            written.insert(path);
        }
    }
    let outcome = act(&|command| {
        for (name, value) in chosen.iter().flat_map(|(setup, _)| &setup.env) {
            command.env(name, value.replace("HOME", home));
        }
    });
    for path in written {
        std::fs::remove_file(path).unwrap();
    }
    std::fs::write(&own_config, before).unwrap();
    outcome
}

type Names = BTreeSet<String>;

fn captured(bench: &Bench, env: &dyn Fn(&mut Command)) -> Names {
    let run = |words: &[&str]| {
        let mut command = bench.command(words);
        env(&mut command);
        let ran = finish(&mut command);
        assert_eq!(ran.code, 0, "{words:?}: {ran:?}");
        ran.text().trim_end().to_owned()
    };
    let hash = run(&["track"]);
    run(&["ls", &hash]).lines().map(str::to_owned).collect()
}

fn not_ignored_by_git(bench: &Bench, dir: &Path, env: &dyn Fn(&mut Command)) -> Names {
    let mut git = program("git");
    git.current_dir(dir).args(["ls-files", "--others", "--cached", "--exclude-standard", "-z"]);
    git.env("HOME", &bench.home).env("GIT_CONFIG_NOSYSTEM", "1");
    git.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    env(&mut git);
    let ran = finish(&mut git);
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.text().split_terminator('\0').map(str::to_owned).collect()
}

#[track_caller]
fn check(bench: &Bench, chosen: &[(&Setup, &str)]) -> Names {
    configured(bench, chosen, |env| {
        let expected = not_ignored_by_git(bench, &bench.project, env);
        let shown: Vec<_> =
            chosen.iter().map(|(setup, value)| (&setup.files, &setup.env, value)).collect();
        assert_eq!(captured(bench, env), expected, "{shown:#?}");
        expected
    })
}

#[test]
fn every_way_to_configure_an_ignore_file_is_honoured_as_git_does() {
    let bench = prepare();
    let setups = setups();
    let mut outcomes = BTreeSet::new();
    // Every setup with every value would take too long, so each gets three of them.
    for (at, setup) in setups.iter().enumerate() {
        for offset in [0, 3, 5] {
            outcomes.insert(check(&bench, &[(setup, VALUES[(at + offset) % VALUES.len()])]));
        }
    }
    for path in [".gitconfig", OWN_CONFIG] {
        let setup = Setup { files: vec![(path, CORE.into())], env: Vec::new() };
        for value in VALUES {
            outcomes.insert(check(&bench, &[(&setup, value)]));
        }
    }
    assert!(outcomes.len() >= 7, "the cases must differ: {outcomes:#?}");
}

#[test]
fn long_lists_and_nul_bytes_are_read_as_git_reads_them() {
    let bench = prepare();
    let filler = "# a comment\n".repeat(100_000);
    for text in [format!("{filler}*.txt\n"), "*.txt\0x\n".into()] {
        std::fs::write(bench.project.join(".git/info/exclude"), text).unwrap();
        assert!(!check(&bench, &[]).contains("a.txt"));
    }
}

#[test]
fn the_git_directory_of_a_condition_is_matched_as_git_does() {
    let bench = prepare();
    // The repository is elsewhere, behind a link.
    let real = bench.project.with_file_name("repository");
    std::fs::rename(bench.project.join(".git"), &real).unwrap();
    symlink(&real, bench.project.join(".git")).unwrap();
    let project = bench.project.to_str().unwrap();
    let (parent, name) = project.rsplit_once('/').unwrap();
    for condition in [format!("{project}/"), format!("{parent}//{name}/"), format!("/{project}/")] {
        let include = format!("[includeIf \"gitdir:{condition}\"]\n\tpath = parts/part\n");
        let files = vec![(".gitconfig", include), ("parts/part", CORE.into())];
        check(&bench, &[(&Setup { files, env: Vec::new() }, VALUES[2])]);
    }
}

#[test]
fn the_precedence_of_configurations_matches_git() {
    let bench = prepare();
    let setups = setups();
    // A linear congruential generator with a fixed seed: the same pairs in every run.
    let mut state = 7_usize;
    let mut next = |count: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (state >> 33) % count
    };
    for _ in 0..60 {
        let mut one = || (&setups[next(setups.len())], VALUES[next(VALUES.len())]);
        let chosen = [one(), one(), one()];
        check(&bench, &chosen);
    }
}

#[test]
fn a_linked_work_tree_has_the_configuration_of_its_repository_and_its_own() {
    let bench = prepare();
    bench.git(&["add", "a.txt"]);
    bench.git(&["commit", "-q", "-m", "one"]);
    bench.git(&["worktree", "add", "-q", "../linked"]);
    let linked = bench.home.join("linked");
    for name in ["a.tilde", "a.absolute", "a.relative"] {
        std::fs::write(linked.join(name), "x\n").unwrap();
    }
    let compare = |expected: usize| {
        let track = |words: &[&str]| {
            let mut command = bench.command(words);
            let ran = finish(command.current_dir(&linked));
            assert_eq!(ran.code, 0, "{ran:?}");
            ran.text().trim_end().to_owned()
        };
        let hash = track(&["track"]);
        let names: Names = track(&["ls", &hash]).lines().map(str::to_owned).collect();
        assert_eq!(names, not_ignored_by_git(&bench, &linked, &|_| ()));
        assert_eq!(names.len(), expected, "{names:?}");
    };
    compare(4);
    bench.git(&["config", "core.excludesFile", "~/tilde"]);
    compare(3);
    bench.git(&["config", "extensions.worktreeConfig", "true"]);
    let own = bench.project.join(".git/worktrees/linked/config.worktree");
    std::fs::write(&own, "[core]\nexcludesFile = /dev/null\n").unwrap();
    compare(4);
    let text = "[includeIf \"gitdir:worktrees/linked\"]\npath = ~/parts/part\n";
    std::fs::write(&own, text).unwrap();
    bench.write_home("parts/part", "[core]\nexcludesFile = ~/absolute\n");
    compare(3);
}

/// Runs git in a directory. Returns `false` if git fails.
fn git(dir: &Path, words: &[&str]) -> bool {
    let mut git = program("git");
    git.current_dir(dir).args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(words);
    git.env("HOME", "/nonexistent").env("PATH", std::env::var_os("PATH").unwrap_or_default());
    finish(&mut git).code == 0
}

#[test]
fn the_branch_of_a_repository_with_reftables_is_known() {
    let bench = prepare();
    std::fs::remove_dir_all(bench.project.join(".git")).unwrap();
    if !git(&bench.project, &["init", "-q", "-b", "main", "--ref-format=reftable"]) {
        // Git before version 2.45.
        return;
    }
    let setup = |branch: &str| Setup {
        files: vec![
            (".gitconfig", format!("[includeIf \"onbranch:{branch}\"]\n\tpath = parts/part\n")),
            ("parts/part", CORE.to_owned()),
        ],
        env: Vec::new(),
    };
    let compare = || {
        ["main", "other", "feature/", "**"].map(|branch| {
            let setup = setup(branch);
            !check(&bench, &[(&setup, "~/tilde")]).contains("a.tilde")
        })
    };
    assert_eq!(compare(), [true, false, false, true]);
    bench.git(&["add", "a.txt"]);
    bench.git(&["commit", "-q", "-m", "one"]);
    assert_eq!(compare(), [true, false, false, true]);
    bench.git(&["checkout", "-q", "-b", "feature/x"]);
    for at in 0..40 {
        bench.git(&["branch", &format!("branch{at}")]);
    }
    assert_eq!(compare(), [false, false, true, true]);
    bench.git(&["checkout", "-q", "-b", "other"]);
    bench.git(&["pack-refs"]);
    assert_eq!(compare(), [false, true, false, true]);
    bench.git(&["checkout", "-q", "--detach"]);
    assert_eq!(compare(), [false; 4]);
    assert_eq!(bench.json(&["log"])[0]["branch"], serde_json::Value::Null);
}

/// The text of an ignore file is part of a snapshot's record and can be pushed.
#[test]
fn a_repository_cannot_choose_private_files_or_links_as_ignore_files() {
    let bench = prepare();
    bench.write_home(".netrc", "*.absolute\n");
    let private = PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(bench.home.join(".netrc"), private).unwrap();
    let is_captured = || captured(&bench, &|_| ()).contains("a.absolute");
    bench.git(&["config", "core.excludesFile", "~/.netrc"]);
    assert!(is_captured(), "a private file");
    symlink("../.netrc", bench.project.join("innocent")).unwrap();
    bench.git(&["config", "core.excludesFile", "innocent"]);
    assert!(is_captured(), "a link to a private file");
    symlink("../../absolute", bench.project.join(".git/link")).unwrap();
    bench.git(&["config", "core.excludesFile", ".git/link"]);
    assert!(is_captured(), "a link in the repository's directory");
    bench.git(&["config", "core.excludesFile", "~/absolute"]);
    assert!(!is_captured(), "a public file");
    let config = bench.project.join(".git/config");
    std::fs::rename(&config, bench.home.join("moved")).unwrap();
    symlink("../../moved", &config).unwrap();
    assert!(is_captured(), "a configuration that is a link");
    // The user's own configuration may name any file that the user can read.
    bench.write_home(".gitconfig", "[core]\nexcludesFile = ~/.netrc\n");
    assert!(!is_captured());
}

#[test]
fn hostile_includes_neither_block_nor_fail() {
    let bench = prepare();
    bench.shell("mkfifo ../fifo");
    let many: String = (0..2_000).map(|_| "[include]\npath = config\n").collect();
    let values = ["/dev/zero", "/dev/tty", "~/fifo", "~/", "config", "~no-such-user/x", "a\0b", ""];
    for value in values {
        for line in ["[include]\npath = ", "[core]\nexcludesFile = "] {
            let text = format!("[core]\nbare = false\n{line}{value}\n");
            std::fs::write(bench.project.join(".git/config"), text).unwrap();
            assert!(captured(&bench, &|_| ()).contains("a.txt"), "{line}{value}");
        }
    }
    std::fs::write(bench.project.join(".git/config"), many).unwrap();
    assert!(captured(&bench, &|_| ()).contains("a.txt"));
    bench.ok(&["status"]);
    bench.run(&["run", "--", "sh", "-c", "echo broken > a.txt"]);
    bench.ok(&["undo"]);
    assert_eq!(bench.read("a.txt").as_deref(), Some("x\n"));
}

#[test]
fn undo_keeps_files_that_an_included_configuration_ignores() {
    let bench = prepare();
    bench.write_home(".gitconfig", "[include]\n\tpath = parts/part\n");
    bench.write_home("parts/part", "[core]\n\texcludesFile = ~/tilde\n");
    bench.track();
    bench.run(&["run", "--", "sh", "-c", "echo 1 > $(echo new).tilde; echo 1 > new.txt"]);
    bench.ok(&["undo"]);
    assert_eq!((bench.read("new.tilde").as_deref(), bench.read("new.txt")), (Some("1\n"), None));
}
