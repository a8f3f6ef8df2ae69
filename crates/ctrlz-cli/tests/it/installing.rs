//! `install`, `uninstall` and the checks of agents by `doctor`, on a machine without the agents'
//! programs: hooks are merged into the agents' own files. `integrations/check` tests the real ones.

use std::path::PathBuf;

use crate::bench::{Bench, contents};

/// A hand-written configuration for each client: the client, the file and its text.
const CONFIGURED: [(&str, &str, &str); 4] = [
    (
        "claude-code",
        ".claude/settings.json",
        "{\n    \"model\": \"opus\",   \"hooks\": {\"Stop\": [{\"hooks\": [{\"type\": \"command\", \"command\": \"mine\"}]}]}\n}",
    ),
    ("codex", ".codex/hooks.json", "{\"hooks\":{}}\n"),
    (
        "gemini-cli",
        ".gemini/settings.json",
        "{\n\t// mine\n\t\"unknown\": [1, 2,],\n\t/* and mine */ \"a\": {\"b\": 1.50}\n}\n",
    ),
    ("qwen-code", ".qwen/settings.json", "{ // mine\n  \"unknown\": {\"b\": 1.50},\n}\n"),
];

/// Returns the files in the home directory, except those of the project.
fn home(bench: &Bench) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = contents(&bench.home);
    found.retain(|(path, _)| !path.starts_with(&bench.project));
    found
}

#[test]
fn install_keeps_existing_settings_and_uninstall_restores_them_exactly() {
    for (client, file, text) in CONFIGURED {
        let bench = Bench::new();
        bench.write_home(file, text);
        let before = home(&bench);
        let said = bench.ok(&["install", client]);
        assert!(said.ends_with("it works"), "{said}");
        let installed = std::fs::read_to_string(bench.home.join(file)).unwrap();
        for part in ["mine", "unknown", "1.50", "opus"] {
            assert_eq!(installed.contains(part), text.contains(part), "{part}: {installed}");
        }
        let command = format!("{} hook {client}", env!("CARGO_BIN_EXE_ctrlz"));
        assert!(installed.contains(&command), "{installed}");
        let once = home(&bench);
        assert!(bench.ok(&["install", client]).contains("installed already"), "{client}");
        assert_eq!(home(&bench), once, "{client}: idempotent");
        let doctor = bench.ok(&["doctor"]);
        assert!(doctor.contains(&format!("{client}: installed")), "{doctor}");
        bench.ok(&["uninstall", client]);
        assert_eq!(home(&bench), before, "{client}");
        assert!(bench.ok(&["uninstall", client]).contains("was not installed"), "{client}");
        assert_eq!(contents(&bench.project), [], "{client}: the project is not touched");
    }
}

#[test]
fn install_creates_a_private_data_directory() {
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::new();
    bench.write_home(".claude/settings.json", "{}");
    bench.ok(&["install", "claude-code"]);
    assert_eq!(bench.data.metadata().unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn a_dry_run_changes_nothing() {
    let bench = Bench::new();
    for (_, file, text) in CONFIGURED {
        bench.write_home(file, text);
    }
    bench.write_home(".cline/x", "");
    let before = (home(&bench), contents(&bench.data));
    let said = bench.ok(&["install", "--dry-run"]);
    for client in ["claude-code", "codex", "gemini-cli", "cline"] {
        assert!(said.contains(&format!("{client}: write ")), "{said}");
    }
    assert_eq!((home(&bench), contents(&bench.data)), before);
}

#[test]
fn uninstall_removes_files_created_by_install() {
    let dirs = [
        ".claude",
        ".codex",
        ".gemini",
        ".cline",
        ".qwen",
        ".copilot",
        ".pi/agent",
        ".config/opencode",
        ".config/kilo",
        ".config/marvin",
    ];
    for dir in dirs {
        let bench = Bench::new();
        std::fs::create_dir_all(bench.home.join(dir)).unwrap();
        bench.ok(&["install"]);
        assert_ne!(home(&bench), [], "{dir}");
        bench.ok(&["uninstall"]);
        assert_eq!(home(&bench), [], "{dir}");
    }
}

#[test]
fn uninstall_keeps_user_edits_made_after_install() {
    let bench = Bench::new();
    bench.write_home(".gemini/settings.json", "{\"a\": 1}\n");
    bench.ok(&["install", "gemini-cli"]);
    let path = bench.home.join(".gemini/settings.json");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("\"a\": 1", "\"a\": 2 /* mine */")).unwrap();
    bench.ok(&["uninstall", "gemini-cli"]);
    let left = std::fs::read_to_string(&path).unwrap();
    assert!(left.contains("\"a\": 2 /* mine */") && !left.contains("ctrlz"), "{left}");
}

#[test]
fn project_hooks_do_not_contain_the_path_of_ctrlz() {
    let files = [
        ("claude-code", ".claude/settings.json"),
        ("codex", ".codex/hooks.json"),
        ("gemini-cli", ".gemini/settings.json"),
        ("cline", ".clinerules/hooks/PreToolUse.sh"),
        ("qwen-code", ".qwen/settings.json"),
        ("copilot", ".github/hooks/ctrlz.json"),
    ];
    for (client, file) in files {
        let bench = Bench::new();
        bench.git(&["init", "-q"]);
        bench.write("deep/x", "");
        bench.ok(&["-C", "deep", "install", "--project", client]);
        let text = bench.read(file).unwrap();
        assert!(text.contains(&format!("ctrlz hook {client}")), "{text}");
        assert!(!text.contains(env!("CARGO_BIN_EXE_ctrlz")), "{text}");
        assert_eq!(home(&bench), [], "{client}: only the project is touched");
        bench.ok(&["uninstall", "--project", client]);
        assert_eq!(bench.read(file), None);
    }
}

#[test]
fn plugin_files_contain_the_path_of_ctrlz() {
    let files = [
        ("pi", ".pi/agent/extensions/ctrlz.ts", ".pi/extensions/ctrlz.ts"),
        ("opencode", ".config/opencode/plugins/ctrlz.ts", ".opencode/plugins/ctrlz.ts"),
        ("kilo", ".config/kilo/plugins/ctrlz.ts", ".kilo/plugins/ctrlz.ts"),
        ("marvin", ".config/marvin/hooks/ctrlz.ts", ""),
    ];
    for (client, file, in_project) in files {
        let bench = Bench::new();
        bench.write_home(".config/other/mine", "mine\n");
        let before = home(&bench);
        let said = bench.ok(&["install", client]);
        assert!(said.ends_with("it works"), "{said}");
        let path = bench.home.join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        let own = format!("const PROGRAM = \"{}\"\n", env!("CARGO_BIN_EXE_ctrlz"));
        assert!(text.contains(&own), "{client}");
        assert!(bench.ok(&["install", client]).contains("installed already"), "{client}");
        std::fs::write(&path, text.replace(&own, "const PROGRAM = \"/old/ctrlz\"\n")).unwrap();
        assert!(bench.run(&["doctor"]).text().contains("runs another ctrlz"), "{client}");
        bench.ok(&["install", client]);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "{client}");
        bench.ok(&["uninstall", client]);
        assert_eq!(home(&bench), before, "{client}");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "export default () => {}\n").unwrap();
        bench.fails(&["install", client], 4, "somebody else's");
        bench.git(&["init", "-q"]);
        if in_project.is_empty() {
            bench.fails(&["install", "--project", client], 4, "leave out --project");
            continue;
        }
        bench.ok(&["install", "--project", client]);
        let text = bench.read(in_project).unwrap();
        assert!(text.contains("const PROGRAM = \"ctrlz\"\n"), "{client}");
        bench.ok(&["uninstall", "--project", client]);
        assert_eq!(bench.read(in_project), None, "{client}");
    }
}

#[test]
fn malformed_settings_and_foreign_hooks_are_left_unchanged() {
    let bench = Bench::new();
    for text in ["{", "[]", "{\"hooks\": 5}", "{\"hooks\": {\"Stop\": 1}}"] {
        bench.write_home(".claude/settings.json", text);
        let before = home(&bench);
        bench.fails(&["install", "claude-code"], 4, "settings.json");
        assert_eq!(home(&bench), before, "{text}");
    }
    bench.write_home(".cline/hooks/PreToolUse.sh", "#!/bin/sh\nexit 0\n");
    let before = home(&bench);
    bench.fails(&["install", "cline"], 4, "a hook of another program");
    assert_eq!(home(&bench), before);
}

#[test]
fn a_failed_installation_does_not_stop_the_other_clients() {
    let bench = Bench::new();
    bench.write_home(".claude/settings.json", "{");
    bench.write_home(".cline/hooks/mine", "");
    let ran = bench.run(&["install"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.stderr.contains("claude-code") && ran.stderr.contains("settings.json"), "{ran:?}");
    assert!(bench.home.join(".cline/hooks/PreToolUse.sh").exists(), "{ran:?}");
    assert!(ran.text().contains("it works"), "{ran:?}");
}

#[test]
fn doctor_reports_and_install_replaces_hooks_of_another_ctrlz() {
    let bench = Bench::new();
    let old = "{\"hooks\": {\"Stop\": [{\"hooks\": [{\"type\": \"command\", \"command\": \"/old/ctrlz hook claude-code\"}]}]}}";
    bench.write_home(".claude/settings.json", old);
    let doctor = bench.run(&["doctor"]);
    assert_eq!(doctor.code, 1, "{doctor:?}");
    assert!(doctor.text().contains("claude-code: runs another ctrlz"), "{doctor:?}");
    bench.ok(&["install"]);
    let text = std::fs::read_to_string(bench.home.join(".claude/settings.json")).unwrap();
    assert!(!text.contains("/old/"), "{text}");
    bench.ok(&["doctor"]);
}

#[test]
fn install_and_uninstall_fail_when_no_agent_is_found() {
    let bench = Bench::new();
    bench.fails(&["install"], 4, "no coding agent was found");
    bench.fails(&["uninstall"], 4, "no coding agent was found");
    bench.fails(&["install", "emacs"], 4, "no client is called \"emacs\"");
}

/// Clients that can be installed into a project, each with the directory that its files go into.
const IN_PROJECT: [(&str, &str); 9] = [
    ("claude-code", ".claude"),
    ("codex", ".codex"),
    ("gemini-cli", ".gemini"),
    ("cline", ".clinerules"),
    ("qwen-code", ".qwen"),
    ("copilot", ".github"),
    ("pi", ".pi"),
    ("opencode", ".opencode"),
    ("kilo", ".kilo"),
];

/// Returns every directory and file below a directory.
fn everything(dir: &std::path::Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                dirs.push(entry.path());
            }
            found.push(entry.path());
        }
    }
    found.sort();
    found
}

#[test]
fn uninstall_removes_only_directories_created_by_install() {
    for (client, dir) in IN_PROJECT {
        for was_there in [false, true] {
            let bench = Bench::new();
            if was_there {
                std::fs::create_dir(bench.project.join(dir)).unwrap();
            }
            let before = everything(&bench.project);
            bench.ok(&["install", "--project", client]);
            assert_ne!(everything(&bench.project), before, "{client}");
            bench.ok(&["uninstall", "--project", client]);
            assert_eq!(everything(&bench.project), before, "{client}, {dir} there: {was_there}");
        }
    }
}

#[test]
fn nothing_is_installed_through_a_link_out_of_the_project() {
    for (client, dir) in IN_PROJECT {
        let bench = Bench::new();
        let outside = bench.home.join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::os::unix::fs::symlink(&outside, bench.project.join(dir)).unwrap();
        let refused = bench.run(&["install", "--project", client]);
        assert_ne!(refused.code, 0, "{client}: {refused:?}");
        assert!(everything(&outside).is_empty(), "{client}");
    }
}

/// The agent later runs what is in this directory.
#[test]
fn install_refuses_a_plugin_directory_that_is_a_link_and_makes_it_private() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let bench = Bench::new();
    std::fs::create_dir_all(&bench.data).unwrap();
    let (plugins, elsewhere) = (bench.data.join("integrations"), bench.home.join("elsewhere"));
    std::fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, &plugins).unwrap();
    bench.fails(&["install", "cline"], 1, "not a directory of this user");
    bench.fails(&["track"], 1, "not a directory of this user");
    assert_eq!(contents(&elsewhere), []);
    std::fs::remove_file(&plugins).unwrap();
    std::fs::create_dir(&plugins).unwrap();
    std::fs::set_permissions(&plugins, std::fs::Permissions::from_mode(0o777)).unwrap();
    bench.ok(&["install", "cline"]);
    assert_eq!(plugins.metadata().unwrap().permissions().mode() & 0o777, 0o700);
}
