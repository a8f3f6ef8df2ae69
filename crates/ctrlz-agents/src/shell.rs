//! The paths that a shell command names, found by parsing it.
//!
//! Only what the text itself says counts: words, `~`, `$HOME`, variables set in the same command,
//! braces and wildcards, `cd`, and scripts handed to another shell. What only running it would
//! tell is passed over.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use std::time::{Duration, Instant};

use tree_sitter::{Node, ParseOptions, Parser, Tree};

/// Longer commands are parsed up to here.
const MAX_BYTES: usize = 16 << 10;
/// Text that makes no sense can take the parser long; an agent must not wait for that.
const MAX_TIME: Duration = Duration::from_millis(100);
/// More paths than this are not worth naming one by one.
const MAX_PATHS: usize = 500;
/// Entries of one directory that a wildcard is matched with.
const MAX_ENTRIES: usize = 5_000;
const MAX_DEPTH: usize = 64;
/// Nodes of the parsed command that are visited, each round of a loop anew. A command of 16 KiB has far
/// fewer without loops.
const MAX_VISITS: usize = 50_000;

/// A path in a shell command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) path: PathBuf,
    /// Whether the command is one that changes or deletes what it names.
    pub(crate) changes: bool,
}

/// Programs that change nothing that they name.
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

/// Programs whose purpose is to change or delete what they name.
const CHANGING: [&str; 20] = [
    "chmod", "chown", "cp", "dd", "find", "install", "ln", "mv", "patch", "perl", "rename", "rm",
    "rmdir", "rsync", "sed", "shred", "tar", "tee", "truncate", "unlink",
];

/// Programs that run the words after them, with those of their options that take a word of their own.
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

/// The paths that a command names, as far as its text tells.
pub(crate) fn named_paths(command: &str, dir: &Path, home: Option<&Path>) -> Vec<Named> {
    let mut reader = Reader {
        dir: Some(dir.to_owned()),
        home: home.map(Path::to_owned),
        variables: HashMap::new(),
        found: Vec::new(),
        inner: 0,
        visits: 0,
    };
    reader.script(command, 0);
    reader.found
}

struct Reader {
    /// Where the shell is; `None` once that cannot be told any more.
    dir: Option<PathBuf>,
    home: Option<PathBuf>,
    variables: HashMap<String, String>,
    found: Vec<Named>,
    /// Scripts inside of scripts.
    inner: usize,
    /// Nodes that were visited: loops inside of loops multiply them.
    visits: usize,
}

impl Reader {
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

    /// Reads the body of a loop once for each word that its variable stands for.
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

    /// Names the words that `echo` and `printf` hand to `xargs` as if they stood behind it.
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

    /// The words of a command; `None` if the node is something else.
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

    /// Commands inside of a command's words: substitutions.
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

    /// What a program and its words name.
    fn words(&mut self, words: &[Option<String>], depth: usize) {
        let Some((Some(program), rest)) = words.split_first() else { return };
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

    /// The paths that a word stands for: braces, home, wildcards.
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
            found.extend(wildcards(&base, &word).iter().map(|path| normal(path)));
        }
        found.truncate(MAX_PATHS);
        found
    }

    /// A word's text with what is quoted escaped; `None` if only running the command would tell.
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

/// The words that a wrapper runs: without its own options, and what `env` and `timeout` take first.
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
    // The first word of `timeout` is how long it waits.
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

/// The lines of a word that `xargs` reads, with the escapes of `printf` resolved.
fn lines_of(word: &str) -> Vec<String> {
    let lines = word.replace("\\\\n", "\n").replace("\\\\0", "\n");
    lines.split_whitespace().filter(|line| !line.contains('%')).map(str::to_owned).collect()
}

/// Inside double quotes a backslash protects only these.
fn without_backslashes(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match (c, rest.peek()) {
            ('\\', Some('"' | '\\' | '$' | '`')) => (),
            _ => plain.push(c),
        }
    }
    plain
}

/// Text in which nothing is special.
fn escaped(text: &str) -> String {
    text.chars().fold(String::new(), |mut text, c| {
        if "\\*?[]{},~".contains(c) {
            text.push('\\');
        }
        text.push(c);
        text
    })
}

fn unescaped(word: &str) -> String {
    let mut text = String::new();
    let mut rest = word.chars();
    while let Some(c) = rest.next() {
        match c {
            '\\' => text.extend(rest.next()),
            c => text.push(c),
        }
    }
    text
}

/// The words that braces stand for; with more than a few of them, the word as it is.
fn braces(word: &str) -> Vec<String> {
    const MAX_WORDS: usize = 64;
    let mut words = vec![word.to_owned()];
    while let Some(at) = words.iter().position(|word| first_braces(word).is_some()) {
        let Some((before, choices, after)) = first_braces(&words[at]) else { break };
        let chosen = choices.iter().map(|choice| format!("{before}{choice}{after}"));
        let chosen: Vec<String> = chosen.collect();
        words.splice(at..=at, chosen);
        if words.len() > MAX_WORDS {
            return vec![word.to_owned()];
        }
    }
    words
}

/// What is before, in and after the first braces that hold a choice.
fn first_braces(word: &str) -> Option<(&str, Vec<&str>, &str)> {
    let special: Vec<(usize, char)> = special_chars(word, "{},");
    for (at, (start, _)) in special.iter().enumerate().filter(|(_, (_, c))| *c == '{') {
        let mut depth = 0;
        let mut cuts = vec![*start];
        for (position, c) in &special[at..] {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ if depth == 1 => cuts.push(*position),
                _ => (),
            }
            if depth == 0 {
                cuts.push(*position);
                let choices: Vec<&str> =
                    cuts.windows(2).map(|cut| &word[cut[0] + 1..cut[1]]).collect();
                if choices.len() > 1 {
                    return Some((&word[..*start], choices, &word[position + 1..]));
                }
                break;
            }
        }
    }
    None
}

/// Where characters stand that are not protected by a backslash.
fn special_chars(word: &str, which: &str) -> Vec<(usize, char)> {
    let mut found = Vec::new();
    let mut protected = false;
    for (at, c) in word.char_indices() {
        if !protected && which.contains(c) {
            found.push((at, c));
        }
        protected = c == '\\' && !protected;
    }
    found
}

/// The paths that a word's wildcards match; itself if it has none or none match.
fn wildcards(base: &Path, word: &str) -> Vec<PathBuf> {
    let plain = base.join(unescaped(word));
    if special_chars(word, "*?[").is_empty() {
        return vec![plain];
    }
    let mut found = vec![base.to_owned()];
    for part in word.split('/').filter(|part| !part.is_empty()) {
        let is_pattern = !special_chars(part, "*?[").is_empty();
        found = match is_pattern {
            true => found.iter().flat_map(|dir| matching(dir, part)).take(MAX_PATHS).collect(),
            false => found.into_iter().map(|dir| dir.join(unescaped(part))).collect(),
        };
    }
    found.retain(|path| path.symlink_metadata().is_ok());
    found
}

fn matching(dir: &Path, pattern: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let names = entries.flatten().take(MAX_ENTRIES).map(|entry| entry.file_name());
    let hidden = pattern.starts_with('.');
    let fits = |name: &std::ffi::OsString| {
        let bytes = name.as_bytes();
        (hidden || !bytes.starts_with(b".")) && matches(pattern.as_bytes(), bytes)
    };
    names.filter(fits).map(|name| dir.join(name)).collect()
}

/// Whether a name fits a pattern of one directory level.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    // Where the last star stood, and how much of the name it has taken.
    let (mut star, mut taken) = (None, 0);
    let (mut at, mut in_name) = (0, 0);
    while in_name < name.len() {
        match one(&pattern[at..], name[in_name]) {
            Some(0) => {
                star = Some(at);
                taken = in_name;
                at += 1;
            }
            Some(length) => {
                at += length;
                in_name += 1;
            }
            None => match star {
                Some(star) => {
                    taken += 1;
                    (at, in_name) = (star + 1, taken);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// How much of the pattern stands for this byte; 0 for a star.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'*', ..] => Some(0),
        [b'?', ..] => Some(1),
        [b'\\', c, ..] => (*c == byte).then_some(2),
        [b'[', rest @ ..] => {
            let end = rest.iter().skip(1).position(|c| *c == b']')? + 1;
            let (set, negated) = match rest[..end].split_first() {
                Some((b'!' | b'^', set)) => (set, true),
                _ => (&rest[..end], false),
            };
            (in_set(set, byte) != negated).then_some(end + 2)
        }
        [c, ..] => (*c == byte).then_some(1),
        [] => None,
    }
}

fn in_set(set: &[u8], byte: u8) -> bool {
    let range = set.windows(3).any(|w| w[1] == b'-' && (w[0]..=w[2]).contains(&byte));
    range || set.contains(&byte)
}

/// A path without `.` and `..`, as far as the text tells.
fn normal(path: &Path) -> PathBuf {
    let mut parts: Vec<&OsStr> = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => parts.push(name),
            Component::ParentDir => drop(parts.pop()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => (),
        }
    }
    Path::new("/").join(parts.iter().collect::<PathBuf>())
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
    fn what_a_command_deletes_or_writes_is_found() {
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
    fn wrappers_loops_and_lists_for_xargs_hide_no_path() {
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
    fn what_is_only_read_is_not() {
        check("cat ~/x; ls -la /etc; grep -r x .; echo rm y", &[]);
        check("# rm x", &[]);
        check("echo 'rm x'", &[]);
    }

    #[test]
    fn nothing_a_model_writes_is_too_much() {
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

    #[test]
    fn wildcards_match_as_in_a_shell() {
        for (pattern, name, fits) in [
            ("*.secret", "a.secret", true),
            ("*.secret", "a.secrets", false),
            ("a?c*", "abc", true),
            ("[ab]x", "bx", true),
            ("[!ab]x", "bx", false),
            ("[a-f]*z*", "dxzy", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("[", "[", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), fits, "{pattern} {name}");
        }
        let dir = tempfile::tempdir().unwrap();
        for name in ["a.secret", "b.secret", ".hidden.secret", "c"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let named = named_paths("rm *.secret", dir.path(), None);
        assert_eq!(named.len(), 2, "{named:?}");
    }
}
