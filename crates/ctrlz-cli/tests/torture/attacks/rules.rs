//! Private ignore rules: the rules in a user's own configuration never leave the machine.

use xtask::{Random, Row};

use super::GOAL;
use crate::lab::{Lab, command, contains, must, run, sized};

/// Returns a random word that occurs nowhere else.
fn secret(random: &mut Random) -> String {
    format!("canary{:x}{:x}", random.below(1 << 30), random.below(1 << 30))
}

/// Puts rules with secret words into every file from which git reads private rules, in random
/// forms. Neither a pushed repository nor an exported bundle contains one of the words. The files
/// that the rules hide are not recorded, and survive an exact restore.
#[test]
fn private_ignore_rules_are_never_pushed_or_exported() {
    let mut row = Row::of(GOAL, "private ignore rules");
    let mut random = Random::new("private rules");
    for case in 0..sized(4, 200) {
        let lab = Lab::new();
        let work = lab.work.to_str().unwrap().to_owned();
        must("git", &["-C", &work, "init", "-q"]);
        let places = [
            lab.work.join(".git/info/exclude"),
            lab.home.join(".config/git/ignore"),
            lab.home.join("rules"),
        ];
        let config = lab.home.join("config");
        let mut words = Vec::new();
        for place in &places {
            if random.below(4) == 0 {
                continue;
            }
            let lines: Vec<String> = (0..1 + random.below(4))
                .map(|_| {
                    let word = secret(&mut random);
                    lab.write(&format!("{word}.txt"), "hidden\n");
                    let forms = [
                        format!("{word}*"),
                        format!("/{word}.txt"),
                        format!("**/{word}.*"),
                        format!("# {word}\n{word}.txt"),
                    ];
                    words.push(word);
                    random.pick(&forms).clone()
                })
                .collect();
            std::fs::create_dir_all(place.parent().unwrap()).unwrap();
            std::fs::write(place, lines.join("\n") + "\n").unwrap();
        }
        let (section, key) = *random.pick(&[("core", "excludesFile"), ("CORE", "excludesfile")]);
        if random.below(2) == 0 {
            let text = format!("[{section}]\n\t{key} = {}\n", places[2].display());
            std::fs::write(&config, text).unwrap();
        } else {
            std::fs::write(&config, "").unwrap();
            let value = places[2].to_str().unwrap();
            must("git", &["-C", &work, "config", "core.excludesFile", value]);
        }
        let when = format!("case {case}: {words:?}");
        let ctrlz = |args: &[&str]| {
            let ended = run(lab.command(args).env("GIT_CONFIG_GLOBAL", &config));
            assert!(!ended.stderr.contains("panicked"), "{when}: {ended:?}");
            ended
        };
        lab.write("a", "one\n");
        // Git reads its default file of global rules only if `core.excludesFile` names no other
        // one.
        let is_hidden = |word: &str| {
            let path = format!("{word}.txt");
            let mut git = command("git");
            git.env("HOME", &lab.home).env("GIT_CONFIG_GLOBAL", &config);
            git.args(["-C", &work, "check-ignore", "-q", &path]);
            run(&mut git).code() == Some(0)
        };
        for word in words.clone() {
            if !is_hidden(&word) {
                lab.remove(&format!("{word}.txt"));
            }
        }
        let first = ctrlz(&["track"]).ok().hash().unwrap();
        for round in 0..1 + random.below(3) {
            let script = format!("echo {round} >> a");
            ctrlz(&["run", "--", "sh", "-c", &script]).ok();
        }
        let server = lab.dir().join("server.git");
        must("git", &["init", "-q", "--bare", server.to_str().unwrap()]);
        let file = lab.dir().join("file.bundle");
        ctrlz(&["push", server.to_str().unwrap()]).ok();
        ctrlz(&["export", file.to_str().unwrap()]).ok();
        let reader = lab.dir().join("reader.git");
        must("git", &["clone", "-q", "--mirror", file.to_str().unwrap(), reader.to_str().unwrap()]);
        for repository in [&server, &reader] {
            let all = ["cat-file", "--batch-all-objects", "--batch"];
            let output =
                command("git").arg("--git-dir").arg(repository).args(all).output().unwrap();
            assert!(contains(&output.stdout, b"one\n"), "{when}: no object content was read");
            for word in &words {
                assert!(!contains(&output.stdout, word.as_bytes()), "{when}: {word} was leaked");
            }
        }
        let bytes = std::fs::read(&file).unwrap();
        assert!(words.iter().all(|word| !contains(&bytes, word.as_bytes())), "{when}");
        let hidden: Vec<&String> =
            words.iter().filter(|word| lab.work.join(format!("{word}.txt")).exists()).collect();
        let restored = ctrlz(&["restore", "--exact", "--yes", &first]);
        assert!(restored.code().is_some_and(|code| code == 0 || code == 3), "{when}: {restored:?}");
        for word in hidden {
            assert!(lab.work.join(format!("{word}.txt")).exists(), "{when}: {word} is gone");
        }
        row.done();
    }
}
