//! Finds the paths that a shell command names by parsing it.
//!
//! Only the text of the command counts: words, `~`, `$HOME`, variables set in the same command,
//! braces, wildcards, `cd`, and scripts passed to another shell. Words whose value is known only at
//! run time are skipped.

mod words;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tree_sitter::{Node, ParseOptions, Parser, Tree};

use words::{
    MAX_PATHS, braces, escaped, lines_of, normal, unescaped, wildcards, without_backslashes,
};

/// Upper bound on the parsed length of a command. The rest is ignored.
const MAX_BYTES: usize = 16 << 10;
/// Time limit for parsing: malformed text can take the parser long, and the agent waits.
const MAX_TIME: Duration = Duration::from_millis(100);
const MAX_DEPTH: usize = 64;
/// Upper bound on the visited syntax nodes; each loop iteration counts again. A 16 KiB command
/// without loops has far fewer.
const MAX_VISITS: usize = 50_000;

/// A path that a shell command names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) path: PathBuf,
    /// Whether the command is one that changes or deletes the paths it names.
    pub(crate) changes: bool,
}

/// Programs that change none of the paths they name.
const READING: [&str; 33] = [
    "[",
    "basename",
    "cat",
    "cmp",
    "cut",
    "date",
    "df",
    "diff",
    "dirname",
    "du",
    "echo",
    "false",
    "file",
    "grep",
    "head",
    "jq",
    "less",
    "ls",
    "md5sum",
    "more",
    "printf",
    "ps",
    "pwd",
    "readlink",
    "realpath",
    "rg",
    "sha256sum",
    "sleep",
    "stat",
    "tail",
    "test",
    "true",
    "wc",
];

/// Programs whose purpose is to change or delete the paths they name.
const CHANGING: [&str; 20] = [
    "chmod", "chown", "cp", "dd", "find", "install", "ln", "mv", "patch", "perl", "rename", "rm",
    "rmdir", "rsync", "sed", "shred", "tar", "tee", "truncate", "unlink",
];

/// Programs that run another command, each with its options that take a separate argument.
const WRAPPERS: [(&str, &[&str]); 13] = [
    ("command", &[]),
    ("doas", &["-u", "-C"]),
    ("env", &["-u", "-C", "-S", "--unset", "--chdir"]),
    ("exec", &["-a"]),
    ("ionice", &["-c", "-n", "-t"]),
    ("nice", &["-n"]),
    ("nohup", &[]),
    ("setsid", &[]),
    ("stdbuf", &["-i", "-o", "-e"]),
    ("sudo", &["-u", "-g", "-h", "-p", "-C", "-D"]),
    ("time", &["-o", "-f"]),
    ("timeout", &["-k", "-s"]),
    ("xargs", &["-I", "-n", "-P", "-L", "-a", "-d", "-E", "-s"]),
];

const SHELLS: [&str; 6] = ["ash", "bash", "dash", "ksh", "sh", "zsh"];

/// Returns the paths that a command names, as far as its text determines them.
pub(crate) fn named_paths(command: &str, dir: &Path, home: Option<&Path>) -> Vec<Named> {
    let mut reader = Reader::new(dir, home);
    reader.script(command, 0);
    reader.found
}

/// Returns the paths that a program and its arguments name. The words are already expanded.
pub(crate) fn named_by(words: &[String], dir: &Path, home: Option<&Path>) -> Vec<Named> {
    let mut reader = Reader::new(dir, home);
    let words: Vec<Option<String>> = words.iter().map(|word| Some(escaped(word))).collect();
    reader.words(&words, 0);
    reader.found
}

struct Reader {
    /// Current directory of the shell; `None` once it is unknown.
    dir: Option<PathBuf>,
    home: Option<PathBuf>,
    variables: HashMap<String, String>,
    found: Vec<Named>,
    /// Nesting depth of scripts.
    inner: usize,
    /// Number of visited nodes. Nested loops multiply it.
    visits: usize,
}

impl Reader {
    fn new(dir: &Path, home: Option<&Path>) -> Reader {
        Reader {
            dir: Some(dir.to_owned()),
            home: home.map(Path::to_owned),
            variables: HashMap::new(),
            found: Vec::new(),
            inner: 0,
            visits: 0,
        }
    }

    fn script(&mut self, text: &str, depth: usize) {
        let end = (0..=MAX_BYTES.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
        let text = &text[..end.unwrap_or(0)];
        const MAX_INNER: usize = 4;
        if self.inner >= MAX_INNER {
            return;
        }
        if let Some(tree) = parse(text) {
            self.inner += 1;
            self.visit(tree.root_node(), text, depth);
            self.inner -= 1;
        }
    }

    fn visit(&mut self, node: Node<'_>, text: &str, depth: usize) {
        self.visits += 1;
        let is_too_much = self.visits > MAX_VISITS || self.found.len() >= MAX_PATHS;
        if depth > MAX_DEPTH || is_too_much {
            return;
        }
        match node.kind() {
            "command" => self.command(node, text, depth),
            "file_redirect" => self.redirect(node, text),
            "variable_assignment" => self.assignment(node, text),
            "for_statement" => self.for_loop(node, text, depth),
            "pipeline" => self.pipeline(node, text, depth),
            "subshell" | "command_substitution" => {
                let dir = self.dir.clone();
                self.children(node, text, depth);
                self.dir = dir;
            }
            _ => self.children(node, text, depth),
        }
    }

    fn children(&mut self, node: Node<'_>, text: &str, depth: usize) {
        let mut cursor = node.walk();
        let children: Vec<Node<'_>> = node.named_children(&mut cursor).collect();
        children.into_iter().for_each(|child| self.visit(child, text, depth + 1));
    }

    fn assignment(&mut self, node: Node<'_>, text: &str) {
        let name = node.child_by_field_name("name").and_then(|name| source(name, text));
        let value = node.child_by_field_name("value").and_then(|value| self.word(value, text));
        match (name, value) {
            (Some(name), Some(value)) => drop(self.variables.insert(name.to_owned(), value)),
            (Some(name), None) => drop(self.variables.remove(name)),
            (None, _) => (),
        }
    }

    /// Visits the body of a loop once for each word that its variable takes.
    fn for_loop(&mut self, node: Node<'_>, text: &str, depth: usize) {
        const MAX_ROUNDS: usize = 100;
        let name = node.child_by_field_name("variable").and_then(|name| source(name, text));
        let (Some(name), Some(body)) = (name, node.child_by_field_name("body")) else {
            return self.children(node, text, depth);
        };
        let mut cursor = node.walk();
        let values: Vec<Node<'_>> = node.children_by_field_name("value", &mut cursor).collect();
        self.children_that_run(node, text, depth);
        let words = values.iter().map(|value| self.word(*value, text));
        let words: Vec<Option<String>> = words.take(MAX_ROUNDS).collect();
        if words.is_empty() {
            return self.visit(body, text, depth + 1);
        }
        for word in words {
            if self.visits > MAX_VISITS {
                return;
            }
            match word {
                Some(word) => drop(self.variables.insert(name.to_owned(), word)),
                None => drop(self.variables.remove(name)),
            }
            self.visit(body, text, depth + 1);
        }
    }

    /// Treats words that `echo` and `printf` pipe into `xargs` as arguments of `xargs`.
    fn pipeline(&mut self, node: Node<'_>, text: &str, depth: usize) {
        let mut cursor = node.walk();
        let parts: Vec<Node<'_>> = node.named_children(&mut cursor).collect();
        for pair in parts.windows(2) {
            let [first, second] = pair else { continue };
            let (Some(printed), Some(mut words)) =
                (self.command_words(*first, text), self.command_words(*second, text))
            else {
                continue;
            };
            let name = |words: &[Option<String>]| words.first().cloned().flatten();
            let prints = matches!(name(&printed).as_deref(), Some("echo" | "printf"));
            if prints && name(&words).as_deref() == Some("xargs") {
                let printed = printed.into_iter().skip(1).flatten();
                words.extend(printed.flat_map(|word| lines_of(&word)).map(Some));
                self.words(&words, depth + 1);
            }
        }
        self.children(node, text, depth);
    }

    /// Returns the words of a command, or `None` if the node is not a command.
    fn command_words(&self, node: Node<'_>, text: &str) -> Option<Vec<Option<String>>> {
        if node.kind() != "command" {
            return None;
        }
        let mut cursor = node.walk();
        let words = node.named_children(&mut cursor).filter_map(|child| match child.kind() {
            "command_name" => Some(child.named_child(0).and_then(|name| self.word(name, text))),
            "file_redirect"
            | "heredoc_redirect"
            | "herestring_redirect"
            | "variable_assignment" => None,
            _ => Some(self.word(child, text)),
        });
        Some(words.collect())
    }

    fn redirect(&mut self, node: Node<'_>, text: &str) {
        let writes = source(node, text).is_some_and(|text| text.contains('>'));
        let target = node.child_by_field_name("destination");
        if let (true, Some(word)) = (writes, target.and_then(|target| self.word(target, text))) {
            self.name(&word, true);
        }
    }

    fn command(&mut self, node: Node<'_>, text: &str, depth: usize) {
        let mut cursor = node.walk();
        let children: Vec<Node<'_>> = node.named_children(&mut cursor).collect();
        for redirect in children.iter().filter(|child| child.kind() == "file_redirect") {
            self.redirect(*redirect, text);
        }
        self.children_that_run(node, text, depth);
        let words = self.command_words(node, text).unwrap_or_default();
        self.words(&words, depth);
    }

    /// Visits the substitutions in a command's words, which are commands themselves.
    fn children_that_run(&mut self, node: Node<'_>, text: &str, depth: usize) {
        let mut cursor = node.walk();
        let children: Vec<Node<'_>> = node.named_children(&mut cursor).collect();
        for child in children {
            match child.kind() {
                "command_substitution" | "process_substitution" => {
                    self.visit(child, text, depth + 1);
                }
                "string" | "concatenation" if depth < MAX_DEPTH => {
                    self.children_that_run(child, text, depth + 1);
                }
                _ => (),
            }
        }
    }

    /// Records the paths that a program and its arguments name.
    fn words(&mut self, words: &[Option<String>], depth: usize) {
        let Some((Some(program), rest)) = words.split_first() else { return };
        if depth > MAX_DEPTH {
            return;
        }
        let program = unescaped(program);
        let name = program.rsplit('/').next().unwrap_or_default();
        if let Some((wrapper, with_word)) = WRAPPERS.iter().find(|(known, _)| *known == name) {
            return self.words(wrapped(wrapper, with_word, rest), depth + 1);
        }
        if matches!(name, "cd" | "pushd") {
            return self.change_dir(rest.first());
        }
        if SHELLS.contains(&name) || name == "eval" {
            return self.inner_script(name, rest, depth);
        }
        if READING.contains(&name) {
            return;
        }
        let changes = CHANGING.contains(&name);
        for word in rest.iter().flatten() {
            self.argument(word, changes);
        }
    }

    fn inner_script(&mut self, shell: &str, words: &[Option<String>], depth: usize) {
        let plain: Vec<String> = words.iter().flatten().map(|word| unescaped(word)).collect();
        if shell == "eval" {
            return self.script(&plain.join(" "), depth + 1);
        }
        let at = plain.iter().position(|word| word.starts_with('-') && word.ends_with('c'));
        if let Some(script) = at.and_then(|at| plain.get(at + 1)) {
            let dir = self.dir.clone();
            self.script(script, depth + 1);
            self.dir = dir;
        }
    }

    fn change_dir(&mut self, word: Option<&Option<String>>) {
        self.dir = match word {
            None => self.home.clone(),
            Some(Some(word)) => self.paths(word).pop(),
            Some(None) => None,
        };
    }

    fn argument(&mut self, word: &str, changes: bool) {
        match word.split_once('=') {
            // --output=path, of=path
            Some((_, value)) if !value.is_empty() => self.name(value, changes),
            _ if word.starts_with('-') => (),
            _ => self.name(word, changes),
        }
    }

    fn name(&mut self, word: &str, changes: bool) {
        for path in self.paths(word) {
            let room = self.found.len() < MAX_PATHS;
            if room
                && !self.found.iter().any(|named| named.path == path && named.changes >= changes)
            {
                self.found.push(Named { path, changes });
            }
        }
    }

    /// Returns the paths that a word expands to: braces, `~` and wildcards.
    fn paths(&self, word: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for word in braces(word) {
            let word = match (&self.home, word.strip_prefix('~')) {
                (Some(home), Some(rest)) if rest.is_empty() || rest.starts_with('/') => {
                    format!("{}{rest}", escaped(&home.to_string_lossy()))
                }
                (_, Some(_)) => continue,
                (_, None) => word,
            };
            let base = match (word.starts_with('/'), &self.dir) {
                (true, _) => PathBuf::from("/"),
                (false, Some(dir)) => dir.clone(),
                (false, None) => continue,
            };
            // With a slash at its end, a link stands for the directory that it leads to.
            let follows = word.ends_with('/');
            found.extend(wildcards(&base, &word).iter().map(|path| {
                let path = normal(path);
                let real = follows.then(|| path.canonicalize().ok()).flatten();
                real.unwrap_or(path)
            }));
        }
        found.truncate(MAX_PATHS);
        found
    }

    /// Returns a word with its quoted characters escaped, or `None` if its value is known only at
    /// run time.
    fn word(&self, node: Node<'_>, text: &str) -> Option<String> {
        let own = source(node, text)?;
        match node.kind() {
            "word" | "number" => Some(own.to_owned()),
            "raw_string" => Some(escaped(own.trim_matches('\''))),
            "string_content" => Some(escaped(&without_backslashes(own))),
            "simple_expansion" => self.variable(own.trim_start_matches('$')),
            "expansion" => {
                self.variable(own.trim_start_matches("${").trim_end_matches('}').trim_matches('"'))
            }
            "string" | "concatenation" => {
                let mut cursor = node.walk();
                let parts = node.named_children(&mut cursor);
                parts.map(|part| self.word(part, text)).collect::<Option<String>>()
            }
            _ => None,
        }
    }

    fn variable(&self, name: &str) -> Option<String> {
        let known = self.variables.get(name).cloned();
        known.or_else(|| match name {
            "HOME" => self.home.as_ref().map(|home| escaped(&home.to_string_lossy())),
            "PWD" => self.dir.as_ref().map(|dir| escaped(&dir.to_string_lossy())),
            _ => None,
        })
    }
}

/// Returns the command that a wrapper runs, without the wrapper's own options, the assignments of
/// `env` and the duration of `timeout`.
fn wrapped<'a>(
    wrapper: &str,
    with_word: &[&str],
    mut words: &'a [Option<String>],
) -> &'a [Option<String>] {
    while let Some((Some(word), rest)) = words.split_first() {
        let is_assignment = wrapper == "env" && word.contains('=');
        words = match with_word.contains(&word.as_str()) {
            true => rest.get(1..).unwrap_or_default(),
            false if word.starts_with('-') || is_assignment => rest,
            false => break,
        };
    }
    // The first argument of `timeout` is the duration.
    let own = usize::from(wrapper == "timeout");
    words.get(own..).unwrap_or_default()
}

fn parse(text: &str) -> Option<Tree> {
    let mut parser = Parser::new();
    parser.set_language(&tree_sitter_bash::LANGUAGE.into()).ok()?;
    let end = Instant::now() + MAX_TIME;
    let mut is_late = |_: &tree_sitter::ParseState| Instant::now() > end;
    let options = ParseOptions::new().progress_callback(&mut is_late);
    let bytes = text.as_bytes();
    parser.parse_with_options(&mut |at, _| &bytes[at.min(bytes.len())..], None, Some(options))
}

fn source<'a>(node: Node<'_>, text: &'a str) -> Option<&'a str> {
    text.get(node.byte_range())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(command: &str, changed: &[&str]) {
        let named = named_paths(command, Path::new("/p"), Some(Path::new("/home/me")));
        let mut found: Vec<String> = named
            .iter()
            .filter(|named| named.changes)
            .map(|named| named.path.display().to_string())
            .collect();
        found.sort();
        assert_eq!(found, changed, "{command}");
    }

    #[test]
    fn deleted_and_written_paths_are_found() {
        check("rm -rf ~/photos build", &["/home/me/photos", "/p/build"]);
        check("rm -rf \"$HOME/my photos\" 'a b'", &["/home/me/my photos", "/p/a b"]);
        check("rm -rf ${HOME}/x a\\ b", &["/home/me/x", "/p/a b"]);
        check("cd /tmp/t && rm x; rm y", &["/tmp/t/x", "/tmp/t/y"]);
        check("(cd sub && rm x); rm y", &["/p/sub/x", "/p/y"]);
        check("cd \"$SOMEWHERE\" && rm x /abs", &["/abs"]);
        check("echo secret > .env && cat .env", &["/p/.env"]);
        check("make 2>/dev/null >> out.log", &["/dev/null", "/p/out.log"]);
        check("sort < in.txt", &[]);
        check("D=dist; rm -r $D/../old \"$D\"", &["/p/dist", "/p/old"]);
        check("rm -rf {build,dist/{a,b}}", &["/p/build", "/p/dist/a", "/p/dist/b"]);
        check("sudo -n rm /etc/x", &["/etc/x"]);
        check("bash -c 'cd sub; rm \"x y\"' && rm z", &["/p/sub/x y", "/p/z"]);
        check("sh -lc \"rm a\"", &["/p/a"]);
        check(
            "if true; then rm a; else rm b; fi; for f in 1 2; do rm c; done",
            &["/p/a", "/p/b", "/p/c"],
        );
        check("dd if=/dev/zero of=disk.img", &["/dev/zero", "/p/disk.img"]);
        check("cat <<'EOF' > made.txt\nrm not-this\nEOF\n", &["/p/made.txt"]);
        check("echo $(rm inner)", &["/p/inner"]);
        check("find . -name '*.o' -delete", &["/p", "/p/*.o"]);
        check("rm ../x ./y //z", &["/p/y", "/x", "/z"]);
        check("mv a b | tee c", &["/p/a", "/p/b", "/p/c"]);
    }

    #[test]
    fn paths_are_found_in_wrappers_loops_and_xargs_lists() {
        check("env A=1 -u B rm /x", &["/x"]);
        check("timeout -k 5 10s rm /x", &["/x"]);
        check("sudo -u me nice -n 5 rm /x", &["/x"]);
        check("setsid rm /x", &["/x"]);
        check("for f in /x ~/y z; do rm -f \"$f\"; done", &["/home/me/y", "/p/z", "/x"]);
        check(
            "for d in /a /b; do for f in 1 2; do rm $d/$f; done; done",
            &["/a/1", "/a/2", "/b/1", "/b/2"],
        );
        check("for f in $(rm inner); do :; done", &["/p/inner"]);
        check("echo /x 'y' | xargs rm", &["/p/y", "/x"]);
        check("printf '%s\\n' /x /y | xargs -n 1 rm -f", &["/x", "/y"]);
        check("printf '/x\\n/y\\n' | xargs rm", &["/x", "/y"]);
    }

    #[test]
    fn paths_that_are_only_read_are_not_reported_as_changed() {
        check("cat ~/x; ls -la /etc; grep -r x .; echo rm y", &[]);
        check("# rm x", &[]);
        check("echo 'rm x'", &[]);
    }

    #[test]
    fn any_number_of_wrappers_is_parsed_without_deep_recursion() {
        check(&format!("{}rm x", "env ".repeat(20)), &["/p/x"]);
        for wrapper in ["env ", "sudo -n ", "timeout 1 ", "xargs "] {
            check(&format!("{}rm x", wrapper.repeat(200_000 / wrapper.len())), &[]);
        }
    }

    #[test]
    fn malformed_and_huge_commands_are_parsed_in_bounded_time() {
        for text in ["", "rm", "rm \"", "((((((", "$(", "rm $(($(", "\u{0}rm x", "a=$(a=$(a=$("] {
            named_paths(text, Path::new("/p"), None);
        }
        named_paths(&"(".repeat(100_000), Path::new("/p"), None);
        named_paths(&"$(rm x ".repeat(10_000), Path::new("/p"), None);
        named_paths(&format!("rm {}", "{a,b}".repeat(1_000)), Path::new("/p"), None);
        let words = "w ".repeat(100);
        let open: String = (0..8).map(|at| format!("for v{at} in {words}; do ")).collect();
        let started = Instant::now();
        named_paths(&format!("{open}:{}", "; done".repeat(8)), Path::new("/p"), None);
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
        let many: String = (0..5_000).map(|at| format!("rm f{at};")).collect();
        assert_eq!(named_paths(&many, Path::new("/p"), None).len(), MAX_PATHS);
    }
}
