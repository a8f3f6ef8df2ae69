//! Words of a shell command: quotes, braces and wildcards.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use gix_glob::wildmatch::Mode;

/// Upper bound on the paths found in one command.
pub(super) const MAX_PATHS: usize = 500;
/// Upper bound on the entries of one directory that a wildcard is matched against.
const MAX_ENTRIES: usize = 5_000;

/// Splits a printed word into the arguments that `xargs` reads. Resolves the escapes `\n` and `\0`
/// of `printf` and drops its format directives.
pub(super) fn lines_of(word: &str) -> Vec<String> {
    let lines = word.replace("\\\\n", "\n").replace("\\\\0", "\n");
    lines.split_whitespace().filter(|line| !line.contains('%')).map(str::to_owned).collect()
}

/// Removes the backslashes that escape a character inside double quotes. Other backslashes are
/// literal there.
pub(super) fn without_backslashes(text: &str) -> String {
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

/// Escapes all special characters of a text.
pub(super) fn escaped(text: &str) -> String {
    text.chars().fold(String::new(), |mut text, c| {
        if "\\*?[]{},~".contains(c) {
            text.push('\\');
        }
        text.push(c);
        text
    })
}

pub(super) fn unescaped(word: &str) -> String {
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

/// Expands braces. Returns the word unchanged if it expands to more than `MAX_WORDS` words.
pub(super) fn braces(word: &str) -> Vec<String> {
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

/// Returns the text before, the alternatives in, and the text after the first braces that contain
/// at least two alternatives.
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

/// Returns the positions of the characters in `which` that no backslash escapes.
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

/// Returns the existing paths that a word's wildcards match, or the word's own path if it has no
/// wildcards.
pub(super) fn wildcards(base: &Path, word: &str) -> Vec<PathBuf> {
    let plain = base.join(unescaped(word));
    if special_chars(word, "*?[").is_empty() {
        return vec![plain];
    }
    let mut found = vec![base.to_owned()];
    for part in word.split('/').filter(|part| !part.is_empty()) {
        let is_pattern = !special_chars(part, "*?[").is_empty();
        found = if is_pattern {
            found.iter().flat_map(|dir| matching(dir, part)).take(MAX_PATHS).collect()
        } else {
            found.into_iter().map(|dir| dir.join(unescaped(part))).collect()
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

/// Returns whether a name matches a pattern for one path component.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    gix_glob::wildmatch(pattern.into(), name.into(), Mode::NO_MATCH_SLASH_LITERAL)
}

/// Returns the absolute path without `.` and `..`, resolved lexically.
pub(super) fn normal(path: &Path) -> PathBuf {
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
    use crate::shell::named_paths;

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
