//! `install` and `uninstall` over every client and many start states: a dry run lists exactly the
//! changes of the real run, uninstalling restores every file and directory, and an installation by
//! a second route is removed.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::bench::{Bench, Ran, finish, program};

/// A client, its configuration directory below home, and the one below a project if it has one.
struct Client {
    name: &'static str,
    home: &'static str,
    project: Option<&'static str>,
    /// A file of the user that ctrlz edits or adds files next to, and its content.
    file: (&'static str, &'static str),
}

const ODD_JSON: &str =
    "{  // mine\r\n\t\"b\" : 1.50,\n\n  \"hooks\": {  \"Stop\": [ ]  }, \"a\": [1,\n2,],\n}";
/// Claude Code and Copilot read strict JSON.
const STRICT_JSON: &str = "{\"b\" : 1.50,\n\n\t\"hooks\":{ \"Stop\":[{\"hooks\": [ {\"type\":\"command\",  \"command\":\"mine\"}]}]}}";

const fn client(
    name: &'static str,
    home: &'static str,
    project: Option<&'static str>,
    file: (&'static str, &'static str),
) -> Client {
    Client { name, home, project, file }
}

const CLIENTS: [Client; 10] = [
    client("claude-code", ".claude", Some(".claude"), ("settings.json", STRICT_JSON)),
    client("codex", ".codex", Some(".codex"), ("hooks.json", STRICT_JSON)),
    client("gemini-cli", ".gemini", Some(".gemini"), ("settings.json", ODD_JSON)),
    client("cline", ".cline/hooks", Some(".clinerules/hooks"), ("PreToolUse.py", "# mine\n")),
    client("qwen-code", ".qwen", Some(".qwen"), ("settings.json", ODD_JSON)),
    client("copilot", ".copilot/hooks", Some(".github/hooks"), ("mine.json", STRICT_JSON)),
    client("pi", ".pi/agent/extensions", Some(".pi/extensions"), ("mine.ts", "mine")),
    client("opencode", ".config/opencode/plugins", Some(".opencode/plugins"), ("m.ts", "mine")),
    client("kilo", ".config/kilo/plugins", Some(".kilo/plugins"), ("mine.ts", "mine")),
    client("marvin", ".config/marvin/hooks", None, ("mine.ts", "mine")),
];

/// Whether to install for the user or into the project.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Scope {
    User,
    Project,
}

impl Client {
    fn scopes(&self) -> Vec<Scope> {
        let all = [Scope::User, Scope::Project];
        all.into_iter().take(1 + usize::from(self.project.is_some())).collect()
    }

    fn dir(&self, bench: &Bench, scope: Scope) -> PathBuf {
        match scope {
            Scope::User => bench.home.join(self.home),
            Scope::Project => bench.project.join(self.project.unwrap()),
        }
    }

    fn words(&self, command: &'static str, scope: Scope) -> Vec<&'static str> {
        let words = [command, self.name, "--project"];
        words[..2 + usize::from(scope == Scope::Project)].to_vec()
    }
}

/// Everything below a directory: type and permissions, and a file's bytes or a link's target.
type Tree = BTreeMap<PathBuf, (u32, Vec<u8>)>;

fn tree(top: &Path) -> Tree {
    let mut found = Tree::new();
    let mut dirs = vec![top.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            let bytes = match meta.file_type() {
                kind if kind.is_dir() => {
                    dirs.push(path.clone());
                    Vec::new()
                }
                kind if kind.is_symlink() => {
                    std::fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
                }
                _ => std::fs::read(&path).unwrap(),
            };
            found.insert(path, (meta.permissions().mode(), bytes));
        }
    }
    found
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Returns the changes below the home directory that a report lists, as (verb, path).
fn listed(ran: &Ran, home: &Path) -> Vec<(String, PathBuf)> {
    let text = ran.text();
    let parse = |line: &str| {
        let (_, action) = line.split_once(": ")?;
        let (verb, path) = action.split_once(' ')?;
        let path = path.trim_start().trim_end_matches('/');
        let is_change = ["create", "write", "remove"].contains(&verb);
        let path = Path::new(path);
        // Resolves symlinks, because the observed change is in the target directory.
        let dir = path.parent().and_then(|dir| dir.canonicalize().ok());
        let path = dir.map_or(path.to_owned(), |dir| dir.join(path.file_name().unwrap()));
        (is_change && path.starts_with(home)).then(|| (verb.to_owned(), path))
    };
    let mut found: Vec<(String, PathBuf)> = text.lines().filter_map(parse).collect();
    found.sort();
    found
}

/// Returns the changes from one tree to another. The contents of a removed directory are included
/// only if they are listed.
fn observed(before: &Tree, after: &Tree, listed: &[(String, PathBuf)]) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    for (path, entry) in after {
        let is_dir = path.is_dir() && !path.is_symlink();
        match before.get(path) {
            Some(old) if old == entry => (),
            None if is_dir => found.push(("create".to_owned(), path.clone())),
            _ => found.push(("write".to_owned(), path.clone())),
        }
    }
    for path in before.keys().filter(|path| !after.contains_key(*path)) {
        let above = path.ancestors().skip(1).find(|dir| before.contains_key(*dir));
        let remove = |path: &Path| ("remove".to_owned(), path.to_owned());
        let is_child = above.is_some_and(|dir| !after.contains_key(dir));
        if listed.contains(&remove(path)) || !is_child {
            found.push(remove(path));
        }
    }
    found.sort();
    found
}

/// Runs a command with `--dry-run` and for real. The dry run must change nothing and list the
/// observed changes.
#[track_caller]
fn dry_and_real(bench: &Bench, words: &[&str], run: &dyn Fn(&[&str]) -> Ran) -> Ran {
    let before = tree(&bench.home);
    let data = tree_if_any(&bench.data);
    let dry = run(&[words, &["--dry-run"]].concat());
    assert_eq!(tree(&bench.home), before, "{words:?}: a dry run changes nothing");
    assert_eq!(tree_if_any(&bench.data), data, "{words:?}: a dry run changes no data of ctrlz");
    let real = run(words);
    assert_eq!((dry.code, &dry.stderr), (real.code, &real.stderr), "{words:?}");
    let (dry_list, real_list) = (listed(&dry, &bench.home), listed(&real, &bench.home));
    assert_eq!(dry_list, real_list, "{words:?}");
    // Changes made by a client's own command are not known beforehand.
    if !real.text().contains(": run ") {
        assert_eq!(observed(&before, &tree(&bench.home), &real_list), real_list, "{words:?}");
    }
    real
}

fn tree_if_any(dir: &Path) -> Tree {
    if dir.is_dir() { tree(dir) } else { Tree::new() }
}

/// Runs ctrlz with fake programs `claude`, `codex` and `gemini`, which write the same files as the
/// real ones.
fn with_clients(bench: &Bench, words: &[&str]) -> Ran {
    let bin = bench.data.with_file_name("bin");
    std::fs::create_dir_all(&bin).unwrap();
    for name in ["claude", "codex", "gemini"] {
        let path = bin.join(name);
        if !path.exists() {
            std::fs::write(&path, include_str!("fake_clients.py")).unwrap();
            set_mode(&path, 0o755);
        }
    }
    finish(bench.command(words).env("PATH", format!("{}:/usr/bin:/bin", bin.display())))
}

/// Installs and uninstalls every client in every scope, from a start state.
fn check_identity(prepare: impl Fn(&Client, &Bench, Scope)) {
    for client in &CLIENTS {
        for scope in client.scopes() {
            let bench = Bench::new();
            prepare(client, &bench, scope);
            let before = tree(&bench.home);
            let run = |words: &[&str]| bench.run(words);
            let installed = dry_and_real(&bench, &client.words("install", scope), &run);
            assert_eq!(installed.code, 0, "{} {scope:?}: {installed:?}", client.name);
            assert_ne!(tree(&bench.home), before, "{} {scope:?}", client.name);
            let once = tree(&bench.home);
            dry_and_real(&bench, &client.words("install", scope), &run);
            assert_eq!(tree(&bench.home), once, "{} {scope:?}: idempotent", client.name);
            dry_and_real(&bench, &client.words("uninstall", scope), &run);
            assert_eq!(tree(&bench.home), before, "{} {scope:?}", client.name);
            let left = tree_if_any(&bench.data.join("agents/installed"));
            assert!(left.is_empty(), "{} {scope:?}: {left:?}", client.name);
        }
    }
}

#[test]
fn uninstalling_restores_a_tree_without_configuration() {
    check_identity(|_, _, _| ());
}

#[test]
fn uninstalling_restores_empty_directories() {
    check_identity(|client, bench, scope| {
        std::fs::create_dir_all(client.dir(bench, scope)).unwrap();
        set_mode(&client.dir(bench, scope), 0o750);
    });
}

#[test]
fn uninstalling_restores_files_with_odd_formatting_and_permissions() {
    check_identity(|client, bench, scope| {
        let dir = client.dir(bench, scope);
        std::fs::create_dir_all(&dir).unwrap();
        let (name, text) = client.file;
        std::fs::write(dir.join(name), text).unwrap();
        set_mode(&dir.join(name), 0o440);
    });
}

#[test]
fn uninstalling_restores_a_configuration_that_is_a_link() {
    check_identity(|client, bench, scope| {
        // Only the user's configuration may be a symlink.
        let dotfiles = bench.home.join("dotfiles");
        std::fs::create_dir_all(&dotfiles).unwrap();
        if scope == Scope::User {
            let dir = client.dir(bench, scope);
            std::fs::create_dir_all(dir.parent().unwrap()).unwrap();
            symlink(&dotfiles, dir).unwrap();
        }
    });
}

#[test]
fn a_plugin_is_removed_without_the_program_that_installed_it() {
    for (client, files) in [
        (
            &CLIENTS[0],
            [("settings.json", STRICT_JSON), ("plugins/known_marketplaces.json", "{\"o\":  1}")],
        ),
        (&CLIENTS[1], [("config.toml", "a  = 1 # mine\n[b]\nc = 2"), ("hooks.json", STRICT_JSON)]),
        (
            &CLIENTS[2],
            [
                ("settings.json", "{ // mine\n}"),
                ("extension_integrity.json", "{\"store\":{\"o\":{}},\"signature\":\"old\"}"),
            ],
        ),
    ] {
        for is_configured in [false, true] {
            let bench = Bench::new();
            let dir = client.dir(&bench, Scope::User);
            for (name, text) in files.into_iter().filter(|_| is_configured) {
                std::fs::create_dir_all(dir.join(name).parent().unwrap()).unwrap();
                std::fs::write(dir.join(name), text).unwrap();
                set_mode(&dir.join(name), 0o600);
            }
            let before = tree(&bench.home);
            let install = client.words("install", Scope::User);
            let installed = dry_and_real(&bench, &install, &|words| with_clients(&bench, words));
            assert!(installed.text().contains(": run "), "{installed:?}");
            let once = tree(&bench.home);
            let again = with_clients(&bench, &install);
            assert!(again.text().contains("installed already"), "{again:?}");
            assert_eq!(tree(&bench.home), once, "{}: idempotent", client.name);
            // The same holds if ctrlz does not find the client's program.
            assert!(bench.ok(&install).contains("installed already"), "{}", client.name);
            assert_eq!(tree(&bench.home), once, "{}: idempotent", client.name);
            let uninstall = client.words("uninstall", Scope::User);
            dry_and_real(&bench, &uninstall, &|words| bench.run(words));
            assert_eq!(tree(&bench.home), before, "{}", client.name);
            assert!(!bench.data.join("integrations").exists(), "{}", client.name);
        }
    }
}

/// Returns the files below a directory that run ctrlz.
fn files_running_ctrlz(top: &Path) -> Vec<PathBuf> {
    let runs = |(path, (_, bytes)): (PathBuf, (u32, Vec<u8>))| {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let is_ours =
            ["ctrlz hook ", "const PROGRAM", "ctrlz@ctrlz"].iter().any(|part| text.contains(part));
        is_ours.then_some(path)
    };
    tree(top).into_iter().filter_map(runs).collect()
}

#[test]
fn duplicate_installations_are_reduced_to_the_one_for_the_user() {
    for client in CLIENTS.iter().filter(|client| client.project.is_some()) {
        for (asked, other) in [(Scope::User, Scope::Project), (Scope::Project, Scope::User)] {
            let bench = Bench::new();
            bench.git(&["init", "-q"]);
            // The other installation is made by hand or by a checkout, so there is no record of it.
            bench.ok(&client.words("install", other));
            let second = tree(&client.dir(&bench, other));
            bench.ok(&client.words("uninstall", other));
            bench.ok(&client.words("install", asked));
            for (path, (mode, bytes)) in second {
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(&path, bytes).unwrap();
                set_mode(&path, mode & 0o777);
            }
            let doctor = bench.run(&["doctor"]).text();
            assert!(doctor.contains("records every event twice"), "{}: {doctor}", client.name);
            let words = client.words("install", asked);
            let ran = dry_and_real(&bench, &words, &|words| bench.run(words));
            assert_eq!(ran.code, 0, "{ran:?}");
            assert!(ran.text().contains("the second installation"), "{ran:?}");
            // The installation for the user stays, because it covers all other projects too.
            let dir = client.dir(&bench, Scope::User);
            let found = files_running_ctrlz(&bench.home);
            assert!(!found.is_empty(), "{} {asked:?}", client.name);
            assert!(found.iter().all(|path| path.starts_with(&dir)), "{asked:?}: {found:?}");
            assert!(!bench.ok(&words).contains("the second installation"), "{}", client.name);
        }
    }
}

#[test]
fn moving_an_installation_to_the_other_scope_restores_the_first() {
    for client in CLIENTS.iter().filter(|client| client.project.is_some()) {
        let bench = Bench::new();
        let before = tree(&bench.home);
        bench.ok(&client.words("install", Scope::Project));
        let words = client.words("install", Scope::User);
        dry_and_real(&bench, &words, &|words| bench.run(words));
        bench.ok(&client.words("uninstall", Scope::User));
        assert_eq!(tree(&bench.home), before, "{}", client.name);
    }
}

#[test]
fn hooks_and_a_plugin_of_one_client_are_reduced_to_one() {
    for client in &CLIENTS[..3] {
        let bench = Bench::new();
        let before = tree(&bench.home);
        let words = client.words("install", Scope::User);
        bench.ok(&words);
        let hooks = client.dir(&bench, Scope::User).join(client.file.0);
        let by_hand = std::fs::read(&hooks).unwrap();
        // Hooks first, then the plugin.
        let ran = dry_and_real(&bench, &words, &|words| with_clients(&bench, words));
        assert!(ran.text().contains(": run "), "{ran:?}");
        let text = std::fs::read_to_string(&hooks).unwrap_or_default();
        assert!(!text.contains("ctrlz hook "), "{}: {text}", client.name);
        // The plugin first, then hooks by hand.
        let parse = |text: &[u8]| serde_json::from_slice::<Value>(text).unwrap_or(json!({}));
        let mut both = parse(text.as_bytes());
        both["hooks"] = parse(&by_hand)["hooks"].clone();
        std::fs::write(&hooks, both.to_string()).unwrap();
        dry_and_real(&bench, &words, &|words| bench.run(words));
        let text = std::fs::read_to_string(&hooks).unwrap();
        assert!(!text.contains("ctrlz hook "), "{text}");
        bench.ok(&client.words("uninstall", Scope::User));
        assert_eq!(tree(&bench.home), before, "{}", client.name);
    }
}

#[test]
fn a_second_installation_that_cannot_be_removed_is_refused_with_a_hint() {
    let hook = |client: &str| {
        format!(
            "{{\"hooks\": {{\"Stop\": [{{\"hooks\": [{{\"command\": \"cd x && ctrlz hook {client}\"}}]}}]}}}}"
        )
    };
    let cases = [
        ("claude-code", ".claude/settings.json", hook("claude-code")),
        ("claude-code", "project/.claude/settings.local.json", hook("claude-code")),
        ("codex", ".codex/hooks.json", hook("codex")),
        (
            "codex",
            ".codex/config.toml",
            "[[hooks.Stop]]\ncommand = \"x; ctrlz hook codex\"\n".into(),
        ),
        ("gemini-cli", "project/.gemini/settings.json", hook("gemini-cli")),
        ("qwen-code", ".qwen/settings.json", hook("qwen-code")),
        ("cline", ".cline/hooks/PreToolUse", "#!/bin/sh\nctrlz hook cline; mine\n".into()),
        ("copilot", ".copilot/hooks/mine.json", hook("copilot")),
        (
            "opencode",
            ".config/opencode/opencode.jsonc",
            "{\"plugin\": [\"ctrlz-opencode@1\"] // mine\n}".into(),
        ),
        ("kilo", ".config/kilo/opencode.json", "{\"plugin\": [[\"ctrlz-opencode\", {}]]}".into()),
        ("pi", ".pi/agent/settings.json", "{\"packages\": [\"npm:ctrlz-pi\"]}".into()),
    ];
    for (client, file, text) in cases {
        let bench = Bench::new();
        bench.write_home(file, &text);
        let refused = dry_and_real(&bench, &["install", client], &|words| bench.run(words));
        assert_eq!(refused.code, 4, "{client} {file}: {refused:?}");
        let next = format!("run `ctrlz install {client}` again");
        assert!(refused.stderr.contains(&next), "{client} {file}: {refused:?}");
    }
}

#[test]
fn copies_and_hooks_made_by_hand_are_replaced() {
    let hook = "{\"type\": \"command\", \"command\": \"/old/ctrlz hook claude-code\"}";
    let bench = Bench::new();
    let mixed = format!(
        "{{\"hooks\": {{\"Stop\": [{{\"hooks\": [{hook}, {{\"command\": \"mine\"}}]}}]}}}}"
    );
    bench.write_home("project/.claude/settings.local.json", &mixed);
    dry_and_real(&bench, &["install", "claude-code"], &|words| bench.run(words));
    let left = bench.read(".claude/settings.local.json").unwrap();
    assert!(left.contains("mine") && !left.contains("ctrlz"), "{left}");
    for (client, target, copy) in [
        ("opencode", ".config/opencode/plugins/ctrlz.ts", ".config/opencode/plugin/undo.ts"),
        ("pi", ".pi/agent/extensions/ctrlz.ts", ".pi/agent/extensions/undo.ts"),
        ("copilot", ".copilot/hooks/ctrlz.json", ".copilot/hooks/undo.json"),
        ("cline", ".cline/hooks/PreToolUse.sh", ".cline/hooks/PreToolUse"),
    ] {
        let bench = Bench::new();
        bench.ok(&["install", client]);
        let ours = std::fs::read_to_string(bench.home.join(target)).unwrap();
        bench.write_home(copy, &ours);
        dry_and_real(&bench, &["install", client], &|words| bench.run(words));
        assert!(!bench.home.join(copy).exists() && bench.home.join(target).exists(), "{client}");
    }
}

#[test]
fn uninstalling_keeps_every_later_change_of_the_user() {
    for (client, file) in [
        ("claude-code", ".claude/settings.json"),
        ("codex", ".codex/hooks.json"),
        ("gemini-cli", ".gemini/settings.json"),
        ("qwen-code", ".qwen/settings.json"),
    ] {
        for again in [false, true] {
            let bench = Bench::new();
            bench.write_home(file, "{\n  \"a\": 1\n}\n");
            bench.ok(&["install", client]);
            let path = bench.home.join(file);
            let text = std::fs::read_to_string(&path).unwrap();
            // Adds only a comment, so the parsed settings are equal.
            let edited = text.replace("\"a\": 1", "\"a\": 1 /* later */");
            let edited =
                if again { edited.replace("/ctrlz hook", "/old/ctrlz hook") } else { edited };
            std::fs::write(&path, edited).unwrap();
            set_mode(&path, 0o600);
            if again {
                bench.ok(&["install", client]);
            }
            dry_and_real(&bench, &["uninstall", client], &|words| bench.run(words));
            let left = std::fs::read_to_string(&path).unwrap();
            assert_eq!(left, "{\n  \"a\": 1 /* later */\n}\n", "{client}, again: {again}");
            let mode = path.metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{client}");
        }
    }
}

#[test]
fn no_file_outside_of_the_project_is_changed_through_a_link() {
    for (client, file) in [
        ("claude-code", ".claude/settings.json"),
        ("codex", ".codex/hooks.json"),
        ("gemini-cli", ".gemini/settings.json"),
        ("qwen-code", ".qwen/settings.json"),
    ] {
        for words in [&["install", client, "--project"][..], &["install", client]] {
            let bench = Bench::new();
            let hook = format!("{{\"hooks\": [{{\"command\": \"ctrlz hook {client}\"}}]}}");
            let text = format!("{{\"hooks\": {{\"Stop\": [{hook}]}}}}");
            bench.write_home("outside.json", &text);
            bench.write(file, "");
            std::fs::remove_file(bench.project.join(file)).unwrap();
            symlink(bench.home.join("outside.json"), bench.project.join(file)).unwrap();
            let refused = dry_and_real(&bench, words, &|words| bench.run(words));
            assert_eq!(refused.code, 4, "{words:?}: {refused:?}");
            assert!(refused.stderr.contains("leads out of it"), "{refused:?}");
        }
    }
}

#[test]
fn directories_shared_by_clients_are_removed_with_the_last_one() {
    let bench = Bench::new();
    let before = tree(&bench.home);
    bench.ok(&["install", "opencode", "kilo"]);
    bench.ok(&["uninstall", "opencode"]);
    bench.ok(&["uninstall", "kilo"]);
    assert_eq!(tree(&bench.home), before);
}

#[test]
fn an_unwritable_directory_is_refused_before_anything_changes() {
    let is_root = rustix::process::geteuid().is_root();
    for client in &CLIENTS {
        for scope in client.scopes() {
            let bench = Bench::new();
            let dir = client.dir(&bench, scope);
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join(client.file.0), client.file.1).unwrap();
            let top = bench.home.parent().unwrap();
            if is_root {
                let mut chown = program("/bin/chown");
                assert_eq!(finish(chown.args(["-R", "65534:65534"]).arg(top)).code, 0);
            }
            set_mode(&dir, 0o555);
            let run = |words: &[&str]| {
                let mut command =
                    if is_root { program("/usr/bin/setpriv") } else { program("/usr/bin/env") };
                if is_root {
                    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
                }
                command.arg(env!("CARGO_BIN_EXE_ctrlz")).args(words).current_dir(&bench.project);
                finish(command.env("HOME", &bench.home).env("CTRLZ_DATA_DIR", &bench.data))
            };
            let refused = dry_and_real(&bench, &client.words("install", scope), &run);
            assert_eq!(refused.code, 4, "{} {scope:?}: {refused:?}", client.name);
            assert!(refused.stderr.contains("cannot be changed"), "{refused:?}");
            set_mode(&dir, 0o755);
        }
    }
}

#[test]
fn a_dangling_link_in_the_place_of_a_directory_is_refused_by_the_dry_run_too() {
    for client in CLIENTS.iter().filter(|client| client.project.is_some()) {
        let bench = Bench::new();
        let dir = client.dir(&bench, Scope::Project);
        std::fs::create_dir_all(dir.parent().unwrap()).unwrap();
        symlink(bench.project.join("nowhere"), &dir).unwrap();
        let words = client.words("install", Scope::Project);
        let refused = dry_and_real(&bench, &words, &|words| with_clients(&bench, words));
        assert_eq!(refused.code, 4, "{}: {refused:?}", client.name);
    }
}
